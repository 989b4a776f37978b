"""Collectives inside a node make the laws of its GPUs, those across nodes the network between them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from measured_cases import CARD, PROCESSOR, moving, products, samples

from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    CollectiveLaw,
    Network,
    collective_time_s,
)
from xe_sizer.laws.network import network
from xe_sizer.measure.collectives import Ranks, sizes_of_groups
from xe_sizer.measure.profile import Written, find_known, profile_yaml, slug, summarise
from xe_sizer.measure.samples import COLLECTIVE, SAMPLES, Kernel, Sample, read_samples
from xe_sizer.profiles.catalogue import Registry

ROOT = Path(__file__).parents[2]
OPERATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)
LINKS = CollectiveLaw((2, 4, 8), (10e-6, 14e-6, 20e-6), (300e9, 310e9, 320e9), (4e-9,) * 3)
RATE, LATENCY_S = 40e9, 35e-6  # of one GPU between nodes, in the law that samples are made from


def timed(operation: str, ranks: int, nodes: int, size: int) -> Sample:
    """What a collective takes by the laws above."""
    law = Network(8, dict.fromkeys(OPERATIONS, LINKS), RATE, LATENCY_S)
    seconds = float(collective_time_s(operation, float(size), ranks, ranks // nodes, law))
    sizes = {"bytes": float(size), "ranks": float(ranks), "nodes": float(nodes)}
    kernel = Kernel(law=COLLECTIVE, name=operation, sizes=sizes)
    return Sample(kernel=kernel, seconds=seconds, low=seconds, high=seconds, repeats=9, walk=1)


def collectives(groups: tuple[tuple[int, int], ...]) -> Iterator[Sample]:
    """Every operation over so many ranks on so many nodes; of sends, pairs."""
    for ranks, nodes in groups:
        for power in range(12, 30, 2):
            yield from (timed(operation, ranks, nodes, 2**power) for operation in OPERATIONS[:4])
            if ranks == 2 * nodes or (ranks, nodes) == (16, 2):
                yield timed(POINT_TO_POINT, 2, nodes, 2**power)


INSIDE, ACROSS = ((2, 1), (4, 1), (8, 1)), ((16, 2), (32, 4))


def made_of(*groups: tuple[int, int]) -> Written:
    catalogue = Registry()
    known = find_known(CARD, catalogue)
    return summarise(CARD, [*samples(products()), *collectives(groups)], catalogue, None, known)


@pytest.fixture(scope="module")
def both() -> Written:
    return made_of(*INSIDE, *ACROSS)


def kept(folder: Path, made: Written) -> Registry:
    for one in (made.profile, *made.beside):
        (folder / f"{one['name']}.yaml").write_text(profile_yaml(one))
    return Registry((folder,))


def test_what_crosses_nodes_says_nothing_of_the_links_of_a_gpu(both: Written) -> None:
    alone = made_of(*INSIDE)
    assert both.profile == alone.profile
    assert max(both.profile["laws"]["collectives"][ALL_REDUCE]["ranks"]) == 8
    assert "network" not in both.profile["measured"]["laws"]
    assert alone.beside == ()
    assert alone.report.server is None


def test_the_network_between_nodes_is_found_again(both: Written) -> None:
    (row,) = [law for law in both.report.laws if law.law == "network"]
    assert row.parameters["gb_per_s"] == pytest.approx(40.0, rel=0.03)
    assert row.parameters["latency_us"] == pytest.approx(35.0, rel=0.1)
    assert row.p90_error < 0.1
    assert row.before["gb_per_s"] == pytest.approx(0.88 * 50.0)  # 400 Gbit/s a GPU at the usual share
    assert row.slower is not None
    assert row.slower > 1.0


def test_a_job_on_the_measured_node_is_priced_by_the_measured_network(tmp_path: Path, both: Written) -> None:
    registry = kept(tmp_path, both)
    assert both.report.server == "h100-sxm-80gb-node"
    server = registry.server("h100-sxm-80gb-node")
    assert (server.accelerators, server.fabric.name) == (8, "nvswitch")
    assert server.accelerator.measured is not None
    assert server.host_memory_bytes == pytest.approx(1e12)
    assert server.network_assumptions == ()
    assert server.scale_out_error == pytest.approx(both.report.laws[-1].p90_error, abs=1e-3)
    found = network(server)
    for operation in OPERATIONS[:4]:
        seconds = float(collective_time_s(operation, 2.0**28, 32, 8, found))
        assert seconds == pytest.approx(timed(operation, 32, 4, 2**28).seconds, rel=0.05)


def test_a_gpu_that_is_asked_for_alone_keeps_the_usual_network(tmp_path: Path, both: Written) -> None:
    """What one cluster has is not what another with the same GPUs has."""
    registry = kept(tmp_path, both)
    mine, usual = (one.bare_server(one.accelerator("h100-sxm-80gb")) for one in (registry, Registry()))
    assert network(mine).scale_out_bytes_per_s == network(usual).scale_out_bytes_per_s


def test_one_gpu_in_each_node(tmp_path: Path) -> None:
    """All that is timed crosses: what it takes is the network's, and the node has a single GPU."""
    made = made_of((2, 2), (4, 4), (8, 8))
    assert made.beside[0]["gpus"] == 1
    assert kept(tmp_path, made).server("h100-sxm-80gb-node").fabric.topology == "single"
    (row,) = [law for law in made.report.laws if law.law == "network"]
    assert row.parameters["gb_per_s"] == pytest.approx(40.0, rel=0.03)
    assert "collectives" not in made.profile["laws"]


def test_a_network_alone_makes_no_measured_card() -> None:
    catalogue = Registry()
    made = summarise(CARD, list(collectives(ACROSS)), catalogue, None, find_known(CARD, catalogue))
    assert "measured" not in made.profile
    assert made.report.server == "h100-sxm-80gb-node"


def test_a_device_that_nobody_names_has_a_node_too(tmp_path: Path) -> None:
    kernels = samples([*products(), *products("fp32"), *moving()])
    made = summarise(PROCESSOR, [*kernels, *collectives(((2, 1), (4, 2)))], Registry(), None, None)
    server = kept(tmp_path, made).server("acme-9000-8-cores-node")
    assert made.profile["usual_node"] == {"gpus": 2}
    assert server.accelerators == 2
    assert network(server).scale_out_bytes_per_s == pytest.approx(RATE, rel=0.03)


@pytest.mark.parametrize(
    ("size", "local", "groups"),
    [
        (8, 8, (2, 4, 8)),
        (32, 8, (2, 4, 8, 16, 32)),
        (24, 8, (2, 4, 8, 16, 24)),
        (12, 6, (2, 4, 6, 12)),
        (4, 1, (2, 4)),
        (2, 2, (2,)),
    ],
)
def test_groups_are_part_of_a_node_or_whole_nodes(size: int, local: int, groups: tuple[int, ...]) -> None:
    assert sizes_of_groups(Ranks(0, size, local, 0)) == groups


# Two nodes of two processes each, on this machine, over gloo.


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def two_nodes(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One torchrun for each node, as on two machines."""
    script = folder / "ranks.py"
    script.write_text(
        "import sys; from xe_sizer.measure import collectives\n"
        "collectives.MESSAGES = {True: (4096, 65536, 262144, 1048576)}\n"
        "from xe_sizer.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    port = str(free_port())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for node in ("0", "1"):
        run = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
        run += ["--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port, str(script)]
        asked = ["measure", "--quick", "--anyway", "--device", "cpu", "-o", str(folder)]
        yield subprocess.Popen(
            [*run, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )


def test_four_processes_on_two_nodes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from xe_sizer.measure.samples import Samples
    from xe_sizer.measure.session import machine

    here = Samples(tmp_path / SAMPLES, machine("cpu"))
    for sample in samples([*products(), *moving()]):  # what a run without torchrun leaves
        here.add(sample)
    running = list(two_nodes(tmp_path))
    said = [one.communicate(timeout=300) for one in running]
    assert [one.returncode for one in running] == [0, 0], said[0][1][-2000:]
    timed = [one.kernel for one in read_samples(tmp_path / SAMPLES)[1] if one.kernel.law == COLLECTIVE]
    groups = {(one.name, one.sizes["ranks"], one.sizes["nodes"]) for one in timed}
    assert groups == {(name, 2.0, 1.0) for name in OPERATIONS} | {
        *((name, 4.0, 2.0) for name in OPERATIONS[:4]),
        (POINT_TO_POINT, 2.0, 2.0),
    }
    registry, name = Registry((tmp_path,)), slug(here.machine.device)
    assert {law.ranks for law in registry.accelerator(name).laws.collectives.values()} == {(2,)}
    server = registry.server(f"{name}-node")
    assert server.accelerators == 2
    assert 1e5 < network(server).scale_out_bytes_per_s < 1e12
    assert f"--server {name}-node" in said[0][0]
    assert "Between nodes" in said[0][0]
