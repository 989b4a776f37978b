"""One job with one factor moved at a time: what `sensitivity` reports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from xe_sizer.report.bars import cells_within
from xe_sizer.report.blocks import listed
from xe_sizer.report.certainty import RANGE
from xe_sizer.report.document import Column, Document, Figure, Summary, Table
from xe_sizer.report.findings import TOOL, Case, Finding, Remark
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    clean,
    count,
    duration,
    duration_range,
    gib,
    money,
    number,
    offer_cells,
    plural,
    ratio,
)
from xe_sizer.report.pictures.sensitivity import TITLE, marked, pictures, timed, unfit
from xe_sizer.report.study_points import limit_doubt, sensitivity_points
from xe_sizer.report.verdict import job_words
from xe_sizer.result.common import Range
from xe_sizer.result.studies import Sensitivity

if TYPE_CHECKING:
    from xe_sizer.report.document import Block
    from xe_sizer.report.findings import Level
    from xe_sizer.report.options import Options
    from xe_sizer.result.studies import Effect, Factor, Outcome

ANSWER = Sensitivity
AS_ASKED = "as asked"
RATIOS = ("time_ratio", "gpus_ratio", "memory_ratio", "gpu_hours_ratio")
BAR, MIDDLE = 16, "│"  # cells of a bar on each side of the middle


def document(result: Sensitivity, options: Options) -> Document:
    """The factors as a tornado, widest first, then every step with its figures."""
    base = result.base
    limited = base.meets_limits is not None
    columns = (
        Column("factor"), Column("step"), Column("time", True), Column(RANGE), Column("GPUs", True),
        Column("fewest", True, spare=3), Column("GiB used", True, spare=2), Column("GPU-hours", True, spare=1),
        Column("price", True, spare=4),
        *((Column("limits"),) if limited else ()),
    )  # fmt: skip
    rows = [(AS_ASKED, "", *_figures(result, None))]
    for factor in result.factors:
        rows += [(clean(factor.name), clean(effect.step), *_figures(result, effect)) for effect in factor.effects]
    job = f"{job_words(result.scenario)} on {plural(base.gpus, 'GPU')}"
    words = f"{job} takes {duration(base.total_s)}; "
    words += f"largest effects: {', '.join(clean(factor.name) for factor in timed(result)[:3])}"
    blocks: tuple[Block, ...] = (
        Summary(tuple(sensitivity_points(result))),
        *(pictures(result, _tornado(result, options.width)) if base.fits else ()),
        Table("All variations", columns, tuple(rows)),
        *listed("Warnings", map(clean, result.warnings)),
    )
    if not base.fits:
        short = f"{gib(base.peak_bytes)} GiB are needed, {gib(base.usable_bytes)} are there"
        return Document("DOES NOT FIT", False, job, (short,), blocks)
    return Document("SENSITIVITY", True, words, (), blocks)


def _figures(result: Sensitivity, effect: Effect | None) -> tuple[str, ...]:
    outcome = effect.outcome if effect else result.base
    runs, against = outcome.fits, effect if result.base.fits else None  # nothing compares with what will never run
    least = NOT_A_NUMBER if outcome.minimum is None else count(outcome.minimum)
    time = duration(outcome.total_s) + (f" ({ratio(against.time_ratio)})" if against else "")
    hours = number(outcome.gpu_hours) + (f" ({ratio(against.gpu_hours_ratio)})" if against else "")
    return (
        time if runs else NOT_A_NUMBER,
        _span(outcome) if outcome.fits else "does not fit",
        count(outcome.gpus),
        f"{least}, offloading" if outcome.minimum_offloads else least,
        gib(outcome.peak_bytes),
        hours if runs else NOT_A_NUMBER,
        money(outcome.price, outcome.currency) if runs else NOT_A_NUMBER,
        *((_limits(outcome),) if result.base.meets_limits is not None else ()),
    )


def _limits(outcome: Outcome) -> str:
    """What became of the limits, and how likely they hold where that is not sure."""
    return (limit_doubt(outcome) or "met") if outcome.fits else NOT_A_NUMBER


def _span(outcome: Outcome) -> str:
    if outcome.low_s is None or outcome.high_s is None:
        return ""
    return duration_range(Range(low=outcome.low_s, expected=outcome.total_s, high=outcome.high_s))


def _tornado(result: Sensitivity, width: int | None) -> Figure:
    """Bars to both sides of the time as asked: shorter to the left, longer to the right, on a logarithmic scale."""
    lines = list(_bars(timed(result), width))
    short = unfit(timed(result))
    note = "effect of each step on the time of the job, logarithmic" + (f"; * {short}" if short else "")
    return Figure(TITLE, tuple(lines), note)


def _bars(factors: tuple[Factor, ...], terminal: int | None) -> Iterator[str]:
    ranges = [(marked(factor), *_range(factor)) for factor in factors]
    widest = max((max(-low, high) for _, low, high in ranges), default=0.0) or 1.0
    width = max((len(name) for name, _, _ in ranges), default=0)
    last = max((len(ratio(math.exp(high))) for _, _, high in ranges), default=0)
    cells = cells_within(terminal, width + 2 + 6 + 1 + len(MIDDLE) + 1 + last, 2 * BAR) // 2
    for name, low, high in ranges:
        left, right = (round(cells * size / widest) for size in (-low, high))
        bar = f"{'█' * left:>{cells}}{MIDDLE}{'█' * right:<{cells}}"
        yield f"{name:<{width}}  {ratio(math.exp(low)):>6} {bar} {ratio(math.exp(high))}"


def _range(factor: Factor) -> tuple[float, float]:
    """Smallest and largest effect as logarithms, at least none."""
    logs = [math.log(effect.time_ratio) for effect in factor.effects if effect.outcome.fits]
    return min([0.0, *logs]), max([0.0, *logs])


def rows(result: Sensitivity, options: Options) -> Iterator[tuple[object, ...]]:
    """The job as asked, then one line a step of a factor."""
    yield "factor", "step", *_cells(result.base), *RATIOS
    yield AS_ASKED, "", *_cells(result.base).values(), *[1.0] * len(RATIOS)
    for factor in result.factors:
        for effect in factor.effects:
            ratios = (getattr(effect, name) for name in RATIOS)
            yield factor.name, effect.step, *_cells(effect.outcome).values(), *ratios


def _cells(outcome: Outcome) -> dict[str, object]:
    """The figures of an outcome by their names, with how its price is meant."""
    figures = {name: value for name, value in asdict(outcome).items() if name != "hourly_price"}
    return {**figures, **offer_cells(outcome.hourly_price)}


def findings(result: Sensitivity, options: Options) -> Iterator[Finding]:
    """The job as asked, then each step of a factor; one that does not fit is no failure of the job."""
    job, base = job_words(result.scenario), _words(result, None)
    whole = Case(AS_ASKED, output=base) if result.ok else Case(AS_ASKED, "failed", "does-not-fit", base)
    level: Level = "notice" if result.ok else "error"
    cases = [whole]
    remarks = [Remark(level, f"{TOOL}: {'fits' if result.ok else 'does not fit'}", f"{job}: {base}", options.file)]
    for factor in result.factors:
        for effect in factor.effects:
            name, said = f"{factor.name}: {effect.step}", _words(result, effect)
            cases.append(
                Case(name, output=said)
                if effect.outcome.fits
                else Case(name, "skipped", message="does not fit", output=said)
            )
            remarks.append(Remark("notice", f"{TOOL}: {factor.name}", f"{effect.step}: {said}", options.file))
    yield Finding(options.file or job, tuple(cases), tuple(remarks))


def _words(result: Sensitivity, effect: Effect | None) -> str:
    time, *_ = _figures(result, effect)
    outcome = effect.outcome if effect else result.base
    short = "" if outcome.fits else " (does not fit)"
    ran = f"{time} on {plural(outcome.gpus, 'GPU')}" if outcome.fits else plural(outcome.gpus, "GPU")
    return f"{ran}, {gib(outcome.peak_bytes)} GiB used{short}"
