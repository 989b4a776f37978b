"""Time against GPUs: all plans of a search, the Pareto-optimal with their ranges, the chosen one named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import duration, duration_range, number
from xe_sizer.report.picture import Axis, Bar, Bars, Chart, Mark, Point
from xe_sizer.report.pictures.estimate import range_note
from xe_sizer.report.pictures.parts import time_axis
from xe_sizer.report.plan_words import hardware_name, hardware_words, named_answers
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.report.document import Figure
    from xe_sizer.result.studies import Candidate, PlanResult

RANKS = ("other plan", "Pareto-optimal", "chosen")


def pictures(result: PlanResult, figure: Figure | None) -> Iterator[Picture]:
    """The chart, and the answers with their ranges. figure : the chart in characters"""
    if not result.candidates:
        return
    yield _answers(result)
    yield _chart(result, figure)


def _marks(result: PlanResult) -> tuple[Mark, ...]:
    found = [limit.limit for limit in result.verdict.limits if limit.name == "max_hours"]
    return tuple(Mark(limit * HOUR_S, f"limit {number(limit)} h") for limit in found)


def named(result: PlanResult) -> dict[int, str]:
    """Candidates that are an answer, and what they are: place -> `chosen, fastest`."""
    words: dict[int, list[str]] = {}
    for name, place in named_answers(result.answers).items():
        words.setdefault(place, []).append(name)
    return {place: ", ".join(names) for place, names in words.items()}


def _answers(result: PlanResult) -> Picture:
    """How long the answers take, with their ranges, against the limit."""
    shown = [(result.candidates[place], words) for place, words in named(result).items()]
    bars = tuple(
        Bar(
            f"{words}: {hardware_words(one)}",
            one.total_s.expected,
            f"{duration(one.total_s.expected)}, {duration_range(one.total_s)}",
            one.total_s.low,
            one.total_s.high,
        )
        for one, words in shown
    )
    longest = max(one.total_s.high for one, _ in shown)
    says = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
    drawing = Bars(time_axis("Time", longest), bars, _marks(result))
    return Picture("Time of the answers", says, drawing, range_note())


def _chart(result: PlanResult, figure: Figure | None) -> Picture:
    names = named(result)
    stand_out = (one for place, one in enumerate(result.candidates) if one.pareto or place in names)
    kinds = tuple(dict.fromkeys(map(hardware_name, stand_out)))
    points = tuple(
        _point(candidate, names.get(place, ""), kinds, place == result.answers.chosen)
        for place, candidate in enumerate(result.candidates)
    )
    slowest = max(candidate.total_s.expected for candidate in result.candidates)
    drawing = Chart(
        Axis("GPUs", logarithmic=True),
        time_axis("Time of the whole job", slowest, True),
        points,
        RANKS,
        kinds,
        _marks(result),
    )
    says = f"{len(points)} plans; {_said(result.candidates, names)}"
    note = "Numbers of GPUs, with the ranges of the times; both axes are logarithmic."
    return Picture("Time against GPUs", says, drawing, note, figure)


def _point(candidate: Candidate, words: str, kinds: Sequence[str], chosen: bool) -> Point:
    span = candidate.total_s
    best = candidate.pareto or bool(words)
    return Point(
        float(candidate.gpus),
        span.expected,
        f"{hardware_words(candidate)}: {duration(span.expected)} ({duration_range(span)})",
        _name(candidate, "chosen" if chosen else words) if best else "",
        span.low if best else None,
        span.high if best else None,
        kinds.index(hardware_name(candidate)) if best else 0,
        2 if chosen else 1 if best else 0,
    )


def _name(candidate: Candidate, words: str) -> str:
    """The number of GPUs, and of an answer what it is and how long it takes."""
    gpus = f"{candidate.gpus:,}"
    return f"{words}: {gpus} GPUs, {duration(candidate.total_s.expected)}" if words else gpus


def _said(candidates: Sequence[Candidate], names: dict[int, str]) -> str:
    answers = (
        f"{words} {hardware_words(candidates[place])} in {duration(candidates[place].total_s.expected)}"
        for place, words in names.items()
    )
    return "; ".join(answers)
