"""What is looked for is the most of what was tried: objectives, sessions that fit, loads on given GPUs, advice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import altered, asked, served

from xe_sizer.serving.advice import advise, less_sure
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.search import choose
from xe_sizer.serving.summary import summarise

H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 200}
LIMITED = served(server=H100S, gpus=1, serve__concurrency=8, limits__max_ttft_s=2.0, limits__max_tpot_s=0.05, **CHAT)


# Objectives


@pytest.mark.parametrize("load", [{"serve__batch": 16}, {"serve__concurrency": 16}])
def test_the_lowest_latency_stays_in_a_server(load: dict[str, object]) -> None:
    """Where nobody says how many GPUs there are: of one to eight ranks of Llama 3.1 8B the fastest, not sixteen."""
    found = served(server=H100S, serve__objective="latency", **load, **CHAT)
    tried = [served(server=H100S, layout__tp=tp, layout__pp=1, gpus=tp, **load, **CHAT) for tp in (1, 2, 4, 8)]
    assert found.placement.gpus[0] <= 8
    assert found.point.request_s <= 1.11 * min(one.point.request_s for one in tried)
    assert found.placement.tp[0] > 1


def test_the_highest_throughput_of_batches_is_that_of_all_replicas() -> None:
    """Eight GPUs: replicas x batch / time of a batch."""
    found = served(server=H100S, gpus=8, serve__objective="throughput", serve__batch=16, **CHAT)
    tried = [served(server=H100S, gpus=8, layout__tp=tp, layout__pp=1, serve__batch=16, **CHAT) for tp in (1, 2, 4, 8)]
    assert found.requests_per_s >= max(one.requests_per_s for one in tried) / 1.11
    assert found.gpus == 8
    fastest = served(server=H100S, gpus=8, serve__objective="latency", serve__batch=16, **CHAT)
    assert fastest.point.request_s < found.point.request_s


def test_without_an_objective_a_batch_takes_the_largest_replica_of_given_gpus() -> None:
    four = ReplicaLayouts.of(tp=[1, 2, 4, 8])
    assert choose(asked(server=H100S, gpus=8, serve__batch=16, **CHAT), four).placement.tp[0] == 8


@pytest.mark.parametrize("load", [{"serve__request_rate": 5.0}, {"serve__users": 200}])
def test_given_gpus_take_the_most_requests(load: dict[str, object]) -> None:
    found = served("llama-3.1-70b", server=H100S, gpus=8, **load, **CHAT)
    tried = [
        served("llama-3.1-70b", server=H100S, gpus=8, layout__tp=tp, layout__pp=1, **load, **CHAT) for tp in (2, 4, 8)
    ]
    kept = [one for one in tried if one.ok]
    assert found.ok
    assert found.most_per_s >= max(one.most_per_s for one in kept) / 1.11


def test_requests_in_flight_are_answered_by_the_fastest_of_given_gpus() -> None:
    found = served("llama-3.1-70b", server=H100S, gpus=8, serve__concurrency=64, **CHAT)
    tried = [
        served("llama-3.1-70b", server=H100S, gpus=8, layout__tp=tp, layout__pp=1, serve__concurrency=64, **CHAT)
        for tp in (2, 4, 8)
    ]
    assert found.requests_per_s >= max(one.requests_per_s for one in tried if one.ok) / 1.11


def test_the_fewest_gpus_keep_the_limits_of_an_open_number() -> None:
    """One fewer replica of the same placement would miss, and so do all replicas on fewer GPUs."""
    limits: dict[str, object] = {"limits__max_ttft_s": 1.0, "limits__max_tpot_s": 0.03}
    found = served(server=H100S, serve__request_rate=60.0, **limits, **CHAT)
    assert found.ok
    assert found.requests_per_s <= found.most_per_s
    for tp in (1, 2, 4):
        fewer = (found.gpus - 1) // tp
        if fewer:
            less = served(
                server=H100S, serve__request_rate=60.0, layout__tp=tp, layout__pp=1, gpus=fewer * tp, **limits, **CHAT
            )
            assert not less.ok


# What fits


def test_engines_end_what_memory_would_hold() -> None:
    """Four sequences in each of two groups."""
    found = served(
        server=H100S, gpus=2, layout__tp=1, layout__pp=2, serve__fit="sessions", serve__max_sequences=4, **CHAT
    )
    fit = summarise(found).fit
    assert fit is not None
    assert (fit.sessions, fit.bound) == (8, "max_sequences")
    twice = served(
        server=H100S, gpus=4, layout__tp=1, layout__pp=2, serve__fit="sessions", serve__max_sequences=4, **CHAT
    )
    more = summarise(twice).fit
    assert more is not None
    assert (more.sessions, more.sessions_per_replica) == (16, 8)


def test_arrivals_are_those_of_a_test_at_a_rate() -> None:
    rate = asked(serve__request_rate=4.0, serve__requests=10)
    assert (rate.arrivals, rate.values.serve.arrivals) == ("poisson", "poisson")
    even = asked(serve__request_rate=4.0, serve__requests=10, serve__arrivals="constant")
    assert even.arrivals == "constant"
    for flags in ({"serve__requests": 10}, {"serve__request_rate": 4.0}, {"serve__concurrency": 4}):
        assert asked(**flags).values.serve.arrivals is None


# Two kinds of replicas


@pytest.mark.parametrize("load", [{"serve__concurrency": 64}, {"serve__users": 400}])
def test_the_most_that_two_kinds_take_is_rate_times_time(load: dict[str, object]) -> None:
    """N = X (R + Z) at the highest rate that keeps the limits, so that a share of the load has a share of the rate."""
    found = served(server=H100S, gpus=4, serve__prefill_replicas=1, **load, **CHAT)
    top, most = found.choice.top_rate * found.working_replicas, found.choice.top_load * found.working_replicas
    at_top_s = most / top - found.resolved.think_s
    assert 0.5 * found.point.request_s < at_top_s < 50 * found.point.request_s
    assert found.requests_per_s <= top * (1 + 1e-6)
    assert found.resolved.amount <= most * (1 + 1e-6)


def test_two_kinds_share_servers() -> None:
    """Ten GPUs of servers of eight, whichever replicas they are."""
    found = served(server=H100S, gpus=10, serve__prefill_replicas=3, serve__request_rate=5.0, layout__tp=1,
                   layout__pp=1, serve__prefill_tp=1, serve__prefill_pp=1, **CHAT)  # fmt: skip
    assert (found.gpus, found.nodes, found.replicas) == (10, 2, 7)


# Advice


def test_where_only_gpus_mend_the_narrowest_formats_and_less_load_are_told_too() -> None:
    """Llama 3.1 70B on one card, for 300: 35 GB in 4 bit leave room, though not for all of them."""
    found = served("llama-3.1-70b", gpus=1, serve__concurrency=300, **CHAT)
    changes = [one.change for one in advise(found, REGISTRY)]
    (narrow,) = [one for one in changes if "int4 weights instead of bf16 and fp8 KV cache instead of bf16" in one]
    fewer = int(narrow.split(" and ")[-1].split(" ")[0])
    after = {"serve__weights": "int4", "serve__kv_cache": "fp8", "gpus": 1}
    assert served("llama-3.1-70b", serve__concurrency=fewer, **after, **CHAT).ok
    assert not served("llama-3.1-70b", serve__concurrency=math.ceil(1.03 * fewer) + 1, **after, **CHAT).ok


def sure(share: float) -> ServingEstimate:
    """A service whose time per token keeps 50 ms with this probability."""
    for tpot_s in np.geomspace(0.005, 0.05, 400):
        found = altered(LIMITED, tpot_s=float(tpot_s), ttft_s=0.01)
        if found.least_sure is not None and found.least_sure <= share:
            return found
    raise AssertionError(share)


def test_less_sure_is_less_than_before_and_than_nine_in_ten() -> None:
    almost, likely, even = sure(0.97), sure(0.8), sure(0.6)
    barely = sure(0.93)
    assert not less_sure(almost, barely)
    assert less_sure(almost, likely)
    assert less_sure(likely, even)
    assert not less_sure(even, likely)
    assert not less_sure(likely, likely)
