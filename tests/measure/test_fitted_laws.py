"""Laws fitted to samples of a device whose laws are known."""

from __future__ import annotations

import numpy as np
import pytest
from measured_cases import BANDWIDTH, KERNELS, PEAK, PRODUCTS, attention, moving, products, timed
from msgspec.structs import replace

from xe_sizer.laws.attention import DecodeLaw
from xe_sizer.laws.collectives import CollectiveLaw, Network, collective_time_s
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.measure import fit
from xe_sizer.measure.samples import COLLECTIVE, DECODE, GROUPED, Kernel, Point

START = MatmulLaw(floor_s=3e-6, flops_efficiency=0.8, memory_efficiency=0.85, sharpness=3.0)


def test_the_law_of_products_is_found_again() -> None:
    found = fit.of_products(timed(products()), START, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    assert found.parameters["flops_efficiency"] == pytest.approx(0.6, rel=0.01)
    assert found.parameters["memory_efficiency"] == pytest.approx(0.7, rel=0.02)
    assert found.parameters["floor_us"] == pytest.approx(4.0, rel=0.02)
    assert found.p90_error < 0.02


def test_the_error_of_a_fit_is_that_of_samples_that_it_has_not_seen() -> None:
    """Samples that are off by 8 % each: nine in ten within 1.645 x 8 % of a law that averages them."""
    found = fit.of_products(timed(products(), spread=0.08), START, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    assert 0.07 < found.p90_error < 0.25
    assert found.parameters["flops_efficiency"] == pytest.approx(0.6, rel=0.08)


def test_a_stray_draws_no_law_away() -> None:
    points = timed(products(), spread=0.02)
    points[7] = replace(points[7], seconds=20.0 * points[7].seconds)
    found = fit.of_products(points, START, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    assert found.parameters["flops_efficiency"] == pytest.approx(0.6, rel=0.05)


def test_what_samples_do_not_determine_stays_near_where_it_starts() -> None:
    """Large products alone say nothing of the floor and little of the memory."""
    large = [kernel for kernel in products() if kernel.sizes["m"] >= 4096]
    found = fit.of_products(timed(large), START, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    assert found.parameters["flops_efficiency"] == pytest.approx(0.6, rel=0.03)
    assert 1.5 < found.parameters["floor_us"] < 6.0  # of 0.01 to 2000 that it may be


def test_few_sizes_are_no_law() -> None:
    assert fit.of_products(timed(products()[:3]), START, PEAK, BANDWIDTH, 2.0) is None


def test_the_law_of_attention_has_both_directions() -> None:
    start = replace(KERNELS, flops_efficiency=0.7, backward_flops_efficiency=0.6, half_length=80.0)
    found = fit.of_attention(timed(attention("sdpa")), start, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    law = fit.attention_law(found.parameters, start)
    assert law.flops_efficiency == pytest.approx(0.5, rel=0.05)
    assert law.backward_flops_efficiency == pytest.approx(0.4, rel=0.05)
    assert found.p90_error < 0.03


def test_kernels_that_move_memory() -> None:
    found = fit.of_moving(timed(moving()), 0.6, 1e-6, BANDWIDTH, 2.0)
    assert found is not None
    assert found.parameters["efficiency"] == pytest.approx(0.8, rel=0.02)
    assert found.parameters["floor_us"] == pytest.approx(3.0, rel=0.05)


def test_grouped_products_get_a_factor_on_the_law_of_single_ones() -> None:
    kernels = [
        Kernel(law=GROUPED, name="bf16", sizes={"m": m, "n": 2048, "k": 4096, "copies": 8})
        for m in (64, 256, 1024, 4096)
    ]
    points = [Point(kernel=kernel, seconds=1.0, apart=1.0) for kernel in kernels]
    slow = fit.seconds_of_experts(points, PRODUCTS.scaled(0.7), PEAK, BANDWIDTH)
    points = [replace(point, seconds=float(seconds)) for point, seconds in zip(points, slow, strict=True)]
    found = fit.of_experts(points, PRODUCTS, PEAK, BANDWIDTH)
    assert found is not None
    assert found.parameters["factor"] == pytest.approx(0.7, rel=0.02)


def test_decoding() -> None:
    kernels = [
        Kernel(law=DECODE, name="bf16", sizes={"batch": b, "heads": 8, "length": s, "head_dim": 128})
        for b in (1, 8, 64)
        for s in (1024, 8192, 32768)
    ]
    # by hand: 2 x b x 8 x s x 128 elements of 2 bytes, at 0.9 of the bandwidth, after 10 us
    points = [
        Point(
            kernel=one, seconds=10e-6 + 4096.0 * one.sizes["batch"] * one.sizes["length"] / (0.9 * BANDWIDTH), apart=1.0
        )
        for one in kernels
    ]
    found = fit.of_decoding(points, replace_start(), BANDWIDTH, 2.0)
    assert found is not None
    assert found.parameters["memory_efficiency"] == pytest.approx(0.9, rel=0.05)
    assert found.p90_error < 0.05


def replace_start() -> DecodeLaw:
    return DecodeLaw(5e-6, 0.7, 1e-10)


def test_collectives_of_one_number_of_ranks() -> None:
    law = CollectiveLaw((4,), (20e-6,), (300e9,), (5e-9,))
    network = Network(4, {"all_reduce": law}, 1.0, 0.0)
    points = []
    for power in range(10, 30, 2):
        kernel = Kernel(law=COLLECTIVE, name="all_reduce", sizes={"bytes": float(2**power), "ranks": 4.0, "nodes": 1.0})
        seconds = float(collective_time_s("all_reduce", 2.0**power, 4, 4, network))
        points.append(Point(kernel=kernel, seconds=seconds, apart=1.0))
    found = fit.of_collective(points, (10.0, 200.0, 2.0))
    assert found is not None
    assert found.parameters["bus_gb_per_s"] == pytest.approx(300.0, rel=0.05)
    assert found.parameters["alpha_us"] == pytest.approx(20.0, rel=0.1)


def test_parameters_stay_between_their_bounds() -> None:
    """A device that is faster than its peak says reaches the peak and no more."""
    found = fit.of_products(timed(products(), slower=0.1), START, PEAK, BANDWIDTH, 2.0)
    assert found is not None
    assert 0.9 < found.parameters["flops_efficiency"] <= 1.0
    assert np.isfinite(found.p90_error)
