"""The load of a service over its replicas: shared evenly, Little's law, default objectives, the longest sequence."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import asked, engine_file, problems, served

from xe_sizer.serving.job import HIGHEST_LOAD, TARGET_LOAD, ReplicaLayouts
from xe_sizer.serving.memory import max_sequences, serving_memory
from xe_sizer.serving.queueing import (
    Curve,
    curve,
    in_flight,
    latencies,
    requests_within,
    users_at,
    users_latencies,
    users_rate,
    users_within,
)
from xe_sizer.serving.summary import summarise

H100S = "dell-xe9680-h100"
CHAT: dict[str, object] = {"serve__input_tokens": 1000, "serve__output_tokens": 300}
LARGE: dict[str, object] = {"server": H100S, **CHAT}


def replica(**flags: object) -> tuple[Curve, object]:
    """The curve of Llama 3.1 8B on one H100, and its traffic."""
    resolved = asked(**{**CHAT, **flags})
    one = ReplicaLayouts.of()
    return curve(resolved.job, one, serving_memory(resolved.job, one, 1000.0), resolved.traffic), resolved.traffic


FOUND, TRAFFIC = replica()
PLACES = float(FOUND.most[0])


# Equations


@pytest.mark.parametrize("requests", [0.25, 1.0, 7.5, 100.0, PLACES, 3 * PLACES])
def test_requests_in_flight_are_rate_times_time(requests: float) -> None:
    rate, at = in_flight(FOUND, TRAFFIC, requests)
    assert rate[0] * at.request_s[0] == pytest.approx(requests, rel=1e-12)
    assert at.request_s[0] == pytest.approx(at.ttft_s[0] + 299 * at.tpot_s[0], rel=1e-12)


def test_beyond_its_places_a_replica_makes_others_wait() -> None:
    """Twice as many requests as run take twice as long, all of it before the first token."""
    rate, at = in_flight(FOUND, TRAFFIC, PLACES)
    twice, late = in_flight(FOUND, TRAFFIC, 2 * PLACES)
    assert twice[0] == pytest.approx(rate[0])
    assert late.request_s[0] == pytest.approx(2 * at.request_s[0])
    assert late.tpot_s[0] == at.tpot_s[0]
    assert late.ttft_s[0] - at.ttft_s[0] == pytest.approx(at.request_s[0])


def test_below_one_request_nobody_disturbs() -> None:
    rate, alone = in_flight(FOUND, TRAFFIC, 1.0)
    half, same = in_flight(FOUND, TRAFFIC, 0.5)
    assert half[0] == pytest.approx(rate[0] / 2)
    assert (same.ttft_s[0], same.tpot_s[0]) == (alone.ttft_s[0], alone.tpot_s[0])


@pytest.mark.parametrize(("ttft_s", "tpot_s"), [(None, 0.012), (5.0, None), (0.2, 0.03), (30.0, 0.1)])
def test_the_most_requests_within_limits_are_the_most(ttft_s: float | None, tpot_s: float | None) -> None:
    """By going up one by one."""
    most = requests_within(FOUND, TRAFFIC, ttft_s, tpot_s, 10_000.0)[0]
    tried = np.arange(1.0, 10_001.0)[:, None]
    _, at = in_flight(FOUND, TRAFFIC, tried)
    kept = (at.ttft_s[:, 0] <= (ttft_s or np.inf)) & (at.tpot_s[:, 0] <= (tpot_s or np.inf))
    expected = tried[np.argmin(kept) - 1, 0] if not kept.all() else 10_000.0
    assert expected * (1 - 1e-3) <= most < expected + 1


def test_a_limit_that_one_request_breaks_is_kept_by_none() -> None:
    assert requests_within(FOUND, TRAFFIC, 1e-6, None, 100.0)[0] == 0


@settings(max_examples=30, deadline=None)
@given(users=st.floats(0.01, 5000.0), think_s=st.floats(0.05, 600.0))
def test_users_wait_or_think(users: float, think_s: float) -> None:
    """N = X (R + Z), however full the replica; no more than it takes, and no faster than with nobody else."""
    rate, (at,) = users_latencies(FOUND, TRAFFIC, users, think_s, None)
    assert rate[0] * (at.request_s[0] + think_s) == pytest.approx(users, rel=1e-9)
    assert 0 < rate[0] <= HIGHEST_LOAD * FOUND.top_rate[0]
    assert at.request_s[0] >= latencies(FOUND, TRAFFIC, 0.0).request_s[0] * (1 - 1e-9)
    assert at.request_s[0] >= at.ttft_s[0]


def test_few_users_who_think_long_are_a_request_rate() -> None:
    """100 users, an answer and 600 s of thought: 100 requests in a little over ten minutes."""
    rate, (at,) = users_latencies(FOUND, TRAFFIC, 100.0, 600.0, 95.0)
    assert rate[0] == pytest.approx(100 / 600, rel=0.01)
    assert at.ttft_s[0] == latencies(FOUND, TRAFFIC, rate, 95.0, 100.0).ttft_s[0]


def test_one_user_never_waits_for_himself() -> None:
    """However soon he asks again: the time of an empty replica, at every percentile, and N = X (R + Z)."""
    alone = latencies(FOUND, TRAFFIC, 0.0)
    for think_s in (0.01, 1.0, 60.0):
        rate, (at,) = users_latencies(FOUND, TRAFFIC, 1.0, think_s, 99.0)
        assert at.ttft_s[0] == pytest.approx(alone.ttft_s[0], rel=1e-9)
        assert rate[0] * (alone.request_s[0] + think_s) == pytest.approx(1.0, rel=1e-6)


def test_users_find_the_requests_of_the_others_alone() -> None:
    """Two of them wait as at half of their rate (Bard and Schweitzer), many as if requests came from anywhere."""
    rate = 0.3 * FOUND.top_rate
    base = latencies(FOUND, TRAFFIC, 0.0).ttft_s[0]
    anywhere = latencies(FOUND, TRAFFIC, rate)
    many = latencies(FOUND, TRAFFIC, rate, None, 1e9)
    assert many.ttft_s[0] == pytest.approx(anywhere.ttft_s[0], rel=1e-6)
    ttft_s = [latencies(FOUND, TRAFFIC, rate, None, users).ttft_s[0] for users in (1.0, 2.0, 4.0, 64.0)]
    assert ttft_s == sorted(ttft_s)
    assert ttft_s[0] >= base


def test_a_full_replica_takes_the_users_that_may_wait() -> None:
    """The users found keep the limit, by their own latencies; the limit is what they reach."""
    users = users_within(FOUND, TRAFFIC, 30.0, 200.0, None, 95.0, 1e4)[0]
    _, (at,) = users_latencies(FOUND, TRAFFIC, users, 30.0, 95.0)
    assert at.ttft_s[0] == pytest.approx(200.0, rel=0.05)
    assert users_within(FOUND, TRAFFIC, 30.0, 1e-6, None, 95.0, 1e4)[0] == 0.0


def test_nobody_waits_for_a_place_where_there_is_one_for_each() -> None:
    """Of a full replica with 8 places 8 users wait for prompts alone: less than the same rate from anywhere."""
    eight = Curve(FOUND.states, np.minimum(FOUND.most, 8.0))
    at = latencies(eight, TRAFFIC, 0.9 * eight.top_rate, 99.0, 8.0)
    more = latencies(eight, TRAFFIC, 0.9 * eight.top_rate, 99.0, 9.0)
    assert at.ttft_s[0] < 0.5 * more.ttft_s[0]


def test_users_of_a_rate_and_the_rate_of_users_are_inverse() -> None:
    rates = np.array([0.1, 0.5, 0.9]) * FOUND.top_rate[0]
    for rate in rates:
        users = users_at(FOUND, TRAFFIC, rate, 30.0)
        assert users_rate(FOUND, TRAFFIC, users, 30.0)[0] == pytest.approx(rate, rel=1e-4)
        again = users_at(FOUND, TRAFFIC, rate, 30.0, users)
        assert users_rate(FOUND, TRAFFIC, again, 30.0)[0] == pytest.approx(rate, rel=1e-4)


def test_more_users_than_places_wait_for_each_other() -> None:
    """A full replica of rate X: 10,000 users who think 1 s wait 10,000 / X - 1 for their answer."""
    rate, (at,) = users_latencies(FOUND, TRAFFIC, 10_000.0, 1.0, None)
    assert rate[0] == HIGHEST_LOAD * FOUND.top_rate[0]
    assert at.request_s[0] == pytest.approx(10_000 / rate[0] - 1)
    assert at.request_s[0] == pytest.approx(at.ttft_s[0] + 299 * at.tpot_s[0])


def test_users_of_a_replica_without_room_wait_forever() -> None:
    rate, (at,) = users_latencies(Curve(FOUND.states, np.array([0.5])), TRAFFIC, 10.0, 30.0, None)
    assert (rate[0], at.ttft_s[0], at.request_s[0]) == (0.0, np.inf, np.inf)


# Replicas that share a load


@pytest.mark.parametrize("load", ["concurrency", "users", "request_rate"])
@settings(max_examples=12, deadline=None)
@given(each=st.integers(1, 400), replicas=st.integers(2, 9))
def test_replicas_share_evenly(load: str, each: int, replicas: int) -> None:
    """A load on r alike replicas has the latencies of an r-th of it on one."""
    flags: dict[str, object] = {"layout__tp": 1, "layout__pp": 1, **CHAT}
    amount = each / 40 if load == "request_rate" else each
    key = f"serve__{load}"
    one = served(gpus=1, **{key: amount}, **flags)
    many = served(gpus=replicas, **{key: amount * replicas}, **flags)
    assert many.replicas == replicas
    assert many.judged_s == pytest.approx(one.judged_s, rel=1e-9)
    assert many.requests_per_s == pytest.approx(replicas * one.requests_per_s, rel=1e-9)
    assert many.in_flight == pytest.approx(replicas * one.in_flight, rel=1e-9)


@pytest.mark.parametrize("load", ["concurrency", "users", "request_rate"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
def test_more_load_never_has_fewer_gpus(load: str, model: str) -> None:
    found = [served(model, **{f"serve__{load}": n}, **LARGE) for n in (1, 5, 20, 100, 400, 1500)]
    assert all(one.ok for one in found)
    gpus = [one.gpus for one in found]
    assert gpus == sorted(gpus)
    assert gpus[-1] > gpus[0]


@pytest.mark.parametrize("amount", [10, 300, 2000])
@pytest.mark.parametrize("load", ["concurrency", "users"])
def test_no_fewer_replicas_keep_the_objectives(load: str, amount: int) -> None:
    """One replica less of the same placement misses them, or is fuller than replicas are run."""
    found = served("llama-3.1-70b", **{f"serve__{load}": amount}, **LARGE)
    assert found.ok
    size = int(found.placement.gpus[0])
    if found.gpus > size:
        fewer = served("llama-3.1-70b", gpus=found.gpus - size, layout__tp=int(found.placement.tp[0]),
                       layout__pp=int(found.placement.pp[0]), **{f"serve__{load}": amount}, **LARGE)  # fmt: skip
        assert not fewer.ok or (load == "users" and fewer.utilisation > TARGET_LOAD)


@pytest.mark.parametrize(("users", "think_s"), [(50, 5), (500, 30), (2000, 120)])
def test_littles_law_holds_for_the_answer(users: int, think_s: float) -> None:
    result = summarise(served("llama-3.1-70b", serve__users=users, serve__think_time_s=think_s, **LARGE))
    rate, request_s = result.throughput.requests_per_s, result.latency.request_s.expected
    assert request_s is not None
    assert rate * (request_s + think_s) == pytest.approx(users, rel=1e-9)
    assert result.throughput.requests_in_flight == pytest.approx(rate * request_s, rel=1e-9)


def test_what_a_replica_gets_is_named() -> None:
    sized = served("llama-3.1-70b", gpus=20, layout__tp=4, serve__spare_replicas=1, serve__concurrency=400, **LARGE)
    result = summarise(sized)
    each = result.per_replica
    assert each is not None
    assert (each.gpus, each.concurrency) == (4, pytest.approx(100))
    assert each.requests_per_s * 4 == pytest.approx(result.throughput.requests_per_s)
    assert each.output_tokens_per_s * 4 == pytest.approx(result.throughput.output_tokens_per_s)
    assert each.running_requests == result.replicas.running_requests == 100


def test_a_static_batch_is_that_of_each_replica() -> None:
    one, four = (served(gpus=gpus, layout__tp=1, layout__pp=1, serve__batch=16) for gpus in (1, 4))
    assert four.point.request_s == one.point.request_s
    assert four.requests_per_s == pytest.approx(4 * one.requests_per_s)


# Objectives


@pytest.mark.parametrize("load", ["request_rate", "concurrency", "users"])
def test_a_load_without_limits_has_default_objectives(load: str) -> None:
    resolved = asked(**{f"serve__{load}": 4})
    assert (resolved.limits.max_ttft_s, resolved.limits.max_tpot_s) == (10.0, 0.1)
    assert {resolved.origins[f"limits.{name}"] for name in ("max_ttft_s", "max_tpot_s")} == {"default"}


def test_each_objective_gives_way_to_the_users_own() -> None:
    resolved = asked(serve__concurrency=4, limits__max_ttft_s=60.0)
    assert (resolved.limits.max_ttft_s, resolved.limits.max_tpot_s) == (60.0, 0.1)
    assert (resolved.origins["limits.max_ttft_s"], resolved.origins["limits.max_tpot_s"]) == ("flag", "default")


@pytest.mark.parametrize("flags", [{"serve__batch": 4}, {}])
def test_a_test_of_throughput_has_no_objectives(flags: dict[str, object]) -> None:
    """500 together on one L4 wait for minutes, which is what such a test measures."""
    resolved = asked(**flags)
    assert (resolved.limits.max_ttft_s, resolved.limits.max_tpot_s) == (None, None)
    assert not served(**flags).limits


def test_what_does_not_fit_is_judged_by_nothing_that_nobody_asked() -> None:
    assert served("llama-3.1-70b", gpus=1, serve__users=5, **LARGE).limits == ()
    own = served("llama-3.1-70b", gpus=1, serve__users=5, limits__max_ttft_s=3.0, **LARGE).limits
    assert [(limit.name, limit.ok) for limit in own] == [("max_ttft_s", False)]


def test_a_limit_that_nothing_keeps_takes_as_many_replicas_as_run_the_load() -> None:
    """85 % of what a replica answers at most; one replica less would have more of it."""
    found = served(serve__request_rate=500.0, limits__max_ttft_s=1e-4)
    most = TARGET_LOAD * found.choice.full_rate
    assert (found.replicas - 1) * most < 500.0 <= found.replicas * most


def test_users_are_not_run_to_their_end_where_nobody_says_how_long_they_may_wait() -> None:
    found = served("llama-3.1-70b", serve__users=3000, **LARGE)
    assert found.utilisation <= TARGET_LOAD * (1 + 1e-9)
    strict = served("llama-3.1-70b", serve__users=3000, limits__max_ttft_s=10.0, limits__max_tpot_s=0.1, **LARGE)
    assert strict.gpus <= found.gpus
    assert strict.ok


def test_a_single_slow_user_is_judged_too() -> None:
    """One request at a time of 70 B in 16 bit from an L40S pair's memory: 141 GB at 1.7 TB/s are 82 ms and more."""
    found = served("llama-3.1-70b", gpu="l40s", gpus=4, layout__tp=4, serve__concurrency=1, limits__max_tpot_s=0.03)
    assert found.fits
    assert [limit.name for limit in found.limits if not limit.ok] == ["max_tpot_s"]


# The longest sequence


def longest(**flags: object) -> list[str]:
    found = served("llama-3.1-70b", **{"gpus": 2, "serve__concurrency": 4, **LARGE, **flags})
    return [warning for warning in summarise(found).warnings if "refuses to start" in warning]


def test_an_engine_that_would_not_start_is_told_how() -> None:
    (warning,) = longest()
    flag, tokens = warning.split()[-2:]
    assert (flag, "131,072 tokens (the model's maximum)" in warning) == ("--max-model-len", True)
    found = served("llama-3.1-70b", gpus=2, serve__concurrency=4, **LARGE)
    held = [max_sequences(found.resolved.job, found.placement, found.memory, n)[0] for n in (int(tokens), 131_072)]
    assert held[0] >= 1 > held[1]
    assert max_sequences(found.resolved.job, found.placement, found.memory, int(tokens) + 1024)[0] < 1
    assert longest(serve__max_model_len=int(tokens)) == []
    assert found.ok


def test_room_for_the_longest_needs_no_flag() -> None:
    assert longest(gpus=8, layout__tp=8) == []


def test_engines_that_start_anyway_are_left_alone() -> None:
    assert longest(serve__engine="sglang") == []


def test_an_engine_file_says_so_itself(tmp_path: Path) -> None:
    text = "name: mine\nparent: generic-engine\ndescribes: test\nsource: test\nmemory: {length_flag: --context}\n"
    (warning,) = longest(serve__engine=engine_file(tmp_path, text))
    assert "Start it with --context" in warning


def test_a_request_longer_than_the_longest_is_refused() -> None:
    said = problems(serve__max_model_len=1200, serve__batch=1, **CHAT)
    assert any("1,300 tokens on average, more than max_model_len (1,200)" in one for one in said)


def test_time_to_think_needs_users() -> None:
    assert any("'think_time_s' needs 'users'" in one for one in problems(serve__concurrency=2, serve__think_time_s=3))
    assert any("takes no users" in one for one in problems(serve__users=2, serve__engine="gpt-fast"))


# The smallest layout


def test_the_minimum_is_that_of_any_layout() -> None:
    """70.6e9 parameters in 16 bit are 141 GB: two cards of 80 GB, whatever layout is asked for."""
    for flags in ({}, {"layout__tp": 8}, {"layout__tp": 4, "gpus": 8}, {"layout__tp": 2, "layout__pp": 2}):
        assert served("llama-3.1-70b", serve__concurrency=4, **LARGE, **flags).minimum == 2


def test_load_grows_with_gpus() -> None:
    flags: dict[str, object] = {"serve__concurrency": 256, **LARGE}
    found = [served("llama-3.1-70b", gpus=gpus, **flags) for gpus in (8, 16, 32, 64)]
    for less, more in pairwise(found):
        assert more.requests_per_s >= less.requests_per_s * (1 - 1e-9)
        assert more.judged_s[2] <= less.judged_s[2] * (1 + 1e-9)
