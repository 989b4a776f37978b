"""Write docs/reference/accuracy.md and the table of the README: python scripts/build_accuracy.py FILE...

Predictions for all measured runs in the files. Publications that development looks at are shown by group and by name;
of those left out of it (scripts/held_out.py) the page has sums alone. What was looked at where an error stays large is
in scripts/unexplained.yaml.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ablation import PEAK_TERMS, TIME_TERMS, Row, ablate, figures, without_components
from accuracy_serving import served
from accuracy_tables import (
    LEAST_PUBLICATIONS,
    UNEXPLAINED,
    counted,
    errors,
    in_a_table,
    in_short,
    not_explained,
    publications,
    reasons,
    unexplained,
    verdicts,
    verdicts_in_short,
)
from accuracy_text import origins, table
from held_out import record_held_out

from xe_sizer.evidence.calibrate import (
    ALIKE,
    MemoryFits,
    Reliability,
    brier,
    collect_peaks,
    fit_spread,
    left_out,
    peaks_below,
    reliability,
    spreads_left_out,
)
from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.residuals import collect_runs
from xe_sizer.evidence.residuals import left_out as runs_left_out
from xe_sizer.evidence.statistics import summaries
from xe_sizer.result.accuracy import Accuracy

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "reference" / "accuracy.md", ROOT / "README.md"
BLOCK = re.compile(r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)", re.DOTALL)


def _reliability_row(one: Reliability) -> tuple[str, ...]:
    counts = map(str, (one.runs, one.publications, one.out_of_memory))
    return f"{one.low:.0%} to {one.high:.0%}", f"{one.said:.0%}", f"{one.ran:.0%}", *counts


def certainty(records: list[Record]) -> list[str]:
    """How far the probability that memory suffices can be believed, publications left out."""
    peaks = list(collect_peaks(records))
    chances, spreads = left_out(peaks), spreads_left_out(peaks)
    fits, scores = MemoryFits(peaks), brier(peaks, chances, spreads)
    best = fits.best
    known = brier([peak for peak in peaks if not peak.guessed], chances, spreads)
    spread, runs, sources = fit_spread(peaks)
    below = [(f"{share:.0%}", f"{found:.0%}") for share, found in peaks_below(peaks, spreads).items()]
    rows = [_reliability_row(one) for one in reliability(peaks, chances)]
    ways = ("yes or no", "spread of measured peaks", "this probability")
    pairs = zip(ways, (scores.yes_or_no, scores.of_peaks, scores.chance), strict=True)
    of_known = (known.yes_or_no, known.of_peaks, known.chance)
    return [
        "### How sure is a fit?",
        (f"The probability that a run goes out of memory is {best.least:.3f} + {1.0 - 2.0 * best.least:.3f} "
        f"Phi(ln(peak / {best.centre:.3f} of the card) / s), with the cautious peak of the verdict and s = "
        f"{best.spread:.2f}, {best.widening:.1f} times that where lengths, batch or micro-batch are guessed. These "
        "numbers are fitted to runs that say whether they ran, those of a publication taken as correlated by "
        f"{ALIKE:.1f}; below, each publication is judged by numbers fitted to the others. A share of {fits.odd:.0%} "
        "ran whatever they are said to need, as they did not do what their description says (recomputation, "
        "offloading and fused losses are often left out); the fit allows for them, and the probability that reports "
        "show leaves them out, since a scenario says what it does. So more of those that are said not to fit ran than "
        "the probability says. Brier scores (lower is better; 0.25 is a coin):"),
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


def unknown_publications(records: Iterable[Record]) -> list[str]:
    """Publications of unexplained.yaml that no record has."""
    known = {record.title for record in records}
    return [row["publication"] for row in unexplained() if row["publication"] not in known]


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


def trained(records: list[Record], accuracy: Accuracy) -> list[str]:
    """Sections on training."""
    alone = runs_left_out([run for run in collect_runs(records) if not run.guessed])
    out = {record.id for record in records if record_held_out(record)}
    looked_at = [one for one in accuracy.records if one.id not in out]
    shown = summaries(looked_at)
    missing = [one for one in accuracy.skipped if one.id not in out]
    times, peaks = figures(records)
    time_rows, peak_rows = [*ablate(times, TIME_TERMS), *without_components(times)], ablate(peaks, PEAK_TERMS)
    return [
        "## Training",
        counted(records),
        *origins(alone.coverage(), alone.median_width()),
        "### Time of a step in short", in_short(accuracy.records, "step_time", out),
        "### Peak memory in short", in_short(accuracy.records, "peak_memory", out),
        "### Verdicts in short", verdicts_in_short(accuracy.records, out),
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
        publications(looked_at, "step_time"),
        "Peaks:", publications(looked_at, "peak_memory"),
        "### Not explained",
        ("What stays off although it was looked into. Publications whose runs are guessed, or that say only whether a "
        "run fitted, are in no table above."),
        not_explained(records),
        "### Not predicted", reasons(missing),
    ]  # fmt: skip


def page(records: list[Record], validated: Mapping[bool, Accuracy]) -> str:
    """The page of accuracy; `validated`: predictions of training (False) and inference (True)."""
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
            sections += wing(mine, validated[serves])
    return "\n\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    records = [record for file in parser.parse_args().files for record in read_records(file).records]
    if unknown := unknown_publications(records):
        parser.error(f"{UNEXPLAINED.name} names what is no publication of these records: {'; '.join(unknown)}")
    validated = {serves: validate([one for one in records if one.serves == serves]) for serves in (False, True)}
    PAGE.write_text(page(records, validated), encoding="utf-8")
    out = {record.id for record in records if record_held_out(record)}
    block = in_a_table(validated[False].records, out)
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda found: f"{found[1]}{block}\n{found[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
