"""Memory-bound kernels, the host, and copies: numbers by hand."""

from __future__ import annotations

import pytest

from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.operator_time import exposed_launch_time_s, memory_bound_time_s


def test_bytes_over_a_share_of_the_bandwidth_and_launches() -> None:
    assert memory_bound_time_s(8e9, 3.0, 1e12, 0.8, 2e-6) == pytest.approx(10e-3 + 6e-6, rel=1e-12)


def test_nothing_moved_nothing_launched() -> None:
    assert memory_bound_time_s([0.0, 1.0], 3.0, 1e12, 0.8, 2e-6)[0] == 0.0


def test_the_host_is_waited_for_only_where_kernels_are_shorter() -> None:
    """1000 launches of 5 us are 5 ms: 2 ms of kernels leave 3 ms of waiting, 7 ms of kernels none."""
    assert exposed_launch_time_s(1000, 5e-6, [2e-3, 7e-3]) == pytest.approx([3e-3, 0.0])


def test_copy_over_pcie_5_as_measured_on_an_h200() -> None:
    """55.4 GB/s of 63 measured with pinned memory (ml-engineering, network/README.md)."""
    assert copy_time_s(55.4e9, 63e9) == pytest.approx(1.0, rel=0.01)
