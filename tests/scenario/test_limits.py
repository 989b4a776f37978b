"""Limits against figures: what holds, what is missed, and what nobody can compare."""

from __future__ import annotations

import math

import pytest

from xe_sizer.scenario.limits import limits_of, missed


def test_limits_that_were_not_given_are_left_out() -> None:
    assert limits_of([("max_hours", None, 3.0, 1), ("max_gpus", 8, 4.0, 1)])[0].name == "max_gpus"
    assert len(limits_of([("max_hours", None, 3.0, 1)])) == 0


@pytest.mark.parametrize(
    ("limit", "value", "sign", "ok"),
    [(8, 8.0, 1, True), (8, 8.1, 1, False), (2, 2.0, -1, True), (2, 1.9, -1, False), (1, None, 1, False)],
)
def test_a_most_and_a_least(limit: float, value: float | None, sign: int, ok: bool) -> None:
    (found,) = limits_of([("any", limit, value, sign)])
    assert (found.ok, found.value) == (ok, value)


def test_what_nothing_bounds_is_missed_and_has_no_value() -> None:
    (limit,) = limits_of([("max_ttft_s", 1, math.inf, 1)])
    assert (limit.ok, limit.value) == (False, None)
    (reason,) = missed([limit])
    assert (reason.message, reason.fix) == ("max_ttft_s is 1, estimate unbounded", None)


def test_an_unknown_price_says_what_would_tell_it() -> None:
    (reason,) = missed(limits_of([("max_cost", 10, None, 1)]))
    assert reason.message == "max_cost is 10, estimate unknown: no price given"
    assert reason.fix == "give a price with --price-per-gpu-hour"


@pytest.mark.parametrize(("value", "text"), [(0.04567, "0.0457"), (3.014, "3.01"), (1234.56, "1,234.6")])
def test_a_missed_figure_can_be_read(value: float, text: str) -> None:
    (reason,) = missed(limits_of([("max_hours", 0.01, value, 1)]))
    assert reason.message.endswith(f"estimate {text}")
