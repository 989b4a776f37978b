"""Steps of an engine: what they are made of, and what may not make them slower or faster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.queueing import steady
from xe_sizer.serving.step_time import STEP_PARTS, StepTime, Work, decode_time, prefill_time, static_batch, step_time

ONE = ReplicaLayouts.of()
DENSE, MOE = "llama-3.1-8b", "mixtral-8x7b"
KINDS = (DENSE, MOE, "gemma-2-9b", "deepseek-v2-lite", "jamba-v0.1", "qwen3-next-80b-a3b", "gpt-oss-20b")
# Engines whose kernels multiply packed weights as they read them.
FUSING = ("vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "gpt-fast")
WRITERS = [name for name in BUILT_IN.names("engine") if load_engine(name).batching.answers]


def total(made: ServingJob, work: Work, placements: ReplicaLayouts = ONE) -> float:
    return float(step_time(made, placements, work).total_s[0])


def without_window(made: ServingJob) -> ServingJob:
    return replace(made, model=replace(made.model, sliding_window=None, windowed_layers=0))


@pytest.mark.parametrize("name", KINDS)
def test_the_parts_are_the_step_and_the_modules_its_kernels(name: str) -> None:
    made, placements = job(name, server="dell-xe9680-h100"), ReplicaLayouts.of(tp=[1, 2, 8], pp=[1, 1, 2])
    found = step_time(made, placements, Work(decodes=7, decode_past=900, prefills=2, prefill_tokens=300))
    assert set(found.parts) == {part.name for part in STEP_PARTS}
    assert all(np.all(value >= 0) for value in found.parts.values())
    assert np.allclose(found.total_s, sum(found.parts.values()), rtol=1e-12)
    kernels = ("linear layers", "attention", "memory-bound operators", "head and sampling")
    assert np.allclose(sum(found.modules.values()), sum(found.parts[part] for part in kernels), rtol=1e-12)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ["vllm", "hf-transformers"])
def test_no_work_takes_no_time(name: str, engine: str) -> None:
    found = step_time(job(name, serve__engine=engine), ONE, Work(decodes=0, prefills=0))
    assert found.total_s[0] == 0
    assert all(np.all(value == 0) for value in found.parts.values())


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_half_adds_nothing(name: str) -> None:
    """A step without prompts costs the same however long they would be, and one without decodes likewise."""
    made = job(serve__engine=name)
    alone = total(made, Work(decodes=4, decode_past=500))
    assert total(made, Work(decodes=4, decode_past=500, prefills=0, prefill_tokens=9000, prefill_past=77)) == alone
    prompt = total(made, Work(prefills=1, prefill_tokens=500))
    assert total(made, Work(prefills=1, prefill_tokens=500, decodes=0, decode_past=9000)) == prompt


@pytest.mark.parametrize("name", KINDS)
def test_many_steps_at_once_equal_each_alone(name: str) -> None:
    """One set of equations: arrays of placements and loads give the very numbers of scalars."""
    made = job(name, server="dell-xe9680-h100")
    tp, pp = np.array([1, 2, 4, 8, 8]), np.array([1, 1, 1, 1, 2])
    loads = {
        "decodes": np.array([1.0, 8.0, 64.0, 3.0, 500.0]),
        "decode_past": np.array([100.0, 5000.0, 1.0, 900.0, 2000.0]),
        "prefills": np.array([0.0, 1.0, 2.0, 0.0, 4.0]),
        "prefill_tokens": np.array([1.0, 512.0, 1000.0, 1.0, 2000.0]),
        "prefill_past": np.array([0.0, 0.0, 400.0, 0.0, 0.0]),
    }
    together = step_time(made, ReplicaLayouts.of(tp=tp, pp=pp), Work(**loads))
    for index in range(len(tp)):
        work = Work(**{key: float(values[index]) for key, values in loads.items()})
        alone = step_time(made, ReplicaLayouts.of(tp=tp[index], pp=pp[index]), work)
        for part in (each.name for each in STEP_PARTS):
            assert np.broadcast_to(together.parts[part], 5)[index] == pytest.approx(
                float(np.broadcast_to(alone.parts[part], 1)[0]), rel=1e-13, abs=1e-18
            ), part


@settings(max_examples=25, deadline=None)
@given(
    decodes=st.integers(1, 512),
    past=st.integers(0, 30_000),
    prompts=st.integers(0, 4),
    tokens=st.integers(1, 4000),
)
def test_more_work_takes_longer(decodes: int, past: int, prompts: int, tokens: int) -> None:
    made = job()
    work = Work(decodes=decodes, decode_past=past, prefills=prompts, prefill_tokens=tokens)
    least = total(made, work) * (1 - 1e-12)
    assert total(made, replace(work, decodes=decodes + 1)) >= least
    assert total(made, replace(work, decode_past=past + 100)) >= least
    assert total(made, replace(work, prefill_tokens=tokens + 1)) >= least
    assert total(made, replace(work, decode_tokens=2)) >= least


@pytest.mark.parametrize("name", ["gemma-2-9b", "mistral-7b-v0.1", "gpt-oss-20b"])
@pytest.mark.parametrize("engine", ["vllm", "hf-transformers", "tensorrt-llm"])
def test_a_window_never_costs_more_than_full_attention(name: str, engine: str) -> None:
    made = job(name, serve__engine=engine)
    full = without_window(made)
    for tokens in (16, 1000, 4096, 20_000):
        prompt, step = Work(prefills=1, prefill_tokens=tokens), Work(decodes=8, decode_past=tokens)
        assert total(made, prompt) <= total(full, prompt) * (1 + 1e-12)
        assert total(made, step) <= total(full, step) * (1 + 1e-12)
    longest = Work(decodes=64, decode_past=20_000)
    assert total(made, longest) < total(full, longest)


@pytest.mark.parametrize("tokens", [64, 128])
def test_a_window_longer_than_the_sequence_changes_nothing(tokens: int) -> None:
    made = job("mistral-7b-v0.1")
    full = without_window(made)
    for work in (Work(prefills=1, prefill_tokens=tokens), Work(decodes=4, decode_past=tokens)):
        assert total(made, work) == pytest.approx(total(full, work), rel=1e-12)


@pytest.mark.parametrize("engine", FUSING)
@pytest.mark.parametrize("name", [DENSE, "llama-2-7b", "qwen2.5-7b", MOE])
def test_fused_int4_weights_never_decode_slower_than_bf16(name: str, engine: str) -> None:
    """One sequence reads every weight once: a quarter of the bytes cannot take longer where no kernel is added."""
    placed = ReplicaLayouts.of(tp=[1, 2])
    wide, narrow = (
        job(name, server="dell-xe9680-h100", serve__engine=engine, serve__weights=weights)
        for weights in ("bf16", "int4")
    )
    work = Work(decodes=1, decode_past=1000)
    slower, faster = (step_time(made, placed, work).total_s for made in (wide, narrow))
    assert np.all(faster < slower)


@pytest.mark.parametrize("cache", ["fp8", "int8"])
def test_a_narrow_cache_is_never_slower_to_read(cache: str) -> None:
    wide, narrow = job(), job(serve__kv_cache=cache)
    for work in (Work(decodes=1, decode_past=100), Work(decodes=200, decode_past=8000)):
        assert total(narrow, work) <= total(wide, work)


def test_few_tokens_read_few_experts() -> None:
    """In a plain roofline the step of one token reads k experts a layer, and that of 64 nearly all of them, once.

    The second of two tokens finds an expert unpicked with the probability of a negative binomial count of shape
    1 / 1.2^2 and mean -ln(1 - 2 / 8): 0.786 where even picks leave 0.75; 63 further tokens leave 0.101.
    """
    made = job("mixtral-8x7b", efficiency__flops=1.0, efficiency__memory=1.0)
    expert_s = 2 * 3 * 4096 * 14336 / made.device.bandwidth_bytes_per_s
    times = [step_time(made, ONE, Work(decodes=n, decode_past=1)).modules["experts"][0] for n in (1, 2)]
    assert times[0] == pytest.approx(32 * 2 * expert_s, rel=0.01)
    assert times[1] == pytest.approx(32 * (8 * (1 - 0.75 * 0.786)) * expert_s, rel=0.005)
    many = step_time(made, ONE, Work(decodes=64, decode_past=1)).modules["experts"][0]
    assert many == pytest.approx(32 * 8 * (1 - 0.75 * 0.101) * expert_s, rel=0.02)


def test_speculated_tokens_share_one_pass_over_the_weights() -> None:
    made = job(efficiency__flops=1.0, efficiency__memory=1.0)
    one, five = (total(made, Work(decodes=1, decode_past=500, decode_tokens=n)) for n in (1, 5))
    assert one < five < 1.05 * one


def test_chunks_of_a_prompt_attend_to_what_is_cached() -> None:
    """Four pieces with their past do the products of one prompt, and score the same pairs of tokens."""
    made = job(efficiency__flops=1.0)
    whole = step_time(made, ONE, Work(prefills=1, prefill_tokens=8192)).parts["attention"][0]
    pieces = [Work(prefills=1, prefill_tokens=2048, prefill_past=past) for past in (0, 2048, 4096, 6144)]
    assert sum(step_time(made, ONE, piece).parts["attention"][0] for piece in pieces) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("engine", ["vllm", "hf-transformers"])
def test_the_mean_decode_step_is_that_of_the_answers_middle(engine: str) -> None:
    """Steps grow nearly linearly with the cache, so few of them give the mean of all."""
    made = job(serve__engine=engine)
    found = decode_time(made, ONE, 4.0, 1000.0, 202.0)
    steps = [total(made, Work(decodes=4, decode_past=1000 + index)) for index in range(201)]
    assert float(found.total_s[0]) == pytest.approx(float(np.mean(steps)), rel=1e-4)


@pytest.mark.parametrize("name", [DENSE, "gemma-2-9b", "nemotron-h-8b"])
def test_many_batches_at_once_equal_each_alone(name: str) -> None:
    made, tp = job(name, server="dell-xe9680-h100"), [1, 2, 8]
    batches, inputs, outputs = (
        np.array([1.0, 40.0, 9.0]),
        np.array([100.0, 3000.0, 900.0]),
        np.array([2.0, 50.0, 700.0]),
    )
    together = static_batch(made, ReplicaLayouts.of(tp=tp), batches, inputs, outputs)
    for index in range(3):
        sizes = (batches[index], inputs[index], outputs[index])
        alone = static_batch(made, ReplicaLayouts.of(tp=tp[index]), *sizes)
        for field in ("ttft_s", "tpot_s", "request_s"):
            assert getattr(alone, field)[0] == pytest.approx(getattr(together, field)[index], rel=1e-13), field
    loads = static_batch(made, ONE, batches, inputs, outputs)
    assert loads.tpot_s[0] == pytest.approx(together.tpot_s[0], rel=1e-13)
    assert loads.request_s.shape == (3,)


def test_prompts_beyond_a_step_take_several() -> None:
    made = job()
    limit = made.engine.batching.max_step_tokens
    _, steps = prefill_time(made, ONE, [1.0, 2.0, 64.0], [100.0, limit, 1024.0])
    assert steps.tolist() == [1, 2, np.ceil(64 * 1024 / limit)]


def test_cached_parts_of_prompts_fill_no_steps() -> None:
    made = job()
    limit = made.engine.batching.max_step_tokens
    work, steps = prefill_time(made, ONE, 1.0, 4.0 * limit, 3.0 * limit)
    assert steps == 1
    assert work.total_s[0] == total(made, Work(prefills=1, prefill_tokens=limit, prefill_past=3 * limit))


def test_a_request_is_its_prefill_and_its_steps() -> None:
    made = job()
    found = static_batch(made, ONE, 4.0, 1000.0, 101.0)
    assert found.request_s[0] == pytest.approx(found.ttft_s[0] + 100 * found.tpot_s[0], rel=1e-12)
    one = static_batch(made, ONE, 4.0, 1000.0, 1.0)
    assert one.request_s[0] == one.ttft_s[0]
    waves = static_batch(made, ONE, 4.0, 1000.0, 101.0, capacity=2.0)
    half = static_batch(made, ONE, 2.0, 1000.0, 101.0)
    assert waves.request_s[0] == pytest.approx(2 * half.request_s[0], rel=1e-12)


@pytest.mark.parametrize("engine", ["vllm", "tgi", "lmdeploy"])
def test_a_batch_of_one_decodes_as_a_replica_with_one_request(engine: str) -> None:
    made, traffic = job(serve__engine=engine), Traffic(inputs=512.0, outputs=512.0)
    alone = static_batch(made, ONE, 1.0, 512.0, 512.0)
    kept = steady(made, ONE, traffic, 1.0)
    assert float(kept.decode.total_s[0]) == pytest.approx(float(alone.decode.total_s[0]), rel=0.02)
    assert float(kept.prefill_s[0]) == pytest.approx(float(alone.ttft_s[0]), rel=0.1)


def test_a_steady_replica_is_in_the_middle_of_its_answers() -> None:
    made = job("llama-2-7b", efficiency__flops=1.0, efficiency__memory=1.0)
    grown = decode_time(made, ONE, 8.0, 100.0, 8000.0).total_s
    kept = steady(made, ONE, Traffic(100.0, 8000.0), 8.0)
    assert float(kept.decode.total_s[0]) == pytest.approx(float(grown[0]), rel=2e-3)


@pytest.mark.parametrize("hit", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_cached_prompts_never_wait_longer(hit: float) -> None:
    made = job()
    plain, cached = Traffic(4000.0, 200.0), Traffic(4000.0, 200.0, prefix_hit_share=hit)
    for running in (1.0, 32.0):
        one, other = steady(made, ONE, plain, running), steady(made, ONE, cached, running)
        assert other.prefill_s[0] <= one.prefill_s[0]
        assert other.tpot_s[0] <= one.tpot_s[0] * (1 + 1e-12)
        assert other.requests_per_s[0] >= one.requests_per_s[0] * (1 - 1e-12)


def test_speculation_that_is_never_right_does_not_help() -> None:
    made = job()
    plain = steady(made, ONE, Traffic(500.0, 200.0), 8.0)
    for cost in (0.0, 0.1):
        wrong = steady(made, ONE, Traffic(500.0, 200.0, draft_tokens=4, draft_cost=cost), 8.0)
        right = steady(made, ONE, Traffic(500.0, 200.0, draft_tokens=4, acceptance_rate=1.0, draft_cost=cost), 8.0)
        assert wrong.tpot_s[0] >= plain.tpot_s[0]
        assert right.tpot_s[0] < plain.tpot_s[0]


@pytest.mark.parametrize(("rate", "drafts", "gained"), [(0.0, 4, 1), (1.0, 4, 5), (0.5, 1, 1.5), (0.8, 3, 2.952)])
def test_tokens_that_speculation_gains(rate: float, drafts: int, gained: float) -> None:
    """(1 - a^(g + 1)) / (1 - a), Leviathan et al. 2022 (arXiv:2211.17192), equation 1."""
    assert Traffic(1.0, 1.0, draft_tokens=drafts, acceptance_rate=rate).tokens_per_step == pytest.approx(gained)


@pytest.mark.parametrize("engine", ["vllm", "tgi", "tensorrt-llm"])
@pytest.mark.parametrize("running", [1.0, 10.0, 100.0])
def test_tokens_made_are_tokens_asked_for(engine: str, running: float) -> None:
    """In a steady state each decoding sequence makes a token a step, and the first token is the prefill's."""
    traffic = Traffic(300.0, 101.0)
    found = steady(job(serve__engine=engine), ONE, traffic, running)
    mean_step_s = found.decoding[0] / (found.requests_per_s[0] * 100)
    alone_s = found.decode.total_s[0]
    # A sequence feels the prompts of all others, which are a share (n - 1) / n of them.
    felt_s = alone_s + (mean_step_s - alone_s) * (running - 1) / running
    assert found.step_s[0] == pytest.approx(felt_s, rel=1e-9)
    assert found.decoding[0] <= running
    assert running / found.requests_per_s[0] >= 100 * found.step_s[0] * (1 - 1e-9)


@pytest.mark.parametrize("engine", WRITERS)
def test_more_requests_inside_make_more_tokens_but_each_slower(engine: str) -> None:
    made, running = job(serve__engine=engine), np.array([1.0, 2.0, 8.0, 64.0, 256.0])
    found = steady(made, ReplicaLayouts.of(tp=[1] * 5), Traffic(500.0, 200.0), running)
    assert np.all(np.diff(found.requests_per_s) >= -1e-9)
    assert np.all(np.diff(found.tpot_s) >= -1e-12)


def test_a_host_that_waits_is_part_of_the_step_only_without_graphs() -> None:
    work = Work(decodes=1, decode_past=100)
    for name in WRITERS:
        made = job(serve__engine=name)
        found: StepTime = step_time(made, ONE, work)
        between = made.engine.step_s + made.engine.sequence_s
        if load_engine(name).host.graphs:
            device_s = float(found.total_s[0] - found.parts["host"][0])
            waits = max(between - device_s, 0.0) if made.engine.batching.overlaps else between
            assert float(found.parts["host"][0]) == pytest.approx(waits, rel=1e-9)
        else:
            assert float(found.parts["host"][0]) >= between


def test_several_ranks_exchange_and_one_does_not() -> None:
    made = job("llama-3.1-70b", server="dell-xe9680-h100")
    found = step_time(made, ReplicaLayouts.of(tp=[1, 2, 8], pp=[1, 1, 2]), Work(decodes=8, decode_past=500))
    exchanged, sent = found.parts["tensor-parallel communication"], found.parts["pipeline communication"]
    assert exchanged[0] == 0 < exchanged[1]
    assert sent.tolist()[:2] == [0, 0]
    assert sent[2] > 0
