"""What an estimate makes of its replicas: rates, verdicts, prices and rooms, on figures that are round."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import altered, asked, served

from xe_sizer.scenario.limits import chance
from xe_sizer.serving import estimate as estimates
from xe_sizer.serving.estimate import ServingEstimate, alike, count_replicas, first, missed, missed_for
from xe_sizer.serving.job import HIGHEST_LOAD, ReplicaLayouts
from xe_sizer.serving.memory import max_sequences
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE, MEMORY_SPREAD

H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 200, "layout__tp": 1, "layout__pp": 1}


@cache
def base(load: str = "request_rate") -> ServingEstimate:
    """Four replicas of one GPU each, at 20 of a load."""
    flags = {f"serve__{load}": 20} if load != "batch" else {"serve__batch": 20}
    gpus = {} if load == "batch" else {"server": H100S, "gpus": 4}
    return served(**CHAT, **gpus, **flags, cost__price_per_gpu_hour=2.0)


def at_work(load: str = "request_rate", **changes: object) -> ServingEstimate:
    """Each replica takes 5 requests a second, in 4 s each; 8 in the mean and 10 within the limits are the most."""
    round_ones = {
        "requests_per_s": 5.0, "request_s": 4.0, "ttft_s": 0.5, "tpot_s": 0.02, "running": 18.0, "full_rate": 10.0,
        "top_rate": 8.0, "top_load": 8.0, "places": 30.0, "prompt_s": 0.05, "answer_s": 0.15,
    }  # fmt: skip
    return altered(base(load), **{**round_ones, **changes})


def test_replicas_take_what_each_of_them_takes() -> None:
    one = at_work()
    assert (one.gpus, one.replicas, one.working_replicas, one.nodes) == (4, 4, 4, 1)
    assert (one.requests_per_s, one.taken_per_s, one.most_per_s) == (20, 20, 32)
    assert (one.in_flight, one.utilisation) == (80, 5 / 8)
    assert at_work("concurrency").utilisation == 5 / 10
    spare = at_work(spare_replicas=1)
    assert (spare.working_replicas, spare.requests_per_s, spare.most_per_s) == (3, 15, 24)
    assert at_work(spare_replicas=9).working_replicas == 1
    assert at_work(top_rate=0.0).utilisation == 0
    gone = at_work(fits=False)
    assert (gone.taken_per_s, gone.in_flight, gone.requests_per_s) == (0, 0, 20)
    assert gone.judged_s == (math.inf,) * 3
    assert not gone.overloaded


def test_requests_that_come_faster_than_they_are_taken() -> None:
    """No more are answered than nearly the full rate; they wait ever longer."""
    one = at_work(ttft_s=math.inf, request_s=math.inf, requests_per_s=12.0)
    assert one.overloaded
    assert one.taken_per_s == pytest.approx(HIGHEST_LOAD * 10 * 4)
    assert not math.isfinite(one.in_flight)
    assert not one.queues
    assert not one.keeps_limits
    assert one.shortfall == pytest.approx(max(12 / 8, one.peak_bytes / one.usable_bytes))


def test_latencies_are_judged_at_the_percentile() -> None:
    one = at_work(percentiles={95.0: (1.0, 0.03, 6.0), 99.0: (2.0, 0.04, 8.0)}, percentile=95.0)
    assert (one.ttft_s, one.tpot_s, one.judged_s[2]) == (1.0, 0.03, 6.0)
    assert at_work(percentiles={}, percentile=95.0).judged_s == (0.5, 0.02, 4.0)


def test_requests_queue_where_the_first_token_is_late() -> None:
    """20 are inside a replica with 10 places: late by the limit; not where 20 run at once."""
    flags = {**CHAT, "server": H100S, "gpus": 4, "serve__concurrency": 20, "limits__max_ttft_s": 0.1}
    late = altered(served(**flags), ttft_s=0.5, requests_per_s=5.0, request_s=4.0, places=10.0)
    assert late.queues
    assert not altered(late, places=20.0).queues
    assert not altered(late, ttft_s=0.05).queues
    assert not altered(late, fits=False).queues


def test_servers_hold_whole_replicas() -> None:
    """Three replicas of 3 GPUs are two to a server of eight; of 16 GPUs each fills two."""
    one = at_work()
    for tp, pp, replicas, nodes in ((3, 1, 3, 2), (4, 1, 3, 2), (8, 2, 3, 6), (1, 1, 9, 2), (8, 1, 2, 2), (5, 1, 2, 2)):
        made = altered(one, placement=ReplicaLayouts.of(tp=tp, pp=pp), replicas=replicas)
        assert (made.gpus, made.nodes) == (tp * pp * replicas, nodes)


def test_an_hour_is_shared_out_over_prompts_and_answers() -> None:
    """4 GPUs at 2 an hour; 20 requests a second of 1,000 and 200 tokens; a quarter of the time reads prompts."""
    one = at_work()
    requests = 20 * 3600
    assert (one.cost, one.prefill_share) == (8, pytest.approx(0.25))
    assert one.cost_per_million_input_tokens == pytest.approx(8 * 0.25 / (requests * 1000) * 1e6)
    assert one.cost_per_million_tokens == pytest.approx(8 * 0.75 / (requests * 200) * 1e6)
    assert one.cost_per_million_of_both == pytest.approx(8 / (requests * 1200) * 1e6)
    assert at_work(prompt_s=0.0, answer_s=0.0).prefill_share == 0
    assert at_work(requests_per_s=0.0).cost_per_million_tokens is None
    unpriced = served(**CHAT, server="dell-xe9680-h100", gpus=1, serve__concurrency=2)
    assert unpriced.cost is None or unpriced.resolved.tariff.per_gpu_hour is not None


def test_room_beside_one_request_decides_how_close_it_is() -> None:
    """A pool that holds hardly more than one request is tight; one that holds less does not fit."""
    one = at_work()
    usable = one.usable_bytes
    assert one.headroom_bytes == pytest.approx(usable - one.peak_bytes, abs=1)
    assert one.cache_bytes == one.pool_bytes
    assert (one.usable_gib, one.headroom_gib) == (usable / 2**30, one.headroom_bytes / 2**30)
    for room, roomy in ((0.0, False), (MEMORY_ERROR_SHARE, True)):
        pool = one.request_bytes + room * usable
        memory = replace(one.memory, pool_bytes=np.array([pool]))
        close = altered(one, memory=memory)
        assert close.roomy is roomy, room
        assert close.fit_probability == chance(MEMORY_SPREAD, usable / (usable - (pool - close.request_bytes)))
    gone = at_work(fits=False)
    assert not gone.roomy
    assert gone.fit_probability == chance(MEMORY_SPREAD, usable / gone.peak_bytes)


def test_room_of_less_than_a_byte_is_none() -> None:
    one = at_work()
    parts = sum(float(size[0]) for size in one.memory.fixed.values())
    for room, headroom in ((0.4, 0.0), (-0.4, 0.0), (5.0, 5.0), (-5.0, -5.0)):
        filled = replace(one.memory, pool_bytes=np.array([one.usable_bytes - parts - room]))
        assert altered(one, memory=filled).headroom_bytes == pytest.approx(headroom, abs=0.01)


def test_a_batch_that_grows_is_the_batch_or_what_runs() -> None:
    grows = served(**CHAT, serve__batch=12, serve__engine="hf-transformers")
    assert (grows.grows, grows.sequences) == (True, 12)
    running = altered(grows, load=None, running=7.0, holds=5.9)
    assert running.sequences == 5
    assert altered(running, running=3.0).sequences == 3
    assert altered(running, running=0.2).sequences == 1
    assert grows.cache_bytes == pytest.approx(grows.headroom_bytes + grows.memory_parts["KV cache"])


def test_the_longest_sequence_is_a_round_number_where_that_leaves_room() -> None:
    """One token more does not fit; no more than the model's positions."""
    one = base()
    room = altered(one, memory=replace(one.memory, pool_bytes=np.array([one.request_bytes * 4.3])))
    longest = room.longest_held(10**6)
    exact = longest
    while room.holds_one(exact + 1):
        exact += 1
    assert room.holds_one(longest)
    assert not room.holds_one(exact + 1)
    assert longest == exact // estimates.ROUND_TOKENS * estimates.ROUND_TOKENS
    assert room.longest_held(1000) == 999 // estimates.ROUND_TOKENS * estimates.ROUND_TOKENS or 999
    small = altered(one, memory=replace(one.memory, pool_bytes=np.array([one.request_bytes * 1.05])))
    assert 1200 <= small.longest_held(10**6) < 1200 * 1.2
    assert one.longest_held(10**9) <= one.resolved.job.model.max_positions
    none = altered(one, memory=replace(one.memory, pool_bytes=np.array([0.0])))
    assert none.longest_held(10**6) == 0


# Placements to choose from.


def test_rates_and_misses_are_told_apart_in_tenths() -> None:
    assert alike(np.array([1.0, 1.04, 1.06, 1.1, 2.0])).tolist() == [0, 0, 1, 1, 7]
    resolved = asked(**CHAT, serve__concurrency=4, limits__max_ttft_s=2.0, limits__max_tpot_s=0.1)
    ttft, tpot = np.array([1.0, 2.0, 2.01, 1.0, 4.0]), np.array([0.05, 0.1, 0.05, 0.4, 0.3])
    steps = [0, 0, 1, math.ceil(math.log(4) / math.log(1.1)), math.ceil(math.log(3) / math.log(1.1))]
    assert missed(resolved, ttft, tpot).tolist() == steps
    assert missed(asked(**CHAT, serve__batch=4), ttft, tpot).tolist() == [0] * 5
    miss, gpus = np.array([0.0, 7.0]), np.array([1.0, 2.0])
    assert missed_for(miss, gpus, np.array([True, True])).tolist() == [0, 7]
    assert missed_for(miss, gpus, np.array([False, True])).tolist() == [0, 14]


def test_the_first_that_fits_or_needs_least() -> None:
    fitting, need = np.array([False, True, True]), np.array([1.0, 9.0, 8.0])
    keys = (np.array([0, 2, 2]), np.array([0, 1, 0]))
    assert first(fitting, need, *keys) == 2
    assert first(fitting, need, keys[1], keys[0]) == 2
    assert first(fitting, need, np.array([0, 1, 2])) == 1
    assert first(np.zeros(3, dtype=bool), need, np.array([0, 0, 1])) == 0


@pytest.mark.parametrize(
    ("gpus", "tp", "spare", "replicas"),
    [(8, 1, 0, 8), (8, 3, 0, 2), (16, 3, 0, 4), (12, 8, 0, 1), (12, 3, 0, 4), (11, 3, 0, 3), (8, 2, 1, 3), (8, 8, 3, 1),
     (32, 16, 0, 2), (40, 16, 0, 2)],
)  # fmt: skip
def test_replicas_on_given_gpus(gpus: int, tp: int, spare: int, replicas: int) -> None:
    """Those that fit a server of eight lie inside one; spare ones are set aside, one at least works."""
    shape = ReplicaLayouts.of(tp=min(tp, 8), pp=max(tp // 8, 1))
    resolved = replace(asked(server=H100S, gpus=8, serve__concurrency=4, **CHAT), gpus=gpus, spare_replicas=spare)
    assert count_replicas(resolved, shape).tolist() == [replicas]
    assert count_replicas(replace(resolved, gpus=None), shape).tolist() == [1]


def test_a_replica_holds_requests_at_their_full_length() -> None:
    resolved = asked(**CHAT, serve__concurrency=4)
    one = ReplicaLayouts.of()
    cases = estimates.build_cases(resolved, one)
    assert cases.holds.tolist() == max_sequences(resolved.job, one, cases.memory, 1200.0).tolist()
    assert cases.fitting.tolist() == [True]
    assert estimates.fewest_that_fit(cases) == 1
    none = replace(cases, fitting=np.array([False]))
    assert estimates.fewest_that_fit(none) is None
