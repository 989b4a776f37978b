"""Server profiles: conversion, what is assumed for an unstated network, and what ranks talk over."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.laws.network import network
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.server import load_server_profile, server

REGISTRY = Registry()
GOOD = """\
name: box
vendor: ACME
gpu: h100-sxm-80gb
gpus: 8
scale_up: {kind: nvswitch, one_way_gb_per_s: 450}
scale_out: {nics: 4, gbit_per_s: 200, fabric: infiniband}
host: {memory_gb: 1000}
power_kw: 10
price: {per_hour: 20, currency: EUR}
source: {title: a data sheet}
"""


@pytest.fixture(scope="module")
def h100() -> Accelerator:
    return REGISTRY.accelerator("h100-sxm-80gb")


def load(tmp_path: Path, text: str, gpu: Accelerator) -> Server:
    path = tmp_path / "box.yaml"
    path.write_text(text)
    profile, document = load_server_profile(path)
    return server(profile, gpu, REGISTRY.fabric, document.locate)


def all_reduce_bus(node: Server, ranks: int) -> float:
    law = network(node).scale_up["all_reduce"]
    return law.bus_bytes_per_s[law.ranks.index(ranks)]


def test_units_become_si(tmp_path, h100):
    node = load(tmp_path, GOOD, h100)
    assert node.scale_up_one_way_bytes_per_s == 450e9
    assert node.scale_out_bytes_per_s == 100e9  # 4 x 200 / 8
    assert node.host_memory_bytes == 1e12
    assert (node.price_per_hour, node.price_currency) == (20, "EUR")
    assert (node.assumptions, node.fabric_assumptions, node.network_assumptions) == ((), (), ())


def test_accelerators_share_the_nics(tmp_path, h100):
    net = network(load(tmp_path, GOOD, h100))
    assert net.scale_out_bytes_per_s == pytest.approx(100e9 * 0.92 / 8)
    assert net.scale_out_alpha_s == pytest.approx(20e-6)


def test_unstated_network_and_rate_are_filled_and_marked(tmp_path, h100):
    text = GOOD.replace("scale_out: {nics: 4, gbit_per_s: 200, fabric: infiniband}\n", "")
    node = load(tmp_path, text.replace(", one_way_gb_per_s: 450", ""), h100)
    assert node.scale_up_one_way_bytes_per_s == 450e9  # the accelerator's own link
    assert node.scale_out_bytes_per_s == 400e9
    assert node.network_assumptions == ("network: 8 x 400 Gbit/s, usual for such a node",)


def test_pcie_of_the_server_wins(tmp_path, h100):
    assert load(tmp_path, GOOD + "pcie: {gen: 4, lanes: 16}\n", h100).pcie_bytes_per_s == pytest.approx(
        31.5e9, rel=1e-3
    )
    assert load(tmp_path, GOOD, h100).pcie_bytes_per_s == h100.pcie_bytes_per_s


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: box", "name: bax", "box.yaml:1:7: name is 'bax' but the file is 'box.yaml'"),
        ("gpus: 8", "gpus: 1", "box.yaml:5:18: scale_up 'nvswitch' with gpus: 1"),
        ("kind: nvswitch", "kind: none", "box.yaml:5:18: scale_up 'none' with gpus: 8"),
        ("kind: nvswitch", "kind: nvswich", "box.yaml:5:18: "),
        ("gpus: 8", "gpus: eight", "box.yaml:4:7: "),
        ("fabric: infiniband", "fabric: carrier-pigeon", "box.yaml:6:47: "),
    ],
)
def test_mistakes_are_located(tmp_path, h100, old, new, expected):
    with pytest.raises(InputError) as caught:
        load(tmp_path, GOOD.replace(old, new), h100)
    found = [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]
    assert any(text.startswith(expected) for text in found), found


def test_native_fabric_uses_the_measured_collectives(tmp_path, h100):
    node = load(tmp_path, GOOD, h100)
    assert network(node).scale_up["all_reduce"] == h100.laws.collectives["all_reduce"]


def test_slower_fabric_is_derived_from_its_rate(tmp_path, h100):
    node = load(tmp_path, GOOD.replace("one_way_gb_per_s: 450", "one_way_gb_per_s: 200"), h100)
    law = network(node).scale_up["all_gather"]
    assert law.bus_bytes_per_s == pytest.approx((160e9, 160e9, 160e9))  # 0.80 x 200
    assert all_reduce_bus(node, 8) == pytest.approx(214e9)  # 1.07 x 200, reduced in the switch
    assert all_reduce_bus(node, 2) == pytest.approx(160e9)


def test_pair_in_a_mesh_sees_one_of_three_links(tmp_path, h100):
    node = load(tmp_path, GOOD.replace("nvswitch", "nvlink-mesh").replace("gpus: 8", "gpus: 4"), h100)
    law = h100.laws.collectives["all_reduce"]
    assert all_reduce_bus(node, 2) == pytest.approx(law.bus_bytes_per_s[0] / 3)
    assert all_reduce_bus(node, 4) == law.bus_bytes_per_s[1]


def test_pairs_use_the_bridge_and_more_ranks_the_bus():
    node = REGISTRY.server("dell-r760xa-h100-pcie")
    assert all_reduce_bus(node, 2) == pytest.approx(0.80 * 300e9)
    assert all_reduce_bus(node, 4) == pytest.approx(0.41 * 63e9, rel=1e-3)


def test_cards_without_peer_to_peer_are_slower_on_the_same_bus():
    with_peers = REGISTRY.bare_server(replace(REGISTRY.accelerator("rtx-4090"), peer_to_peer=True), 8)
    without = replace(with_peers, accelerator=replace(with_peers.accelerator, peer_to_peer=False))
    for ranks in (2, 4, 8):
        assert all_reduce_bus(without, ranks) < all_reduce_bus(with_peers, ranks)


def test_cube_mesh_gives_small_groups_fewer_links():
    node = REGISTRY.server("aws-p3.16xlarge")
    assert all_reduce_bus(node, 2) == pytest.approx(all_reduce_bus(node, 8) / 3)


@pytest.mark.parametrize(
    ("gpu", "count", "node", "scale_up"),
    [
        ("h100-sxm-80gb", 2, 8, "nvswitch"),
        ("h100-pcie-80gb", 2, 2, "pcie"),
        ("h100-pcie-80gb", 64, 8, "pcie"),
        ("rtx-4090", 1, 1, "none"),
        ("mi300x", 16, 8, "xgmi-mesh"),
        ("gaudi3", 8, 8, "roce-mesh"),
        ("v100-sxm-32gb", 8, 8, "nvlink-cube-mesh"),
        ("gb200", 8, 72, "nvswitch"),
        ("gh200-96gb", 4, 1, "none"),
        ("trainium1-neuroncore", 32, 32, "neuronlink"),
        ("trainium2-neuroncore", 64, 64, "neuronlink"),
    ],
)
def test_bare_server(gpu, count, node, scale_up):
    built = REGISTRY.bare_server(REGISTRY.accelerator(gpu), count)
    assert (built.accelerators, built.scale_up) == (node, scale_up)
    assert any("no server named" in text for text in built.fabric_assumptions)
