"""Services with attention groups and experts, written for engines and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Plan, export, exporters

MODEL = "deepseek-ai/DeepSeek-V3"


def plan(**more: Any) -> Plan:
    values = {"model": MODEL, "job": "inference", "layout.tp": 1, "layout.pp": 1, "layout.dp": 8, "layout.ep": 8}
    return Plan(values | {"gpus": 8, "replicas": 1} | {key.replace("__", "."): value for key, value in more.items()})


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm", "kubernetes"])
def test_attention_groups_and_whole_experts_are_read_back(name: str, tmp_path: Path) -> None:
    exporter = exporters()[name]
    written = export(plan(serve__max_sequences=64, serve__max_step_tokens=4096), exporter).written
    file = tmp_path / f"service{exporter.ending}"
    file.write_text(written.text, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    wanted = {"layout.tp": 1, "layout.dp": 8, "layout.ep": 8, "gpus": 8, "serve.max_sequences": 64,
              "serve.max_step_tokens": 4096}  # fmt: skip
    assert {key: facts[key].value for key in wanted} == wanted


@pytest.mark.parametrize(("name", "dispatcher"), [
    ("vllm", "deepep-low-latency"), ("vllm", "pplx"), ("sglang", "deepep"), ("sglang", "deepep-normal"),
    ("kubernetes", "nvlink"),
])  # fmt: skip
def test_how_tokens_get_to_experts_is_read_back(name: str, dispatcher: str, tmp_path: Path) -> None:
    exporter = exporters()[name]
    keys = {"serve.dispatcher": dispatcher, "serve.redundant_experts": 32, "serve.two_batch_overlap": True}
    asked = plan(serve__dispatcher=dispatcher, serve__redundant_experts=32, serve__two_batch_overlap=True)
    exported = export(asked, exporter)
    assert exported.unsaid == ()
    file = tmp_path / f"service{exporter.ending}"
    file.write_text(exported.written.text, encoding="utf-8")
    found = read_foreign([file], Asked())
    assert {key: found.facts[key].value for key in keys} == keys
    assert [each.key for each in found.ignored if each.effect == "memory or time"] == []


def test_replicas_that_prefill_have_deepeps_kernels_for_prompts() -> None:
    pools = plan(serve__dispatcher="deepep", serve__prefill_replicas=1, serve__prefill_dp=8, serve__prefill_ep=8)
    text = export(pools, exporters()["llm-d"]).written.text
    assert text.count("deepep_high_throughput") == text.count("deepep_low_latency") == 1


def test_slots_of_tensorrt_llm_are_experts_and_their_copies() -> None:
    exported = export(plan(serve__redundant_experts=32, serve__dispatcher="nvlink"), exporters()["trtllm"])
    assert "num_slots: 288" in exported.written.text


def test_replicas_are_those_of_a_deployment(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(export(plan(replicas=3), exporters()["kubernetes"]).written.text, encoding="utf-8")
    assert read_foreign([file], Asked()).facts["gpus"].value == 24


@pytest.mark.parametrize(("model", "names"), [
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", ("vllm", "sglang", "trtllm")), ("MiniMaxAI/MiniMax-Text-01", ("vllm",)),
])  # fmt: skip
def test_types_of_recurrent_states_are_read_back(model: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        exporter = exporters()[name]
        file = tmp_path / f"service{exporter.ending}"
        text = export(plan(**{"model": model, "serve.state_dtype": "bfloat16"}), exporter).written.text
        file.write_text(text, encoding="utf-8")
        assert read_foreign([file], Asked()).facts["serve.state_dtype"].value == "bfloat16"
        assert ("--mamba-cache-dtype bfloat16" in text) == (model.startswith("MiniMax"))


DRAFTS: dict[str, dict[str, Any]] = {
    "mtp": {"serve.draft_tokens": 3},
    "eagle3": {"serve.draft_tokens": 4},
    "draft-model": {"serve.draft_tokens": 2, "serve.draft_model": "meta-llama/Llama-3.2-1B"},
    "ngram": {"serve.draft_tokens": 5},
}


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("method", DRAFTS)
def test_methods_of_speculative_decoding_are_read_back(name: str, method: str, tmp_path: Path) -> None:
    exporter, wanted = exporters()[name], {"serve.speculative": method, **DRAFTS[method]}
    exported = export(plan(**{"serve.acceptance_rate": 0.7}, **wanted), exporter)
    file = tmp_path / f"service{exporter.ending}"
    file.write_text(exported.written.text, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    assert {key: facts[key].value for key in wanted} == wanted
    assert "serve.acceptance_rate" not in facts  # known of the method
    assert any("head that drafts" in one for one in exported.yours) == (method == "eagle3")


def test_trees_of_drafts_are_those_of_sglang(tmp_path: Path) -> None:
    tree = {"serve.draft_tokens": 15, "serve.draft_width": 4, "serve.draft_depth": 5}
    file = tmp_path / "service.sh"
    asked = plan(**{"serve.speculative": "eagle3", "serve.draft_model": "a/head"}, **tree)
    file.write_text(export(asked, exporters()["sglang"]).written.text, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    assert {key: facts[key].value for key in tree} == tree
    assert ("serve.draft_width", 4) in export(
        plan(**{"serve.speculative": "eagle3"}, **tree), exporters()["vllm"]
    ).unsaid


@pytest.mark.parametrize(
    ("algorithm", "head", "expected"),
    [
        ("EAGLE", None, "mtp"),
        ("EAGLE", "lmsys/DeepSeek-R1-NextN", "mtp"),
        ("EAGLE", "a/EAGLE-head", "eagle"),
        ("DFLASH", None, "dflash"),
        ("DSPARK", None, None),
    ],
)
def test_heads_in_the_words_of_sglang(algorithm: str, head: str | None, expected: str | None, tmp_path: Path) -> None:
    file = tmp_path / "launch.sh"
    words = f"--speculative-algorithm {algorithm} --speculative-num-steps 2 --speculative-eagle-topk 1"
    words += f" --speculative-draft-model-path {head}" if head else ""
    file.write_text(f"python3 -m sglang.launch_server --model-path {MODEL} --tp 8 {words}\n", encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    assert facts["serve.draft_tokens"].value == 2
    assert (facts["serve.speculative"].value if expected else None) == expected
    assert ("serve.acceptance_rate" in facts) == (expected is None)


def test_what_an_engine_cannot_run_is_refused() -> None:
    with pytest.raises(InputError, match=r"TensorRT-LLM has no setting for layout\.tp"):
        export(plan(layout__tp=2), exporters()["trtllm"])
    with pytest.raises(InputError, match=r"vLLM has no setting for layout\.ep"):
        export(plan(layout__ep=2), exporters()["vllm"])


def test_formats_that_need_a_checkpoint_of_their_own_are_told() -> None:
    exported = export(plan(serve__weights="awq"), exporters()["vllm"])
    assert ("serve.weights", "awq") in exported.unsaid
