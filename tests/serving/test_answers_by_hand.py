"""What an estimate says of itself, against sums made by hand: GPUs, servers, load, cost, probabilities and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import altered, served

from xe_sizer.laws.hardware import AIR_COOLED
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.summary import build_cost, build_throughput, find_warnings, summarise

H100S = "dell-xe9680-h100"
GIB = 2.0**30


RATE = served(server=H100S, serve__request_rate=4.0, serve__input_tokens=1000, serve__output_tokens=200)
FEW = served(server=H100S, serve__concurrency=8, serve__input_tokens=1000, serve__output_tokens=200)
PRICED = served(
    gpu="h100-sxm-80gb", serve__request_rate=4.0, serve__input_tokens=1000, serve__output_tokens=200,
    cost__price_per_gpu_hour=3.0,
)  # fmt: skip
LARGE = served("llama-3.1-70b", gpus=1, serve__batch=1)


# GPUs and servers


@pytest.mark.parametrize(
    ("tp", "replicas", "gpus", "nodes"), [(1, 8, 8, 1), (1, 9, 9, 2), (8, 3, 24, 3), (4, 3, 12, 2), (16, 3, 48, 6)]
)
def test_replicas_lie_inside_servers_where_they_fit(tp: int, replicas: int, gpus: int, nodes: int) -> None:
    placement = replace(RATE.placement, tp=np.array([tp]))
    found = altered(RATE, placement=placement, replicas=replicas)
    assert (found.gpus, found.nodes) == (gpus, nodes)


@pytest.mark.parametrize(("tp", "gpus", "nodes"), [(5, 10, 2), (3, 12, 2), (12, 24, 3)])
def test_replicas_that_do_not_divide_a_server_leave_some_of_it(tp: int, gpus: int, nodes: int) -> None:
    found = altered(RATE, placement=replace(RATE.placement, tp=np.array([tp])), replicas=gpus // tp)
    assert found.nodes == nodes


def test_spare_replicas_do_no_work() -> None:
    found = altered(RATE, replicas=5, spare_replicas=2, requests_per_s=1.5, top_rate=2.0, full_rate=4.0)
    assert (found.working_replicas, found.requests_per_s, found.most_per_s) == (3, 4.5, 6.0)
    assert found.utilisation == 0.75
    assert altered(found, spare_replicas=5).working_replicas == 1
    assert altered(FEW, requests_per_s=1.5, top_rate=2.0, full_rate=4.0).utilisation == 0.375
    assert altered(RATE, top_rate=0.0).utilisation == 0.0


def test_an_overloaded_service_answers_what_it_can() -> None:
    found = altered(RATE, replicas=2, requests_per_s=10.0, full_rate=4.0, ttft_s=math.inf)
    assert found.overloaded
    assert found.taken_per_s == pytest.approx(0.999 * 8)
    assert altered(found, ttft_s=1.0).taken_per_s == 20.0
    assert altered(found, requests_per_s=1.0).taken_per_s == 2.0
    assert altered(found, fits=False).taken_per_s == 0.0
    assert not altered(found, fits=False).overloaded


def test_requests_in_flight_are_those_of_all_replicas() -> None:
    found = altered(RATE, replicas=3, requests_per_s=2.0, request_s=5.0)
    assert found.in_flight == 30.0
    assert altered(found, fits=False).in_flight == 0.0


# Latencies that are judged


def test_the_percentile_is_judged_where_there_is_one() -> None:
    found = altered(RATE, percentiles={95.0: (1.0, 2.0, 3.0)}, ttft_s=0.1, tpot_s=0.2, request_s=0.3)
    assert found.judged_s == (1.0, 2.0, 3.0)
    assert (found.ttft_s, found.tpot_s) == (1.0, 2.0)
    assert altered(found, percentile=90.0).judged_s == (0.1, 0.2, 0.3)
    assert altered(found, fits=False).judged_s == (math.inf,) * 3


def test_a_queue_is_more_in_flight_than_places_and_a_late_token() -> None:
    late = served(server=H100S, serve__concurrency=8, limits__max_ttft_s=1.0)
    queued = altered(late, ttft_s=2.0, requests_per_s=2.0, request_s=10.0, places=19.0)
    assert queued.queues
    assert not altered(queued, places=20.0).queues
    assert not altered(queued, ttft_s=0.5).queues
    assert not altered(queued, fits=False).queues
    assert not altered(queued, ttft_s=math.inf).queues
    tokens = served(server=H100S, serve__concurrency=8, limits__max_tpot_s=0.1, limits__max_ttft_s=100.0)
    assert not altered(tokens, tpot_s=2.0, ttft_s=5.0, requests_per_s=2.0, request_s=10.0, places=1.0).queues


def test_a_limit_in_the_wrong_unit_lets_nobody_wait_for_minutes() -> None:
    """500 was meant as milliseconds: a first token after more than ten seconds is waited for by nobody."""
    odd = served(server=H100S, serve__concurrency=8, limits__max_ttft_s=500)
    assert altered(odd, ttft_s=400.0, percentiles={}).waits_too_long
    assert not altered(odd, ttft_s=1.0, percentiles={}).waits_too_long
    plain = served(server=H100S, serve__concurrency=8, limits__max_ttft_s=2.0)
    assert not altered(plain, ttft_s=400.0, percentiles={}).waits_too_long
    tokens = served(server=H100S, serve__concurrency=8, limits__max_tpot_s=50, limits__max_ttft_s=500.0)
    assert altered(tokens, ttft_s=400.0, percentiles={}).waits_too_long


# Cost


def test_tokens_share_the_hour_by_the_time_they_take() -> None:
    """3 $ x 1 GPU; a fourth of the time for prompts; 2 requests a second of 1,000 and 200 tokens."""
    found = altered(PRICED, replicas=1, prompt_s=1.0, answer_s=3.0, requests_per_s=2.0)
    assert found.cost == 3.0
    assert found.prefill_share == 0.25
    assert found.cost_per_million_input_tokens == pytest.approx(0.75 / (7200 * 1000) * 1e6)
    assert found.cost_per_million_tokens == pytest.approx(2.25 / (7200 * 200) * 1e6)
    assert found.cost_per_million_of_both == pytest.approx(3.0 / (7200 * 1200) * 1e6)
    assert altered(found, prompt_s=0.0, answer_s=0.0).prefill_share == 0.0
    assert altered(found, fits=False).cost_per_million_tokens is None
    cost = build_cost(found)
    assert cost.billed_gpus == 1
    watts = (found.resolved.job.server.accelerator.tdp_w or 0.0) * (0.7 + AIR_COOLED.share)
    millions_an_hour = 2 * 1200 * 3600 / 1e6
    assert cost.energy_kwh_per_million_tokens == pytest.approx(watts / 1000 / millions_an_hour)
    assert build_cost(altered(found, fits=False)).energy_kwh_per_million_tokens is None
    assert build_cost(RATE).billed_gpus is None


def test_throughput_counts_prompts_and_answers() -> None:
    found = build_throughput(altered(RATE, replicas=2, requests_per_s=3.0, tpot_s=0.02, request_s=4.0))
    assert (found.output_tokens_per_s, found.total_tokens_per_s, found.requests_per_s) == (1200.0, 7200.0, 6.0)
    assert found.tokens_per_s_per_user == pytest.approx(50.0)
    assert found.output_tokens_per_s_per_gpu == 1200.0 / (2 * RATE.placement.gpus[0])
    assert found.requests_in_flight == 24.0
    assert build_throughput(altered(RATE, tpot_s=0.0)).tokens_per_s_per_user == 0.0
    assert build_throughput(altered(RATE, fits=False)).tokens_per_s_per_user == 0.0


def test_what_each_replica_gets() -> None:
    found = summarise(altered(RATE, replicas=3, spare_replicas=1, requests_per_s=3.0, running=7.0, top_load=5.0,
                              top_rate=6.0, request_s=2.0))  # fmt: skip
    each = found.per_replica
    assert (each.requests_per_s, each.running_requests, each.output_tokens_per_s) == (3.0, 7.0, 600.0)
    assert each.concurrency == 6.0
    all_of = found.replicas
    assert (all_of.max_requests_per_s, all_of.max_load, all_of.utilisation) == (12.0, 10.0, 0.5)
    nothing = summarise(LARGE)
    assert (nothing.replicas.utilisation, nothing.replicas.max_requests_per_s, nothing.replicas.running_requests) == (
        0, 0, 0,
    )  # fmt: skip
    assert nothing.replicas.max_load is None
    assert summarise(served()).replicas.max_load is None


def test_what_the_cache_holds() -> None:
    found = served("deepseek-v2-lite", server=H100S, gpus=2, layout__dp=2, layout__ep=2, serve__concurrency=8,
                   serve__max_sequences=16, serve__input_tokens=1000, serve__output_tokens=200)  # fmt: skip
    cache = summarise(found).kv_cache
    assert cache.max_concurrency == 32.0
    assert cache.bytes_per_token == 27 * 576 * 2
    assert cache.pool_bytes == pytest.approx(2 * found.memory.pool_bytes[0])
    assert cache.pool_tokens == pytest.approx(found.choice.holds * 1200)
    staged = served("llama-3.1-70b", server=H100S, gpus=4, layout__tp=2, layout__pp=2, serve__concurrency=8,
                    serve__max_sequences=4)  # fmt: skip
    assert summarise(staged).kv_cache.max_concurrency == 8.0


# Memory


def test_memory_is_tight_or_roomy() -> None:
    """Parts off by 3 % in four runs of five: three in four suffice with 3 % x 0.674 / 1.282 beside one request."""
    each = RATE.request_bytes
    card = RATE.usable_bytes
    for share, roomy in ((0.0150, False), (0.0157, True)):
        memory = replace(RATE.memory, pool_bytes=np.array([each + share * card]))
        assert altered(RATE, memory=memory).roomy == roomy
    assert not altered(RATE, fits=False).roomy
    assert RATE.roomy
    assert not LARGE.roomy
    assert LARGE.shortfall == pytest.approx(LARGE.peak_bytes / LARGE.usable_bytes)
    assert LARGE.headroom_gib == pytest.approx((LARGE.usable_bytes - LARGE.peak_bytes) / GIB)


def test_the_probability_of_fitting_is_that_of_the_room() -> None:
    """As likely as not where nothing is left; surely with three times the error."""
    card, each = RATE.usable_bytes, RATE.request_bytes
    found = [
        altered(RATE, memory=replace(RATE.memory, pool_bytes=np.array([each + room * card]))).fit_probability
        for room in (0.0, 0.01, 0.03, 0.2)
    ]
    assert found[0] == pytest.approx(0.5, abs=0.02)
    assert found == sorted(found)
    assert found[-1] > 0.999


def test_growing_batches_hold_what_runs() -> None:
    grown = served(serve__engine="hf-transformers", serve__batch=6, serve__input_tokens=500)
    assert grown.grows
    assert grown.sequences == 6
    room = grown.usable_bytes - grown.peak_bytes
    assert grown.cache_bytes == pytest.approx(room + grown.memory_parts["KV cache"])
    assert RATE.cache_bytes == RATE.memory.pool_bytes[0]


def test_the_longest_sequence_that_is_held_is_round() -> None:
    """Llama 3.1 8B keeps 131,072 bytes a token: a pool of 3 GB holds 22,888 of them, in blocks of 16."""
    memory = replace(RATE.memory, pool_bytes=np.array([3e9]))
    found = altered(RATE, memory=memory)
    assert found.longest_held(131_072) == 22 * 1024
    assert found.longest_held(20_000) == 19 * 1024
    small = altered(RATE, memory=replace(RATE.memory, pool_bytes=np.array([131072.0 * 1210])))
    assert small.longest_held(131_072) == 1200  # 1,024 would be no room for a request; 1,210 are 75 blocks and a part
    assert altered(RATE, memory=replace(RATE.memory, pool_bytes=np.array([0.0]))).longest_held(1000) == 0
    assert found.holds_one(22_888) == (math.ceil(22_888 / 16) * 16 * 131072 <= 3e9)


# Words


def said(found: ServingEstimate) -> list[str]:
    return list(find_warnings(found))


def test_what_is_left_over_is_said() -> None:
    found = served("llama-3.1-70b", serve__request_rate=0.1, gpus=7)
    left = 7 - found.gpus
    assert any(f"{left} of the 7 GPUs stay idle: replicas have {found.placement.gpus[0]}" in one for one in said(found))
    assert not any("stay idle" in one for one in said(served(server=H100S, gpus=8, serve__request_rate=1.0)))
    assert not any("stay idle" in one for one in said(LARGE))


def test_full_replicas_are_warned_of() -> None:
    near = altered(RATE, requests_per_s=0.95, top_rate=1.0)
    assert not any("of what they sustain" in one for one in said(altered(RATE, requests_per_s=0.9, top_rate=1.0)))
    open_ended = served(server=H100S, serve__request_rate=4.0)
    for share, told in ((0.9, False), (0.95, True), (1.0, True), (1.1, False)):
        found = altered(open_ended, requests_per_s=share, top_rate=1.0)
        assert any("of what they sustain" in one for one in said(found)) == told, share
    assert any("run at 95.0% of what" in one for one in said(altered(open_ended, requests_per_s=0.95, top_rate=1.0)))
    assert near.utilisation == 0.95


def test_those_that_wait_are_counted() -> None:
    for flight, told in ((19.4, False), (19.6, True)):
        found = altered(FEW, requests_per_s=1.0, request_s=flight, places=19.0, replicas=2, amount=40.0)
        assert any("38 of the 40 requests run at once" in one for one in said(found)) == told
    assert not any("run at once" in one for one in said(altered(RATE, requests_per_s=1.0, request_s=30.0, places=1.0)))


def test_replicas_that_span_servers_are_said() -> None:
    wide = altered(RATE, placement=replace(RATE.placement, tp=np.array([12])), replicas=1)
    assert any("the only replica spans 2 servers" in one for one in said(wide))
    assert any("each replica spans 2 servers" in one for one in said(altered(wide, replicas=2)))
    assert not any("spans" in one for one in said(RATE))


def test_a_server_that_fails_takes_most_replicas_with_it() -> None:
    """Five of nine single GPUs are in one server; the other four take 12 of 20 a second, or enough."""
    nine = altered(RATE, replicas=9, top_load=3.0, amount=20.0)
    told = [one for one in said(nine) if "if it fails" in one]
    assert told
    assert told[0].startswith("5 of the 9 replicas are in one server: if it fails, the others take 12 of 20 (")
    assert not any("if it fails" in one for one in said(altered(nine, amount=12.0)))
    eight = [one for one in said(altered(nine, replicas=8)) if "if it fails" in one]
    assert eight[0].startswith("all 8 replicas are in one server: if it fails, nothing serves")
    one = [text for text in said(altered(nine, replicas=1)) if "if it fails" in text]
    assert one[0].startswith("the only replica is in one server: if it fails, nothing serves")
    assert not any("if it fails" in one for one in said(altered(nine, replicas=18, spare_replicas=8)))


def test_lengths_that_nobody_gives_are_said() -> None:
    assert any("prompts of 1,024 and answers of 256 tokens are assumed" in one for one in said(served()))
    one = said(served(serve__input_tokens=10))
    assert any("answers of 256 tokens are assumed: the scenario gives no output_tokens" in each for each in one)
    assert not any("are assumed" in each for each in said(RATE))
    assert any("each replica runs at 98" in each for each in said(served()))


def test_reasons_name_what_is_taken() -> None:
    found = served("llama-3.1-8b", gpus=2, layout__tp=1, serve__request_rate=2000.0)
    (reason,) = [one for one in summarise(found).verdict.reasons if one.code == "overloaded"]
    most = 0.999 * found.choice.full_rate * 2
    shown = float(reason.message.split("the ")[1].split(" ")[0])
    assert 0.99 * most <= shown <= most
    assert "2,000 requests/s are more than the" in reason.message
    assert "2 replicas of 1 GPU sustain" in reason.message
    pair = served("llama-3.1-70b", gpus=2, layout__tp=2, serve__request_rate=2000.0)
    (one,) = [one for one in summarise(pair).verdict.reasons if one.code == "overloaded"]
    assert "one replica of 2 GPUs sustains" in one.message


def test_phases_have_the_shares_of_their_parts() -> None:
    phase = summarise(RATE).phases.decode
    assert sum(part.seconds for part in phase.components) == pytest.approx(phase.seconds)
    assert sum(part.share for part in phase.components) == pytest.approx(1.0)
    assert all(part.seconds > 0 for part in phase.components)
