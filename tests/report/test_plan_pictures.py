"""Pictures of a plan: time and price against GPUs with the plan's point, and answers that are far apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from xe_sizer.cli.render import read_answer
from xe_sizer.report.answers import reporter
from xe_sizer.report.document import Options, Picture
from xe_sizer.report.picture import Bars, Chart
from xe_sizer.result.studies import PlanResult

PLAN = Path(__file__).parent / "fixtures" / "studies" / "plan.json"


@pytest.fixture
def plan() -> PlanResult:
    found = read_answer(str(PLAN))
    assert isinstance(found, PlanResult)
    return found


def picture(result: PlanResult, title: str) -> Picture:
    (found,) = [each for each in reporter("plan").document(result, Options()).pictures if each.title == title]
    return found


def chart(result: PlanResult, title: str) -> Chart:
    drawing = picture(result, title).drawing
    assert isinstance(drawing, Chart)
    return drawing


def priced(result: PlanResult, *prices: float | None) -> PlanResult:
    """The plans with these prices in USD, the others without one."""
    given = dict(enumerate(prices))
    candidates = tuple(
        replace(one, price=price, currency=None if price is None else "USD")
        for place, one in enumerate(result.candidates)
        for price in (given.get(place),)
    )
    return replace(result, candidates=candidates)


def test_time_and_gpu_hours_are_curves_through_the_plans_of_a_kind(plan: PlanResult) -> None:
    plan = priced(plan)
    kinds: dict[str, list[int]] = {}
    for one in plan.candidates:
        kinds.setdefault(one.server, []).append(one.gpus)
    for title, value in (("Time against GPUs", "total_s"), ("GPU-hours against GPUs", "gpu_hours")):
        drawing = chart(plan, title)
        (chosen,) = [point for point in drawing.points if point.rank == 2]
        assert plan.answers.chosen is not None
        one = plan.candidates[plan.answers.chosen]
        figure = one.total_s.expected if value == "total_s" else one.gpu_hours
        assert chosen.across == one.gpus
        assert chosen.up == pytest.approx(figure)
        assert chosen.name.startswith(f"chosen: {one.gpus:,} GPUs")
        assert len(drawing.points) == len(plan.candidates)
        lengths = sorted(len(line.points) for line in drawing.lines)
        assert lengths == sorted(len(gpus) for gpus in kinds.values() if len(gpus) > 1)
        for line in drawing.lines:
            assert list(line.points) == sorted(line.points)
            assert set(line.points) <= {(point.across, point.up) for point in drawing.points}


def test_prices_are_shown_of_the_plans_that_have_one_with_the_ranges_of_their_times(plan: PlanResult) -> None:
    drawing = chart(priced(plan, 120.0, 150.0), "Price against GPUs")
    assert drawing.up.label == "Price [USD]"
    assert [point.up for point in drawing.points] == [120.0, 150.0]
    one, span = drawing.points[0], plan.candidates[0].total_s
    if one.rank:
        assert one.low == pytest.approx(120.0 * span.low / span.expected)
        assert one.high == pytest.approx(120.0 * span.high / span.expected)
    assert "120 USD" in one.says


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize(("shorter", "logarithmic"), [(1.0, False), (1000.0, True)])
def test_answers_that_are_far_apart_stand_on_a_logarithmic_axis(
    plan: PlanResult, shorter: float, logarithmic: bool, limited: bool
) -> None:
    """4.5 minutes beside 24 hours would be no bar at all."""
    if not limited:
        plan = replace(plan, verdict=replace(plan.verdict, limits=()))
    place = plan.answers.fastest
    assert place is not None
    span = plan.candidates[place].total_s
    faster = replace(span, low=span.low / shorter, expected=span.expected / shorter, high=span.high / shorter)
    candidates = list(plan.candidates)
    candidates[place] = replace(candidates[place], total_s=faster)
    shown = picture(replace(plan, candidates=tuple(candidates)), "Time of the answers")
    assert isinstance(shown.drawing, Bars)
    assert shown.drawing.axis.logarithmic == logarithmic
    assert ("dot" in shown.note) == logarithmic
