"""Fabrics: the shipped ones by hand, a user's own, and what is refused."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.laws.network import network
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import default_name

REGISTRY = Registry()
GPU = """\
name: my-gpu
vendor: ACME
generation: new
memory_gib: 100
memory_bandwidth_gb_per_s: 4000
peak_tflops: {bf16: 1000}
pcie: {gen: 5, lanes: 16}
link: {kind: ualink, one_way_gb_per_s: 800}
source: {title: a data sheet}
"""
UALINK = """\
name: ualink
parent: generic-link
describes: An open link through switches.
link: {ring_share: 0.5, switch_all_reduce_share: 0.75, usual_node: {scale_up: ualink, gpus: 16}}
node: {topology: switch, nics: per-gpu, reduces: true}
network: {rate_share: 0.6, latency_us: 7}
source: {title: a guess}
"""


def test_every_shipped_fabric_is_sound_and_says_what_it_is():
    names = REGISTRY.names("fabric")
    assert {"nvlink4", "nvswitch", "infiniband"} <= set(names)
    for name in names:
        profile = REGISTRY.fabric(name)
        assert profile.name == name
        assert len(profile.describes) > 10
        assert profile.link or profile.node or profile.network


def test_what_is_not_stated_has_a_fabric_of_its_own():
    assert [default_name("fabric", f"{section}:") for section in ("link", "network", "node")] == [
        "generic-link", "generic-network", "none",
    ]  # fmt: skip
    assert REGISTRY.fabric("none").node_fabric().topology == "single"
    assert not REGISTRY.fabric("nvlink2").default


def test_units_become_si():
    assert REGISTRY.fabric("efa").network.latency_us == 40
    link = REGISTRY.fabric("nvlink3").link_shares()
    assert (link.ring, link.switch_all_reduce, link.send) == (0.78, 0.78, 0.83)
    assert link.latency_s == (9e-6, 13e-6, 21e-6)
    assert REGISTRY.fabric("nvlink-cube-mesh").node_fabric().group_shares == (2 / 6, 4 / 6, 1.0)
    bus = REGISTRY.fabric("none").node_fabric().bus
    assert bus.latency_s == (6e-6, 12e-6, 24e-6)


def test_a_new_fabric_is_one_file(tmp_path: Path):
    (tmp_path / "my-gpu.yaml").write_text(GPU)
    (tmp_path / "ualink.yaml").write_text(UALINK)
    registry = Registry([tmp_path])
    node = registry.bare_server(registry.accelerator("my-gpu"))
    assert (node.accelerators, node.scale_up) == (16, "ualink")
    laws = network(node).scale_up
    assert laws["all_gather"].bus_bytes_per_s == (400e9, 400e9, 400e9)  # 0.5 x 800
    assert laws["all_reduce"].bus_bytes_per_s == (400e9, 400e9, 600e9)  # 0.75 x 800 on 8
    assert laws["point_to_point"].bus_bytes_per_s[0] == pytest.approx(664e9)  # the parent's 0.83


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topology: switch", "topology: host", "ualink.yaml:5:18: topology host and 'bus'"),
        ("topology: switch", "topology: groups", "ualink.yaml:5:18: topology groups and 'links'"),
        ("ring_share: 0.5", "ring_share: 50", "ualink.yaml:4:20: 'ring_share' must be at most 2"),
        ("name: ualink", "name: uolink", "ualink.yaml:1:7: name is 'uolink'"),
        ("parent: generic-link", "parent: generic-lnk", "ualink.yaml:2:9: 'parent' must be a known fabric"),
    ],
)
def test_mistakes_are_located(tmp_path, old, new, message):
    (tmp_path / "ualink.yaml").write_text(UALINK.replace(old, new))
    with pytest.raises(InputError) as caught:
        Registry([tmp_path]).fabric("ualink")
    assert message in str(caught.value)


def test_an_unknown_link_points_into_the_profile_of_the_gpu(tmp_path):
    (tmp_path / "my-gpu.yaml").write_text(GPU.replace("ualink", "nvlink44"))
    with pytest.raises(InputError, match=r"my-gpu.yaml:8:14: unknown fabric 'nvlink44'") as caught:
        Registry([tmp_path]).accelerator("my-gpu")
    assert "did you mean 'nvlink4'" in (caught.value.problems[0].hint or "")


def test_a_network_is_no_link(tmp_path):
    (tmp_path / "my-gpu.yaml").write_text(GPU.replace("ualink", "efa"))
    with pytest.raises(InputError, match=r"my-gpu.yaml:8:14: the fabric 'efa' has no 'link'"):
        Registry([tmp_path]).accelerator("my-gpu")
