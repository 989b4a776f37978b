"""Requests that arrive by chance: limits of the load, order of the percentiles, and the rate that keeps a promise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import job

from xe_sizer.serving.job import HIGHEST_LOAD, ReplicaLayouts, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import Curve, Latencies, capacity, curve, latencies, rate_within

CHAT = Traffic(inputs=800.0, outputs=200.0, input_spread=1.0, output_spread=1.0)
ALIKE = Traffic(inputs=800.0, outputs=200.0)
ENGINES = ("vllm", "tgi", "tensorrt-llm")
PLACED = ReplicaLayouts.of(tp=[1, 2, 8])


def made(engine: str = "vllm", traffic: Traffic = CHAT, placements: ReplicaLayouts = PLACED, **flags: object) -> Curve:
    asked = job(server="dell-xe9680-h100", serve__engine=engine, **flags)
    return curve(asked, placements, serving_memory(asked, placements), traffic)


def fields(found: Latencies) -> tuple[np.ndarray, ...]:
    return found.ttft_s, found.tpot_s, found.request_s


@pytest.mark.parametrize("engine", ENGINES)
def test_a_curve_goes_from_one_request_to_as_many_as_fit(engine: str) -> None:
    found = made(engine)
    assert np.allclose(found.states.running[0], 1.0)
    assert np.allclose(found.states.running[-1], found.most)
    assert np.all(np.diff(found.rates, axis=0) >= 0)
    assert np.all(found.top_rate == found.rates[-1])


@pytest.mark.parametrize("percentile", [None, 50.0, 95.0, 99.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_more_load_never_shortens_a_latency(engine: str, percentile: float | None) -> None:
    found = made(engine)
    rates = np.linspace(0.0, 0.999, 60)[:, None] * found.top_rate
    for values in fields(latencies(found, CHAT, rates, percentile)):
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values, axis=0) >= -1e-9 * values[1:])


@pytest.mark.parametrize("engine", ENGINES)
def test_percentiles_are_in_order(engine: str) -> None:
    found = made(engine)
    rates = np.array([0.0, 0.1, 0.5, 0.9, 0.99])[:, None] * found.top_rate
    at = [fields(latencies(found, CHAT, rates, percentile)) for percentile in (50.0, 90.0, 95.0, 99.0, 99.9)]
    for lower, higher in pairwise(at):
        for one, other in zip(lower, higher, strict=True):
            assert np.all(one <= other * (1 + 1e-12))


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_waits_without_load(engine: str) -> None:
    """At no load a request meets half a step and then its own prefill."""
    found = made(engine, ALIKE)
    alone = latencies(found, ALIKE, np.zeros(3))
    step_s, prefill_s = found.states.step_s[0], found.states.prefill_s[0]
    assert np.allclose(alone.ttft_s, step_s / 2 + prefill_s, rtol=1e-9)
    assert np.allclose(alone.tpot_s, found.states.tpot_s[0], rtol=1e-9)
    assert np.allclose(alone.request_s, alone.ttft_s + 199 * alone.tpot_s, rtol=1e-9)


def test_the_wait_grows_without_bound_towards_the_top_rate() -> None:
    found = made()
    loads = np.array([0.5, 0.9, 0.99, 0.999])
    waits = latencies(found, CHAT, loads[:, None] * found.top_rate, 99.0).ttft_s
    assert np.all(waits[-1] > 3 * waits[0])
    assert np.all(np.diff(waits, axis=0) > 0)
    for share in (1.0, 1.5, 100.0):
        beyond = latencies(found, CHAT, share * found.top_rate)
        assert np.all(np.isinf(beyond.ttft_s))
        assert np.all(np.isinf(beyond.request_s))
        assert np.all(np.isfinite(beyond.tpot_s))


def test_more_load_never_shortens_the_wait_behind_uncut_prompts() -> None:
    """Short answers: prompts are most of the work, and an engine that does not cut them takes several in a step."""
    short = Traffic(inputs=100.0, outputs=5.0)
    found = made("tgi", short)
    rates = np.linspace(0.05, 0.5, 30)[:, None] * found.top_rate
    assert np.all(np.diff(latencies(found, short, rates, 95.0).ttft_s, axis=0) >= 0)


def test_answers_that_differ_wait_longer() -> None:
    """Same work, more variation: Pollaczek and Khinchine."""
    regular, varied = made(traffic=ALIKE), made(traffic=CHAT)
    for share in (0.3, 0.7):
        even = latencies(regular, ALIKE, share * regular.top_rate).ttft_s
        uneven = latencies(varied, CHAT, share * varied.top_rate).ttft_s
        assert np.all(uneven > even)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("factor", [1.05, 1.5, 3.0])
def test_the_rate_within_limits_keeps_them_and_no_higher_one_does(engine: str, factor: float) -> None:
    found = made(engine)
    idle = latencies(found, CHAT, np.zeros(3), 95.0)
    for limits in ((factor * idle.ttft_s[1], None), (None, factor * idle.tpot_s[1]), (2.0, 0.05)):
        rate = rate_within(found, CHAT, limits[0], limits[1], 95.0)
        ttft_s, tpot_s = (np.inf if limit is None else limit for limit in limits)
        at, above = latencies(found, CHAT, rate, 95.0), latencies(found, CHAT, 1.01 * rate, 95.0)
        for place in range(3):
            kept = at.ttft_s[place] <= ttft_s * (1 + 1e-9) and at.tpot_s[place] <= tpot_s * (1 + 1e-9)
            assert kept or rate[place] == 0
            if 0 < rate[place] < 0.99 * HIGHEST_LOAD * found.top_rate[place]:
                assert above.ttft_s[place] > ttft_s or above.tpot_s[place] > tpot_s


def test_a_limit_that_an_idle_replica_breaks_has_no_rate() -> None:
    assert rate_within(made(), CHAT, 1e-6, None, 95.0).tolist() == [0, 0, 0]
    assert rate_within(made(), CHAT, None, 1e-6, 95.0).tolist() == [0, 0, 0]


def test_without_limits_the_rate_is_the_top() -> None:
    found = made()
    free = rate_within(found, CHAT, None, None, 95.0)
    assert np.allclose(free, HIGHEST_LOAD * found.top_rate)
    assert np.allclose(rate_within(found, CHAT, 1e9, 1e9, 95.0), free, rtol=1e-3)


@settings(max_examples=15, deadline=None)
@given(looser=st.floats(1.0, 5.0), percentile=st.sampled_from([50.0, 90.0, 95.0, 99.0]))
def test_looser_limits_never_lower_the_rate(looser: float, percentile: float) -> None:
    found = made()
    tight = rate_within(found, CHAT, 0.2, 0.02, percentile)
    assert np.all(rate_within(found, CHAT, looser * 0.2, looser * 0.02, percentile) >= tight * (1 - 1e-9))
    assert np.all(rate_within(found, CHAT, 0.2, 0.02, 50.0) >= tight * (1 - 1e-9))


def test_each_placement_answers_for_itself() -> None:
    together = made()
    rates = 0.6 * together.top_rate
    for place in range(3):
        alone = made(placements=PLACED[place : place + 1])
        assert alone.top_rate[0] == pytest.approx(together.top_rate[place], rel=1e-12)
        for one, other in zip(
            fields(latencies(alone, CHAT, rates[place : place + 1], 95.0)),
            fields(latencies(together, CHAT, rates, 95.0)),
            strict=True,
        ):
            assert one[0] == pytest.approx(other[place], rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_memory_for_the_cache_never_lowers_throughput(engine: str) -> None:
    shares = [
        made(engine, serve__gpu_memory_utilization=share, placements=ReplicaLayouts.of(tp=[1, 2]))
        for share in (0.5, 0.7, 0.9)
    ]
    for less, more in pairwise(shares):
        assert np.all(more.most >= less.most)
        assert np.all(more.top_rate >= less.top_rate * (1 - 1e-9))


def test_no_more_fit_than_the_engine_takes() -> None:
    asked = job(serve__max_sequences=16)
    one = ReplicaLayouts.of()
    assert capacity(asked, one, serving_memory(asked, one), ALIKE)[0] == 16
    large = job("llama-3.1-70b")
    memory = serving_memory(large, one)
    assert memory.pool_bytes[0] == 0
    assert sum(size[0] for size in memory.fixed.values()) > memory.usable_bytes
    assert curve(large, one, memory, ALIKE).top_rate[0] == 0
