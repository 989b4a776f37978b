"""Accelerators and nodes of records."""

import pytest

from xe_sizer.errors import InputError
from xe_sizer.evidence.records import Measured, Record
from xe_sizer.evidence.training_scenario import counted_in_devices, find_hardware
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.units import BITS_PER_BYTE, GIGA

REGISTRY = Registry()


def record(**conditions: object) -> Record:
    return Record(id="r", job="sft", **conditions)  # type: ignore[arg-type]


def network(inter: str) -> tuple[float, float]:
    """Gbit/s of a node, and the share of it that messages reach."""
    asked = record(gpu="a100-sxm-80gb", gpus=64, gpus_per_node=8, interconnect={"inter": inter})
    node = find_hardware(asked, REGISTRY).server
    return node.scale_out_bytes_per_s * BITS_PER_BYTE / GIGA, node.scale_out_efficiency


@pytest.mark.parametrize(
    ("words", "gbit_per_s", "efficiency"),
    [
        ("8x HDR 200Gb/s InfiniBand (Selene)", 1600, 0.92),
        ("1600 Gbps node-node (RoCE)", 1600, 0.85),
        ("4x OmniPath 100 Gb/s per node", 400, 0.85),
        ("4x 100Gb RoCE", 400, 0.85),
        ("2x Mellanox ConnectX-5 Ex 100Gb/s Ethernet", 200, 0.85),
        ("4x ConnectX-8 IB XDR 800 Gb/s", 3200, 0.92),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s", 3200, 0.92),
        ("400 Gb/s InfiniBand per GPU", 3200, 0.92),
        ("InfiniBand, 400Gbps/GPU", 3200, 0.92),
        ("RoCE, per-accelerator NIC of 400G", 3200, 0.85),
        ("2x 200 Gb/s RoCE per rank", 3200, 0.85),
        ("8x 400G InfiniBand, one per GPU", 3200, 0.92),
        ("3200 Gb/s RoCE per node (400 Gb/s per GPU)", 3200, 0.85),
        ("400 Gb/s InfiniBand", 400, 0.92),
    ],
)
def test_words_about_the_network_become_rates(words: str, gbit_per_s: float, efficiency: float) -> None:
    assert network(words) == pytest.approx((gbit_per_s, efficiency))


def test_a_network_without_a_rate_is_the_usual_one_and_said() -> None:
    asked = record(gpu="h100-sxm-80gb", gpus=16, gpus_per_node=8, interconnect={"inter": "Ethernet, Infiniband"})
    found = find_hardware(asked, REGISTRY)
    assert found.server.scale_out_bytes_per_s == pytest.approx(8 * 400 * GIGA / BITS_PER_BYTE)
    assert any("network" in text for text in found.assumed)


def test_several_nodes_have_the_stated_number_of_accelerators() -> None:
    assert find_hardware(record(gpu="a100-sxm-40gb", gpus=8, gpus_per_node=4), REGISTRY).server.accelerators == 4
    assert find_hardware(record(gpu="a100-sxm-40gb", gpus=4, gpus_per_node=4), REGISTRY).server.accelerators == 8


def test_a_rack_stays_one_domain_whatever_its_trays_hold() -> None:
    found = find_hardware(record(gpu="gb200", gpus=64, gpus_per_node=4), REGISTRY)
    assert found.server.accelerators == 72


def test_cards_joined_by_pcie_alone() -> None:
    words = {"intra": "PCIe 4.0 x16 per card, no NVLink"}
    assert find_hardware(record(gpu="a100-sxm-80gb", gpus=8, interconnect=words), REGISTRY).server.scale_up == "pcie"


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-3090-ti", "rtx-a6000"])
def test_bridges_join_pairs_of_cards_where_a_record_says_so(gpu: str) -> None:
    """56.25 GB/s each way, four links of the GA102; nodes are not assumed to have them."""
    bridged = find_hardware(record(gpu=gpu, gpus=2, interconnect={"intra": "NVLink bridge"}), REGISTRY).server
    assert (bridged.scale_up, bridged.scale_up_one_way_bytes_per_s) == ("nvlink-pairs", 56.25e9)
    assert find_hardware(record(gpu=gpu, gpus=2), REGISTRY).server.scale_up == "pcie"


def test_half_a_module_has_half_of_everything() -> None:
    half = find_hardware(record(gpu="mi250x-gcd", gpus=8, gpus_per_node=8), REGISTRY).server.accelerator
    whole = REGISTRY.accelerator("mi250x")
    assert half.memory_bytes == whole.memory_bytes / 2
    assert half.peak_flops_per_s["bf16"] == whole.peak_flops_per_s["bf16"] / 2


@pytest.mark.parametrize("gpu", ["trainium1", "AWS Trainium1", "Trainium 1"])
def test_chips_are_counted_in_the_cores_that_software_sees(gpu: str) -> None:
    """Tensor parallel 32 is all of 16 Trainium1, two NeuronCores each, and a rate per chip is that of both."""
    chips = record(gpu=gpu, gpus=32, gpus_per_node=16, measured=Measured(tokens_per_s_per_gpu=3000.0))
    cores = counted_in_devices(chips, REGISTRY)
    assert (cores.gpu, cores.gpus, cores.gpus_per_node) == ("trainium1-neuroncore", 64, 32)
    assert cores.measured.tokens_per_s_per_gpu == 1500.0
    assert counted_in_devices(cores, REGISTRY) == cores
    assert find_hardware(cores, REGISTRY).server.accelerator.memory_bytes == 16 * 2**30


def test_other_names_are_read_and_said() -> None:
    found = find_hardware(record(gpu="NVIDIA H100", gpus=8), REGISTRY)
    assert found.server.accelerator.name == "h100-sxm-80gb"
    assert found.assumed == ("gpu 'NVIDIA H100' read as h100-sxm-80gb",)


def test_an_unknown_accelerator_is_refused() -> None:
    with pytest.raises(InputError, match="8 gb card"):
        find_hardware(record(gpu="8 GB card", gpus=1), REGISTRY)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("h100-sxm-96gb", "h100-sxm-96gb-hbm2e"), ("rtx-4090-48gb", "rtx-4090-48gb"),
        ("v100-pcie-16gb", "v100-pcie-16gb"), ("A800 PCIe 80GB", "a800-pcie-80gb"), ("4090", "rtx-4090"),
        ("v100-16gb", "v100-sxm-16gb"), ("a800", "a800-sxm-80gb"),
    ],
)  # fmt: skip
def test_cards_of_publications_are_known(name: str, profile: str) -> None:
    assert find_hardware(record(gpu=name, gpus=1), REGISTRY).server.accelerator.name == profile
