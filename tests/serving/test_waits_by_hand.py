"""Waits and loads of a replica against sums made by hand, on curves of two or three states with round numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked, job

from xe_sizer.serving.job import ReplicaLayouts, Traffic
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import (
    Curve,
    curve,
    highest,
    in_flight,
    latencies,
    rate_within,
    requests_within,
    users_at,
    users_latencies,
    users_rate,
    users_within,
)

ONE = ReplicaLayouts.of()
_JOB = job()
_STATES = curve(_JOB, ONE, serving_memory(_JOB, ONE), Traffic(100.0, 100.0)).states
Z95, Z99 = 1.6448536269514722, 2.3263478740408408  # quantiles of a normal variable
SECONDS = ("step_s", "tpot_s", "prefill_s", "prompt_s", "room_s")
VARIED = Traffic(100.0, 11.0, 1.0, 1.0)
EVEN = Traffic(100.0, 11.0)


def made(running: list[float], rates: list[float], most: float, **seconds: list[float]) -> Curve:
    """A curve of some states of one placement; what is not given takes no time."""
    columns = {"running": running, "requests_per_s": rates, "decoding": running}
    columns |= {name: seconds.get(name, [0.0] * len(rates)) for name in SECONDS}
    states = replace(_STATES, **{name: np.array(values)[:, None] for name, values in columns.items()})
    return Curve(states, np.array([most]))


# 7 places: sqrt(2 (7 + 1)) - 1 = 3, so that a place is wanted in vain with the cube of the load.
SEVEN = made(
    [1.0, 7.0], [1.0, 8.0], 7.0, step_s=[0.010, 0.070], tpot_s=[0.010, 0.070], prefill_s=[0.1, 0.7]
)  # fmt: skip
# Prompts alone: 0.05 s of work each, at 1 to 9 requests a second.
PROMPTS = made([1.0, 1e9], [1.0, 9.0], 1e9, prompt_s=[0.05, 0.05])


# Waiting for a place


def test_a_place_is_awaited_as_sakasegawa_has_it() -> None:
    """Half the top rate: 0.5^3 x (7 / 8) (1 + 1) / 2 / (7 x 0.5) = 1/8 x 1/4; 4 requests are inside."""
    found = latencies(SEVEN, VARIED, 4.0)
    inside = 1 + 6 * 3 / 7
    assert found.tpot_s[0] == pytest.approx(0.010 * inside, rel=1e-12)
    assert found.ttft_s[0] == pytest.approx(0.005 * inside + 0.1 * inside + 1 / 32, rel=1e-12)
    assert found.request_s[0] == pytest.approx(found.ttft_s[0] + 10 * found.tpot_s[0], rel=1e-12)


def test_answers_alike_wait_half_as_long_for_a_place() -> None:
    varied, even = (latencies(SEVEN, traffic, 4.0).ttft_s[0] for traffic in (VARIED, EVEN))
    assert varied - even == pytest.approx(1 / 64, rel=1e-9)


def test_waits_grow_with_the_square_of_the_spread() -> None:
    """1 + 2^2 times the wait for a place of answers alike, and for prompts alike."""
    wide = Traffic(100.0, 11.0, 0.0, 2.0)
    even, spread = (latencies(SEVEN, traffic, 4.0).ttft_s[0] for traffic in (EVEN, wide))
    assert spread - even == pytest.approx(4 / 64, rel=1e-9)
    long = Traffic(100.0, 11.0, 2.0, 0.0)
    assert latencies(PROMPTS, long, 5.0).ttft_s[0] == pytest.approx(5 * latencies(PROMPTS, EVEN, 5.0).ttft_s[0])


def test_one_place_is_the_queue_of_pollaczek_and_khinchine() -> None:
    """rho S (1 + v^2) / 2 / (1 - rho) with S = 0.5 s and rho = 0.8."""
    single = made([1.0, 1.0], [2.0, 2.0], 1.0)
    assert latencies(single, VARIED, 1.6).ttft_s[0] == pytest.approx(0.8 * 0.5 / 0.2, rel=1e-12)


def test_the_wait_at_a_percentile_has_an_exponential_tail() -> None:
    """P(wait > t) = 1/8 exp(-t / 0.25): one in a hundred waits 0.25 ln 12.5; 99.9 % of nobody."""
    found = latencies(SEVEN, Traffic(100.0, 11.0, 0.0, 1.0), 4.0, 99.0)
    inside = 1 + 6 * 3 / 7
    crowded = min(inside + Z99 * math.sqrt(inside), 7.0)
    assert found.tpot_s[0] == pytest.approx(0.010 * crowded, rel=1e-12)
    assert found.ttft_s[0] == pytest.approx(0.105 * crowded + 0.25 * math.log(12.5), rel=1e-12)
    median = latencies(SEVEN, Traffic(100.0, 11.0, 0.0, 1.0), 4.0, 50.0)
    assert median.ttft_s[0] == pytest.approx(0.105 * inside, rel=1e-12)


def test_lengths_at_a_percentile_are_log_normal() -> None:
    """Median 1 / sqrt(1 + v^2) of the mean, and exp(z sigma) times that with sigma^2 = ln(1 + v^2)."""
    sigma = math.sqrt(math.log(2.0))
    longer = math.exp(sigma * Z95) / math.sqrt(2.0)
    found = latencies(SEVEN, VARIED, 1e-9, 95.0)
    crowded = 1 + Z95
    assert found.tpot_s[0] == pytest.approx(0.010 * crowded, rel=1e-8)
    assert found.ttft_s[0] == pytest.approx(0.005 * crowded + 0.1 * crowded * longer, rel=1e-8)
    assert found.request_s[0] - found.ttft_s[0] == pytest.approx((11 * longer - 1) * found.tpot_s[0], rel=1e-8)
    half = latencies(SEVEN, Traffic(100.0, 1.2, 0.0, 1.0), 1e-9, 50.0)
    assert half.request_s[0] == half.ttft_s[0]  # 1.2 / sqrt(2) is less than the first token


def test_no_answer_at_a_percentile_is_above_the_longest() -> None:
    free = latencies(SEVEN, VARIED, 1e-9, 95.0)
    cut = latencies(SEVEN, replace(VARIED, longest_output=12.0), 1e-9, 95.0)
    assert cut.ttft_s[0] == free.ttft_s[0]
    assert cut.request_s[0] - cut.ttft_s[0] == pytest.approx(11 * cut.tpot_s[0], rel=1e-9)


# Waiting for prompts


@pytest.mark.parametrize("rate", [0.5, 1.0, 5.0, 8.0])
def test_prompts_wait_for_each_other_as_in_a_queue_of_one(rate: float) -> None:
    """rho P (1 + v^2) / 2 / (1 - rho), interpolated between 1 and 9 requests a second: rho 0.05 and 0.45."""
    even = latencies(PROMPTS, EVEN, rate).ttft_s[0]
    varied = latencies(PROMPTS, VARIED, rate).ttft_s[0]
    share = min(max((rate - 1) / 8, 0.0), 1.0)
    busy = (0.05 + share * 0.40) * min(rate, 1.0)
    line_s = 0.025 / 0.95 + share * (0.025 / 0.55 - 0.025 / 0.95)
    assert even == pytest.approx(busy * line_s, rel=1e-6)
    assert varied == pytest.approx(2 * busy * line_s, rel=1e-6)


def test_the_line_at_a_percentile() -> None:
    """One in twenty waits line ln(rho / 0.05) where prompts are underway 45 % of the time."""
    found = latencies(PROMPTS, EVEN, 8.99, 95.0).ttft_s[0]
    share = 7.99 / 8
    busy, line_s = 0.05 + share * 0.40, 0.025 / 0.95 + share * (0.025 / 0.55 - 0.025 / 0.95)
    assert found == pytest.approx(line_s * math.log(busy / 0.05), rel=1e-6)


def test_prompts_that_fill_the_replica_wait_a_thousand_times() -> None:
    """Where prompts take all the time the share of it is bounded at 0.999: P / 2 / 0.001."""
    full = made([1.0, 1e9], [20.0, 20.0], 1e9, prompt_s=[0.05, 0.05])
    assert latencies(full, EVEN, 19.98).ttft_s[0] == pytest.approx(0.999 * 0.999 * 0.025 / 0.001, rel=1e-3)


# Clients who wait for their answers


def test_of_two_clients_each_meets_the_other_alone() -> None:
    """Half of the rate is the other's, and with places for both none waits for one."""
    two = latencies(PROMPTS, EVEN, 5.0, None, 2.0).ttft_s[0]
    others = latencies(PROMPTS, EVEN, 2.5).ttft_s[0]
    assert two == pytest.approx(others, rel=1e-9)
    assert latencies(PROMPTS, EVEN, 5.0, None, 1.0).ttft_s[0] == 0.0
    assert latencies(SEVEN, EVEN, 4.0, None, 7.0).ttft_s[0] == pytest.approx(0.105 * (1 + 18 / 7), rel=1e-9)


def test_more_clients_than_places_wait_for_one() -> None:
    """Of 8 clients a request sees 7/8 of the rate: load 7/16, its cube, and 7/8 / (7 x 9/16) / 2 of a wait."""
    found = latencies(SEVEN, EVEN, 4.0, None, 8.0).ttft_s[0]
    wait_s = (7 / 16) ** 3 * 0.875 / 2 / (7 * 9 / 16)
    assert found == pytest.approx(0.105 * (1 + 18 / 7) + wait_s, rel=1e-9)


def test_no_more_are_crowded_than_there_are_clients() -> None:
    three = latencies(SEVEN, Traffic(100.0, 11.0), 4.0, 99.0, 3.0)
    assert three.tpot_s[0] == pytest.approx(0.030, rel=1e-9)


# Bounds


def test_above_the_top_rate_only_tokens_are_bounded() -> None:
    at, over = (latencies(SEVEN, EVEN, rate) for rate in (0.999 * 8, 0.9991 * 8))
    assert math.isfinite(at.ttft_s[0])
    assert math.isinf(over.ttft_s[0])
    assert math.isinf(over.request_s[0])
    assert over.tpot_s[0] == at.tpot_s[0]


def test_a_replica_without_room_takes_nothing() -> None:
    none = Curve(SEVEN.states, np.array([0.99]))
    assert none.top_rate[0] == 0.0
    assert Curve(SEVEN.states, np.array([1.0])).top_rate[0] == 8.0
    assert math.isinf(latencies(none, EVEN, 0.1).ttft_s[0])


def test_rates_never_fall_along_a_curve() -> None:
    assert made([1, 2, 3], [1.0, 5.0, 4.0], 3.0).rates[:, 0].tolist() == [1.0, 5.0, 5.0]


def test_states_are_joined_by_straight_lines() -> None:
    three = made([1.0, 3.0, 7.0], [1.0, 2.0, 8.0], 7.0, tpot_s=[0.01, 0.02, 0.06])
    for rate in (0.5, 1.0, 1.5, 2.0, 5.0, 8.0, 9.0):
        expected = np.interp(rate, [1.0, 2.0, 8.0], [0.01, 0.02, 0.06])
        assert three.at_rate(np.array([rate]), three.states.tpot_s)[0][0] == pytest.approx(expected, rel=1e-12)
    for inside in (0.5, 1.0, 2.0, 3.0, 4.0, 7.0, 12.0):
        expected = np.interp(inside, [1.0, 3.0, 7.0], [0.01, 0.02, 0.06])
        assert three.at_running(np.array([inside]), three.states.tpot_s)[0][0] == pytest.approx(expected, rel=1e-12)


# The highest that is kept


def test_a_search_looks_closer_twice() -> None:
    """Between 0 and 32, of 7.3: first whole numbers, then 1/32 from 7 on, then 1/1024 from 7 + 9/32 on."""
    bounds = np.array([0.0, 0.0]), np.array([32.0, 32.0])

    def line(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
        return low + share * (high - low)

    found = highest(*bounds, line, lambda x: x <= np.array([7.3, 100.0]))
    assert found.tolist() == [7 + 9 / 32 + 19 / 1024, 32.0]
    broken = highest(*bounds, line, lambda x: (x <= 7.3) | (x >= 20.0))
    assert broken[0] == found[0]
    assert highest(*bounds, line, lambda x: x > 5.0).tolist() == [0.0, 0.0]
    exact = highest(*bounds, line, lambda x: x <= np.array([7.0, 0.0]))
    assert exact.tolist() == [7.0, 0.0]


def test_the_rate_within_a_limit_is_where_the_latency_meets_it() -> None:
    """One token takes 10 ms for each request inside; at rate r there are 1 + 6 (r - 1) / 7."""
    rate = rate_within(SEVEN, EVEN, None, 0.040, 50.0)[0]
    assert rate == pytest.approx(1 + 7 * 3 / 6, rel=1e-3)
    assert latencies(SEVEN, EVEN, rate, 50.0).tpot_s[0] <= 0.040
    late = rate_within(SEVEN, EVEN, 0.105 * 3, None, 50.0)[0]
    assert late == pytest.approx(1 + 7 * 2 / 6, rel=1e-3)
    assert rate_within(SEVEN, EVEN, 0.105 * 3, 0.040, 50.0)[0] == late
    assert rate_within(SEVEN, EVEN, None, None, 50.0)[0] == 0.999 * 8
    flat = made([1.0, 2.0], [1.0, 8.0], 1e9, tpot_s=[0.02, 0.02], prefill_s=[0.1, 0.1])
    assert rate_within(flat, EVEN, 0.1, 0.02, 50.0)[0] == 0.999 * 8  # kept to the limit itself


# Requests in flight


def test_requests_in_flight_by_hand() -> None:
    """4 inside: 3/4 of a step of 40 ms, 0.4 s of prefill, ten tokens; of 14 seven wait for as long as seven take."""
    rate, at = in_flight(SEVEN, EVEN, 4.0)
    assert (at.ttft_s[0], at.tpot_s[0], at.request_s[0]) == pytest.approx((0.43, 0.040, 0.83), rel=1e-12)
    assert rate[0] == pytest.approx(4 / 0.83, rel=1e-12)
    rate, at = in_flight(SEVEN, EVEN, 14.0)
    assert (at.ttft_s[0], at.tpot_s[0], at.request_s[0]) == pytest.approx((0.76 + 1.46, 0.070, 2.92), rel=1e-12)
    assert rate[0] == pytest.approx(14 / 2.92, rel=1e-12)
    rate, at = in_flight(SEVEN, EVEN, 0.5)
    assert (rate[0], at.ttft_s[0], at.request_s[0]) == pytest.approx((2.5, 0.1, 0.2), rel=1e-12)


@pytest.mark.parametrize(("traffic", "varies"), [(EVEN, 1.0), (VARIED, 2.0)])
def test_requests_in_flight_wait_for_the_prompts_of_the_others(traffic: Traffic, varies: float) -> None:
    """w = x p w + x p^2 (1 + v^2) / 2 where the other nine come x = 9 / (request) times a second."""
    busy = made([1.0, 19.0], [1.0, 1.0], 20.0, prompt_s=[0.02, 0.06], prefill_s=[0.1, 0.1], tpot_s=[0.1, 0.1])
    crowded = made([1.0, 19.0], [1.0, 1.0], 20.0, prompt_s=[0.02, 0.06], prefill_s=[0.1, 0.1], tpot_s=[0.1, 0.1],
                   room_s=[0.0, 0.2])  # fmt: skip
    rate, at = in_flight(busy, traffic, 10.0)
    wait, others = at.ttft_s[0] - 0.1, 0.9 * rate[0]
    assert wait == pytest.approx(others * 0.04 * wait + others * 0.04**2 * varies / 2, rel=1e-9)
    assert at.request_s[0] == pytest.approx(at.ttft_s[0] + 1.0, rel=1e-12)
    assert in_flight(crowded, traffic, 10.0)[1].ttft_s[0] == pytest.approx(at.ttft_s[0] + 0.1, rel=1e-9)


def test_requests_within_limits_by_hand() -> None:
    assert requests_within(SEVEN, EVEN, None, 0.030, 100.0)[0] == pytest.approx(3.0, rel=1e-3)
    assert requests_within(SEVEN, EVEN, None, 0.030, 2.0)[0] == 2.0
    assert requests_within(SEVEN, EVEN, None, 0.009, 100.0)[0] == 0.0
    assert requests_within(SEVEN, EVEN, None, 0.010, 0.25)[0] == 1.0


# Users

THINK_S = 10.0
# 1 s a request whatever the load: ten tokens of 0.09 s, and 0.1 s before the first.
STEADY = made([1.0, 1e9], [1.0, 100.0], 1e9, tpot_s=[0.09, 0.09], prefill_s=[0.1, 0.1])


def test_users_are_a_rate_times_request_and_thought() -> None:
    assert users_at(STEADY, EVEN, 5.0, THINK_S)[0] == pytest.approx(55.0, rel=1e-9)
    assert users_rate(STEADY, EVEN, 55.0, THINK_S)[0] == pytest.approx(5.0, rel=1e-9)
    assert users_rate(STEADY, EVEN, 1e6, THINK_S)[0] == pytest.approx(99.9, rel=1e-12)


def test_users_of_a_full_replica_wait_for_what_the_rate_leaves() -> None:
    rate, (at,) = users_latencies(STEADY, EVEN, 5000.0, THINK_S, None)
    wait_s = 5000 / 99.9 - 10 - 1
    assert rate[0] == pytest.approx(99.9, rel=1e-12)
    assert at.ttft_s[0] == pytest.approx(0.1 + wait_s, rel=1e-6)
    assert at.request_s[0] == pytest.approx(1.0 + wait_s, rel=1e-6)
    rate, (at,) = users_latencies(STEADY, EVEN, 55.0, THINK_S, None)
    assert (at.ttft_s[0], at.request_s[0]) == pytest.approx((0.1, 1.0), rel=1e-6)


def test_a_full_replica_takes_the_users_that_may_wait() -> None:
    """The top rate takes 99.9 x 11 users; a limit of 2 s lets 1.9 s more of them wait."""
    free = users_within(STEADY, EVEN, THINK_S, None, None, 50.0, 1e6)[0]
    waiting = users_within(STEADY, EVEN, THINK_S, 2.0, None, 50.0, 1e6)[0]
    assert free == pytest.approx(99.9 * 11, rel=1e-6)
    assert waiting == pytest.approx(99.9 * 12.9, rel=1e-6)
    assert users_within(STEADY, EVEN, THINK_S, 0.05, None, 50.0, 1e6)[0] == 0.0


def test_the_limit_is_reached_before_the_top_rate() -> None:
    """A slower token at every request: 40 ms are met at 4.5 requests a second, where the rest need no waiting."""
    users = users_within(SEVEN, EVEN, THINK_S, 1e3, 0.040, 50.0, 1e6)[0]
    rate = rate_within(SEVEN, EVEN, None, 0.040, 50.0, 1e6)[0]
    assert users == pytest.approx(users_at(SEVEN, EVEN, rate, THINK_S, 1e6)[0], rel=1e-9)


# Loads


@pytest.mark.parametrize(
    ("load", "full", "part"),
    [
        ("request_rate", 8.0, 4.0),
        (None, 8.0, 4.0),
        ("concurrency", 7.0, 7.0),
    ],
)
def test_what_a_replica_takes_in_the_unit_of_its_load(load: str | None, full: float, part: float) -> None:
    flags: dict[str, object] = {} if load is None else {f"serve__{load}": 3}
    resolved = asked(**flags, serve__input_tokens=100, serve__output_tokens=11)
    kind = LOADS[resolved.load]
    assert kind.full(resolved, SEVEN)[0] == full
    assert kind.filled(resolved, SEVEN, np.array([full]), np.array([0.5]))[0] == part
    assert kind.by_chance == (load != "concurrency")
    along = kind.along(resolved, SEVEN)[:, 0] / full
    assert along[:12].tolist() == pytest.approx(
        [0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97, 0.99], rel=1e-12
    )
    assert along[12:].tolist() == ([] if kind.by_chance else pytest.approx([1.0, 1.25, 1.5]))


def test_users_fill_a_replica_by_its_rate() -> None:
    resolved = asked(serve__users=1_000_000, serve__think_time_s=10.0, serve__input_tokens=100, serve__output_tokens=11)
    kind = LOADS["users"]
    full = kind.full(resolved, STEADY)
    assert full[0] == pytest.approx(99.9 * 11, rel=1e-6)
    assert kind.filled(resolved, STEADY, full, np.array([0.5]))[0] == pytest.approx(99.9 / 2 * 11, rel=1e-6)
    assert kind.filled(resolved, STEADY, full, np.array([1.0]))[0] == full[0]
    assert kind.along(resolved, STEADY)[3, 0] == pytest.approx(50 * 11, rel=1e-6)
