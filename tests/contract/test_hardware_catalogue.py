"""Every accelerator and server that ships: loads, is plausible, says where it comes from."""

import math
from functools import cache

import pytest

from xe_sizer.laws.collectives import collective_time_s
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.laws.network import network
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import built_in_folder
from xe_sizer.profiles.gpu import OPERATIONS, load_gpu_profile
from xe_sizer.profiles.server import load_server_profile

REGISTRY = Registry()
GPUS = REGISTRY.names("gpu")
SERVERS = REGISTRY.names("server")
MESSAGE_BYTES = 256e6


@cache
def gpu(name: str) -> Accelerator:
    return REGISTRY.accelerator(name)


@cache
def server(name: str) -> Server:
    return REGISTRY.server(name)


def test_catalogue_is_large_enough():
    assert len(GPUS) >= 50
    assert len(SERVERS) >= 60
    assert len([name for name in SERVERS if name.startswith("dell-")]) >= 12


@pytest.mark.parametrize("name", GPUS)
def test_gpu_profile_says_what_it_is_and_where_it_comes_from(name):
    path = built_in_folder() / "gpu_profiles" / f"{name}.yaml"
    profile = load_gpu_profile(path)
    assert profile.name == path.stem
    assert len(profile.source.title) > 5
    assert profile.source.read_on
    assert all(len(line) <= 180 for line in path.read_text().splitlines())
    for law in profile.laws.matmul.values():
        assert law.source
    for fit in (*profile.laws.attention.values(), *profile.laws.collectives.values()):
        assert fit.source


@pytest.mark.parametrize("name", [name for name in GPUS if gpu(name).generation in ("hopper", "ada")])
def test_hopper_and_ada_multiply_fp8_twice_as_fast_as_16_bit(name):
    peaks = gpu(name).peak_flops_per_s
    assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.02)


@pytest.mark.parametrize("name", GPUS)
def test_accelerator_is_plausible(name):
    part = gpu(name)
    shared = part.unified_share is not None  # with the CPU of its machine
    assert 9 * 2**30 < part.memory_bytes < (450 if part.announced else 400 if shared else 300) * 2**30
    assert (6e10 if shared else 2e11) < part.memory_bandwidth_bytes_per_s < (3e13 if part.announced else 1e13)
    assert 7e9 < part.pcie_bytes_per_s < (1e12 if shared else 5e11)
    assert part.tdp_w is None or 50 < part.tdp_w < 2000
    for peak in part.peak_flops_per_s.values():
        assert 1e12 < peak < 4e16
    if {"bf16", "fp8"} <= part.peak_flops_per_s.keys():
        assert part.peak_flops_per_s["fp8"] >= part.peak_flops_per_s["bf16"]


@pytest.mark.parametrize("name", GPUS)
def test_accelerator_has_every_law_that_a_job_needs(name):
    laws = gpu(name).laws
    assert laws.matmul.keys() == gpu(name).peak_flops_per_s.keys()
    for law in laws.matmul.values():
        assert 0.25 < law.effective_flops_efficiency <= law.flops_efficiency <= 1
        assert 0.5 < law.memory_efficiency <= 1
        assert 1e-6 < law.floor_s < 3e-5
    assert {"flash-1", "flash-2", "flash-3"} <= laws.attention.keys()
    for kernel in laws.attention.values():
        assert kernel.backward_flops_efficiency <= kernel.flops_efficiency
    assert 0.7 < laws.memory_bound_efficiency < 0.95
    assert 1e-6 < laws.memory_bound_floor_s < 1e-5


@pytest.mark.parametrize("name", GPUS)
def test_borrowed_laws_are_marked(name):
    profile = load_gpu_profile(REGISTRY.path("gpu", name))
    part = gpu(name)
    if profile.laws.attention and profile.laws.collectives:
        assert part.laws.assumed is None
        return
    donors = part.laws.assumed.split(", ")
    assert set(donors) <= set(REGISTRY.donors_of(name))
    assert all(any(f"laws of {donor}" in text for text in part.assumptions) for donor in donors)


@pytest.mark.parametrize("name", SERVERS)
def test_server_profile_says_what_it_is_and_where_it_comes_from(name):
    path = built_in_folder() / "gpu_profiles" / "servers" / f"{name}.yaml"
    profile, _ = load_server_profile(path)
    assert profile.name == path.stem
    assert profile.gpu in GPUS
    assert len(profile.source.title) > 5
    assert profile.scale_out or any("network:" in text for text in server(name).network_assumptions)


def check_network(node: Server) -> None:
    """Rates fall between the slowest and the fastest thing that nodes are built from."""
    net = network(node)
    assert net.node_ranks == node.accelerators
    assert 0.2e9 < net.scale_out_bytes_per_s <= node.scale_out_bytes_per_s / node.accelerators
    assert set(OPERATIONS) <= net.scale_up.keys()
    for ranks in (2, 4, 8):
        if ranks > node.accelerators:
            continue
        seconds = float(collective_time_s("all_gather", MESSAGE_BYTES, ranks, ranks, net))
        bus = MESSAGE_BYTES * (ranks - 1) / ranks / seconds
        assert 3e9 < bus < node.scale_up_one_way_bytes_per_s
        reduce_s = float(collective_time_s("all_reduce", MESSAGE_BYTES, ranks, ranks, net))
        assert seconds < reduce_s < 2.5 * seconds
        outside = float(collective_time_s("all_gather", MESSAGE_BYTES, 2 * ranks, ranks, net))
        assert outside > seconds


@pytest.mark.parametrize("name", SERVERS)
def test_network_of_server(name):
    check_network(server(name))


@pytest.mark.parametrize("name", GPUS)
def test_bare_server(name):
    node = REGISTRY.bare_server(gpu(name), 8)
    assert node.fabric_assumptions
    assert (node.scale_up == "none") == (node.accelerators == 1)
    check_network(node)


def test_conversion_to_si_by_hand():
    part = gpu("h100-sxm-80gb")
    assert part.memory_bytes == pytest.approx(84943715696.64)  # 79.11 x 1073741824
    assert part.memory_bandwidth_bytes_per_s == 3.35e12
    assert part.peak_flops_per_s["bf16"] == 9.89e14
    assert part.peak_flops_per_s["fp8"] == 1.979e15
    assert part.pcie_bytes_per_s == pytest.approx(63e9, rel=1e-3)
    assert part.link.one_way_bytes_per_s == 450e9
    node = server("dell-xe9680-h100")
    assert node.scale_out_bytes_per_s == 400e9  # 8 x 400 Gbit/s
    assert node.host_memory_bytes == 2.199e12  # 2,048 GiB of memory modules
    assert server("aws-p5en.48xlarge").price_per_hour == 63.296


@pytest.mark.parametrize(
    ("name", "per_hour", "kind"),
    [
        ("aws-p4d.24xlarge", 21.9576, "on-demand"),
        ("aws-p4de.24xlarge", 27.447, "on-demand"),
        ("aws-p5.48xlarge", 55.04, "on-demand"),
        ("aws-p5e.48xlarge", 47.76, "capacity-block"),
    ],
)
def test_prices_of_aws_are_those_after_the_cut_of_june_2025(name, per_hour, kind):
    """AWS Price List of us-east-1, version 20260924211011; p5e is sold in capacity blocks alone."""
    node = server(name)
    assert node.price_per_hour == pytest.approx(per_hour, abs=1e-3)
    assert (node.offer.kind, node.offer.date >= "2026-08-01") == (kind, True)


def test_every_price_says_how_it_is_meant():
    """A kind, a day, a region and a source: without them a price cannot be compared with another."""
    priced = [node for node in map(server, REGISTRY.names("server")) if node.price_per_hour is not None]
    assert len(priced) > 30
    lacking = {node.name for node in priced if None in (node.offer.kind, node.offer.date, node.offer.region)}
    assert lacking | {node.name for node in priced if not node.offer.source} == set()


@pytest.mark.parametrize(
    ("name", "operation", "ranks", "message_bytes", "bus_gb_per_s"),
    [  # nccl-tests and all_reduce_bench tables of ml-engineering, network/README.md: bus bandwidth [GB/s]
        ("nvidia-dgx-a100", "all_reduce", 8, 2**30, 229.04),
        ("nvidia-dgx-h200", "all_reduce", 8, 2**30, 463.58),
        ("nvidia-dgx-b200", "all_reduce", 8, 2**30, 723.34),
        ("nvidia-dgx-h200", "all_gather", 8, 2**34, 361.4),
        ("nvidia-dgx-h200", "reduce_scatter", 8, 2**34, 362.9),
        ("oci-bm.gpu.mi300x.8", "all_reduce", 8, 2**32, 312.9),
        ("oci-bm.gpu.mi300x.8", "all_reduce", 2, 2**32, 47.7),
    ],
)
def test_collectives_against_other_measurements(name, operation, ranks, message_bytes, bus_gb_per_s):
    seconds = float(collective_time_s(operation, message_bytes, ranks, ranks, network(server(name))))
    factor = (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
    assert math.isclose(message_bytes * factor / seconds / 1e9, bus_gb_per_s, rel_tol=0.12)


def test_all_reduce_over_four_nodes_is_as_published():
    """4 GiB over 4 x 8 B200 took 22.05 ms (ml-engineering, network benchmarks)."""
    seconds = float(collective_time_s("all_reduce", 2**32, 32, 8, network(server("aws-p6-b200.48xlarge"))))
    assert seconds == pytest.approx(0.02205, rel=0.05)


def test_profiles_folder_holds_nothing_else():
    folder = built_in_folder() / "gpu_profiles"
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".yaml"}
