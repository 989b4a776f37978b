"""Prefill and decode on replicas of their own: waits, transfers, the steps of each, and how many replicas there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from serving_cases import asked, job, problems, served

from xe_sizer.serving.disaggregation import decoding_only, prompts_of, transfer_s, waiting_s
from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.search import decode_curve
from xe_sizer.serving.step_time import Work, prefill_time, step_time
from xe_sizer.serving.summary import summarise

H100S = "dell-xe9680-h100"
CHAT = Traffic(inputs=2000.0, outputs=200.0)
BUSY = {"model": "llama-3.1-70b", "server": H100S, "serve__request_rate": 20, "serve__input_tokens": 4000,
        "limits__max_ttft_s": 1.0, "limits__max_tpot_s": 0.025}  # fmt: skip


# Waiting


def test_one_after_the_other_is_an_m_d_1_queue() -> None:
    """Half of the load over the free share, in service times: 0.6 x 0.5 / 0.4 x 0.5 s (DistServe, equation 1)."""
    assert waiting_s(1.2, 0.5, 0.5) == pytest.approx(0.5 * 1.2 * 0.5**2 / (1.0 - 0.6))
    assert waiting_s(0.0, 0.5, 0.5) == 0.0


def test_spread_lengths_wait_longer_by_pollaczek_and_khinchine() -> None:
    """With exponential times (v = 1) the wait is that of M/M/1: rho S / (1 - rho)."""
    assert waiting_s(1.2, 0.5, 0.5, 1.0) == pytest.approx(0.6 * 0.5 / 0.4)


def test_prompts_that_share_a_step_drain_the_queue_faster() -> None:
    """A busy share of 0.5 (1/s x 0.5 s), and a load of 0.1 as five prompts share a step of 0.5 s."""
    assert waiting_s(1.0, 0.5, 0.1) == pytest.approx(0.5 * 0.25 / 0.9)


def test_the_tail_of_the_wait_is_exponential() -> None:
    """Half of the prompts wait, 0.5 s in the mean: 95 % wait less than 0.5 ln(0.5 / 0.05)."""
    assert waiting_s(1.0, 0.5, 0.5, 0.0, 95.0) == pytest.approx(0.5 * math.log(10.0))
    assert waiting_s(0.05, 0.5, 0.5, 0.0, 95.0) == 0.0


def test_a_simulated_queue_waits_as_long() -> None:
    """Lindley's recursion over 200,000 Poisson arrivals with log-normal times."""
    draw = np.random.default_rng(7)
    gaps, spread = draw.exponential(1.0 / 1.4, 200_000), 0.5
    sigma = math.sqrt(math.log1p(spread**2))
    times = 0.5 * np.exp(sigma * draw.standard_normal(200_000) - sigma**2 / 2.0)
    wait, waits = 0.0, []
    for gap, before in zip(gaps, times, strict=True):
        wait = max(wait + before - gap, 0.0)
        waits.append(wait)
    assert float(np.mean(waits)) == pytest.approx(float(waiting_s(1.4, 0.5, 0.5, spread)), rel=0.05)


# Transfer


def test_a_cache_goes_rank_by_rank_over_the_nics() -> None:
    """Llama 3.1 70B keeps 80 x 2 x 8 x 128 x 2 bytes a token; of 1,024 tokens each of 4 ranks has 80 MiB.

    Between nodes a rank gets 46 GB/s of the NICs (8 x 400 Gbit/s at 0.92, an eighth), and 20 us x log2(2 x 2 nodes).
    """
    made, pair = job("llama-3.1-70b", server=H100S), ReplicaLayouts.of(tp=4)
    message = 80 * 2 * 8 * 128 * 2 * 1024 / 4
    assert message == 80 * 2**20
    assert transfer_s(made, pair, pair, 1024.0, False)[0] == pytest.approx(message / 46e9 + 40e-6)
    assert transfer_s(made, pair, pair, 1024.0, True)[0] < message / 200e9 + 50e-6


def test_the_side_with_fewer_ranks_sets_the_pace() -> None:
    made = job("llama-3.1-70b", server=H100S)
    two, eight = ReplicaLayouts.of(tp=2), ReplicaLayouts.of(tp=8)
    slow = transfer_s(made, two, two, 1024.0, False)
    assert transfer_s(made, two, eight, 1024.0, False) == pytest.approx(slow)
    assert transfer_s(made, eight, two, 1024.0, False) == pytest.approx(slow)


def test_a_latent_cache_is_whole_on_every_rank() -> None:
    """DeepSeek-V3: 61 layers x (512 + 64) x 2 bytes a token, whatever the ranks."""
    made = job("deepseek-v3", server=H100S)
    ranks = ReplicaLayouts.of(tp=8, ep=8)
    assert transfer_s(made, ranks, ranks, 4096.0, False)[0] == pytest.approx(61 * 576 * 2 * 4096 / 46e9 + 40e-6)


# Steps


def test_a_prompt_alone_and_in_full_steps() -> None:
    """Prompts of 2,000 tokens share steps of 8,192 by four."""
    made, one = job(server=H100S), ReplicaLayouts.of()
    found = prompts_of(made, one, CHAT)
    single = step_time(made, one, Work(prefills=1.0, prefill_tokens=2000.0)).total_s
    four = step_time(made, one, Work(prefills=4.0, prefill_tokens=2000.0)).total_s
    assert found.alone_s == pytest.approx(single)
    assert found.each_s == pytest.approx(four / 4.0)


def test_nothing_stops_the_decodes() -> None:
    """200 tokens, one a step, of 32 requests on 2,100 tokens each in the mean."""
    made, one = job(server=H100S), ReplicaLayouts.of()
    step_s = step_time(made, one, Work(decodes=32.0, decode_past=2100.0)).total_s
    found = decoding_only(made, one, CHAT, 32.0)
    assert found.tpot_s == pytest.approx(step_s)
    assert found.requests_per_s == pytest.approx(32.0 / (200.0 * step_s))
    assert found.prefill_s == pytest.approx(step_s + made.request_s)
    assert found.prompt_s == 0.0


def test_a_decode_replica_runs_from_one_request_to_what_its_cache_holds() -> None:
    made, one = job(server=H100S), ReplicaLayouts.of()
    memory = serving_memory(made, one, CHAT.inputs)
    found = decode_curve(made, one, memory, CHAT)
    held = float(memory.pool_bytes[0]) / (131_072 * math.ceil((2000 + 100) / 16) * 16)
    assert found.most[0] == pytest.approx(held)
    assert found.states.running[0, 0] == 1.0
    assert found.states.running[-1, 0] == pytest.approx(held)


# Services


def test_the_first_token_waits_for_all_stages() -> None:
    """Recomputed: M/D/1 of two prefill replicas, transfer inside the node, and a step and a half of the decodes."""
    sized = served(server=H100S, gpus=3, serve__request_rate=20, serve__input_tokens=2000, serve__output_tokens=200,
                   serve__prefill_replicas=2)  # fmt: skip
    prefills = sized.choice.prefills
    assert prefills is not None
    assert (prefills.replicas, sized.replicas, sized.gpus) == (2, 1, 3)
    made, one = sized.resolved.job, ReplicaLayouts.of()
    alone_s = float(step_time(made, one, Work(prefills=1.0, prefill_tokens=2000.0)).total_s[0])
    each_s = float(step_time(made, one, Work(prefills=4.0, prefill_tokens=2000.0)).total_s[0]) / 4.0
    queue_s = 10.0 * alone_s * alone_s / 2.0 / (1.0 - 10.0 * each_s)
    assert prefills.stages_s["queue"] == pytest.approx(queue_s, rel=1e-6)
    assert prefills.stages_s["prefill"] == pytest.approx(alone_s + made.request_s)
    assert sum(prefills.stages_s.values()) == pytest.approx(sized.point.ttft_s)
    assert prefills.same_node
    assert prefills.utilisation == pytest.approx(10.0 * each_s)
    assert prefills.transfer_bytes == 131_072 * 2000
    assert sized.point.request_s == pytest.approx(sized.point.ttft_s + 199 * sized.point.tpot_s)


def test_decodes_are_faster_without_prompts_beside_them() -> None:
    apart = served(**BUSY, serve__prefill_replicas="auto")
    together = served(**BUSY)
    assert apart.ok
    assert together.ok
    assert apart.gpus < together.gpus
    found = summarise(apart).disaggregation
    assert found is not None
    assert found.aggregated is not None
    assert (found.by, found.better, found.aggregated.gpus) == ("gpus", "disaggregated", together.gpus)
    assert found.path == "network"
    parts = (found.queue_s, found.prefill_s, found.transfer_s, found.decode_s)
    assert sum(part for part in parts if part is not None) == pytest.approx(apart.point.ttft_s)


def test_gpus_that_are_there_take_the_most_within_the_limits() -> None:
    """A wider limit per token never lets fewer requests in, whatever the load that is asked."""
    flags = {"model": "llama-3.1-70b", "server": H100S, "gpus": 8, "serve__weights": "fp8", "serve__request_rate": 1,
             "serve__input_tokens": 3000, "serve__output_tokens": 150, "serve__prefill_replicas": "auto"}  # fmt: skip
    rates = [served(**flags, limits__max_tpot_s=tpot).most_per_s for tpot in (0.015, 0.02, 0.03, 0.05)]
    assert rates == sorted(rates)


def test_gpus_need_not_be_a_multiple_of_a_decode_replica() -> None:
    sized = served("llama-3.1-70b", server=H100S, gpus=6, layout__tp=4, serve__prefill_tp=2, serve__request_rate=1,
                   serve__prefill_replicas=1)  # fmt: skip
    assert sized.gpus == 6


def test_the_fewest_gpus_are_found() -> None:
    """No number of replicas one smaller, of either kind and of the same placements, keeps the limits."""
    best = served(**BUSY, serve__prefill_replicas="auto")
    prefills = best.choice.prefills
    assert prefills is not None
    sizes = {"serve__prefill_tp": int(prefills.placement.tp[0]), "layout__tp": int(best.placement.tp[0])}
    fewer = served(**BUSY, **sizes, serve__prefill_replicas=prefills.replicas - 1)
    assert not fewer.ok or fewer.gpus >= best.gpus


@pytest.mark.parametrize("load", [{"serve__concurrency": 64}, {"serve__users": 400}])
def test_closed_loads_keep_littles_law(load: dict[str, object]) -> None:
    sized = served(server=H100S, gpus=4, serve__prefill_replicas=1, **load)
    think = sized.resolved.think_s
    assert sized.requests_per_s * (sized.point.request_s + think) == pytest.approx(sized.resolved.amount, rel=1e-6)


def test_a_queue_of_prompts_keeps_littles_law_at_full_load() -> None:
    sized = served(server=H100S, gpus=4, serve__prefill_replicas=1, serve__input_tokens=8000, serve__concurrency=400)
    assert sized.requests_per_s * sized.point.request_s == pytest.approx(400.0, rel=1e-3)


def test_more_than_is_taken_is_overloaded() -> None:
    sized = served(server=H100S, gpus=2, serve__prefill_replicas=1, serve__request_rate=1000)
    assert sized.overloaded
    assert sized.taken_per_s < 1000.0
    assert "1 prefill and 1 decode replicas sustain" in summarise(sized).verdict.reasons[0].message


def test_prefill_replicas_have_a_placement_of_their_own() -> None:
    sized = served("llama-3.1-70b", server=H100S, gpus=16, serve__request_rate=2, layout__tp=8,
                   serve__prefill_tp=4, serve__prefill_replicas="auto")  # fmt: skip
    assert sized.choice.prefills is not None
    assert int(sized.choice.prefills.placement.tp[0]) == 4
    assert int(sized.placement.tp[0]) == 8


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__prefill_tp": 2}, "needs 'prefill_replicas'"),
        ({"serve__prefill_replicas": 1, "serve__batch": 4}, "a batch is one replica's"),
        ({"serve__prefill_replicas": 1, "serve__engine": "tgi"}, "does not read prompts on replicas of their own"),
        ({"serve__prefill_replicas": 1, "serve__spare_replicas": 1}, "do not go together"),
        ({"serve__prefill_replicas": 1, "gpus": 1}, "no prefill replica fits beside a decode replica on 1 GPUs"),
    ],
)
def test_what_does_not_go_together_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(**flags))


def test_a_service_without_a_load_is_balanced() -> None:
    """Of the two kinds of replicas neither is idle for most of the time."""
    sized = served("llama-3.1-70b", server=H100S, serve__prefill_replicas="auto")
    prefills = sized.choice.prefills
    assert prefills is not None
    assert prefills.utilisation > 0.6
    assert asked(serve__prefill_replicas="auto").prefill_replicas == "auto"


def test_a_load_of_any_size_is_searched_in_few_steps() -> None:
    """A million requests a second take as many replicas a request as ten thousand do."""
    few, many = (served(serve__prefill_replicas="auto", serve__request_rate=rate).gpus / rate for rate in (1e4, 1e6))
    assert many == pytest.approx(few, rel=0.02)


def test_requests_at_once_have_no_load_to_warn_of() -> None:
    assert not any("no load is given" in one for one in summarise(served(serve__requests=8)).warnings)
    assert any("no load is given" in one for one in summarise(served()).warnings)


def test_prompts_of_several_steps_take_all_of_them() -> None:
    """Of 20,000 tokens in steps of 8,192: three, of one prompt alone and of one that fills its steps alike."""
    made, one = job(serve__engine="vllm"), ReplicaLayouts.of()
    long = Traffic(20_000.0, 200.0)
    found = prompts_of(made, one, long)
    step, steps = prefill_time(made, one, 1.0, 20_000.0)
    assert np.asarray(steps).item() == pytest.approx(np.ceil(20_000 / made.engine.batching.max_step_tokens))
    assert np.asarray(steps).item() > 1
    assert found.alone_s.tolist() == pytest.approx((step.total_s * steps).tolist())
    assert found.each_s.tolist() == pytest.approx(found.alone_s.tolist())
    assert found.steps.tolist() == np.broadcast_to(steps, 1).tolist()


def test_drafts_have_an_acceptance_and_a_cost_of_their_own() -> None:
    drafted = asked(serve__draft_tokens=3, serve__acceptance_rate=0.7, serve__draft_cost=0.1).traffic
    assert (drafted.draft_tokens, drafted.acceptance_rate, drafted.draft_cost) == (3, 0.7, 0.1)
    plain = asked().traffic
    assert (plain.draft_tokens, plain.acceptance_rate, plain.draft_cost) == (0, 0.0, 0.0)
    assert (plain.input_spread, plain.output_spread) == (0.0, 0.0)
