"""The simulation of a test: its prices against the law of a step, and its requests against sums made by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic, even_spread
from xe_sizer.serving.memory import request_bytes, serving_memory
from xe_sizer.serving.queueing import curve, in_flight
from xe_sizer.serving.simulation import Offered, Outcome, Reach, offered, poisson_arrivals, simulate, step_prices
from xe_sizer.serving.step_time import Work, step_time

ONE = ReplicaLayouts.of()
# Engines of every kind: prompts cut or whole, beside decodes or not, with and without CUDA graphs; latent attention,
# experts, states, windows, groups of sequences.
KINDS = (
    ("llama-3.1-8b", "vllm", {}),
    ("deepseek-v2-lite", "sglang", {"tp": 4}),
    ("qwen3-next-80b-a3b", "tensorrt-llm", {"tp": 4}),
    ("mixtral-8x7b", "vllm-v0", {"tp": 2, "pp": 2}),
    ("gemma-2-9b", "tgi-2023", {}),
    ("deepseek-v2-lite", "vllm", {"dp": 4, "ep": 4}),
    ("jamba-v0.1", "vllm", {"tp": 2}),
)


def seconds(made: ServingJob, placement: ReplicaLayouts = ONE, **work: object) -> float:
    return float(step_time(made, placement, Work(**work)).total_s[0])  # type: ignore[arg-type]


def run(made: ServingJob, load: Offered, pool_requests: float = 1e6, placement: ReplicaLayouts = ONE) -> Outcome:
    """A test on a replica whose pool holds so many of the longest requests."""
    longest = float((load.inputs + load.outputs).max())
    memory = serving_memory(made, placement, longest)
    pool = pool_requests * request_bytes(made, placement, longest) / placement.dp
    return simulate(made, placement, replace(memory, pool_bytes=pool), Traffic(1.0, 1.0), load)


def with_batching(made: ServingJob, **changes: object) -> ServingJob:
    batching = msgspec.structs.replace(made.engine.batching, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


@pytest.mark.parametrize(("model", "engine", "sizes"), KINDS)
def test_prices_are_the_law_of_a_step(model: str, engine: str, sizes: dict[str, int]) -> None:
    made, placement = job(model, server="dell-xe9680-h100", serve__engine=engine), ReplicaLayouts.of(**sizes)
    prices = step_prices(made, placement, Traffic(1024, 256), Reach(256, 8192, 100, 9000))
    random, count = np.random.default_rng(1), 200
    decodes, pieces = random.integers(1, 257, count), random.integers(1, 5, count)
    past, tokens = random.uniform(100, 9000, count), np.exp(random.uniform(3, 7.5, count))
    before = random.uniform(0, 7000, count) * (random.random(count) < 0.5)
    prompts = {"prefills": pieces, "prefill_tokens": tokens, "prefill_past": before}
    rows = list(zip(pieces.tolist(), (pieces * tokens).tolist(), before.tolist(), strict=True))
    others = list(zip(decodes.tolist(), past.tolist(), strict=True))
    for found, work in (
        ([prices.decode_s(*other) for other in others], Work(decodes=decodes, decode_past=past)),
        ([prices.prompt_s(*row, 0, 0.0) for row in rows], Work(**prompts)),
        (
            [prices.prompt_s(*row, *other) for row, other in zip(rows, others, strict=True)],
            Work(decodes=decodes, decode_past=past, **prompts),
        ),
    ):
        errors = np.abs(np.array(found) / step_time(made, placement, work).total_s - 1.0)
        assert errors.mean() < 0.003
        assert errors.max() < 0.025


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0", "sglang", "tgi", "tensorrt-llm"])
def test_one_request_takes_its_prompt_and_its_decodes(engine: str) -> None:
    made = job(serve__engine=engine, serve__max_model_len=8192)
    load = offered(Traffic(1000, 65), 3, concurrency=1)
    found = run(made, load)
    first = made.request_s + seconds(made, prefills=1, prefill_tokens=1000)
    decodes = sum(seconds(made, decodes=1, decode_past=1000 + token) for token in range(64))
    assert found.ttft_s == pytest.approx(first, rel=3e-3)
    assert found.request_s == pytest.approx(first + decodes, rel=3e-3)
    pauses_s = np.asarray(load.pauses_s)[1:]
    assert found.arrival_s[1:] == pytest.approx(found.finish_s[:-1] + pauses_s)
    assert found.output_tokens_per_s == pytest.approx(3 * 65 / (3 * (first + decodes) + pauses_s.sum()), rel=3e-3)


def test_prompts_that_come_together_are_processed_together() -> None:
    """Four prompts of a step's budget: all get their first token at its end, and go on in step."""
    made = with_batching(job(), max_step_tokens=4096)
    found = run(made, offered(Traffic(1000, 17), 4))
    first = made.request_s + seconds(made, prefills=4, prefill_tokens=1000)
    assert found.ttft_s == pytest.approx(np.full(4, first), rel=3e-3)
    decodes = sum(seconds(made, decodes=4, decode_past=1000 + token) for token in range(16))
    assert found.tpot_s == pytest.approx(np.full(4, decodes / 16), rel=3e-3)


def test_a_step_is_filled_up_with_a_piece_of_the_next_prompt() -> None:
    """Budget of 1500: a prompt and half of the next one, then its rest beside the decode of the first."""
    made = with_batching(job(), max_step_tokens=1500)
    found = run(made, offered(Traffic(1000, 9), 2))
    one = seconds(made, prefills=1, prefill_tokens=1500)  # linear layers of 1,500 tokens are nearly all of it
    two = seconds(made, prefills=1, prefill_tokens=500, prefill_past=500, decodes=1, decode_past=1000)
    assert found.ttft_s - made.request_s == pytest.approx([one, one + two], rel=0.02)


def test_prompts_stop_the_decodes_where_steps_are_not_mixed() -> None:
    """A second request comes while the first one decodes: one of its tokens is later by the prompt's step."""
    made = job(serve__engine="vllm-v0", serve__max_model_len=8192)
    load = replace(offered(Traffic(1000, 101), 2), arrivals_s=np.array([0.0, 0.5]))
    found = run(made, load)
    alone = run(made, offered(Traffic(1000, 101), 1))
    prompt = seconds(made, prefills=1, prefill_tokens=1000)
    pair = seconds(made, decodes=2, decode_past=1050) - seconds(made, decodes=1, decode_past=1050)
    shared = np.sum(found.gap_counts) - 200
    assert shared == 0
    assert found.request_s[0] - alone.request_s[0] == pytest.approx(prompt + pair * 50, rel=0.3)
    assert found.gap_at_s(100.0) == pytest.approx(prompt + seconds(made, decodes=1, decode_past=1050), rel=0.02)


def test_a_pool_of_two_requests_runs_two_at_a_time() -> None:
    made = with_batching(job(), reserves="whole")
    found = run(made, offered(Traffic(1000, 50), 6), pool_requests=2.5)
    waves = np.sort(found.finish_s).reshape(3, 2)
    assert waves[:, 0] == pytest.approx(waves[:, 1], rel=1e-9)
    assert np.diff(waves[:, 0]) == pytest.approx(waves[0, 0] - made.request_s, rel=1e-2)


def test_a_cache_that_runs_out_stops_the_last_request() -> None:
    """Two prompts fit and not two whole requests: the later one loses its cache, and is done after the first."""
    made = job()
    load = offered(Traffic(1000, 600), 2)
    roomy, short = run(made, load), run(made, load, pool_requests=1.6)
    assert roomy.preempted == 0
    assert short.preempted == 1
    assert short.finish_s[0] < roomy.finish_s[0] < short.finish_s[1]
    assert short.outputs.sum() == 1200


def test_a_static_batch_ends_together() -> None:
    made = with_batching(job(serve__engine="hf-transformers"), max_sequences=2)
    load = replace(offered(Traffic(100, 20), 4), outputs=np.array([5.0, 20.0, 20.0, 10.0]))
    found = run(made, load)
    assert found.finish_s[0] == found.finish_s[1] < found.finish_s[2] == found.finish_s[3]
    batch = seconds(made, prefills=2, prefill_tokens=100)
    batch += sum(seconds(made, decodes=2, decode_past=100 + token) for token in range(19))
    assert found.finish_s[1] == pytest.approx(made.request_s + batch, rel=5e-3)
    assert found.finish_s[3] - found.finish_s[1] == pytest.approx(batch, rel=5e-3)


def test_a_scheduler_that_looks_up_rarely_finds_requests_later() -> None:
    """Every tenth decode step: a request that comes after the third one waits for the tenth."""
    made = with_batching(job(), scheduler_recv_interval=10)
    alone = run(made, offered(Traffic(1000, 60), 1))
    third = float(alone.first_s[0]) + 2.5 * float(alone.tpot_s[0]) - made.request_s
    found = run(made, replace(offered(Traffic(1000, 60), 2), arrivals_s=np.array([0.0, third])))
    assert found.start_s[1] == pytest.approx(float(alone.first_s[0]) + 10.0 * float(alone.tpot_s[0]), rel=1e-3)


def test_prompts_wait_for_others_while_decodes_go_on() -> None:
    made = with_batching(job(), batch_wait_iters=8, overlaps=False)
    alone = run(made, offered(Traffic(1000, 60), 1))
    came = float(alone.first_s[0]) + 2.5 * float(alone.tpot_s[0]) - made.request_s
    found = run(made, replace(offered(Traffic(1000, 60), 2), arrivals_s=np.array([0.0, came])))
    assert found.start_s[1] == pytest.approx(float(alone.first_s[0]) + 11.0 * float(alone.tpot_s[0]), rel=1e-3)


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0", "sglang", "lmdeploy"])
def test_every_request_is_answered_once(engine: str) -> None:
    traffic = Traffic(700, 90, 0.5, 0.7)
    for load in (
        offered(traffic, 200, 17),
        offered(traffic, 200, None, poisson_arrivals(8.0, 200)),
        offered(traffic, 200),
    ):
        found = run(job(serve__engine=engine), load, pool_requests=9.0)
        assert np.all(np.isfinite(found.finish_s))
        assert np.all(found.arrival_s <= found.start_s + 1e-9)
        assert np.all((found.start_s < found.first_s) & (found.first_s <= found.finish_s))
        tokens = found.gap_counts.sum() + found.preempted
        assert tokens == pytest.approx((load.outputs - 1.0).sum(), rel=0.02)


def test_drawn_lengths_have_the_mean_and_spread_asked_for() -> None:
    load = offered(Traffic(1000, 200, 0.4, 0.8), 4000)
    assert load.inputs.mean() == pytest.approx(1000, rel=1e-3)
    assert load.inputs.std() / load.inputs.mean() == pytest.approx(0.4, rel=0.05)
    assert load.outputs.std() / load.outputs.mean() == pytest.approx(0.8, rel=0.1)
    assert np.array_equal(load.inputs, offered(Traffic(1000, 200, 0.4, 0.8), 4000).inputs)
    gaps = np.diff(poisson_arrivals(5.0, 4000))
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(("mean", "spread"), [(100.0, 0.8), (200.0, 0.8), (250.0, 0.8), (255.0, 3.0), (30.0, 5.0)])
def test_lengths_that_end_at_a_longest_one_keep_their_mean(mean: float, spread: float) -> None:
    drawn = offered(Traffic(1000, mean, output_spread=spread, longest_output=256), 2000).outputs
    assert drawn.max() == 256
    assert drawn.mean() == pytest.approx(mean, abs=0.1)
    free = offered(Traffic(1000, mean, output_spread=spread), 2000).outputs
    assert free.max() > 256
    far = offered(Traffic(1000, mean, output_spread=spread, longest_output=1e9), 2000).outputs
    assert np.array_equal(free, far)


def test_lengths_with_the_spread_of_an_even_draw_are_drawn_evenly() -> None:
    """From 1 to N: sqrt(1 / 12) of N around N / 2; from 0.8 N on, 0.2 sqrt(1 / 12) around 0.9 N."""
    assert even_spread(512, 1024) == pytest.approx(3**-0.5)
    assert even_spread(0.9, 1) == pytest.approx(0.2 / 12**0.5 / 0.9)
    drawn = offered(Traffic(512, 200, 3**-0.5, longest_input=1024), 4000).inputs
    assert drawn.mean() == pytest.approx(512, rel=1e-3)
    assert np.percentile(drawn, (0, 25, 50, 75, 100)) == pytest.approx([1, 256, 512, 768, 1024], abs=20)


def test_figures_of_a_test_are_those_that_benchmark_tools_print() -> None:
    found = Outcome(
        arrival_s=np.array([0.0, 1.0]),
        start_s=np.array([0.0, 1.0]),
        first_s=np.array([0.5, 3.0]),
        finish_s=np.array([2.0, 5.0]),
        inputs=np.array([10.0, 30.0]),
        outputs=np.array([4.0, 11.0]),
        gap_s=np.array([0.5, 0.2]),
        gap_counts=np.array([3.0, 10.0]),
        preempted=0,
    )
    assert found.duration_s == 5.0
    assert found.requests_per_s == 0.4
    assert found.output_tokens_per_s == 3.0
    assert found.total_tokens_per_s == 11.0
    assert found.ttft_s.tolist() == [0.5, 2.0]
    assert found.tpot_s.tolist() == [0.5, 0.2]
    assert found.mean_gap_s == pytest.approx(3.5 / 13)
    assert found.gap_at_s(50) == 0.2
    assert found.gap_at_s(99) == 0.5
    assert found.goodput(max_ttft_s=1.0) == 0.2
    assert found.goodput(max_tpot_s=0.6) == 0.4


# Any engine, load and pool: a simulated test ends, and its requests go through their stages in order.

SERVICES = [
    (job(model, server="dell-xe9680-h100", serve__engine=engine), ReplicaLayouts.of(**sizes))
    for model, engine, sizes in (
        ("llama-3.1-8b", "vllm", {}),
        ("gemma-2-9b", "sglang", {}),
        ("deepseek-v2-lite", "tensorrt-llm", {"dp": 4, "ep": 4}),
        ("mixtral-8x7b", "vllm@0.5", {"tp": 2, "pp": 2}),
        ("llama-3.1-8b", "lmdeploy", {}),
        ("jamba-v0.1", "vllm", {"tp": 2}),
        ("llama-3.1-8b", "hf-transformers", {}),
    )
]


def scheduler(made: ServingJob, random: np.random.Generator) -> ServingJob:
    """The job with an engine that schedules in a way of its own."""
    changes = {
        "scheduler_recv_interval": int(random.choice([1, 10, 30])),
        "batch_wait_iters": int(random.choice([0, 20])),
        "max_step_tokens": int(random.choice([1, 16, 512, 8192])),
        "max_sequences": int(random.choice([1, 2, 8, 256])),
        "reserves": str(random.choice(["used", "whole"])),
        "chunked_prefill": bool(random.random() < 0.6),
        "mixed_steps": bool(random.random() < 0.6),
        "first_token": str(random.choice(["prefill", "decode"])),
    }
    batching = msgspec.structs.replace(made.engine.batching, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


def any_load(random: np.random.Generator) -> tuple[Traffic, Offered]:
    spreads = (float(random.choice([0.0, 0.5, 1.5])) for _ in range(2))
    inputs, outputs = (float(np.exp(random.uniform(0.0, most))) for most in (8.0, 6.0))
    hits, drafts = float(random.choice([0.0, 0.5, 1.0])), int(random.choice([0, 3]))
    traffic = Traffic(inputs, outputs, *spreads, hits, drafts, float(random.random()), 0.05)
    requests = int(random.integers(1, 60))
    arrivals_s = poisson_arrivals(float(np.exp(random.uniform(-2.0, 5.0))), requests)
    loads = (offered(traffic, requests), offered(traffic, requests, int(random.integers(1, 40))))
    return traffic, (*loads, offered(traffic, requests, arrivals_s=arrivals_s))[random.integers(3)]


@pytest.mark.parametrize("number", range(70))
def test_every_request_goes_through_its_stages(number: int) -> None:
    random = np.random.default_rng(number)
    made, placement = SERVICES[number % len(SERVICES)]
    made, (traffic, load) = scheduler(made, random), any_load(random)
    longest = request_bytes(made, placement, float((load.inputs + load.outputs).max()))
    share = float(random.choice([0.3, 1.01, 3.0, 50.0]))  # of the longest request: it runs alone where nothing fits
    memory = replace(serving_memory(made, placement, traffic.inputs), pool_bytes=longest * share / placement.dp)
    found = simulate(made, placement, memory, traffic, load)
    stages = np.array([found.arrival_s, found.start_s, found.first_s, found.finish_s])
    assert np.all(np.isfinite(stages))
    assert np.all(np.diff(stages, axis=0) >= -1e-9)
    assert np.all(found.gap_s >= 0.0)
    assert np.all(found.gap_counts > 0.0)
    if load.concurrency:  # no more clients than there are
        inside = [np.sum((found.arrival_s <= at) & (found.finish_s > at)) for at in found.arrival_s]
        assert max(inside) <= load.concurrency


# The closed form of requests in flight beside the simulation of the engine's scheduler.

JOBS = {
    name: job(model, server="dell-xe9680-h100", serve__engine=name)
    for name, model in (("vllm", "llama-3.1-8b"), ("sglang", "mixtral-8x7b"), ("tensorrt-llm", "gemma-2-9b"))
}


def closed_form(made: ServingJob, traffic: Traffic, clients: float, tp: int = 2) -> tuple[float, float, float]:
    placement = ReplicaLayouts.of(tp=tp)
    found = curve(made, placement, serving_memory(made, placement, traffic.inputs), traffic)
    rate, at = in_flight(found, traffic, clients)
    return float(rate[0]), float(at.tpot_s[0]), float(at.ttft_s[0])


@settings(max_examples=25, deadline=None)
@given(
    engine=st.sampled_from(sorted(JOBS)),
    inputs=st.floats(100, 3000),
    outputs=st.floats(150, 1000),
    clients=st.integers(2, 64),
)
def test_throughput_and_time_per_token_are_those_of_a_long_test(
    engine: str, inputs: float, outputs: float, clients: int
) -> None:
    """Lengths that spread mix the phases of requests, and the middle of a long test is steady."""
    made, placement, traffic = JOBS[engine], ReplicaLayouts.of(tp=2), Traffic(inputs, outputs, 0.5, 0.5)
    memory = serving_memory(made, placement, inputs)
    found = simulate(made, placement, memory, traffic, offered(traffic, 30 * clients + 100, clients))
    length_s = found.finish_s.max()
    ended = (found.finish_s > 0.3 * length_s) & (found.finish_s < 0.8 * length_s)
    rate = found.outputs[ended].sum() / found.outputs.mean() / (0.5 * length_s)
    tpot_s = (found.finish_s - found.first_s)[ended].sum() / (found.outputs[ended] - 1.0).sum()
    closed_rate, closed_tpot_s, _ = closed_form(made, traffic, clients)
    assert closed_rate == pytest.approx(rate, rel=0.06)
    assert closed_tpot_s == pytest.approx(tpot_s, rel=0.06)


@pytest.mark.parametrize("outputs", [256, 1024, 4096, 16384])
def test_the_first_token_does_not_wait_longer_for_longer_answers(outputs: float) -> None:
    """Ten requests of one prompt length: prompts are further apart, if anything, where answers are long."""
    made = JOBS["vllm"]
    _, _, first_s = closed_form(made, Traffic(1024, outputs), 10, tp=1)
    _, _, shortest_s = closed_form(made, Traffic(1024, 128), 10, tp=1)
    assert 0.6 * shortest_s < first_s < 1.2 * shortest_s  # steps on a longer cache take longer


@pytest.mark.parametrize("clients", [4, 16])
def test_the_time_to_the_first_token_is_that_of_the_test(clients: int) -> None:
    made, placement, traffic = JOBS["vllm"], ReplicaLayouts.of(), Traffic(1000, 400, 0.5, 0.5)
    memory = serving_memory(made, placement, 1000)
    found = simulate(made, placement, memory, traffic, offered(traffic, 100 * clients, clients))
    _, _, first_s = closed_form(made, traffic, clients, tp=1)
    middle = found.ttft_s[10 * clients : 90 * clients]
    assert first_s == pytest.approx(float(middle.mean()), rel=0.12)


def test_time_in_flight_is_the_sum_of_its_parts() -> None:
    made, traffic = JOBS["vllm"], Traffic(1000, 300)
    for clients in (1, 8, 64, 400, 3000):
        rate, tpot_s, first_s = closed_form(made, traffic, clients)
        assert clients / rate == pytest.approx(first_s + 299 * tpot_s, rel=1e-9)
        assert np.isfinite(first_s)
