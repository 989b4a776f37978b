"""Numbers worked out by hand from the law in the docstring."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from xe_sizer.laws.matmul import (
    MISALIGNED,
    MatmulLaw,
    grouped_law,
    grouped_share,
    masks,
    matmul_time_s,
    misalignment,
    smooth_maximum,
)

LAW = MatmulLaw(floor_s=1e-3, flops_efficiency=0.5, memory_efficiency=0.75, sharpness=2.0)
# 2e9 FLOPs take 3 ms and 6 MB take 4 ms at these peaks, so that the smooth roofline gives 5 ms.
PEAK = 2e9 / 3e-3 / 0.5
BANDWIDTH = 6e6 / 4e-3 / 0.75


def test_smooth_roofline_by_hand() -> None:
    assert matmul_time_s(1000, 1000, 1000, LAW, PEAK, BANDWIDTH) == pytest.approx(6e-3, rel=1e-12)


def test_a_product_that_adds_to_what_is_there_reads_and_writes_that_too() -> None:
    """8 bytes for each of a million elements beside the 6 MB: 28 / 3 ms beside the 3 ms of its FLOPs."""
    added = matmul_time_s(1000, 1000, 1000, LAW, PEAK, BANDWIDTH, accumulated_bytes=8.0)
    assert added == pytest.approx(1e-3 + np.hypot(3e-3, 28e-3 / 3), rel=1e-12)


def test_sharpness_one_adds_and_infinity_takes_the_larger() -> None:
    added = matmul_time_s(1000, 1000, 1000, replace(LAW, sharpness=1.0), PEAK, BANDWIDTH)
    larger = matmul_time_s(1000, 1000, 1000, replace(LAW, sharpness=np.inf), PEAK, BANDWIDTH)
    assert (float(added), float(larger)) == pytest.approx((8e-3, 5e-3), rel=1e-12)


def test_sustained_efficiency_takes_the_place_of_the_burst() -> None:
    law = replace(LAW, sharpness=np.inf, floor_s=0.0, sustained_flops_efficiency=0.25)
    assert matmul_time_s(1000, 1000, 1000, law, PEAK, BANDWIDTH) == pytest.approx(6e-3, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "cast", "moved_bytes"),
    [
        ({"element_bytes": 4.0}, 0.0, 12e6),
        ({"weight_element_bytes": 0.5}, 0.0, 4e6 + 0.5e6),
        ({}, 8.0, 6e6 + 8e6),
    ],
)
def test_bytes_of_each_operand(sizes: dict[str, float], cast: float, moved_bytes: float) -> None:
    """With endless FLOP/s only the bytes count: A and C at element_bytes, B at its own size, A's cast on top."""
    law = replace(LAW, floor_s=0.0, cast_bytes_per_element=cast)
    seconds = matmul_time_s(1000, 1000, 1000, law, 1e30, 1e9, **sizes)
    assert seconds == pytest.approx(moved_bytes / 0.75e9, rel=1e-9)


def test_an_empty_product_costs_nothing() -> None:
    """Not even the bytes of the matrix that is there."""
    seconds = matmul_time_s([0, 9000, 9000], [9000, 0, 9000], [9000, 9000, 0], LAW, PEAK, BANDWIDTH)
    assert seconds.tolist() == [0.0, 0.0, 0.0]


def test_sizes_broadcast() -> None:
    m, k = np.array([1.0, 2.0, 3.0])[:, None], np.array([4.0, 5.0])
    whole = matmul_time_s(m, 7.0, k, LAW, PEAK, BANDWIDTH)
    assert whole.shape == (3, 2)
    assert whole[2, 1] == matmul_time_s(3, 7, 5, LAW, PEAK, BANDWIDTH)


def test_smooth_maximum_survives_extremes() -> None:
    assert smooth_maximum(1e300, 1e300, 2.0) == pytest.approx(2**0.5 * 1e300)
    assert smooth_maximum(1.0, 1e-300, 3.0) == 1.0
    assert smooth_maximum(0.0, 0.0, 2.0) == 0.0


@pytest.mark.parametrize(
    ("side", "share"), [(1, 0.65), (1024, 0.65), (2048, 0.65 + 0.35 / 3), (4096, 0.65 + 0.7 / 3), (8192, 1), (1e5, 1)]
)
def test_grouped_products_reach_more_of_the_rate_the_larger_their_smallest_side(side: float, share: float) -> None:
    assert grouped_share([side, 1e6, 1e6], [1e6, side, 1e6], [1e6, 1e6, side]) == pytest.approx([share] * 3, rel=1e-12)


def test_grouped_products_reach_all_of_the_rate_where_they_were_measured_to() -> None:
    assert grouped_share(256, 512, 1024, least=1.0) == 1.0
    assert grouped_share(256, 4096, 4096, least=0.8) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("rows", "columns", "masked"),
    [
        (2880, 2880, True),  # 22.5 x 128
        (4096, 2880, True),
        (4096, 704, False),  # 5.5 x 128, but one tile takes it whole
        (2944, 1408, False),  # 23 and 11 x 128
    ],
)
def test_sides_that_no_tile_divides_are_masked(rows: int, columns: int, masked: bool) -> None:
    assert masks(rows, columns) == masked
    assert masks(columns, rows) == masked


def test_grouped_products_take_longer_by_that_share() -> None:
    """Compute-bound with a sharp knee: 2 x 2048^3 FLOPs at 0.5 x 0.7667 of 1e15 FLOP/s."""
    law = replace(grouped_law(MatmulLaw(0.0, 0.5, 1.0, 2.0)), sharpness=np.inf)
    expected = 2 * 2048**3 / (0.5 * (0.65 + 0.35 / 3) * 1e15)
    assert matmul_time_s(2048, 2048, 2048, law, 1e15, 1e15) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "longer"),
    [
        (14336, 1792, 1.0),  # 1792 = 7 x 256
        (14400, 7200, 1 + 0.8 / 7),  # 7200 = 225 x 32
        (48, 64, 1 + 0.8 * 3 / 7),  # 48 = 3 x 16
        (14400, 1800, 1.8),  # 1800 = 225 x 8
        (1001, 64, 1.8),  # as slow as 8
        (6282.125, 64, 1.0),  # no whole number: padded
    ],
)
def test_sides_slow_products_by_the_lines_they_straddle(rows: float, columns: float, longer: float) -> None:
    """14,400 over 8 ranks: a twelfth and a quarter of the FLOPs at 1.8, two thirds at 1.11: 1.34 in all."""
    assert misalignment(rows, columns, 1.8) == pytest.approx(longer, rel=1e-12)
    assert misalignment(columns, rows, 1.0) == 1.0


@pytest.mark.parametrize(("side", "longer"), [(50257, 8.0), (50258, 4.0), (50260, 2.0), (50264, 1.0), (50304, 1.0)])
def test_sides_of_less_than_eight_elements_are_slower_still(side: int, longer: float) -> None:
    """8 times as long for an odd side, and as much less for every factor of 2 as three of them make up."""
    assert misalignment(side, 4096, 1.0, 8.0) == pytest.approx(longer, rel=1e-12)
    assert misalignment(side, 4096, 1.0) == 1.0


def test_only_the_flops_of_misaligned_products_take_longer() -> None:
    plain = replace(LAW, sharpness=np.inf, floor_s=0.0)
    assert matmul_time_s(1000, 1000, 1000, plain, PEAK, BANDWIDTH, slowdown=1.2) == pytest.approx(4e-3, rel=1e-12)
    assert matmul_time_s(1000, 1000, 1000, plain, PEAK, BANDWIDTH, slowdown=2.0) == pytest.approx(6e-3, rel=1e-12)
    assert plain.misaligned == MISALIGNED


def test_rows_that_are_not_cast_move_no_bytes_for_it() -> None:
    law = replace(LAW, floor_s=0.0, sharpness=1.0, cast_bytes_per_element=3.0)
    sizes = 512, 1024, 2048
    none, some, every = (matmul_time_s(*sizes, law, 1e15, 1e12, cast_rows=rows) for rows in (0, 128, None))
    assert every - none == pytest.approx(3 * 512 * 2048 / (law.memory_efficiency * 1e12))
    assert some - none == pytest.approx((every - none) / 4)
