"""The first screen of the reports on many estimates: comparisons, sensitivities, checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import probability_words, spanned
from xe_sizer.report.document import Point, Summary
from xe_sizer.report.estimate_words import hardware
from xe_sizer.report.first_screen import change_point, memory_of
from xe_sizer.report.format import clean, duration, gib, hourly_words, money, number, plural, ratio
from xe_sizer.report.premises import assumed_run
from xe_sizer.report.verdict import verdict_word
from xe_sizer.result.common import Range
from xe_sizer.result.studies import DEADLINE

if TYPE_CHECKING:
    from xe_sizer.result.studies import Alternative, Comparison, Effect, Factor, Outcome, Sensitivity

SURE_FROM = 0.9  # probability of a limit from which nothing need be said
MOST_SHOWN = 8  # alternatives, factors or files on the first screen


def compare_points(result: Comparison) -> Summary:
    """One line an alternative."""
    shown = result.alternatives[:MOST_SHOWN]
    supposed = {assumed_run(one.result.scenario) for one in result.alternatives}
    points = [
        Point(name, ", ".join(_alternative(one, len(supposed) > 1)), spare=place)
        for place, (name, one) in enumerate(zip(shown_names(result), shown, strict=False))
    ]
    if len(supposed) == 1 and any(supposed):
        points.append(Point("Times", supposed.pop()))
    return Summary(tuple(points), len(result.alternatives) - len(shown), "alternative")


def shown_names(result: Comparison) -> tuple[str, ...]:
    """What the alternatives are called: by their jobs where those alone tell them apart."""
    answers = [one.result for one in result.alternatives]
    names = [clean(one.name) for one in result.alternatives]
    jobs = [clean((answer.scenario.get("names") or {}).get("job") or "") for answer in answers]
    others = [name for name in names if not name.startswith("job=") or "," in name]
    same = {(answer.scenario.get("names") or {}).get("model") for answer in answers}
    alone = (
        all(jobs) and len(set(jobs)) == len(jobs) and len(same) == 1 and len({hardware(each) for each in answers}) == 1
    )
    return tuple(jobs if alone and len(others) <= 1 and "=" not in "".join(others) else names)


def _alternative(one: Alternative, says_length: bool) -> Iterator[str]:
    answer = one.result
    yield f"{verdict_word(answer)} on {plural(answer.gpus.count, 'GPU')}"
    if not answer.verdict.fits:
        yield f"{gib(answer.memory.peak_bytes)} of {gib(answer.memory.usable_bytes)} GiB per GPU"
        return
    supposed = assumed_run(answer.scenario) if says_length else ""
    yield " ".join(filter(None, (spanned(answer.time.total_s, answer.time.calibrated), supposed)))
    yield f"{number(answer.cost.gpu_hours.expected)} GPU-hours"
    if answer.cost.price is not None:
        yield money(answer.cost.price.expected, answer.cost.price.currency)


def sensitivity_points(result: Sensitivity) -> Iterator[Point]:
    """The job as asked, then its factors with their widest steps."""
    base = result.base
    free = base.usable_bytes - base.peak_bytes
    memory = memory_of(base.peak_bytes, base.usable_bytes, free)
    if not base.fits:
        yield memory
        yield from change_point(result.advice)
        yield from _factor_points(result)
        return
    cost = "" if base.price is None else f", {money(base.price, base.currency)}"
    if base.hourly_price is not None:
        cost += f"; {clean(base.hourly_price.hardware)} at {hourly_words(base.hourly_price)}"
    supposed = assumed_run(result.scenario)
    yield Point("Time", f"{_time(base)} on {plural(base.gpus, 'GPU')}{f', {supposed}' if supposed else ''}")
    yield Point("Cost", f"{number(base.gpu_hours)} GPU-hours{cost}")
    yield memory
    yield from _factor_points(result)


def _factor_points(result: Sensitivity) -> Iterator[Point]:
    for place, factor in enumerate(result.factors[:MOST_SHOWN]):
        name = clean(factor.name)
        yield Point(name[:1].upper() + name[1:], "; ".join(_ends(factor, result.base)), spare=place)


def _time(base: Outcome) -> str:
    if base.low_s is None or base.high_s is None:
        return duration(base.total_s)
    return spanned(Range(low=base.low_s, expected=base.total_s, high=base.high_s))


def _ends(factor: Factor, base: Outcome) -> Iterator[str]:
    """The steps that make the job fastest and slowest: `b200: 60.2 min (x0.44)`."""
    possible = sorted((effect for effect in factor.effects if effect.outcome.fits), key=lambda each: each.time_ratio)
    ends: Sequence[Effect] = possible if len(possible) < 2 else (possible[0], possible[-1])
    for effect in ends:
        if not base.fits:
            on = f" on {plural(effect.outcome.gpus, 'GPU')}" if effect.outcome.gpus != base.gpus else ""
            yield f"{clean(effect.step)}: fits{on}, {duration(effect.outcome.total_s)}"
        elif factor.name == DEADLINE:
            yield f"to finish in {clean(effect.step)}: {plural(effect.outcome.gpus, 'GPU')}{_so_many(effect)}"
        else:
            doubt = limit_doubt(effect.outcome)
            further = f", limits {doubt}" if doubt else ""
            yield f"{clean(effect.step)}: {duration(effect.outcome.total_s)} ({ratio(effect.time_ratio)}{further})"
    if not possible:
        yield "no step fits"


def _so_many(effect: Effect) -> str:
    """How many times the GPUs: ` (4 times as many)`."""
    if effect.gpus_ratio == 1.0:
        return " (as many)"
    return f" ({effect.gpus_ratio:g} times as many)" if effect.gpus_ratio > 1.0 else f" (x{effect.gpus_ratio:.2g})"


def limit_doubt(outcome: Outcome) -> str:
    """What is to be said of the limits of a step: MISSED, or met and how likely; empty where all is well."""
    if outcome.meets_limits is None:
        return ""
    chance = outcome.limits_probability
    if outcome.meets_limits and (chance is None or chance >= SURE_FROM):
        return ""
    word = "met" if outcome.meets_limits else "MISSED"
    return word if chance is None else f"{word}, {probability_words(chance)}"
