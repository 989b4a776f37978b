"""Predictions against measurements: what `validate` reports."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.answers.estimate import time_axis
from xe_sizer.report.document import TOOL, Case, Column, Document, Finding, Picture, Remark, Table
from xe_sizer.report.format import NOT_A_NUMBER, byte_size, clean, duration, number, percent, plural
from xe_sizer.report.picture import Axis, Chart, Point
from xe_sizer.report.text_charts import scatter
from xe_sizer.result.accuracy import QUANTITIES, Accuracy
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Figure, Options
    from xe_sizer.result.accuracy import Confusion, Prediction, Skipped, Summary

# A calibrated stack as a YAML file that `--stack` reads, with what it rests on in its first lines.

WIDTH = 100


def calibration_yaml(
    name: str,
    parent: str,
    changed: Mapping[str, Mapping[str, float]],
    uncertainty: float,
    remarks: Sequence[str],
    source: str,
) -> str:
    """The stack file.

    Parameters
    ----------
    changed : section of a stack file -> key -> fitted value
    remarks : sentences that explain the fit; they become comments
    """
    lines = [f"# {line}" for remark in remarks for line in textwrap.wrap(remark, WIDTH)]
    lines += [f"name: {name}", f"parent: {parent}", f"describes: {_quoted(f'{parent}, calibrated')}"]
    lines += [f"source: {_quoted(source)}", f"calibrated_on: {_quoted(source)}", ""]
    for section, values in changed.items():
        lines += [f"{section}:", *(f"  {key}: {value:.4g}" for key, value in values.items()), ""]
    lines.append(f"uncertainty: {uncertainty:.3g}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# Picture: predicted over measured, one point a run.

RATE = "throughput"
MEMORY = "peak_memory"


def picture(
    title: str, quantity: str, predictions: Sequence[Prediction], show: Callable[[float | bool], str], figure: Figure
) -> Picture:
    """Points on the line agree. predictions : of one quantity, positive; figure : it in characters"""
    points = tuple(_point(one, show) for one in predictions)
    near = sum(0.5 <= one.predicted / one.measured <= 2.0 for one in predictions) / len(predictions)
    says = f"{len(points)} runs; {percent(near)} of the predictions between half and twice what was measured"
    measured, predicted = (_axis(label, quantity, points) for label in ("Measured", "Predicted"))
    drawing = Chart(measured, predicted, points, ("a run",), diagonal=True)
    return Picture(title, says, drawing, "On the line they agree; both axes are logarithmic.", figure)


def _axis(label: str, quantity: str, points: Sequence[Point]) -> Axis:
    if quantity == RATE:
        return Axis(f"{label} [tokens/s]", 1.0, True)
    if quantity == MEMORY:
        return Axis(f"{label} [GiB]", GIB, True)
    middle = sorted(point.across for point in points)[len(points) // 2]
    return time_axis(label, middle, True)


def _point(one: Prediction, show: Callable[[float | bool], str]) -> Point:
    measured, predicted = float(one.measured), float(one.predicted)
    return Point(measured, predicted, f"{one.id}: measured {show(measured)}, predicted {show(predicted)}")


# The report.

ANSWER = Accuracy
TITLES = {
    "step_time": "Time of a step",
    "phase_time": "Time of a phase",
    "ttft": "Time to the first token",
    "tpot": "Time per output token",
    "encoding": "Time of a request without answers",
    "throughput": "Throughput of inference",
    "peak_memory": "Peak memory",
}
WRONG = {"oom": "Wrong verdicts"}
HEADLINE = "all (sources weighted alike)"
SHOWN_GROUPS = ("all", "guessed", "stack", "job", "gpu", "metric", "phase")
IDS_SHOWN = 3
NOTE = (
    "error = predicted / measured - 1; bias = its median; in range = measurements inside low to high; publications "
    "weigh alike but in the group all; guessed = lengths, batch or number of GPUs (of memory: micro-batch) not stated"
)
RULE_NOTE = (
    "; fixed efficiency = the median error of FLOPs of all parameters over a fixed share of the peak, at the share "
    "that does best on the same records; gain = that error less that of the predictions"
)
RULE_COLUMNS = (Column("fixed efficiency", True), Column("gain", True))
_COLUMNS = ("id", "quantity", "measured", "predicted", "ratio", "low", "high", "assumed", "guessed")


def document(accuracy: Accuracy, options: Options) -> Document:
    """Errors by group, verdicts on memory, the worst records, and what was skipped."""
    blocks: list[Block] = [
        _errors(title, [s for s in accuracy.summary if s.quantity == quantity])
        for quantity, title in TITLES.items()
        if any(s.quantity == quantity for s in accuracy.summary)
    ]
    blocks += _pictures(accuracy, options.width)
    verdicts = [s for s in accuracy.summary if s.oom is not None]
    if verdicts:
        blocks.append(_verdicts(verdicts))
    if options.worst:
        blocks += [table for quantity in QUANTITIES if (table := _worst(accuracy, quantity, options.worst))]
    if accuracy.skipped:
        blocks.append(_skipped(accuracy.skipped))
    return Document("VALIDATED", True, _headline(accuracy), (), tuple(blocks))


def _pictures(accuracy: Accuracy, width: int | None) -> Iterator[Picture]:
    for quantity, name in TITLES.items():
        found = [p for p in accuracy.records if p.quantity == quantity and p.measured > 0 < p.predicted]
        points = [(float(p.measured), float(p.predicted)) for p in found]
        title = f"Predicted over measured: {name.lower()}"
        figure = scatter(title, points, _FIGURES[quantity], width)
        if figure:
            yield picture(title, quantity, found, _FIGURES[quantity], figure)


def _headline(accuracy: Accuracy) -> str:
    records = len({prediction.id for prediction in accuracy.records})
    parts = [f"{plural(records, 'record')} predicted, {len(accuracy.skipped)} skipped"]
    for summary in accuracy.summary:
        if summary.group == HEADLINE and summary.median_abs_error is not None:
            words = TITLES[summary.quantity].lower()
            parts.append(f"median error of the {words} {percent(summary.median_abs_error)}")
    guessed = len({prediction.id for prediction in accuracy.records if prediction.guessed})
    if guessed:
        parts.append(f"{plural(guessed, 'record')} guessed, apart")
    return "; ".join(parts)


def _errors(title: str, summaries: Sequence[Summary]) -> Table:
    columns = (
        Column("group"),
        Column("records", True),
        Column("median error", True),
        Column("90 % below", True),
        Column("bias", True),
        Column("in range", True),
    )
    ruled = any(s.fixed_efficiency for s in summaries)
    rows = tuple(
        (
            clean(s.group),
            str(s.n),
            _percent(s.median_abs_error),
            _percent(s.p90_abs_error),
            _signed(s.bias),
            _percent(s.interval_coverage),
            *(_rule(s) if ruled else ()),
        )
        for s in _shown(summaries)
    )
    return Table(title, (*columns, *(RULE_COLUMNS if ruled else ())), rows, note=NOTE + (RULE_NOTE if ruled else ""))


def _rule(summary: Summary) -> tuple[str, str]:
    """Median error of a fixed efficiency on the same runs, and by how much the predictions are better."""
    rule = summary.fixed_efficiency
    if rule is None:
        return NOT_A_NUMBER, NOT_A_NUMBER
    return f"{percent(rule.median_abs_error)} at {percent(rule.efficiency)}", _signed(rule.gain)


def _shown(summaries: Sequence[Summary]) -> Iterator[Summary]:
    """All groups but sources, of which there may be hundreds."""
    return (s for s in summaries if s.group.split(":")[0].split(" ")[0] in SHOWN_GROUPS)


def _percent(share: float | None) -> str:
    return NOT_A_NUMBER if share is None else percent(share)


def _signed(share: float | None) -> str:
    if share is None:
        return NOT_A_NUMBER
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{percent(abs(share))}"


def _verdicts(summaries: Sequence[Summary]) -> Table:
    columns = (
        Column("group"),
        Column("records", True),
        Column("fits, rightly", True),
        Column("does not, rightly", True),
        Column("fits, wrongly", True),
        Column("does not, wrongly", True),
        Column("tight", True, spare=1),
        Column("FITS, and failed", True, spare=2),
        Column("DOES NOT FIT, and ran", True, spare=3),
    )
    rows = tuple(
        (clean(s.group), str(s.n), *_counts(s.n, s.oom))
        for s in _shown(summaries)
        if s.oom is not None and " " not in s.group.split(":")[0]
    )
    return Table("Does it fit?", columns, rows)


def _counts(records: int, seen: Confusion) -> tuple[str, ...]:
    """What became of verdicts by the exit code, and by the three words on memory."""
    by_code = (seen.true_fit, seen.true_oom, seen.false_fit, seen.false_oom)
    tight = records - seen.said_to_fit - seen.said_not_to_fit
    by_word = (f"{seen.failed} of {seen.said_to_fit}", f"{seen.ran} of {seen.said_not_to_fit}")
    return (*map(str, by_code), str(tight), *by_word)


def _error_size(prediction: Prediction) -> float:
    """How far off, alike for too high and too low: |ln ratio|; a wrong verdict counts 1."""
    if prediction.ratio is None:
        return float(prediction.measured != prediction.predicted)
    return abs(math.log(prediction.ratio)) if prediction.ratio > 0 else math.inf


def _worst(accuracy: Accuracy, quantity: str, count: int) -> Table | None:
    wrong = [p for p in accuracy.records if p.quantity == quantity and _error_size(p) > 0]
    ranked = sorted(wrong, key=_error_size, reverse=True)[:count]
    if not ranked:
        return None
    show = _FIGURES[quantity]
    columns = (Column("record"), Column("measured", True), Column("predicted", True), Column("ratio", True))
    rows = tuple(
        (
            clean(p.id),
            show(p.measured),
            show(p.predicted),
            NOT_A_NUMBER if p.ratio is None else number(p.ratio),
            ("guessed: " if p.guessed else "") + (clean("; ".join(p.assumed)) or "nothing"),
        )
        for p in ranked
    )
    return Table(f"Largest errors: {(TITLES | WRONG)[quantity].lower()}", (*columns, Column("assumed")), rows)


def _verdict_word(oom: float | bool) -> str:
    return "does not fit" if oom else "fits"


def _rate(tokens_per_s: float | bool) -> str:
    return f"{number(tokens_per_s)} tokens/s"


_FIGURES: dict[str, Callable[[float | bool], str]] = {
    "step_time": duration,
    "phase_time": duration,
    "ttft": duration,
    "tpot": duration,
    "encoding": duration,
    "throughput": _rate,
    "peak_memory": byte_size,
    "oom": _verdict_word,
}


def _skipped(skipped: Sequence[Skipped]) -> Table:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for entry in skipped:
        by_reason[entry.reason].append(entry.id)
    rows = []
    for reason, ids in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
        rows.append((str(len(ids)), clean(reason), clean(", ".join(ids[:IDS_SHOWN]) + more)))
    return Table("Skipped", (Column("records", True), Column("reason"), Column("which")), tuple(rows))


def rows(accuracy: Accuracy, options: Options) -> Iterator[tuple[object, ...]]:
    """One row a prediction; skipped records have their reason in place of figures."""
    yield _COLUMNS
    for one in accuracy.records:
        yield one.id, *(getattr(one, name) for name in _COLUMNS[1:-2]), "; ".join(one.assumed), one.guessed
    for skipped in accuracy.skipped:
        yield skipped.id, "skipped", *[None] * (len(_COLUMNS) - 4), skipped.reason, None


def findings(accuracy: Accuracy, options: Options) -> Iterator[Finding]:
    """Each prediction, and the errors of each quantity in a remark; nothing of it is judged."""
    cases = [Case(f"{one.id}: {one.quantity}", output=_prediction_words(one)) for one in accuracy.records]
    cases += [Case(skipped.id, "skipped", message=skipped.reason) for skipped in accuracy.skipped]
    remarks = [Remark("notice", f"{TOOL}: validated", _headline(accuracy), options.file)]
    remarks += [
        Remark("notice", f"{TOOL}: {s.quantity}", f"{plural(s.n, 'record')}: {_error_words(s)}", options.file)
        for s in accuracy.summary
        if s.group == HEADLINE
    ]
    yield Finding(options.file or "validation", tuple(cases), tuple(remarks))


def _prediction_words(one: Prediction) -> str:
    show = _FIGURES[one.quantity]
    ratio = "" if one.ratio is None else f", ratio {number(one.ratio)}"
    assumed = f"; assumed: {'; '.join(one.assumed)}" if one.assumed else ""
    guessed = " (guessed)" if one.guessed else ""
    return f"measured {show(one.measured)}, predicted {show(one.predicted)}{ratio}{guessed}{assumed}"


def _error_words(summary: Summary) -> str:
    if summary.oom is not None:
        right, wrong = summary.oom.true_fit + summary.oom.true_oom, summary.oom.false_fit + summary.oom.false_oom
        return f"{plural(right, 'verdict')} right, {wrong} wrong"
    return f"median error {_percent(summary.median_abs_error)}, 90 % below {_percent(summary.p90_abs_error)}"
