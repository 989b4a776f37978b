"""Steps, batches and steady states put together by hand from the law of a single step."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.graph.operators import Matmul
from xe_sizer.laws.collectives import ALL_REDUCE, POINT_TO_POINT, collective_time_s
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import GRID, Steady, curve, steady
from xe_sizer.serving.step_time import (
    Work,
    _narrow_launches,
    decode_time,
    of_the_fullest,
    operator_costs,
    prefill_time,
    static_batch,
    step_time,
)

ONE = ReplicaLayouts.of()
H100S = "dell-xe9680-h100"


def with_batching(made: ServingJob, **changes: object) -> ServingJob:
    batching = msgspec.structs.replace(made.engine.batching, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


def total(made: ServingJob, placements: ReplicaLayouts = ONE, **work: float) -> float:
    return float(step_time(made, placements, Work(**work)).total_s[0])


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-12)


PLAIN = with_batching(job(), max_step_tokens=1024, first_token="prefill", overlaps=False)
MIXED = with_batching(PLAIN, mixed_steps=True, chunked_prefill=True)
APART = with_batching(PLAIN, mixed_steps=False, chunked_prefill=False)


# Prefills


@pytest.mark.parametrize(
    ("sequences", "inputs", "past", "steps", "work"),
    [
        (1, 1000, 0, 1, {"prefills": 1, "prefill_tokens": 1000}),
        (2, 512, 0, 1, {"prefills": 2, "prefill_tokens": 512}),
        (3, 1000, 0, 3, {"prefills": 1, "prefill_tokens": 1000}),
        (3, 600, 0, 2, {"prefills": 1.5, "prefill_tokens": 600}),
        (1, 4000, 0, 4, {"prefills": 1, "prefill_tokens": 1000, "prefill_past": 1500}),
        (1, 4000, 2000, 2, {"prefills": 1, "prefill_tokens": 1000, "prefill_past": 2500}),
        (1, 1000, 1000, 1, {"prefills": 1, "prefill_tokens": 1, "prefill_past": 1000}),
        (0, 1000, 0, 1, {"prefills": 0}),
    ],
)
def test_prompts_are_cut_into_steps(
    sequences: float, inputs: float, past: float, steps: int, work: dict[str, float]
) -> None:
    """Steps of 1,024 tokens; a piece of a cut prompt has half of the others before it in the mean."""
    found, counted = prefill_time(MIXED, ONE, sequences, inputs, past)
    assert float(counted.reshape(-1)[0]) == steps
    assert found.total_s[0] == near(total(MIXED, **work))


def test_uncut_prompts_take_a_step_each_at_the_most() -> None:
    found, steps = prefill_time(APART, ONE, 2.0, 4000.0)
    assert float(steps.reshape(-1)[0]) == 2
    assert found.total_s[0] == near(total(APART, prefills=1, prefill_tokens=4000))


def test_attention_ranks_have_a_step_each() -> None:
    made = with_batching(job("deepseek-v2-lite", server=H100S), max_step_tokens=1024)
    _, steps = prefill_time(made, ReplicaLayouts.of(dp=[1, 4], ep=[1, 4]), 8.0, 1024.0)
    assert steps.tolist() == [8, 2]


# Batches


def test_the_mean_decode_is_simpsons() -> None:
    """Of an answer of 302 tokens, whose 301 decodes begin behind 0 to 300 of its tokens."""
    parts = [total(MIXED, decodes=4, decode_past=1000 + grown) for grown in (0, 150, 300)]
    found = decode_time(MIXED, ONE, 4.0, 1000.0, 302.0)
    assert found.total_s[0] == near((parts[0] + 4 * parts[1] + parts[2]) / 6)
    short = decode_time(MIXED, ONE, 4.0, 1000.0, 1.0)
    assert short.total_s[0] == near(total(MIXED, decodes=4, decode_past=1000))


def test_a_batch_is_its_prefill_and_its_decodes() -> None:
    first = total(MIXED, prefills=1, prefill_tokens=1000) * 4 + MIXED.request_s
    decode = float(decode_time(MIXED, ONE, 4.0, 1000.0, 302.0).total_s[0])
    found = static_batch(MIXED, ONE, 4.0, 1000.0, 302.0)
    assert (found.ttft_s[0], found.tpot_s[0]) == (near(first), near(decode))
    assert found.request_s[0] == near(first + 301 * decode)


@pytest.mark.parametrize(
    ("batch", "capacity", "together", "before"),
    [(4, 4, 4, 0.0), (8, 4, 4, 0.5), (12, 4, 4, 1.0), (10, 4, 4, 0.8), (4, 0.3, 1, 1.5), (3, 8, 3, 0.0)],
)
def test_waves_wait_for_those_before(batch: float, capacity: float, together: float, before: float) -> None:
    """Of ten in waves of four, four wait for none, four for one and two for two: 8 / 10."""
    one = static_batch(MIXED, ONE, together, 500.0, 102.0)
    found = static_batch(MIXED, ONE, batch, 500.0, 102.0, capacity)
    assert found.tpot_s[0] == near(one.tpot_s[0])
    assert found.ttft_s[0] == near(one.ttft_s[0] + before * one.request_s[0])
    assert found.request_s[0] == near(one.request_s[0] * batch / together)


def test_the_first_token_of_some_engines_is_a_decodes() -> None:
    later = with_batching(MIXED, first_token="decode")
    one, other = static_batch(MIXED, ONE, 2.0, 500.0, 102.0), static_batch(later, ONE, 2.0, 500.0, 102.0)
    assert other.ttft_s[0] == near(one.ttft_s[0] + one.tpot_s[0])
    assert other.request_s[0] == near(one.request_s[0] + one.tpot_s[0])


def test_drafts_take_time_and_gain_tokens() -> None:
    """Three proposals, each kept with a half: 1.875 tokens a step that is 1 + 3 x 0.1 times as long."""
    traffic = Traffic(500.0, 102.0, 0.0, 0.0, 0.0, 3, 0.5, 0.1)
    found = static_batch(MIXED, ONE, 2.0, 500.0, 102.0, np.inf, traffic)
    step = float(decode_time(MIXED, ONE, 2.0, 500.0, 102.0, 4.0).total_s[0])
    assert found.tpot_s[0] == near(step * 1.3 / 1.875)
    cached = Traffic(500.0, 102.0, prefix_hit_share=0.8)
    hit = static_batch(MIXED, ONE, 2.0, 500.0, 102.0, np.inf, cached)
    assert hit.ttft_s[0] - MIXED.request_s == near(total(MIXED, prefills=2, prefill_tokens=100, prefill_past=400))


# Steady states


def kept(made: ServingJob, traffic: Traffic, running: float, placements: ReplicaLayouts = ONE) -> Steady:
    return steady(made, placements, traffic, running)


def test_prompts_that_share_steps_by_hand() -> None:
    """8 inside, answers of 101: 100 steps and one for the prompt, so that 8 x 100 / 101 decode."""
    traffic, decoding = Traffic(500.0, 101.0), 8 * 100 / 101
    found = kept(MIXED, traffic, 8.0)
    alone = total(MIXED, decodes=decoding, decode_past=550.5)
    both = total(MIXED, decodes=decoding, decode_past=550.5, prefills=1, prefill_tokens=500)
    share = decoding / 100
    step = alone + share * (both - alone)
    assert found.decoding[0] == near(decoding)
    assert found.requests_per_s[0] == near(decoding / (100 * step))
    assert found.tpot_s[0] == near(alone + (step - alone) * 7 / 8)
    assert found.step_s[0] == found.tpot_s[0]
    assert found.prefill_s[0] == near(both + MIXED.request_s)
    assert found.prompt_s[0] == near((step - alone) * 100 / decoding)


def test_prompts_that_are_cut_by_hand() -> None:
    """4,000 tokens where 1,024 - 4 fit beside the decodes: four pieces of 1,000 behind 1,500 in the mean."""
    traffic = Traffic(4000.0, 101.0)
    found = kept(MIXED, traffic, 4.0)
    decoding = 4 * 100 / 104
    alone = total(MIXED, decodes=decoding, decode_past=4050.5)
    work = {"decodes": decoding, "decode_past": 4050.5, "prefills": 1, "prefill_tokens": 1000, "prefill_past": 1500}
    both = total(MIXED, **work)
    assert found.decoding[0] == near(decoding)
    assert found.requests_per_s[0] == near(decoding / (100 * (alone + decoding / 100 * 4 * (both - alone))))
    assert found.prefill_s[0] == near(4 * both + MIXED.request_s)


def test_decodes_take_room_from_prompts() -> None:
    """200 decodes leave 824 of 1,024 tokens, so that a prompt of 900 is two pieces; an eighth is left to prompts."""
    wide = with_batching(MIXED, max_step_tokens=1024)
    found = kept(wide, Traffic(900.0, 10_001.0), 200.0)
    decoding = 200 * 10_000 / 10_002
    past = 900 + 10_001 / 2
    work = {"decodes": decoding, "decode_past": past, "prefills": 1, "prefill_tokens": 450, "prefill_past": 225}
    assert found.decoding[0] == near(decoding)
    assert found.prefill_s[0] == near(2 * total(wide, **work) + wide.request_s)
    full = kept(wide, Traffic(256.0, 1_000_001.0), 1000.0)
    assert full.decoding[0] == near(1000 * 1e6 / (1e6 + 2))


def test_steps_hold_no_more_than_their_tokens() -> None:
    """Of 1,024 tokens each decode needs one and 100 / 10 of a prompt: no more than 1,024 / 11 decode."""
    found = kept(MIXED, Traffic(100.0, 11.0), 500.0)
    decoding = 1024 / 11
    assert found.decoding[0] == near(decoding)
    per_step = decoding / 10
    past = 100 + 5.5
    alone = total(MIXED, decodes=decoding, decode_past=past)
    both = total(MIXED, decodes=decoding, decode_past=past, prefills=per_step, prefill_tokens=100)
    assert found.requests_per_s[0] == near(decoding / (10 * both))
    assert found.tpot_s[0] == near(alone + (both - alone) * 499 / 500)
    # 500 x 10 / 11 would decode: the share of all requests that finds no room waits as Little's law says.
    waiting = 500 * (1 - decoding / (500 * 10 / 11))
    assert found.room_s[0] * found.requests_per_s[0] == near(waiting)
    assert kept(MIXED, Traffic(100.0, 11.0), 50.0).room_s[0] == 0


def test_prompts_that_stop_the_decodes_by_hand() -> None:
    """Two uncut prompts of 500 fit in a step of 1,024; 8 x 10 / 11 decode, so that 0.73 prompts come to a step."""
    traffic, decoding = Traffic(500.0, 11.0), 8 * 10 / 11
    found = kept(APART, traffic, 8.0)
    alone = total(APART, decodes=decoding, decode_past=505.5)
    prompt = total(APART, prefills=1, prefill_tokens=500)
    step = alone + decoding / 10 * prompt
    assert found.decoding[0] == near(decoding)
    assert found.requests_per_s[0] == near(decoding / (10 * step))
    assert found.tpot_s[0] == near(alone + (step - alone) * 7 / 8)
    assert found.prefill_s[0] == near(prompt + APART.request_s)
    many = kept(APART, traffic, 80.0)
    pair = total(APART, prefills=2, prefill_tokens=500)
    decodes = total(APART, decodes=decoding * 10, decode_past=505.5)
    assert many.requests_per_s[0] == near(decoding * 10 / (10 * (decodes + decoding * 10 / 10 / 2 * pair)))


def test_uncut_prompts_longer_than_a_step_take_one_alone() -> None:
    found = kept(APART, Traffic(3000.0, 11.0), 8.0)
    assert found.prefill_s[0] == near(total(APART, prefills=1, prefill_tokens=3000) + APART.request_s)


def test_the_prefill_of_some_engines_ends_with_a_decode() -> None:
    later = with_batching(APART, first_token="decode")
    one, other = kept(APART, Traffic(500.0, 11.0), 8.0), kept(later, Traffic(500.0, 11.0), 8.0)
    assert other.prefill_s[0] == near(one.prefill_s[0] + one.step_s[0])


def test_nobody_alone_is_slowed_by_prompts() -> None:
    found = kept(APART, Traffic(500.0, 11.0), 1.0)
    assert found.tpot_s[0] == near(total(APART, decodes=10 / 11, decode_past=505.5))
    assert kept(APART, Traffic(500.0, 1.0), 4.0).tpot_s[0] == 0.0


def test_cached_and_drafted_tokens_of_a_steady_state_by_hand() -> None:
    """Three of four prompt tokens are cached; one proposal, kept with a half, makes 1.5 tokens of each step."""
    traffic = Traffic(400.0, 151.0, 0.0, 0.0, 0.75, 1, 0.5, 0.2)
    found = kept(MIXED, traffic, 1.0)
    steps = 150 / 1.5
    decoding = steps / (steps + 1)
    alone = total(MIXED, decodes=decoding, decode_past=475.5, decode_tokens=2) * 1.2
    assert found.tpot_s[0] == near(alone / 1.5)
    work = {"decodes": decoding, "decode_past": 475.5, "decode_tokens": 2, "prefills": 1}
    assert found.prefill_s[0] == near(total(MIXED, **work, prefill_tokens=100, prefill_past=300) + MIXED.request_s)


def test_long_answers_weigh_more_in_time() -> None:
    found = kept(APART, Traffic(500.0, 100.0, 0.0, 2.0), 1.0)
    assert found.tpot_s[0] == near(total(APART, decodes=99 / 100, decode_past=500 + 100 * 5 / 2))


def test_stages_each_have_their_prompts() -> None:
    """Two stages work on two groups: 8 requests are 4 each, and a step that has prompts has one in both."""
    made, two = with_batching(MIXED, max_step_tokens=1024), ReplicaLayouts.of(pp=2)
    found = kept(made, Traffic(500.0, 101.0), 8.0, two)
    decoding = 8 * 100 / 101
    alone = total(made, two, decodes=decoding, decode_past=550.5)
    both = total(made, two, decodes=decoding, decode_past=550.5, prefills=2, prefill_tokens=500)
    assert found.requests_per_s[0] == near(decoding / (100 * (alone + decoding / 100 / 2 * (both - alone))))


def test_a_curve_is_geometric_between_one_and_all() -> None:
    traffic = Traffic(500.0, 101.0)
    placements = ReplicaLayouts.of(tp=[1, 2])
    made = job(server=H100S)
    memory = replace(serving_memory(made, placements), pool_bytes=np.array([4e9, 8e9]))
    found = curve(made, placements, memory, traffic)
    most = np.array([4e9 / 131072 / 560, 2 * 8e9 / 131072 / 560])  # 550.5 tokens in blocks of 16
    assert found.most.tolist() == pytest.approx(most.tolist())
    for place in (0, 1):
        expected = most[place] ** (np.arange(GRID) / (GRID - 1))
        assert found.states.running[:, place].tolist() == pytest.approx(expected.tolist(), rel=1e-12)
        alone = steady(made, placements[place : place + 1], traffic, expected[7])
        assert found.states.tpot_s[7, place] == near(alone.tpot_s[0])


# Parts of a step


def test_the_fullest_group_has_whole_sequences() -> None:
    assert of_the_fullest(np.array([8.0, 1.0, 0.5, 3.0]), np.array([4.0, 4.0, 4.0, 2.0])).tolist() == [2, 1, 0.5, 1.5]


def test_stages_send_the_hidden_state_on() -> None:
    """Llama 3.1 70B in four stages: three times 8,192 x 2 bytes of each of the 5 tokens of a group."""
    made, four = job("llama-3.1-70b", server=H100S), ReplicaLayouts.of(tp=2, pp=4)
    found = step_time(made, four, Work(decodes=20, decode_past=100)).parts["pipeline communication"][0]
    once = collective_time_s(POINT_TO_POINT, np.array([5 * 8192 * 2.0]), 2.0, np.array([2.0]), made.network)
    assert found == near(3 * float(once[0]))
    far = step_time(made, ReplicaLayouts.of(tp=8, pp=2), Work(decodes=2, decode_past=100))
    over = collective_time_s(POINT_TO_POINT, np.array([8192 * 2.0]), 2.0, np.array([1.0]), made.network)
    assert far.parts["pipeline communication"][0] == near(float(over[0]))


def test_the_host_counts_sequences_of_a_group_and_ranks() -> None:
    made = with_batching(job(server=H100S), overlaps=False)
    engine = made.engine
    one = step_time(made, ONE, Work(decodes=30, decode_past=100)).parts["host"][0]
    assert one == near(engine.step_s + 30 * engine.sequence_s)
    two = step_time(made, ReplicaLayouts.of(tp=2), Work(decodes=30, decode_past=100)).parts["host"][0]
    assert two == near(engine.step_s + engine.parallel_step_s + 30 * engine.sequence_s)


def test_stages_of_unequal_length_wait_for_the_longest() -> None:
    """80 layers in three stages: 27 + 27 + 26, so that all layers together take 81 / 80 as long."""
    made = job("llama-3.1-70b", server=H100S)
    even, uneven = ReplicaLayouts.of(pp=2), ReplicaLayouts.of(pp=3)
    work = {"decode_past": 1000.0}
    two = step_time(made, even, Work(decodes=2 * 8, **work)).parts
    three = step_time(made, uneven, Work(decodes=3 * 8, **work)).parts
    for name in ("linear layers", "attention", "memory-bound operators"):
        assert three[name][0] > 0
    assert three["attention"][0] == near(two["attention"][0] * 81 / 80)
    assert three["linear layers"][0] == near(two["linear layers"][0] * 81 / 80)


def test_ranks_reduce_twice_a_layer_and_once_for_the_embedding() -> None:
    """64 all-reduces of 3 x 4,096 x 2 bytes in the layers, over what the engine's collectives reach of their laws."""
    made, two = job(server=H100S), ReplicaLayouts.of(tp=2)
    found = step_time(made, two, Work(decodes=3, decode_past=10)).parts["tensor-parallel communication"][0]
    ranks = np.array([2.0])
    once = collective_time_s(ALL_REDUCE, np.array([3 * 4096 * 2.0]), ranks, ranks, made.network)[0]
    layers = 64 * once / made.engine.efficiency.collectives
    assert layers < found < layers * 68 / 64


def test_logits_of_a_prefill_are_of_its_last_tokens() -> None:
    made = job(efficiency__flops=1.0, efficiency__memory=1.0)
    prompt = step_time(made, ONE, Work(prefills=3, prefill_tokens=400)).parts["head and sampling"][0]
    decode = step_time(made, ONE, Work(decodes=3, decode_past=400)).parts["head and sampling"][0]
    assert prompt == near(decode)


@pytest.mark.parametrize(
    ("work", "tokens"), [(Work(decodes=7, decode_past=900), 3.5), (Work(prefills=4, prefill_tokens=300), 600.0)]
)
def test_operators_of_a_step_sum_to_its_parts(work: Work, tokens: float) -> None:
    """Llama 3.1 8B on two ranks in two stages: half of the tokens in a group, half of each product on a rank."""
    found = step_time(job(server=H100S), ReplicaLayouts.of(tp=2, pp=2), work)
    costs = operator_costs(found)
    for name, value in found.parts.items():
        if name not in ("host", "pipeline communication"):
            assert sum(cost.parts.get(name, 0.0) for cost in costs) == pytest.approx(value[0], rel=1e-9, abs=1e-15)
    products = sum(cost.flops for cost in costs if cost.operator.module == "mlp" and cost.parts.get("linear layers"))
    assert products == near(32 * tokens * 2 * 3 * 4096 * 14336 / 2)
    sent = [cost for cost in costs if "tensor-parallel communication" in cost.parts]
    inside = [cost.moved_bytes for cost in sent if cost.times == 32]
    assert inside == [near(32 * tokens * 4096 * 2)] * 2
    assert all(cost.bound == "network" for cost in sent)


@pytest.mark.parametrize(
    ("given", "exchanged"),
    [
        ({"efficiency.flops": 0.5}, False),  # stands for all that a step loses
        ({"efficiency.flops": 0.5, "efficiency.memory": 0.6}, True),
        ({"efficiency.ideal": True}, False),  # the speed of light hides every exchange
    ],
)
def test_fixed_efficiencies_hide_exchanges_or_do_not(given: dict[str, object], exchanged: bool) -> None:
    """In the step and in the list of its operators alike, which sum to one another."""
    made = job(server=H100S, **{name.replace(".", "__"): value for name, value in given.items()})
    found = step_time(made, ReplicaLayouts.of(tp=2), Work(decodes=7, decode_past=900))
    costs = operator_costs(found)
    assert any("tensor-parallel communication" in cost.parts for cost in costs) == exchanged
    for name, value in found.parts.items():
        if name != "host":
            assert sum(cost.parts.get(name, 0.0) for cost in costs) == pytest.approx(value[0], rel=1e-9, abs=1e-15)


def test_operators_run_once_in_each_layer() -> None:
    """Of Llama 3.1 8B 32 times, whatever the stages are; on five the fullest has 7 layers of a mean of 6.4."""
    made = job()
    for stages, layers in ((1, 32), (2, 32), (5, 35)):
        costs = operator_costs(step_time(made, ReplicaLayouts.of(pp=stages), Work(decodes=8.0, decode_past=500.0)))
        times = {cost.operator.name: cost.times for cost in costs}
        assert {times[name] for name in ("down", "output projection", "input norm")} == {layers}
        assert times["head"] == 1
        (down,) = (cost for cost in costs if cost.operator.name == "down")
        rows = 8 / stages  # each stage works on its part of the sequences
        assert down.flops == pytest.approx(layers * 2 * rows * 14_336 * 4096)
        assert down.sizes["m"] == pytest.approx(rows)


def test_weights_alone_in_few_bits_start_further_kernels() -> None:
    """Each product of the layers, as often as the engine's kernel does; none where weights are as wide as operands."""
    wide, narrow = job(), job(serve__weights="int4")
    step = step_time(narrow, ReplicaLayouts.of(), Work(decodes=1.0, decode_past=10.0)).step
    each = narrow.engine.narrow_kernel(narrow.scheme.weights).launches
    products = sum(op.layers for op in step.layers if isinstance(op, Matmul))
    assert products == 32 * 4
    assert _narrow_launches(narrow, step.layers) == each * products
    assert _narrow_launches(wide, step.layers) == 0
