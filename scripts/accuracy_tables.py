"""Tables of docs/reference/accuracy.md: errors by group, of what was looked at and left out, and by publication."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import yaml
from accuracy_text import percent, table
from held_out import record_held_out

from xe_sizer.evidence.records import Record
from xe_sizer.evidence.statistics import WEIGHTED, source_weights, summaries, weighted_quantile
from xe_sizer.result.accuracy import Accuracy, FixedEfficiency, Prediction, Skipped, Summary

UNEXPLAINED = Path(__file__).parent / "unexplained.yaml"
LEAST = 4  # runs of a group that is shown
LEAST_PUBLICATIONS = 3  # of a group for which the rule of a fixed efficiency is no mere fit
LARGE = 0.3  # median error of a publication from which the page says whether it was looked into
WORST = 15
REASONS = 12


def errors(summary: Iterable[Summary], quantity: str, kinds: tuple[str, ...]) -> str:
    shown = [one for one in summary if one.quantity == quantity and one.n >= LEAST and _kind(one) in kinds]
    ruled, ranged = any(one.fixed_efficiency for one in shown), any(one.interval_coverage is not None for one in shown)
    header = ("group", "runs", "publications", "median error", "90 % below", "bias", *(["in range"] if ranged else []))
    rule_header = ("fixed efficiency: share", "its median error", "its 90 %", "gain") if ruled else ()
    rows = [(*_error_row(one)[: len(header)], *(_rule(one) if ruled else ())) for one in shown]
    return table((*header, *rule_header), rows)


def _kind(one: Summary) -> str:
    return one.group.split(":", maxsplit=1)[0]


def _error_row(one: Summary) -> tuple[str, ...]:
    figures = (one.median_abs_error, one.p90_abs_error)
    inside = percent(one.interval_coverage)
    return (one.group, str(one.n), str(one.publications), *map(percent, figures), percent(one.bias, "+"), inside)


def _rule(one: Summary) -> tuple[str, ...]:
    rule = one.fixed_efficiency
    if rule is None or one.publications < LEAST_PUBLICATIONS:
        return ("",) * 4
    return (*map(percent, (rule.efficiency, rule.median_abs_error, rule.p90_abs_error)), f"{rule.gain:+.0%}")


def verdicts(summary: Iterable[Summary], kinds: tuple[str, ...]) -> str:
    rows = []
    for one in summary:
        if one.oom is not None and one.n >= LEAST and _kind(one) in kinds:
            counts = one.oom
            right = (counts.true_fit + counts.true_oom) / one.n
            wrong = (str(counts.true_oom), str(counts.false_fit), str(counts.false_oom))
            rows.append((one.group, str(one.n), percent(right), *wrong))
    header = ("group", "runs", "right", "OOM, foreseen", "OOM, called fitting", "ran, called OOM")
    return table(header, rows)


def not_explained(records: Iterable[Record]) -> str:
    """What stays off in publications of these records although it was looked into; nothing of those left out now."""
    titles = {record.title for record in records if not record_held_out(record)}
    rows = [
        (row["publication"], row["error"], row["looked_at"]) for row in unexplained() if row["publication"] in titles
    ]
    return table(("publication", "what is off", "what was found"), rows, words=("what is off", "what was found"))


def worst(accuracy: Accuracy, quantities: Sequence[str]) -> str:
    known = [one for one in accuracy.records if one.quantity in quantities and one.ratio and not one.guessed]
    times = [one for one in known if math.isfinite(one.ratio or 0.0)]
    ranked = sorted(times, key=lambda one: max(one.ratio or 1.0, 1.0 / (one.ratio or 1.0)), reverse=True)
    header = ("run", "predicted / measured", "what had to be assumed")
    shown = table(header, [_worst_row(one) for one in ranked[:WORST]], words=header[-1:])
    unbounded = len(known) - len(times)
    said = f"{unbounded} figures more are of loads that the prediction calls too much, so that waits have no bound."
    return f"{shown}\n\n{said}" if unbounded else shown


def _worst_row(one: Prediction) -> tuple[str, ...]:
    return one.id, f"{one.ratio:.2f}", "; ".join(one.assumed).replace("|", "/")


def in_short(records: Sequence[Prediction], quantity: str, out: Collection[str]) -> str:
    """Publications looked at and left out (ids of their records): runs that are known, guesses, and both."""
    rows = []
    for name, held in PARTS:
        known, guesses = _parts([one for one in records if one.quantity == quantity and (one.id in out) == held])
        each = ((name, known), (f"{name}, guessed", guesses), (f"{name}, all", [*known, *guesses]))
        rows += [(words, *_in_short(mine)) for words, mine in each if mine and (guesses or words == name)]
    rule = ("fixed efficiency: median", "its 90 %", "gain") if quantity == "step_time" else ()
    span = () if quantity == "peak_memory" else ("in range", "range, high over low")
    return table(("which", "runs", "publications", "median error", "90 % below", "bias", *span, *rule), rows)


def _in_short(mine: Sequence[Prediction]) -> Iterable[str]:
    one = _weighted(mine)
    yield from (str(one.n), str(one.publications), percent(one.median_abs_error), percent(one.p90_abs_error))
    yield percent(one.bias, "+")
    spans = [each.high / each.low for each in mine if each.low and each.high]
    if spans:
        middle = weighted_quantile(np.array(spans), source_weights([each.source for each in mine]), 0.5)
        yield from (percent(one.interval_coverage), f"{middle:.2f}")
    if rule := _fixed_efficiency(mine):
        yield from (percent(rule.median_abs_error), percent(rule.p90_abs_error), percent(rule.gain, "+"))


def _fixed_efficiency(mine: Iterable[Prediction]) -> FixedEfficiency | None:
    """What a fixed efficiency makes of the runs whose FLOPs are those of parameters; None where there are none.

    An iteration of reinforcement learning is none of them.
    """
    simple = [one for one in mine if one.at_peak_s]
    return _weighted(simple).fixed_efficiency if simple else None


def _weighted(mine: Sequence[Prediction]) -> Summary:
    """Sums over these runs, guessed ones too, publications weighted alike."""
    known = [msgspec.structs.replace(each, guessed=False) for each in mine]
    return next(found for found in summaries(known) if found.group == WEIGHTED)


PARTS = (("looked at", False), ("left out", True))


def _parts(records: Iterable[Prediction]) -> tuple[list[Prediction], list[Prediction]]:
    """Runs whose conditions are known, and those of which what decides is guessed."""
    mine = list(records)
    return [one for one in mine if not one.guessed], [one for one in mine if one.guessed]


def verdicts_in_short(records: Sequence[Prediction], out: Collection[str]) -> str:
    """Verdicts of publications looked at and left out, publications weighted alike."""
    rows = []
    for name, held in (("looked at", False), ("left out", True)):
        mine = [one for one in records if one.quantity == "oom" and not one.guessed and (one.id in out) == held]
        if not mine:
            continue
        counts = (str(len(mine)), str(len({one.source for one in mine})))
        rows.append((name, *counts, percent(_right(mine)), _missed(mine)))
    return table(("which", "runs", "publications", "right", "out of memory, called fitting"), rows)


def _right(verdicts: Sequence[Prediction]) -> float:
    """Share of the verdicts that are right, publications weighted alike [-]."""
    weights = source_weights([one.source for one in verdicts])
    right = np.array([one.measured == one.predicted for one in verdicts])
    return float(right @ weights / weights.sum())


def _missed(verdicts: Iterable[Prediction]) -> str:
    """How many of the runs that went out of memory were called fitting."""
    ended = [one for one in verdicts if one.measured]
    return f"{sum(not one.predicted for one in ended)} of {len(ended)}"


def in_a_table(records: Sequence[Prediction], out: Collection[str]) -> str:
    """What the README says: errors of runs whose conditions are known, looked at and left out."""
    known = [one for one in records if not one.guessed]
    cells: list[tuple[str, list[str]]] = []
    for quantity, name in (("step_time", "step times"), ("peak_memory", "memory peaks")):
        parts = [[one for one in known if one.quantity == quantity and (one.id in out) == held] for _, held in PARTS]
        found = [_weighted(mine) for mine in parts]
        cells.append((f"half of the {name} are within", [percent(one.median_abs_error) for one in found]))
        cells.append(("nine in ten are within", [percent(one.p90_abs_error) for one in found]))
        if quantity == "step_time":
            rules = [_fixed_efficiency(mine) for mine in parts]
            medians = [percent(rule.median_abs_error) if rule else "" for rule in rules]
            cells.append(("half, by a fixed efficiency that is chosen to fit these runs best", medians))
    verdicts = [[one for one in known if one.quantity == "oom" and (one.id in out) == held] for _, held in PARTS]
    cells.append(("fit verdicts that are right", [percent(_right(mine)) for mine in verdicts]))
    cells.append(("runs that went out of memory, and those called a fit", [_missed(mine) for mine in verdicts]))
    header = ("", "publications that development looked at", "publications left out of it")
    return table(header, [(name, *(value.replace("%", " %") for value in values)) for name, values in cells])


def publications(records: Sequence[Prediction], quantity: str) -> str:
    """Every publication of these records, the worst first, and whether a large error was looked into."""
    looked_into = {row["publication"] for row in unexplained()}
    mine = [one for one in records if one.quantity == quantity and not one.guessed]
    found = [one for one in summaries(mine) if _kind(one) == "source"]
    rows = []
    for one in sorted(found, key=lambda one: -(one.median_abs_error or 0.0)):
        title = one.group.removeprefix("source:")
        large = (one.median_abs_error or 0.0) > LARGE
        remark = ("see below" if title in looked_into else "not looked into") if large else ""
        shares = (percent(one.median_abs_error), percent(one.p90_abs_error), percent(one.bias, "+"))
        rows.append((title.replace("|", "/"), str(one.n), *shares, remark))
    header = ("publication", "runs", "median error", "90 % below", "bias", "remark")
    return table(header, rows, words=("remark",))


def unexplained() -> list[dict[str, str]]:
    """Rows of unexplained.yaml: publication, error, what was looked at."""
    rows: list[dict[str, str]] = yaml.safe_load(UNEXPLAINED.read_text(encoding="utf-8"))
    return rows


def counted(records: list[Record]) -> str:
    sources = len({record.title for record in records})
    return f"{len(records):,} published records of {sources} publications."


def reasons(skipped: Iterable[Skipped]) -> str:
    found = Counter(one.reason for one in skipped).most_common(REASONS)
    return table(("reason", "runs"), [(text, str(count)) for text, count in found])
