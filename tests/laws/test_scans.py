"""What kernels of chunked scans reach of an accelerator."""

from __future__ import annotations

import pytest

from xe_sizer.laws.operator_time import scan_share


@pytest.mark.parametrize(("peak", "measured"), [(312e12, 0.48), (989e12, 0.40), (2500e12, 0.32)])
def test_scans_fall_behind_tensor_cores_that_became_faster(peak: float, measured: float) -> None:
    """A100, H200 and GB200: state-spaces/mamba issue 904."""
    assert scan_share(peak) == pytest.approx(measured, rel=0.05)


def test_slower_tensor_cores_do_not_make_scans_faster() -> None:
    assert scan_share(19.5e12) == scan_share(312e12)
