"""What recent accelerators sustain in matrix products: measured, or by the power that they may draw."""

from __future__ import annotations

import math

import pytest

from xe_sizer.profiles.catalogue import Registry

REGISTRY = Registry()
EXPONENT = 0.8
# Median TFLOP/s of products of 16 to 60 TFLOP in aiconfigurator's sweeps, casts taken off at 9.34 bytes an element read
# at 5.5 TB/s in 8 bit, and at 4.6 in 4 bit.
MEASURED = {
    "b200": {"bf16": 1343, "fp8": 2761, "fp4": 4092},
    "b300": {"bf16": 1448, "fp8": 2933, "fp4": 5833},
    "gb200": {"bf16": 1436, "fp8": 2863, "fp4": 4458},
    "gb300": {"bf16": 1754, "fp8": 3636, "fp4": 6424},
}
# Of that, what dense steps of published runs reach: log-mean over publications, shrunk by n / (n + 1).
BEST = {"b200": (0.70, 0.81, 0.80, 0.74, 0.86), "b300": (0.73, 1.06)}


def sustained(gpu: str, precision: str) -> float:
    """TFLOP/s."""
    part = REGISTRY.accelerator(gpu)
    return part.peak_flops_per_s[precision] * part.laws.matmul[precision].effective_flops_efficiency / 1e12


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp4"])
@pytest.mark.parametrize("gpu", MEASURED)
def test_long_products_at_the_clock_that_power_leaves(gpu: str, precision: str) -> None:
    best = BEST.get(gpu, (1.0,))
    shrunk = math.exp(sum(math.log(share) for share in best) / (len(best) + 1))
    assert sustained(gpu, precision) == pytest.approx(MEASURED[gpu][precision] * shrunk, rel=0.01)


def test_power_explains_the_rates_of_one_generation() -> None:
    """B200 to GB300 is 1000 to 1400 W; the ones between are 10 % off at most."""
    least = MEASURED["b200"]["bf16"]
    assert MEASURED["gb300"]["bf16"] == pytest.approx(least * (1400 / 1000) ** EXPONENT, rel=0.005)
    for gpu in ("b300", "gb200"):
        watts = REGISTRY.accelerator(gpu).tdp_w
        assert watts is not None
        assert MEASURED[gpu]["bf16"] == pytest.approx(least * (watts / 1000) ** EXPONENT, rel=0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(
    ("gpu", "watts", "of", "its_watts"),
    [("h100-sxm-96gb-hbm2e", 500, "h100-sxm-80gb", 700), ("mi350x", 1000, "mi355x", 1400)],
)
def test_power_decides_where_nobody_measured(gpu: str, watts: int, of: str, its_watts: int, precision: str) -> None:
    expected = sustained(of, precision) * (watts / its_watts) ** EXPONENT
    assert sustained(gpu, precision) == pytest.approx(expected, rel=0.005)
    assert REGISTRY.accelerator(gpu).tdp_w == watts


@pytest.mark.parametrize(("precision", "measured"), [("bf16", 616), ("fp8", 1143)])
def test_what_amd_measured_for_half_a_minute(precision: str, measured: float) -> None:
    assert sustained("mi325x", precision) == pytest.approx(measured, rel=0.005)
    best = {"bf16": 708 / 843, "fp8": 1273 / 1519}[precision]
    assert sustained("mi300x", precision) == pytest.approx(measured * best, rel=0.005)
