"""Write docs/accuracy.md: python scripts/build_accuracy.py FILE...

Predictions for all measured runs in the files. Publications that development looks at are shown by group and by name;
of those left out of it (scripts/held_out.py) the page has sums alone. What was looked at where an error stays large is
in scripts/unexplained.yaml.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import yaml
from ablation import PEAK_TERMS, TIME_TERMS, Row, ablate, figures, without_components
from accuracy_text import origins, percent, table
from held_out import held_out

from xe_sizer.evidence.peaks import (
    MemoryFits,
    Reliability,
    brier,
    left_out,
    peaks_below,
    peaks_of,
    reliability,
    spread_of,
    spreads_left_out,
)
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.residuals import left_out_coverage, left_out_width, runs_of, serving_runs_of
from xe_sizer.evidence.statistics import GUESSED, WEIGHTED, source_weights, summaries, weighted_quantile
from xe_sizer.evidence.validate import validate
from xe_sizer.result.accuracy import Accuracy, Prediction, Skipped, Summary

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
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


def _reliability_row(one: Reliability) -> tuple[str, ...]:
    counts = map(str, (one.runs, one.publications, one.out_of_memory))
    return f"{one.low:.0%} to {one.high:.0%}", f"{one.said:.0%}", f"{one.ran:.0%}", *counts


def certainty(records: list[Record]) -> list[str]:
    """How far the probability that memory suffices can be believed, publications left out."""
    peaks = list(peaks_of(records))
    chances, spreads = left_out(peaks), spreads_left_out(peaks)
    best, scores = MemoryFits(peaks).best, brier(peaks, chances, spreads)
    known = brier([peak for peak in peaks if not peak.guessed], chances, spreads)
    spread, runs, sources = spread_of(peaks)
    below = [(f"{share:.0%}", f"{found:.0%}") for share, found in peaks_below(peaks, spreads).items()]
    rows = [_reliability_row(one) for one in reliability(peaks, chances)]
    ways = ("yes or no", "spread of measured peaks", "this probability")
    pairs = zip(ways, (scores.yes_or_no, scores.of_peaks, scores.chance), strict=True)
    of_known = (known.yes_or_no, known.of_peaks, known.chance)
    return [
        "### How sure is a fit?",
        (f"The probability that a run goes out of memory is {best.least:.3f} + {1.0 - 2.0 * best.least:.3f} "
        f"Phi(ln(peak / card) / s), with the cautious peak of the verdict and s = {best.below:.2f} where it is smaller "
        f"than the card, {best.above:.2f} where it is larger, and {best.widening:.1f} times that where lengths, batch "
        "or micro-batch are guessed. These numbers are fitted to runs that say whether they ran, publications weighted "
        "alike; below, each publication is judged by numbers fitted to the others. That a peak as large as the card "
        "is an even chance is chosen: a run that failed is seldom published, so more of those that were published ran. "
        "Brier scores (lower is better; 0.25 is a coin):"),
        table(("said by", "all runs", "without guessed ones"), [
            (name, f"{score:.3f}", f"{alone:.3f}") for (name, score), alone in zip(pairs, of_known, strict=True)
        ]),
        "Runs by the probability to fit that they were given:",
        table(("said", "mean", "ran", "runs", "publications", "out of memory"), rows),
        (f"What is left of a card has a range of its own: {runs} measured peaks of {sources} publications that state "
        f"lengths and batch lie at {spread.low:.2f} (10 %), {spread.middle:.2f} (50 %) and {spread.high:.2f} (90 %) of "
        "the cautious peak. Measured peaks below a quantile of it, each publication judged by the others:"),
        table(("quantile", "peaks below it"), below),
    ]  # fmt: skip


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


def in_short(records: Sequence[Prediction], quantity: str) -> str:
    """Publications looked at and left out, and runs of which what decides the figure is guessed."""
    rows = []
    for name, guessed, out in (
        ("looked at", False, False), ("left out", False, True), ("guessed, all publications", True, None),
    ):  # fmt: skip
        mine = [
            one
            for one in records
            if one.quantity == quantity and one.guessed == guessed and out in (None, held_out(one.source))
        ]
        if mine:
            rows.append((name, *_in_short(mine)))
    rule = ("fixed efficiency: median", "its 90 %", "gain") if quantity == "step_time" else ()
    span = ("in range", "range, high over low") if quantity == "step_time" else ()
    return table(("which", "runs", "publications", "median error", "90 % below", "bias", *span, *rule), rows)


def _in_short(mine: Sequence[Prediction]) -> Iterable[str]:
    one = next(found for found in summaries([_known(each) for each in mine]) if found.group == WEIGHTED)
    yield from (str(one.n), str(one.publications), percent(one.median_abs_error), percent(one.p90_abs_error))
    yield percent(one.bias, "+")
    spans = [each.high / each.low for each in mine if each.low and each.high]
    if spans:
        middle = weighted_quantile(np.array(spans), source_weights([each.source for each in mine]), 0.5)
        yield from (percent(one.interval_coverage), f"{middle:.2f}")
    if rule := one.fixed_efficiency:
        yield from (percent(rule.median_abs_error), percent(rule.p90_abs_error), percent(rule.gain, "+"))


def _known(one: Prediction) -> Prediction:
    return msgspec.structs.replace(one, guessed=False)


def verdicts_in_short(records: Sequence[Prediction]) -> str:
    """Verdicts of publications looked at and left out, publications weighted alike."""
    rows = []
    for name, out in (("looked at", False), ("left out", True)):
        mine = [one for one in records if one.quantity == "oom" and not one.guessed and held_out(one.source) == out]
        if not mine:
            continue
        weights = source_weights([one.source for one in mine])
        right = np.array([one.measured == one.predicted for one in mine])
        ended = [one for one in mine if one.measured]
        missed = sum(not one.predicted for one in ended)
        counts = (str(len(mine)), str(len({one.source for one in mine})))
        rows.append((name, *counts, percent(float(right @ weights / weights.sum())), f"{missed} of {len(ended)}"))
    return table(("which", "runs", "publications", "right", "out of memory, called fitting"), rows)


def publications(records: Sequence[Prediction], quantity: str) -> str:
    """Every publication that is looked at, the worst first, and whether a large error was looked into."""
    looked_into = {row["publication"] for row in unexplained()}
    mine = [one for one in records if one.quantity == quantity and not one.guessed and not held_out(one.source)]
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


def not_looked_at(records: Iterable[Record]) -> list[str]:
    """Publications of unexplained.yaml that are left out of development, or that no record has."""
    shown = {record.title for record in records if not held_out(record.title)}
    return [row["publication"] for row in unexplained() if row["publication"] not in shown]


def ablation(rows: Iterable[Row]) -> str:
    """Errors without each term, of publications looked at and left out."""
    cells = []
    for row in rows:
        shares = (row.shown.median, row.shown.high, row.left_out.median, row.left_out.high, row.moved)
        cells.append((row.term, *(f"{share:.1%}" for share in shares)))
    both = ("looked at: median", "90 % below", "left out: median", "90 % below")
    return table(("without", *both, "runs that move by over 2 %"), cells)


def _worth(rows: Sequence[Row]) -> str:
    """How many terms raise the median error, or leave it as it is; the first row has all of them."""
    every, *each = rows
    shown = [_change(row.shown.median, every.shown.median) for row in each]
    out = [_change(row.left_out.median, every.left_out.median) for row in each]
    return (
        f"Without {sum(one < 0.0 for one in shown)} of these {len(each)} terms the median error of what was looked at "
        f"would be lower, without {sum(one < 0.0 for one in out)} that of what was left out; without "
        f"{shown.count(0.0)} and {out.count(0.0)} of them it would be the same."
    )


def _change(without: float, every: float) -> float:
    """Of two errors as the table shows them."""
    return round(without, 3) - round(every, 3)


def trained(records: list[Record]) -> list[str]:
    """Sections on training."""
    accuracy, runs = validate(records), [run for run in runs_of(records) if not run.assumed]
    shown = summaries([one for one in accuracy.records if not held_out(one.source)])
    titles = {record.id: record.title for record in records}
    missing = [one for one in accuracy.skipped if not held_out(titles[one.id])]
    times, peaks = figures(records)
    time_rows, peak_rows = [*ablate(times, TIME_TERMS), *without_components(times)], ablate(peaks, PEAK_TERMS)
    return [
        "## Training",
        _counted(records),
        *origins(left_out_coverage(runs), left_out_width(runs)),
        "### Time of a step in short", in_short(accuracy.records, "step_time"),
        "### Peak memory in short", in_short(accuracy.records, "peak_memory"),
        "### Verdicts in short", verdicts_in_short(accuracy.records),
        "### Time of a step", errors(shown, "step_time", ("stack", "job")),
        "### Time of a step by accelerator", errors(shown, "step_time", ("gpu",)),
        "### Peak memory", "By what the publication measured (`metric`), by stack and by job.",
        errors(shown, "peak_memory", ("metric", "stack", "job")),
        "### Does it fit?", verdicts(shown, ("stack", "job")),
        *certainty(records),
        "### What each term explains",
        ("One term at a time is switched off, with the layout held fixed. A term is worth as much as the error rises "
        "without it. One that lowers the error of what was looked at but not of what was left out may be fitted "
        "rather than found; it stays where the source code of a framework or a measurement of its own says that it is "
        "there. Terms that no run has are not listed."),
        "Times:", ablation(time_rows), _worth(time_rows),
        "Peaks:", ablation(peak_rows), _worth(peak_rows),
        "### Every publication that was looked at", "The worst first. Times:",
        publications(accuracy.records, "step_time"),
        "Peaks:", publications(accuracy.records, "peak_memory"),
        "### Not explained",
        ("What stays off although it was looked into. Publications whose runs are guessed, or that say only whether a "
        "run fitted, are in no table above."),
        table(("publication", "what is off", "what was found"), [
            (row["publication"], row["error"], row["looked_at"]) for row in unexplained()
        ], words=("what is off", "what was found")),
        "### Not predicted", reasons(missing),
    ]  # fmt: skip


def served(records: list[Record]) -> list[str]:
    """Sections on inference."""
    accuracy = validate(records)
    found = accuracy.summary
    kinds = ("all", WEIGHTED, GUESSED, "stack", "gpu")
    return [
        "## Inference",
        (f"{_counted(records)} Engines are data, and part of what they state was read off these runs; "
        "`scripts/leave_source_out.py` predicts each publication without what it gave. Without their own source "
        f"{left_out_coverage(serving_runs_of(records)):.0%} of the figures lie inside their range."),
        "### Time to the first token", errors(found, "ttft", (*kinds, "source")),
        "### Time per output token", errors(found, "tpot", (*kinds, "source")),
        "### Throughput", errors(found, "throughput", (*kinds, "source")),
        "### Peak memory of a batch", errors(found, "peak_memory", ("all", WEIGHTED, GUESSED, "source")),
        "### Does it fit?", verdicts(found, ("all", GUESSED, "stack", "job")),
        "### Largest errors", worst(accuracy, ("ttft", "tpot", "throughput")),
        "### Not predicted", reasons(accuracy.skipped),
    ]  # fmt: skip


def _counted(records: list[Record]) -> str:
    sources = len({record.title for record in records})
    return f"{len(records):,} published records of {sources} publications."


def reasons(skipped: Iterable[Skipped]) -> str:
    found = Counter(one.reason for one in skipped).most_common(REASONS)
    return table(("reason", "runs"), [(text, str(count)) for text, count in found])


def page(records: list[Record]) -> str:
    sections = [
        "# Accuracy",
        (
            "Written by `scripts/build_accuracy.py`. Every published run is predicted as a user's scenario would be: "
            "what its publication leaves open is filled from the defaults of its stack or engine, never from what was "
            "measured. The error is predicted / measured - 1, and `median error` and `90 % below` are quantiles of its "
            "size; the bias is its median with the sign, below zero where predictions are too fast or too small. "
            "Publications weigh alike however many runs they have, except in the group `all`."
        ),
        (
            "Runs that leave out what decides a figure (lengths, batch or the number of GPUs; of a peak the "
            "micro-batch too) are `guessed`: they are counted apart, in no other group. `Fixed efficiency` is what a "
            "rule without a model of software makes of the same runs: 6 N T FLOPs (4 N T where the base is frozen; N "
            "active parameters, T tokens with padding) over a share of the peak of all GPUs, at the share with the "
            "least median error on these very runs, which flatters it. The gain is its median error less that of the "
            "predictions; where it is negative, a rule of thumb that has seen the runs does better. It is shown for "
            "groups of "
            f"{LEAST_PUBLICATIONS} publications or more, as its constant simply fits fewer."
        ),
    ]
    for wing, serves in ((trained, False), (served, True)):
        if mine := [record for record in records if record.serves == serves]:
            sections += wing(mine)
    return "\n\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    records = [record for file in parser.parse_args().files for record in read_records(file).records]
    if unknown := not_looked_at(records):
        parser.error(f"{UNEXPLAINED.name} names what is no publication that is looked at: {'; '.join(unknown)}")
    PAGE.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
