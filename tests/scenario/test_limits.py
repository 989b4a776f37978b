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
from xe_sizer.software.uncertainty import EXACT, Spread

QUANTITIES = {rule.of: 4.0 for rule in LIMITS}


def judged(wing: str = "training", limits: dict[str, float] | None = None, **quantities: Any) -> tuple[Limit, ...]:
    section = msgspec.convert(limits or {}, LimitsSection)
    return judge(section, wing, estimated(**quantities))


def estimated(**quantities: Any) -> Any:
    """An estimate whose figures are all 4, exact, on a card of 80 GiB."""
    known = {"usable_gib": 80.0, "spread": lambda _: EXACT}
    return SimpleNamespace(**(QUANTITIES | known | quantities))


def test_every_limit_of_the_scenario_is_a_row_with_an_option() -> None:
    assert [*(rule.name for rule in LIMITS), "confidence"] == list(LimitsSection.__struct_fields__)
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
    assert reason.message == f"max_hours is 0.01 h, the nearest plan takes {text} h"


def test_what_lacks_counts_as_a_share_of_the_limit() -> None:
    section = msgspec.convert({"max_hours": 2, "max_gpus": 8, "max_cost": 3, "min_headroom_gib": 5}, LimitsSection)
    found = estimated(hours=5.0, gpus=4.0, cost=None, headroom_gib=1.0)
    assert list(shares(section, "training", found)) == [2.5, math.inf]


def test_many_candidates_are_judged_by_the_quantities_that_are_known() -> None:
    section = msgspec.convert({"max_hours": 2, "max_gpus": 2, "max_cost": 1}, LimitsSection)
    known = {"hours": np.array([1.0, 2.0, 3.0]), "gpus": np.array([4.0, 2.0, 1.0])}
    assert kept(section, "training", known, 3, lambda _: EXACT).tolist() == [False, True, False]
    assert kept(section, "serving", {"hours": known["hours"]}, 3, lambda _: EXACT).all()


# Half of a two-piece log-normal above its middle: 90 % below twice the expected value, so 24 h of 16 h expected are
# Phi(1.28155 x ln 1.5 / ln 2) = Phi(0.74966) = 77.33 % (tables of the normal distribution).
TWICE = Spread(0.5, 2.0)


def test_a_limit_says_how_sure_it_is_kept() -> None:
    (limit,) = judged(limits={"max_hours": 24}, hours=16.0, spread=lambda _: TWICE)
    assert (limit.ok, limit.certainty) == (True, "likely")
    assert limit.probability == pytest.approx(0.7733, abs=1e-4)
    assert (limit.low, limit.high) == (8.0, 32.0)


@pytest.mark.parametrize(
    ("hours", "certainty"), [(12.0, "sure"), (12.1, "likely"), (16.7, "unsure"), (24.0, "unsure"), (24.1, "unlikely")]
)
def test_the_words_of_certainty(hours: float, certainty: str) -> None:
    """90 % where the range ends at the limit; 75 % where exp(ln 2 x 0.67449 / 1.28155) = 1.4403 of expected does."""
    (limit,) = judged(limits={"max_hours": 24}, hours=hours, spread=lambda _: TWICE)
    assert limit.certainty == certainty


def test_what_is_exact_is_certain_and_has_no_range() -> None:
    (kept_, missed_) = (judged(limits={"max_gpus": most}, gpus=8)[0] for most in (8, 7))
    assert (kept_.probability, kept_.certainty, kept_.low, kept_.high) == (1.0, "sure", None, None)
    assert (missed_.probability, missed_.certainty, missed_.ok) == (0.0, "unlikely", False)


def test_nobody_can_say_how_sure_a_bound_or_an_unknown_price_is() -> None:
    (bound,) = judged(limits={"max_hours": 24, "confidence": 0.9}, hours=23.0, spread=lambda _: None)
    (unpriced,) = judged(limits={"max_cost": 24}, cost=None)
    assert (bound.probability, bound.certainty, bound.ok) == (None, "bound", True)
    assert (unpriced.probability, unpriced.certainty, unpriced.ok) == (None, "unknown", False)


@pytest.mark.parametrize(("confidence", "ok"), [(0.77, True), (0.78, False), (0.5, True)])
def test_a_limit_holds_with_the_confidence_that_is_asked_for(confidence: float, ok: bool) -> None:
    limits = {"max_hours": 24, "confidence": confidence}
    (limit,) = judged(limits=limits, hours=16.0, spread=lambda _: TWICE)
    section = msgspec.convert(limits, LimitsSection)
    many = kept(section, "training", {"hours": np.array([16.0])}, 1, lambda _: TWICE)
    assert limit.ok is ok
    assert many.tolist() == [ok]
    reasons = [reason.message for reason in missed([limit], COMMAND_LINE, confidence=confidence)]
    assert reasons == (
        [] if ok else ["max_hours is 24 h, estimate 16.0 h: met with a probability of 77 %, 78 % required"]
    )


def test_the_expected_value_takes_back_no_caution_with_memory() -> None:
    """4 GiB are left of 80: what is taken may grow by 76 / 76 for a limit of 4, and must not for one of 5."""
    spread = {"headroom_gib": Spread(0.5, 1.5, middle=0.9)}
    for least, ok in ((4, True), (5, False)):
        (limit,) = judged(limits={"min_headroom_gib": least, "confidence": 0.5}, spread=spread.get)
        assert limit.ok is ok


def test_what_is_left_of_memory_has_a_range_of_its_own() -> None:
    """Peak 76 GiB of 80 and 20 % off: 8.8 GiB too much to 19.2 GiB left."""
    (limit,) = judged(limits={"min_headroom_gib": 4}, spread=lambda _: Spread(0.8, 1.2))
    assert (limit.low, limit.high) == (pytest.approx(80 - 76 * 1.2), pytest.approx(80 - 76 * 0.8))
    assert limit.probability == 0.5
