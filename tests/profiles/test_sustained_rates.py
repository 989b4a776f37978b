"""What recent accelerators sustain in matrix products follows the power that they may draw."""

from __future__ import annotations

import pytest

from xe_sizer.profiles.registry import Registry

REGISTRY = Registry()
EXPONENT = 0.8


def sustained(gpu: str, precision: str) -> float:
    """TFLOP/s."""
    part = REGISTRY.accelerator(gpu)
    return part.peak_flops_per_s[precision] * part.laws.matmul[precision].effective_flops_efficiency / 1e12


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(
    ("gpu", "watts", "of", "its_watts"),
    [
        ("b200", 1000, "gb200", 1200),
        ("b300", 1100, "gb200", 1200),
        ("gb300", 1400, "gb200", 1200),
        ("h100-sxm-96gb-hbm2e", 500, "h100-sxm-80gb", 700),
        ("mi350x", 1000, "mi355x", 1400),
    ],
)
def test_power_decides(gpu: str, watts: int, of: str, its_watts: int, precision: str) -> None:
    expected = sustained(of, precision) * (watts / its_watts) ** EXPONENT
    assert sustained(gpu, precision) == pytest.approx(expected, rel=0.005)
    assert REGISTRY.accelerator(gpu).tdp_w == watts


@pytest.mark.parametrize(("precision", "measured"), [("bf16", 616), ("fp8", 1143)])
def test_what_amd_measured_for_half_a_minute(precision: str, measured: float) -> None:
    assert sustained("mi325x", precision) == pytest.approx(measured, rel=0.005)
    best = {"bf16": 708 / 843, "fp8": 1273 / 1519}[precision]
    assert sustained("mi300x", precision) == pytest.approx(measured * best, rel=0.005)
