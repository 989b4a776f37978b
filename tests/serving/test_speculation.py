"""Speculative decoding: what drafts are, what they gain, and what drafting takes of memory and time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving_cases import asked, served
from xe_sizer.errors import InputError
from xe_sizer.graph.drafter import eagle3_head, mtp_module, mtp_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.serving.advice import advise
from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.memory import request_bytes, serving_memory
from xe_sizer.serving.resolved import ResolvedService
from xe_sizer.serving.simulation import Reach, step_prices
from xe_sizer.serving.step_time import Work, drafting, step_time
from xe_sizer.serving.summary import summarise
from xe_sizer.serving.uncertainty import span
from xe_sizer.software.speculation import METHODS, branched, extended, kept_tokens

ONE, REGISTRY = ReplicaLayouts.of(), Registry()


def test_tokens_of_a_step_by_position() -> None:
    """1 + 0.9 + 0.9 x 0.8 + 0.9 x 0.8 x 0.5; the last rate holds for all positions that follow."""
    assert kept_tokens((0.9, 0.8, 0.5)) == pytest.approx(2.98)
    assert Traffic(1.0, 1.0, draft_tokens=3, acceptance_rate=(0.9, 0.5)).tokens_per_step == pytest.approx(2.575)
    assert Traffic(1.0, 1.0, draft_tokens=6, draft_depth=2, acceptance_rate=0.5).tokens_per_step == pytest.approx(1.75)
    assert branched((0.6,), 5)[0] == pytest.approx(0.8, abs=0.005)  # Medusa's first head (arXiv:2401.10774)
    assert branched((0.6, 0.3), 1) == pytest.approx((0.6, 0.3))


@pytest.mark.parametrize("name", METHODS)
def test_published_acceptance_lies_between_its_ends(name: str) -> None:
    method = METHODS[name]
    assert method.source
    low, middle, high = (kept_tokens(extended(one, 3)) for one in (method.low, method.acceptance, method.high))
    assert 1.0 < low < middle < high


def test_parameters_of_a_module_are_those_that_are_published() -> None:
    """DeepSeek-V3: 11.6B beside embedding and head, 14B with them, of which the model has its own (its model card)."""
    model = asked("deepseek-v3", server="dell-xe9680-h200").job.model
    assert mtp_parameters(model) == 11_610_067_968
    assert mtp_parameters(model) + 2 * 129280 * 7168 == pytest.approx(14e9, rel=0.05)
    assert mtp_module(asked("qwen3-next-80b-a3b").job.model).layer_pattern == "*"
    # EAGLE3-LLaMA3.1-Instruct-8B: 3 h -> h, a layer that reads 2 h, and 32,000 words: 850 MB beside the embedding
    head = eagle3_head(asked().job.model)
    count = count_parameters(head)
    assert 2 * (count.total - 32000 * 4096) == pytest.approx(850e6, rel=0.01)


def test_a_drafter_takes_weights_and_cache() -> None:
    plain, drafted = (asked(serve__concurrency=4, **more).job for more in ({}, {"serve__speculative": "eagle3"}))
    weights = 3 * 4096**2 + 2 * 4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 32000 * 4096
    found = serving_memory(drafted, ONE)
    assert found.fixed["drafter"][0] == pytest.approx(2 * weights, rel=0.001)
    assert found.pool_bytes[0] == pytest.approx(serving_memory(plain, ONE).pool_bytes[0] - found.fixed["drafter"][0])
    assert request_bytes(drafted, ONE, 1024)[0] == pytest.approx(request_bytes(plain, ONE, 1024)[0] * 33 / 32)


@pytest.mark.parametrize(("weights", "element_bytes"), [("fp8-block", 1.0), ("nvfp4", 2.0)])
def test_modules_have_the_format_of_the_weights_unless_that_is_of_4_bit(weights: str, element_bytes: float) -> None:
    job = asked("deepseek-r1", gpu="b200", serve__speculative="mtp", serve__weights=weights).job
    expected = element_bytes * 11_610_067_968
    assert serving_memory(job, ONE).fixed["drafter"][0] == pytest.approx(expected, rel=0.03)


def test_embedding_and_head_of_a_draft_model_are_its_own() -> None:
    job = asked("llama-3.1-70b", gpu="h200-sxm-141gb", serve__draft_model="llama-3.2-1b").job
    assert serving_memory(job, ONE).fixed["drafter"][0] == pytest.approx(2 * 1_235_814_400, rel=0.001)
    two = ReplicaLayouts.of(pp=2)
    head = asked("llama-3.1-8b", serve__speculative="eagle").job
    again = serving_memory(head, two).fixed["drafter"][0] - serving_memory(head, ONE).fixed["drafter"][0]
    assert again == pytest.approx(2 * 128256 * 4096)  # the last stage has no embedding to share


def test_heads_of_medusa_have_a_vocabulary_each_and_no_cache() -> None:
    plain, drafted = (asked(serve__concurrency=4, **more).job for more in ({}, {"serve__speculative": "medusa"}))
    found = serving_memory(drafted, ONE).fixed["drafter"][0]
    assert found == pytest.approx(2 * 3 * (4096**2 + 128256 * 4096), rel=0.001)
    assert request_bytes(drafted, ONE, 1024)[0] == request_bytes(plain, ONE, 1024)[0]
    # The last stage has no embedding, and heads read none.
    assert serving_memory(drafted, ReplicaLayouts.of(pp=2)).fixed["drafter"][0] == found


def test_a_block_of_dflash_has_five_layers_beside_those_of_the_model() -> None:
    """z-lab/Qwen3-8B-DFlash-b16: 1.05 thousand million parameters, of which it shares embedding and head."""
    plain, drafted = (
        asked("qwen3-8b", serve__concurrency=4, **more).job for more in ({}, {"serve__speculative": "dflash"})
    )
    assert serving_memory(drafted, ONE).fixed["drafter"][0] == pytest.approx(2 * 1.05e9, rel=0.01)
    assert request_bytes(drafted, ONE, 1024)[0] == pytest.approx(request_bytes(plain, ONE, 1024)[0] * 41 / 36)


@pytest.mark.parametrize("method", ["medusa", "dflash"])
def test_one_pass_drafts_all_positions(method: str) -> None:
    few, many = (
        drafts_s(
            asked(serve__speculative=method, serve__draft_tokens=tokens, serve__engine="vllm"),
            Work(1.0, 500.0, decode_tokens=tokens + 1),
        )
        for tokens in (2, 7)
    )
    more_heads = 5 * 2 * (4096**2 + 128256 * 4096) / 3.35e12 if method == "medusa" else 0.0
    assert few < many < few + 1.5 * more_heads + 0.2e-3
    prompt = drafts_s(
        asked(serve__speculative=method, serve__engine="sglang" if method == "dflash" else "vllm"),
        Work(prefills=1, prefill_tokens=4000),
    )
    whole = float(step_time(asked().job, ONE, Work(prefills=1, prefill_tokens=4000)).total_s[0])
    assert prompt < whole / 20  # one head, or the joining and keys and values: no layer runs over the prompt


def test_drafters_on_fewer_ranks_are_whole_on_each() -> None:
    two = ReplicaLayouts.of(tp=2)
    split, whole = (
        asked(gpus=2, layout__tp=2, serve__engine="sglang", serve__speculative="eagle3", serve__draft_tp=ranks).job
        for ranks in (2, 1)
    )
    held = [serving_memory(job, two).fixed["drafter"][0] for job in (split, whole)]
    assert 1.5 * held[0] < held[1] == serving_memory(whole, ONE).fixed["drafter"][0]
    assert request_bytes(whole, two, 1024)[0] > request_bytes(split, two, 1024)[0]
    work = Work(64.0, 500.0, decode_tokens=4)
    seconds = [float(step_time(job, two, work).parts[drafting.name][0]) for job in (split, whole)]
    assert seconds[0] != seconds[1]


def test_files_of_speculators_are_drafters(tmp_path: Path) -> None:
    """RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3 in the fields that its layers have."""
    layer = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "hidden_act": "silu",
    }  # fmt: skip
    file = tmp_path / "config.json"
    head = {"speculators_model_type": "eagle3", "transformer_layer_config": layer, "draft_vocab_size": 32000}
    file.write_text(json.dumps(head), encoding="utf-8")
    stated = asked(serve__speculative="eagle3", serve__draft_model=str(file)).job
    alike = asked(serve__speculative="eagle3").job
    held = [serving_memory(job, ONE).fixed["drafter"][0] for job in (stated, alike)]
    assert held[0] == pytest.approx(held[1])
    with pytest.raises(InputError, match="drafts from states of the model"):
        asked(serve__speculative="draft-model", serve__draft_model=str(file))
    block = {**layer, "num_hidden_layers": 3}
    dflash = {"speculators_model_type": "dflash", "transformer_layer_config": block, "block_size": 8}
    file = tmp_path / "block" / "config.json"
    file.parent.mkdir()
    states: dict[str, object] = {"aux_hidden_state_layer_ids": [1, 9, 17, 25], "dflash_config": "no part of it"}
    file.write_text(json.dumps({**dflash, **states}), encoding="utf-8")
    made = asked(serve__speculative="dflash", serve__draft_model=str(file)).job.drafter
    assert made is not None
    assert (made.first.model.layers, made.first.model.joined_width) == (3, 4 * 4096)


# One request at a time on an A800, SGLang: speed over that without drafts (SGLang issue 29244).
@pytest.mark.parametrize(
    ("name", "tokens", "measured"), [("qwen3-8b", 2.8, 162 / 88), ("qwen3-30b-a3b", 2.0, 93 / 146)]
)
def test_speed_of_published_blocks(name: str, tokens: float, measured: float) -> None:
    load = {
        "gpu": "a100-sxm-80gb", "gpus": 1, "serve__engine": "sglang", "serve__concurrency": 1,
        "serve__input_tokens": 100, "serve__output_tokens": 400,
    }  # fmt: skip
    rate = _alike(15, tokens)
    drafted = served(name, **load, serve__speculative="dflash", serve__draft_tokens=15, serve__acceptance_rate=rate)
    assert served(name, **load).point.tpot_s / drafted.point.tpot_s == pytest.approx(measured, rel=0.17)


def drafts_s(resolved: ResolvedService, work: Work) -> float:
    return float(step_time(resolved.job, ONE, work).parts[drafting.name][0])


def test_every_position_is_one_pass() -> None:
    """vLLM prepares each pass for 0.8 ms, longer than a layer takes, and the check for as long; SGLang replays them."""
    for tokens in (1, 2, 5):
        made = asked(serve__speculative="eagle3", serve__draft_tokens=tokens, serve__engine="vllm")
        assert drafts_s(made, Work(1.0, 500.0, decode_tokens=tokens + 1)) == pytest.approx(0.8e-3 * (tokens + 1))
    one, four = (
        drafts_s(
            asked(serve__speculative="eagle3", serve__draft_tokens=tokens, serve__engine="sglang"),
            Work(1.0, 500.0, decode_tokens=2),
        )
        for tokens in (1, 4)
    )
    read = 2 * (2 * 4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 32000 * 4096) / 3.35e12  # without the joined states
    assert read < (four - one) / 3 < 2.5 * read


def test_prompts_are_drafted_once_and_checked_never() -> None:
    made = asked(serve__speculative="eagle3", serve__engine="sglang")
    prompt = drafts_s(made, Work(prefills=1, prefill_tokens=4000))
    whole = float(step_time(made.job, ONE, Work(prefills=1, prefill_tokens=4000)).total_s[0])
    assert whole / 50 < prompt < whole / 15  # one layer beside 32, and two products more
    assert drafts_s(made, Work()) == 0.0


def test_a_stated_cost_replaces_the_time_and_keeps_the_memory() -> None:
    stated = asked(serve__speculative="eagle3", serve__draft_cost=0.1)
    assert drafts_s(stated, Work(8.0, 500.0, decode_tokens=4)) == 0.0
    assert stated.traffic.draft_cost == 0.1
    assert "drafter" in serving_memory(stated.job, ONE).fixed
    assert asked(serve__speculative="eagle3").traffic.draft_cost == 0.0


@pytest.mark.parametrize(
    ("engine", "method"), [("vllm", "eagle3"), ("sglang", "eagle3"), ("vllm", "medusa"), ("vllm", "dflash")]
)
def test_a_test_prices_drafts_as_the_law_has_them(engine: str, method: str) -> None:
    made = asked(serve__speculative=method, serve__draft_tokens=3, serve__engine=engine)
    found = step_prices(made.job, ONE, made.traffic, Reach(64, 4096, 1000, 1100))
    law = step_time(made.job, ONE, Work(decodes=16, decode_past=1050, decode_tokens=4)).total_s[0]
    assert found.decode_s(16, 1050) == pytest.approx(law, rel=2e-3)
    work = Work(decodes=16, decode_past=1050, decode_tokens=4, prefills=1, prefill_tokens=800)
    if engine == "vllm":  # SGLang stops the decodes
        beside = step_time(made.job, ONE, work).total_s[0]
        assert found.prompt_s(1, 800, 0.0, 16, 1050) == pytest.approx(beside, rel=0.03)


# Llama-3.1-8B on one H100, one request at a time, vLLM: speed over that without drafts, with the tokens of a step
# (vLLM issue 20780). Qwen3-30B-A3B on two, SGLang: drafts lose (SpecForge issue 339).
@pytest.mark.parametrize(
    ("method", "drafts", "tokens", "measured"),
    [("eagle", 2, 2.1, 1.62), ("eagle", 7, 2.47, 1.36), ("eagle3", 3, 2.79, 1.73), ("eagle3", 7, 3.54, 1.65)],
)
def test_speed_of_published_runs(method: str, drafts: int, tokens: float, measured: float) -> None:
    load = {"serve__concurrency": 1, "serve__input_tokens": 100, "serve__output_tokens": 250, "gpus": 1}
    rate = ((tokens - 1.0) / drafts,) if drafts == 1 else _alike(drafts, tokens)
    drafted = served(**load, serve__speculative=method, serve__draft_tokens=drafts, serve__acceptance_rate=rate)
    assert served(**load).point.tpot_s / drafted.point.tpot_s == pytest.approx(measured, rel=0.16)


def test_drafts_lose_where_they_were_seen_to() -> None:
    load = {
        "gpus": 2, "layout__tp": 2, "serve__engine": "sglang@0.5.5", "serve__concurrency": 1,
        "serve__input_tokens": 100, "serve__output_tokens": 400,
    }  # fmt: skip
    rate = _alike(3, 1.86)
    drafted = served(
        "qwen3-30b-a3b", **load, serve__speculative="eagle3", serve__draft_tokens=3, serve__acceptance_rate=rate
    )
    plain = served("qwen3-30b-a3b", **load)
    assert plain.point.tpot_s / drafted.point.tpot_s == pytest.approx(159.78 / 222.47, rel=0.15)
    assert any(one.change == "no speculative decoding" for one in advise(drafted, REGISTRY))


def _alike(drafts: int, tokens: float) -> float:
    """The rate, alike at every position, that yields so many tokens a step."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if kept_tokens((middle,) * drafts) < tokens else (low, middle)
    return low


def test_what_is_assumed_of_drafts_widens_the_range_and_is_told() -> None:
    load = {"serve__concurrency": 2, "serve__speculative": "eagle3", "serve__draft_tokens": 3}
    assumed, stated = asked(**load), asked(**load, serve__acceptance_rate=[0.74, 0.72, 0.69])
    for quantity in ("tpot", "throughput"):
        wide, narrow = span(assumed, quantity), span(stated, quantity)
        assert wide.low < narrow.low
        assert wide.high > narrow.high
    assert span(assumed, "ttft").high == span(stated, "ttft").high
    told = [text for text in summarise(served(**load)).warnings if "is assumed: 0.74, 0.72, 0.69" in text]
    assert len(told) == 1
    assert "published are 2.25 to 2.90" in told[0]


def test_the_answer_says_what_drafts_gain_and_take() -> None:
    estimate = served("deepseek-v3", server="dell-xe9680-h200", serve__concurrency=8, serve__speculative="mtp")
    found = summarise(estimate).speculation
    assert found is not None
    assert (found.method, found.draft_tokens, found.acceptance, found.assumed) == ("mtp", 1, (0.87,), True)
    assert found.tokens_per_step == pytest.approx(1.87)
    assert found.without_tpot_s == pytest.approx(
        served("deepseek-v3", server="dell-xe9680-h200", serve__concurrency=8).point.tpot_s
    )
    assert 0.0 < found.seconds == pytest.approx(found.share * float(estimate.point.decode.total_s[0]))


def test_modules_of_the_model_draft_where_a_limit_is_missed() -> None:
    load = {"server": "dell-xe9680-h200", "gpus": 8, "layout__tp": 8, "serve__engine": "tensorrt-llm"}
    plain = served("deepseek-v3", **load, serve__concurrency=4, limits__max_tpot_s=0.0065)
    assert not plain.ok
    assert any("--speculative mtp" in one.command for one in advise(plain, REGISTRY))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__speculative": "mtp"}, "needs modules of the model"),
        ({"serve__speculative": "draft-model"}, "needs 'draft_model'"),
        ({"serve__draft_model": "qwen3-0.6b"}, "words in its vocabulary"),
        ({"serve__speculative": "ngram", "serve__draft_model": "llama-3.2-1b"}, "are both given"),
        ({"serve__speculative": "eagle", "serve__engine": "tgi"}, "tgi does not draft with eagle"),
        ({"serve__speculative": "suffix", "serve__engine": "sglang"}, "sglang does not draft with suffix"),
        ({"serve__speculative": "medusa", "serve__engine": "sglang"}, "sglang does not draft with medusa"),
        ({"serve__speculative": "dflash", "serve__engine": "tensorrt-llm"}, "does not draft with dflash"),
        ({"serve__speculative": "medusa", "serve__draft_model": "llama-3.2-1b"}, "are both given"),
        ({"serve__speculative": "ngram", "serve__draft_tp": 1}, "no weights of its own"),
        ({"serve__draft_tp": 1}, "without anything that drafts"),
        ({"serve__speculative": "eagle3", "serve__draft_tp": 2, "layout__tp": 4, "gpus": 4}, "neither 1 nor the tp"),
        ({"serve__speculative": "eagle3", "serve__draft_tp": 2}, "which is not given"),
        ({"serve__draft_tokens": 3}, "'draft_tokens' needs 'acceptance_rate'"),
    ],
)
def test_drafts_that_cannot_be(flags: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        asked(**flags)


def test_modules_draft_where_nobody_says_what_does_and_none_switches_off() -> None:
    both = {"serve__draft_tokens": 2, "server": "dell-xe9680-h200"}
    assert asked("deepseek-v3", **both).job.drafter is not None
    off = asked("deepseek-v3", **both, serve__speculative="none")
    assert (off.job.drafter, off.traffic.draft_tokens) == (None, 0)
