"""Records of inference as scenarios, and what is compared with them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import figures, peak, rates, serve_record, validate
from xe_sizer.evidence.records import LayoutStated, Lora, Measured, Record
from xe_sizer.evidence.serving_scenario import build_inference, find_engine
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.serving.estimate import ServingEstimate

REGISTRY = RecordRegistry()
PLAIN = Record(
    id="one", job="inference", stack="vllm", framework="vllm 0.9.1", model="llama-3.1-8b", gpu="h100-sxm-80gb", gpus=1,
    precision="bf16", weights="bf16", tp=1, sequences=8, input_len=512, output_len=128,
)  # fmt: skip


def record(**more: Any) -> Record:
    return msgspec.structs.replace(PLAIN, **more)


def flags(**more: Any) -> dict[str, Any]:
    return dict(build_inference(record(**more), REGISTRY).values)


@pytest.mark.parametrize(
    ("stack", "framework", "engine"),
    [
        ("vllm", "vllm 0.9.1", "vllm@0.9.1"),
        ("vllm", "vllm 0.6.3", "vllm@0.6.3"),
        ("vllm", "vllm", "vllm@0.6"),
        ("vllm", "vllm (CUDA 12.8)", "vllm@0.6"),
        ("vllm", "vllm nightly", "vllm"),
        ("sglang", "sglang-nightly-dev-20260216-d3bae71e", "sglang@26.02"),
        ("vllm", "vllm, 2025-10", "vllm@25.10"),
        ("tensorrt-llm", "trtllm-0.17", "tensorrt-llm-cpp"),
        ("tensorrt-llm", "trtllm-0.6.1", "tensorrt-llm-2023"),
        ("tensorrt-llm", "trtllm-1.0", "tensorrt-llm"),
        ("tensorrt-llm", "trtllm", "tensorrt-llm-cpp"),
        ("tensorrt-llm", "trtllm-1.x-pytorch", "tensorrt-llm"),
        ("trtllm", "TensorRT-LLM", "tensorrt-llm-cpp"),
        ("hf-transformers", "hf-transformers (fp16) torch 2.1.1+cu118", "hf-transformers-2023"),
        ("hf-transformers", "transformers 4.46.0 (torch 2.1.2)", "hf-transformers@4.46.0"),
        ("hf-transformers", "hf-transformers torch 2.3", "hf-transformers@4.44"),
        ("hf-transformers", "hf-transformers torch 2.6", "hf-transformers"),
        ("hf-transformers", None, "hf-transformers@4.44"),
        ("transformers", None, "hf-transformers@4.44"),
        ("huggingface", "transformers 4.50", "hf-transformers@4.50"),
        ("sglang", "sglang 0.5", "sglang@0.5"),
        ("sglang", "SGLang on B200", "sglang@0.5.9"),
        ("text-generation-inference", "text-generation-inference 3.0", "tgi@3.0"),
        ("text-generation-inference", None, "tgi-2023"),
    ],
)
def test_engines_by_name_and_release(stack: str, framework: str | None, engine: str) -> None:
    assert find_engine(record(stack=stack, framework=framework))[0] == engine


UNDATED = {
    "vllm": "vllm", "tensorrt-llm": "trtllm", "hf-transformers": "hf-transformers", "tgi": "text-generation-inference"
}  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "more", "engine"),
    [
        ("vllm", {"gpu": "b200"}, "vllm@25.05"),
        ("vllm", {"gpu": "rtx-5090"}, "vllm@25.05"),
        ("vllm", {"gpu": "mi355x"}, "vllm@25.06"),
        ("vllm", {"gpu": "mi300x"}, "vllm@0.6"),
        ("vllm", {"model": "gpt-oss-20b", "precision": "fp4", "weights": "fp4"}, "vllm@25.08"),
        ("vllm", {"model": "qwen3-8b"}, "vllm@25.04"),
        ("vllm", {"model": "qwen3-8b", "gpu": "b200"}, "vllm@25.05"),
        ("vllm", {"model": "qwen3-8b-instruct", "gpu": "b300", "weights": "fp4", "precision": "fp4"}, "vllm@25.05"),
        ("vllm", {"model": "deepseek-v3", "weights": "fp8", "precision": "fp8", "tp": 8, "gpus": 8}, "vllm@24.12"),
        ("vllm", {"date": "2026-03"}, "vllm@26.03"),
        ("vllm", {"date": 2026}, "vllm@2026"),
        ("vllm", {"model": "llama-2-7b", "date": "2023-10"}, "vllm@23.10"),
        ("vllm", {"date": "2023-10"}, "vllm@24.07"),
        ("vllm", {"date": "2025-01", "gpu": "b200"}, "vllm@25.05"),
        ("tensorrt-llm", {"gpu": "b200"}, "tensorrt-llm"),
        ("tensorrt-llm", {"model": "gpt-oss-20b", "precision": "fp4", "weights": "fp4"}, "tensorrt-llm"),
        ("tensorrt-llm", {"model": "llama-2-7b", "date": "2023-10"}, "tensorrt-llm-2023"),
        ("tensorrt-llm", {"date": "2026-01"}, "tensorrt-llm"),
        ("hf-transformers", {"model": "qwen3-8b"}, "hf-transformers@25.04"),
        ("hf-transformers", {"gpu": "b200", "date": "2026-01"}, "hf-transformers@26.01"),
        ("hf-transformers", {"model": "llama-2-7b", "date": "2023-09"}, "hf-transformers-2023"),
        ("tgi", {"model": "llama-3-8b"}, "tgi@24.04"),
    ],
)
def test_no_release_is_assumed_that_lacks_what_the_run_needs(stack: str, more: dict[str, Any], engine: str) -> None:
    """The newest of what the accelerator, the weights and the model need, or the release of the run's own date."""
    found = build_inference(record(stack=stack, framework=UNDATED[stack], **more), REGISTRY)
    assert found.values["serve.engine"] == engine
    stated = build_inference(record(stack="vllm", framework="vllm 0.8.5", **more), REGISTRY)
    assert stated.values["serve.engine"] == "vllm@0.8.5"


def test_vllm_on_blackwell_is_never_the_first_engine() -> None:
    old, new = (serve_record(record(framework="vllm", gpu=gpu), REGISTRY).served for gpu in ("h100-sxm-80gb", "b200"))
    assert old.resolved.job.engine.host.step_ms == load_engine("vllm@0.6").host.step_ms
    assert new.resolved.job.engine.host.step_ms == load_engine("vllm").host.step_ms < 1.5
    run = build_inference(record(stack="tensorrt-llm", framework="trtllm", date="2025-01-14"), REGISTRY).assumed
    assert "engine tensorrt-llm-cpp: no release stated: of 2025-01, as the run" in run
    told = build_inference(record(framework="vllm", gpu="b200"), REGISTRY).assumed
    assert "engine vllm@25.05: no release stated: of 2025-05, the first for blackwell" in told


@pytest.mark.parametrize("stack", ["ctranslate2", "litgpt", "onnxruntime", "optimum", "nobody-knows"])
def test_an_engine_without_a_name_here_is_eager_with_a_wide_range(stack: str) -> None:
    measured = Measured(output_tokens_per_s=100.0)
    one = {"stack": stack, "sequences": 1, "measured": measured}
    assert flags(**one)["serve.engine"] == "hf-transformers@4.44"
    assert flags(**one, model="llama-2-7b", date="2023-08")["serve.engine"] == "hf-transformers-2023"
    assert flags(**one, date="2026-02")["serve.engine"] == "hf-transformers@26.02"
    (found,), (eager,) = (
        [one for one in rates(serve_record(made, REGISTRY)) if one.quantity == "throughput"]
        for made in (record(**one), record(**{**one, "stack": "hf-transformers", "framework": None}))
    )
    assert found.predicted == eager.predicted
    assert (found.high or 0.0) / (found.low or 1.0) > 3.0 * (eager.high or 0.0) / (eager.low or 1.0)


def test_an_engine_without_a_name_here_that_takes_requests_as_they_come_is_eager_too() -> None:
    for load in ({"concurrency": 8}, {"request_rate": 0.5}):
        made = record(stack="nobody-knows", sequences=None, measured=Measured(output_tokens_per_s=100.0), **load)
        found = serve_record(made, REGISTRY)
        assert found.served.resolved.job.engine.name == "tgi-2023"
        assert not found.served.resolved.job.engine.host.graphs
        assert next(rates(found)).predicted > 0


def test_an_engine_without_a_name_here_that_compiles_waits_for_no_launches() -> None:
    assert flags(stack="nobody-knows", framework="nobody-knows with CUDA graphs")["serve.engine"] == "vllm"
    assert flags(stack="nobody-knows", compile=True)["serve.engine"] == "vllm"
    assert flags(stack="nobody-knows", compile=False)["serve.engine"] == "hf-transformers@4.44"


def test_what_was_measured_changes_nothing_that_is_asked() -> None:
    measured = Measured(ttft_ms=1.0, tpot_ms=99.0, output_tokens_per_s=3.0, requests_per_s=7.0, oom=True)
    assert flags(measured=measured, id="other", source={"title": "x", "date": "2031"}) == flags()


def test_loads_are_those_that_are_stated() -> None:
    assert flags()["serve.requests"] == 8
    assert flags(sequences=None, concurrency=32)["serve.concurrency"] == 32
    assert flags(sequences=None, request_rate=2.5)["serve.request_rate"] == 2.5
    loads = {"serve.batch", "serve.concurrency", "serve.request_rate", "serve.requests"}
    assert not loads & set(flags(sequences=None))


@pytest.mark.parametrize("load", [{"concurrency": 500}, {"request_rate": 500.0}])
def test_no_objective_judges_a_measurement(load: dict[str, Any]) -> None:
    """What was measured on one GPU is predicted for it, however long requests wait."""
    found = serve_record(record(sequences=None, **load), REGISTRY).served
    assert (found.resolved.limits.max_ttft_s, found.resolved.limits.max_tpot_s) == (None, None)
    assert (found.gpus, found.replicas, found.limits) == (1, 1, ())


def test_formats_follow_the_record() -> None:
    narrow = flags(precision="fp8", weights="fp8", kv_cache="fp8")
    assert (narrow["serve.weights"], narrow["serve.kv_cache"]) == ("fp8", "fp8")
    assert "serve.activations" not in narrow
    packed = flags(precision="fp16", weights="int4", framework="vllm 0.9 (awq)")
    assert (packed["serve.weights"], packed["serve.activations"]) == ("awq", "fp16")
    assert flags(model="gpt-oss-20b", precision="fp4", weights="fp4")["serve.weights"] == "mxfp4"


def test_layers_are_spread_where_the_framework_spreads_them() -> None:
    spread = flags(stack="hf-transformers", framework="hf-transformers torch 2.6", gpus=4, tp=None)
    assert (spread["layout.tp"], spread["layout.pp"]) == (1, 4)
    assert flags(gpus=4, tp=None)["layout.tp"] == 4


def compared(**measured: Any) -> dict[str, tuple[float, float]]:
    found = serve_record(record(measured=Measured(**measured)), REGISTRY)
    return {one.quantity: (one.measured, one.predicted) for one in figures(found)}


def duration_s(served: ServingEstimate) -> float:
    """Of the eight requests that come at once."""
    test = served.choice.test
    assert test is not None
    return float(test.finish_s.max())


def test_every_figure_has_its_counterpart_in_the_same_unit() -> None:
    served = serve_record(PLAIN, REGISTRY).served
    both = compared(ttft_ms=40.0, tpot_ms=9.0, output_tokens_per_s=800.0)
    assert both["ttft"] == (pytest.approx(0.04), served.point.ttft_s)
    assert both["tpot"] == (pytest.approx(0.009), served.point.tpot_s)
    assert both["throughput"] == (800.0, pytest.approx(8 * 128 / duration_s(served)))


@pytest.mark.parametrize(
    ("key", "value", "tokens"),
    [("total_tokens_per_s", 4000.0, 640), ("requests_per_s", 6.25, 640), ("request_latency_s", 1.28, 128)],
)
def test_rates_of_other_things_are_compared_as_such(key: str, value: float, tokens: int) -> None:
    measured, predicted = compared(**{key: value})["throughput"]
    served = serve_record(PLAIN, REGISTRY).served
    time_s = served.point.request_s if key == "request_latency_s" else duration_s(served)
    assert predicted == pytest.approx(8 * tokens / time_s)
    assert measured == pytest.approx({"total_tokens_per_s": 4000.0, "requests_per_s": 4000.0}.get(key, 800.0))


def test_peaks_are_of_batches_whose_cache_grows() -> None:
    measured = Measured(peak_memory_gib=20.0, memory_metric="allocated")
    assert peak(serve_record(record(measured=measured), REGISTRY)) is None
    grown = record(stack="hf-transformers", framework="hf-transformers torch 2.6", measured=measured)
    found = peak(serve_record(grown, REGISTRY))
    assert found is not None
    assert 15 * 2**30 < found.predicted < 20 * 2**30


def test_validate_answers_both_kinds() -> None:
    records = [record(measured=Measured(tpot_ms=9.0)), record(id="two", job="dpo", input_len=None, output_len=None)]
    found = validate(records)
    assert [one.quantity for one in found.records] == ["tpot", "oom"]
    assert [one.id for one in found.skipped] == ["two"]
    one = found.records[0]
    assert one.low is not None
    assert one.high is not None
    assert one.low < one.predicted < one.high


def test_gpus_without_a_placement_are_placed_as_the_question_asks() -> None:
    """Eight GPUs with nothing said of how: a batch is one replica's, else the most throughput of all of them."""
    batch = flags(gpus=8, tp=None)
    assert batch["layout.tp"] == 8
    offline = build_inference(record(gpus=8, tp=None, sequences=None), REGISTRY)
    assert not any(name.startswith("layout.") for name in offline.values)
    assert "placement on 8 GPUs chosen for the most throughput: not stated" in offline.assumed
    found = serve_record(record(gpus=8, tp=None, sequences=None), REGISTRY).served
    assert found.working_replicas * int(found.placement.gpus[0]) == 8
    assert found.replicas > 1


def test_what_an_overloaded_run_gives_is_the_capacity() -> None:
    """The run was offered 500 requests a second; its throughput is what the replica takes, but for how it ends."""
    measured = Measured(output_tokens_per_s=4000.0, requests_per_s=30.0)
    found = serve_record(record(sequences=None, request_rate=500.0, requests=1000, measured=measured), REGISTRY)
    (rate,) = (one for one in figures(found) if one.quantity == "throughput")
    full = found.served.choice.full_rate * 128
    assert 0.8 * full < rate.predicted < full
    assert rate.predicted < 500 * 128 / 4


def test_launch_options_are_those_that_are_stated() -> None:
    found = flags(gpu_memory_utilization=0.82, scheduler_recv_interval=30, batch_wait_iters=20)
    names = ("gpu_memory_utilization", "scheduler_recv_interval", "batch_wait_iters")
    assert [found[f"serve.{name}"] for name in names] == [0.82, 30, 20]
    cached = serve_record(record(prefix_cache=True), REGISTRY).assumed
    assert "nothing found in the prefix cache: share of the prompts not stated" in cached
    assert not any("prefix" in one for one in serve_record(record(prefix_cache=False), REGISTRY).assumed)


@pytest.mark.parametrize(
    ("layout", "placed"),
    [
        ({"attention_dp": 4, "moe_tp": 4}, (1, 4, 1)),
        ({"tp": 2, "attention_dp": 2, "moe_tp": 4}, (2, 2, 1)),
        ({"tp": 4, "moe_tp": 2}, (4, None, 2)),
        ({"attention_dp": 4, "ep": 4}, (1, 4, 4)),
        ({"tp": 4, "ep": 2, "moe_tp": 2}, (4, None, 2)),
    ],
)
def test_ranks_that_split_an_expert_leave_the_rest_to_whole_experts(
    layout: dict[str, int], placed: tuple[int | None, ...]
) -> None:
    found = flags(layout=LayoutStated(**layout), gpus=4, tp=None)
    assert tuple(found.get(f"layout.{name}") for name in ("tp", "dp", "ep")) == placed


def test_benchmarks_of_some_engines_launch_them_with_steps_of_one_prompt() -> None:
    """A prompt of 1,000, 64 sequences, and the mean of 64 and 1,500; what a record states comes first."""
    test = {"stack": "tensorrt-llm", "framework": "trtllm-1.0", "sequences": None, "concurrency": 64, "input_len": 1000}
    assert flags(**test)["serve.max_step_tokens"] == 1846
    assert flags(**test, max_step_tokens=8192)["serve.max_step_tokens"] == 8192
    assert "serve.max_step_tokens" not in flags(**{**test, "framework": "trtllm-0.17"})
    assert "serve.max_step_tokens" not in flags(sequences=None, concurrency=64)
    assert not serve_record(record(**test), REGISTRY).guessed


def test_beams_are_sequences_of_which_one_answers() -> None:
    """Four beams of 8 requests decode as 32 requests do, and give the answers of 8."""
    measured = Measured(output_tokens_per_s=100.0)
    searched = serve_record(record(beams=4, measured=measured), REGISTRY)
    plain = serve_record(record(sequences=32, measured=measured), REGISTRY)
    assert searched.served.resolved.requests == plain.served.resolved.requests == 32
    assert "the 4 beams of a request as 4 requests, each with the prompt" in searched.assumed
    found, whole = next(figures(searched)), next(figures(plain))
    assert found.predicted == pytest.approx(whole.predicted / 4)
    assert flags(beams=1) == flags()


def test_adapters_of_a_service_are_served_with_their_rank_and_targets() -> None:
    found = flags(adapters=8, lora=Lora(rank=32, targets=["q_proj", "v_proj"]))
    assert (found["serve.adapters"], found["lora.rank"], found["lora.targets"]) == (8, 32, ["q", "v"])
    assert not {"serve.adapters", "lora.rank", "lora.targets"} & set(flags(lora=Lora(rank=32)))
