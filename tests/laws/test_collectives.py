"""Collectives: the law by hand, and measurements of others typed in from their publications."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.graph.operators import Collective, Picks, RankShape
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    CollectiveLaw,
    Network,
    collective_time_s,
    links_along_axes,
    stall_s,
    wire_factor,
)
from xe_sizer.laws.network import exchange_times, network

FLAT = CollectiveLaw((2, 4, 8), (1e-5, 2e-5, 4e-5), (1e11, 2e11, 4e11), (0.0, 0.0, 1e-9))
NETWORK = Network(8, {ALL_GATHER: FLAT, ALL_REDUCE: FLAT}, scale_out_bytes_per_s=1e10, scale_out_alpha_s=1e-4)
MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [(ALL_REDUCE, 8, 1.75), (ALL_GATHER, 8, 0.875), (REDUCE_SCATTER, 4, 0.75), (ALL_TO_ALL, 2, 0.5)],
)
def test_wire_factors_of_nccl_tests(operation: str, ranks: int, factor: float) -> None:
    assert wire_factor(operation, ranks) == factor
    assert wire_factor(POINT_TO_POINT, ranks) == 1.0


def test_law_inside_a_node_by_hand() -> None:
    """8 GB over 8 ranks: 7 GB on the wire at 400 GB/s, 40 us, and 1 ns a root byte."""
    expected = 4e-5 + 1e-9 * np.sqrt(7e9) + 7e9 / 4e11
    assert collective_time_s(ALL_GATHER, 8e9, 8, 8, NETWORK) == pytest.approx(expected, rel=1e-12)


def test_group_sizes_between_the_known_are_interpolated_in_their_logarithm() -> None:
    ranks = 2**1.5
    carried = 1e9 * (ranks - 1) / ranks
    expected = 1.5e-5 + carried / 1.5e11
    assert collective_time_s(ALL_GATHER, 1e9, ranks, ranks, NETWORK) == pytest.approx(expected, rel=1e-12)


def test_across_nodes_the_slower_tier_sets_the_pace() -> None:
    """16 ranks on 2 nodes, 8 GB in 8 rings: 15/16 of 1 GB pass every NIC of 10 GB/s, and two steps of latency."""
    expected = 15 / 16 * 1e9 / 1e10 + 1e-4 * 2
    assert collective_time_s(ALL_GATHER, 8e9, 16, 8, NETWORK) == pytest.approx(expected, rel=1e-12)


def test_an_all_to_all_sends_its_own_message_out() -> None:
    """Nobody shares the way out: 7/8 of 1 GB leaves each of 8 single-GPU nodes."""
    expected = 7 / 8 * 1e9 / 1e10 + 1e-4 * 4
    assert collective_time_s(ALL_TO_ALL, 1e9, 8, 1, NETWORK) == pytest.approx(expected, rel=1e-12)


TORUS = replace(NETWORK, axes=3, chip_ranks=2)


@pytest.mark.parametrize(
    ("ranks", "share"), [(1, 1), (2, 1), (4, 1 / 3), (16, 1 / 3), (64, 0.5), (256, 2 / 3), (4096, 1), (65536, 1)]
)
def test_a_group_has_the_links_of_the_axes_that_it_fills(ranks: int, share: float) -> None:
    """16 chips lie along one axis of three, 256 along two; both devices of a chip need no links."""
    assert links_along_axes(ranks, TORUS) == pytest.approx(share)
    assert links_along_axes(ranks, NETWORK) == 1.0


def test_fewer_links_carry_the_same_message_for_longer() -> None:
    whole = collective_time_s(ALL_GATHER, 8e9, 4, 4, NETWORK) - 2e-5
    assert collective_time_s(ALL_GATHER, 8e9, 4, 4, NETWORK, links=0.5) - 2e-5 == pytest.approx(2 * whole)


def test_accelerators_wait_for_hosts_that_send_for_them() -> None:
    """400 us in each of log2(2 k) steps and 70 us for each further node."""
    slow = replace(NETWORK, stall_s=4e-4, stall_per_node_s=7e-5)
    assert stall_s([1, 2, 32], slow).tolist() == pytest.approx([0.0, 8e-4 + 7e-5, 24e-4 + 31 * 7e-5])
    assert stall_s(32, NETWORK) == 0.0


def test_a_token_crosses_the_network_once_per_node() -> None:
    """2 of 8 experts on 4 nodes of 2 ranks: copies to 2 x 3/4 ranks elsewhere become one to each of 21/16 nodes met."""
    rank = RankShape(*(np.array([float(size)]) for size in (1, 1, 1, 1, 8, 1, 0)))
    op = Collective("dispatch", "experts", 3.0, np.zeros(1), "ep", ((ALL_TO_ALL, np.array([1.875e9])),), (), Picks(2))
    pairs = replace(NETWORK, node_ranks=2)
    crossing = 1e9 * (3 / 4) * 4 * (1 - (3 / 4) ** 2)
    seconds = exchange_times([op], rank, pairs, 1.0)["ep"][0]
    assert seconds == pytest.approx(3 * (crossing / 1e10 + 1e-4 * 3), rel=1e-12)


def test_one_rank_or_nothing_to_send_costs_nothing() -> None:
    assert collective_time_s(ALL_REDUCE, [1e9, 0.0], [1, 8], [1, 8], NETWORK).tolist() == [0.0, 0.0]


# Bus bandwidth in GB/s by message size; github.com/stas00/ml-engineering, network/README.md at 744d01e: nccl-tests
# on 8 A100 SXM, all_reduce_bench on 8 H200 SXM with in-switch reduction. Smaller messages of that Python
# benchmark carry its own launch overhead; they are compared to plain nccl-tests below.
LARGE = {
    "nvidia-dgx-a100": {64: 171.54, 128: 176.92, 256: 194.07, 512: 222.72, 1024: 229.04, 4096: 233.88, 16384: 234.89},
    "nvidia-dgx-h200": {32: 275.84, 64: 346.51, 128: 401.93, 256: 436.15, 512: 450.29, 1024: 463.58, 16384: 482.26},
}  # fmt: skip


@pytest.mark.parametrize("server", LARGE)
def test_large_all_reduces_as_published(server: str) -> None:
    sizes = np.array(list(LARGE[server])) * MIB
    measured_s = sizes * 1.75 / (np.array(list(LARGE[server].values())) * 1e9)
    predicted_s = collective_time_s(ALL_REDUCE, sizes, 8, 8, network(REGISTRY.server(server)))
    assert predicted_s == pytest.approx(measured_s, rel=0.15)


# Microseconds of an 8-GPU all-reduce of 4 KiB, 64 KiB, 1 MiB, 8 MiB, 64 MiB, 512 MiB: nccl-tests of the project
# aiconfigurator, NCCL 2.27.3 (A100, H100) and 2.29.2 (H200).
BY_SIZE_US = {
    "nvidia-dgx-a100": (21.43, 28.06, 38.85, 128.0, 595.3, 4225.9),
    "nvidia-dgx-h100": (15.96, 18.66, 25.41, 79.23, 322.9, 2111.7),
    "nvidia-dgx-h200": (16.04, 19.89, 26.14, 78.3, 319.63, 2040.31),
}


@pytest.mark.parametrize("server", BY_SIZE_US)
def test_all_reduces_from_kilobytes_to_gigabytes(server: str) -> None:
    sizes = np.array([4 / 1024, 64 / 1024, 1, 8, 64, 512]) * MIB
    predicted_s = collective_time_s(ALL_REDUCE, sizes, 8, 8, network(REGISTRY.server(server)))
    assert predicted_s * 1e6 == pytest.approx(np.array(BY_SIZE_US[server]), rel=0.25)
    assert np.median(np.abs(predicted_s * 1e6 / BY_SIZE_US[server] - 1)) < 0.08


@pytest.mark.parametrize(("operation", "bus_gb_per_s"), [(ALL_GATHER, 361.4), (REDUCE_SCATTER, 362.9)])
def test_gather_and_scatter_do_not_profit_from_in_switch_reduction(operation: str, bus_gb_per_s: float) -> None:
    """16 GiB on 8 H200 (ml-engineering, same page)."""
    predicted_s = collective_time_s(operation, 16 * GIB, 8, 8, network(REGISTRY.server("nvidia-dgx-h200")))
    assert predicted_s == pytest.approx(16 * GIB * 0.875 / (bus_gb_per_s * 1e9), rel=0.05)


@pytest.mark.parametrize(
    ("server", "ranks", "size_gib", "bus_gb_per_s", "tolerance"),
    [
        ("aws-p6-b200.48xlarge", 32, 16, 381.8, 0.05),
        ("aws-p6-b200.48xlarge", 32, 1, 361.99, 0.05),
        ("aws-p5en.48xlarge", 32, 4, 364.9, 0.1),
        ("oci-bm.gpu.mi300x.8", 8, 4, 312.9, 0.05),
        ("oci-bm.gpu.mi300x.8", 2, 4, 47.7, 0.1),
    ],
)
def test_across_nodes_and_in_a_mesh_as_published(
    server: str, ranks: int, size_gib: int, bus_gb_per_s: float, tolerance: float
) -> None:
    """All-reduces over 4 nodes and in an xGMI mesh (ml-engineering, same page)."""
    size = size_gib * GIB
    predicted_s = collective_time_s(ALL_REDUCE, size, ranks, min(ranks, 8), network(REGISTRY.server(server)))
    assert predicted_s == pytest.approx(size * 2 * (ranks - 1) / ranks / (bus_gb_per_s * 1e9), rel=tolerance)


@pytest.mark.parametrize("nodes", [2, 3])
def test_rings_over_few_nodes_are_bound_by_the_nics_of_one(nodes: int) -> None:
    """A100 nodes with four 200 Gbit/s NICs: 86 and 84.8 to 96 GB/s on the bus (NCCL 1048, nccl-tests 119)."""
    inside = network(REGISTRY.server("nvidia-dgx-a100"))
    four_nics = replace(inside, scale_out_bytes_per_s=4 * 25e9 * 0.92 / 8)
    ranks = 8 * nodes
    predicted_s = float(collective_time_s(ALL_REDUCE, 4 * GIB, ranks, 8, four_nics))
    assert 84.8 < 4 * GIB * 2 * (ranks - 1) / ranks / predicted_s / 1e9 < 96
