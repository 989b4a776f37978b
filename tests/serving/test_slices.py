"""Replicas on parts of a GPU: MIG profiles, and GPUs that are shared in turns or under MPS."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import REGISTRY
from serving_cases import job, problems, served

from xe_sizer.cli.command import answer_to
from xe_sizer.cli.export import exported_plan
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import exporter_named
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.serving.summary import summarise

A100, H100 = "a100-sxm-80gb", "h100-sxm-80gb"


def test_a_reranker_on_two_sevenths_of_an_a100_is_as_fast_as_published() -> None:
    """bge-reranker-v2-m3, 23 documents of 512 tokens: 5.4 requests/s (text-embeddings-inference issue 392)."""
    found = served(
        "bge-m3", gpu=A100, slice="2g.20gb", serve__engine="text-embeddings-inference", serve__weights="fp16",
        serve__documents=23, serve__input_tokens=512,
    )  # fmt: skip
    assert found.choice.full_rate == pytest.approx(5.4, rel=0.1)
    assert found.replicas == 3  # three of them fit the GPU, where nobody says how many GPUs there are
    assert found.gpus == 1


def test_a_slice_has_its_shares_of_the_gpu() -> None:
    """16 of 132 multiprocessors and an eighth of the memory, with its bandwidth; the card's memory is 79.11 GiB."""
    whole, part = (job("llama-3.2-1b", gpu=H100, **one).server.accelerator for one in ({}, {"slice": "1g.10gb"}))
    assert part.memory_bytes / 2**30 == pytest.approx(79.11 / 8)
    assert part.memory_bandwidth_bytes_per_s == pytest.approx(3350e9 / 8)
    assert part.peak_flops_per_s["bf16"] == pytest.approx(989e12 * 16 / 132, rel=1e-3)
    assert part.laws.matmul["bf16"].floor_s == whole.laws.matmul["bf16"].floor_s


def test_gpus_are_counted_and_paid_whole() -> None:
    """10 replicas on sevenths of a GPU are on 2 GPUs, as are 14; 15 are on 3."""
    flags = {"gpu": H100, "slice": "1g.10gb", "cost__price_per_gpu_hour": 2.0}
    found = served("llama-3.2-1b", serve__request_rate=100, **flags)
    assert 7 < found.replicas <= 14
    assert (found.gpus, found.cost) == (2, 4.0)
    assert found.placement.gpus[0] == 1
    assert served("llama-3.2-1b", gpus=3, serve__concurrency=500, **flags).replicas == 21
    assert summarise(found).slice.per_gpu == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "together"), [("time-slicing-4", 0.84), ("mps-4", 0.93), ("time-slicing-2", 0.84)])
def test_what_shares_a_gpu_in_software_divides_it(name: str, together: float) -> None:
    """Products that the GPU bounds take as many times as long as there are replicas, over what they reach together."""
    whole, part = (job("llama-3.2-1b", gpu=A100, **one) for one in ({}, {"slice": name}))
    count, work = int(name[-1]), Work(prefills=8.0, prefill_tokens=2048.0)
    alone, shared = (step_time(one, ReplicaLayouts.of(), work).parts["linear layers"][0] for one in (whole, part))
    assert shared / alone == pytest.approx(count / together, rel=0.01)
    memory = [one.server.accelerator.memory_bytes for one in (whole, part)]
    assert memory[0] / memory[1] == pytest.approx(count)


def test_kernels_wait_for_their_turn() -> None:
    """The smallest kernel takes as many times as long in turns, and no longer beside others."""
    floors = {
        name: job("llama-3.2-1b", gpu=A100, **({"slice": name} if name else {})).device.decode.floor_s
        for name in ("", "time-slicing-4", "mps-4")
    }
    assert floors["time-slicing-4"] == pytest.approx(4 / 0.84 * floors[""])
    assert floors["mps-4"] == floors[""]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"slice": "1g.20"}, "h100-sxm-80gb has no slice '1g.20'"),
        ({"slice": "1g.10gb", "gpu": "l4"}, "l4 has no slice '1g.10gb'"),
        ({"slice": "mps-1"}, "has no slice 'mps-1'"),
        ({"slice": "1g.20gb", "layout__tp": 2}, "a replica on a slice has no tp"),
        ({"slice": "1g.20gb", "serve__prefill_replicas": 2}, "'prefill_replicas' and 'slice' do not go together"),
    ],
)
def test_what_no_slice_can_be_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in told for told in problems(model="llama-3.2-1b", **flags))


@pytest.mark.parametrize(
    ("name", "device"), [("1g.20gb", "nvidia.com/mig-1g.20gb: '1'"), ("mps-4", "nvidia.com/gpu: '1'")]
)
def test_a_manifest_asks_for_the_slice(name: str, device: str, tmp_path: Path) -> None:
    flags = {"model": "llama-3.2-1b", "gpu": H100, "slice": name, "serve.request_rate": 50, "serve.max_model_len": 8192}
    scenario = read_scenario(None, flags, {})
    answer = answer_to(scenario, REGISTRY)
    _, found = exported_plan(exporter_named("kubernetes"), scenario, answer, REGISTRY)
    written = found.written
    path = tmp_path / "service.yaml"
    path.write_text(written.text, encoding="utf-8")
    assert device in written.text
    assert ("'0.225'" in written.text) == (name == "mps-4")  # each of four sees all of the memory
    facts = read_foreign([path], Asked()).facts
    assert ("slice" in facts) == (name != "mps-4")
    assert "slice" not in facts or facts["slice"].value == name
