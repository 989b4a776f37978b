"""What engines choose by themselves: by the card, by the longest sequence, and by the accelerator's vendor."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving_cases import asked, engine_file

from xe_sizer.software.engine import load_engine

OWN = """\
name: mine
parent: vllm@0.6
describes: The first engine, with smaller pieces of longer prompts.
by_context: {pieces_above: 20000, piece_tokens: 256}
"""


@pytest.mark.parametrize(
    ("gpu", "tokens", "sequences"),
    [("h100-sxm-80gb", 8192, 1024), ("l40s", 2048, 256), ("a100-sxm-80gb", 2048, 256), ("mi300x", 8192, 1024)],
)
def test_steps_of_vllm_by_the_card(gpu: str, tokens: int, sequences: int) -> None:
    batching = asked(gpu=gpu, gpus=1).job.engine.batching
    assert (batching.max_step_tokens, batching.max_sequences) == (tokens, sequences)
    assert asked(gpu=gpu, gpus=1, serve__max_sequences=9).job.engine.batching.max_sequences == 9


@pytest.mark.parametrize(
    ("model", "engine", "asks", "tokens", "chunked"),
    [
        ("llama-2-7b", "vllm@0.6.3", {}, 4096, False),
        ("llama-3.1-8b", "vllm@0.6.3", {}, 512, True),
        ("llama-3.1-8b", "vllm@0.6.3", {"serve__max_model_len": 8000}, 8000, False),
        ("llama-3.1-8b", "vllm@0.5.3", {}, 131_072, False),
        ("llama-3.1-8b", "vllm-v0", {}, 512, True),
        ("llama-2-7b", "vllm@0.6.3", {"serve__input_tokens": 33_000, "serve__max_model_len": 40_000}, 512, True),
        ("llama-3.1-8b", "vllm", {}, 8192, True),
    ],
)
def test_steps_of_the_first_engine_by_the_longest_sequence(
    model: str, engine: str, asks: dict[str, object], tokens: int, chunked: bool
) -> None:
    batching = asked(model, serve__engine=engine, **asks).job.engine.batching
    assert (batching.max_step_tokens, batching.chunked_prefill) == (tokens, chunked)
    assert batching.mixed_steps is chunked


def test_a_users_engine_chooses_so_too(tmp_path: Path) -> None:
    path = engine_file(tmp_path, OWN)
    assert asked("llama-3.1-8b", serve__engine=path).job.engine.batching.max_step_tokens == 256
    assert asked("llama-2-7b", serve__engine=path).job.engine.batching.max_step_tokens == 4096


@pytest.mark.parametrize(
    ("written", "name", "release"),
    [("vllm", "vllm-rocm", None), ("vllm@0.6.3", "vllm-rocm", "0.6.3"), ("vllm-v0", "vllm-rocm", "0.7")],
)
def test_an_engine_has_ports_in_the_same_release(written: str, name: str, release: str | None) -> None:
    engine = asked(gpu="mi300x", serve__engine=written).job.engine
    assert (engine.name, engine.release) == (name, release)
    assert asked(serve__engine=written).job.engine.name == load_engine(written).name


def test_products_of_the_ports_of_2024_are_slower() -> None:
    for name, release in (("tgi-rocm", ""), ("vllm-rocm", "@0.6.3")):
        assert load_engine(name + release).efficiency.matmul == 0.45
    assert load_engine("vllm-rocm").efficiency.matmul == load_engine("tgi").efficiency.matmul == 1.0
    assert asked(gpu="mi300x", serve__engine="tgi").job.engine.name == "tgi-rocm"


def test_the_port_of_2024_reads_the_cache_for_each_query_head() -> None:
    kernels = [load_engine(f"vllm-rocm@{release}").kernels.decode for release in ("0.6.3", "0.9")]
    assert kernels == ["per-head", "split"]


def test_generations_of_the_first_engine() -> None:
    found = {release: load_engine(f"vllm@{release}") for release in ("0.2", "0.3", "0.4.2", "0.5.4", "0.8")}
    assert [engine.host.graphs for engine in found.values()] == [False, True, True, True, True]
    assert [engine.exchanges.all_reduce for engine in found.values()] == ["nccl", *["custom"] * 4]
    assert [engine.kernels.decode for engine in found.values()] == [*["per-head"] * 3, "split", "split"]
    assert [engine.narrow["awq"].launches for engine in found.values()] == [1, 1, 1, 0, 0]
    assert [engine.narrow["int4"].launches for engine in found.values()] == [1, 1, 0, 0, 0]
    assert [engine.host.sequence_us for engine in found.values()] == [60, 60, 60, 60, 5]
