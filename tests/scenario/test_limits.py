"""The table of limits: what holds, what is missed, and what nobody can compare."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from xe_sizer.result.common import Limit
from xe_sizer.scenario.caller import PythonCall
from xe_sizer.scenario.limits import LIMITS, judge, kept, missed, shares
from xe_sizer.scenario.options import COMMAND_LINE, OPTION_OF
from xe_sizer.scenario.schema import LimitsSection

QUANTITIES = {rule.of: 4.0 for rule in LIMITS}


def judged(wing: str = "training", limits: dict[str, float] | None = None, **quantities: Any) -> tuple[Limit, ...]:
    section = msgspec.convert(limits or {}, LimitsSection)
    estimate: Any = SimpleNamespace(**(QUANTITIES | quantities))
    return judge(section, wing, estimate)


def test_every_limit_of_the_scenario_is_a_row_with_an_option() -> None:
    assert [rule.name for rule in LIMITS] == list(LimitsSection.__struct_fields__)
    assert all(OPTION_OF[rule.key] == rule.option for rule in LIMITS)


@pytest.mark.parametrize("rule", LIMITS, ids=lambda rule: rule.name)
def test_a_limit_is_judged_by_its_wing_alone(rule: Any) -> None:
    for wing in ("training", "serving"):
        names = [limit.name for limit in judged(wing, {rule.name: 4})]
        assert names == ([rule.name] if rule.wing in (None, wing) else [])


def test_limits_that_were_not_given_are_left_out() -> None:
    assert [limit.name for limit in judged(limits={"max_gpus": 8})] == ["max_gpus"]
    assert judged() == ()


@pytest.mark.parametrize(
    ("name", "limit", "value", "ok"),
    [
        ("max_hours", 8, 8.0, True),
        ("max_hours", 8, 8.1, False),
        ("min_headroom_gib", 2, 2.0, True),
        ("min_headroom_gib", 2, 1.9, False),
        ("max_cost", 1, None, False),
    ],
)
def test_a_most_and_a_least(name: str, limit: float, value: float | None, ok: bool) -> None:
    quantities = {rule.of: value for rule in LIMITS if rule.name == name}
    (found,) = judged(limits={name: limit}, **quantities)
    assert (found.ok, found.value) == (ok, value)


def test_what_nothing_bounds_is_missed_and_has_no_value() -> None:
    (limit,) = judged("serving", {"max_ttft_s": 1}, ttft_s=math.inf)
    assert (limit.ok, limit.value) == (False, None)
    (reason,) = missed([limit], COMMAND_LINE)
    assert (reason.message, reason.fix) == ("max_ttft_s is 1, estimate unbounded", None)


def test_an_unknown_price_says_what_would_tell_it() -> None:
    for caller, key in ((COMMAND_LINE, "--price-per-gpu-hour"), (PythonCall("estimate"), "cost.price_per_gpu_hour")):
        (reason,) = missed(judged(limits={"max_cost": 10}, cost=None), caller)
        assert reason.message == "max_cost is 10, estimate unknown: no price given"
        assert reason.fix == f"give a price with {key}"


@pytest.mark.parametrize(("value", "text"), [(0.04567, "0.0457"), (3.014, "3.01"), (1234.56, "1,234.6")])
def test_a_missed_figure_can_be_read(value: float, text: str) -> None:
    (reason,) = missed(judged(limits={"max_hours": 0.01}, hours=value), COMMAND_LINE, "the nearest plan takes")
    assert reason.message == f"max_hours is 0.01, the nearest plan takes {text}"


def test_what_lacks_counts_as_a_share_of_the_limit() -> None:
    limits = {"max_hours": 2, "max_gpus": 8, "max_cost": 3, "min_headroom_gib": 5}
    found = judged(limits=limits, hours=5.0, gpus=4.0, cost=None, headroom_gib=1.0)
    assert list(shares(found)) == [2.5, math.inf]


def test_many_candidates_are_judged_by_the_quantities_that_are_known() -> None:
    section = msgspec.convert({"max_hours": 2, "max_cost": 1, "min_headroom_gib": 1}, LimitsSection)
    hours, headroom = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0])
    assert kept(section, "training", {"hours": hours, "headroom_gib": headroom}, 3).tolist() == [False, True, False]
    assert kept(section, "serving", {"hours": hours}, 3).all()
