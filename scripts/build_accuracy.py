"""Write docs/accuracy.md: python scripts/build_accuracy.py FILE...

Predictions for all measured runs in the files: errors by group, ranges with a source left out, verdicts, the largest
errors with what had to be assumed, what each term explains, and what could not be predicted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ablation import ablate

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
from xe_sizer.evidence.statistics import GUESSED, WEIGHTED
from xe_sizer.evidence.validate import validate
from xe_sizer.result.accuracy import Accuracy, Prediction, Summary

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
LEAST = 4  # runs of a group that is shown
WORST = 15
REASONS = 12


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def errors(accuracy: Accuracy, quantity: str, kinds: tuple[str, ...]) -> str:
    shown = [
        one
        for one in accuracy.summary
        if one.quantity == quantity and one.n >= LEAST and one.group.split(":")[0] in kinds
    ]
    ruled = any(one.fixed_efficiency for one in shown)
    header = ("group", "runs", "publications", "median error", "90 % below", "bias", "in range")
    rule_header = ("fixed efficiency: share", "its median error", "its 90 %", "gain") if ruled else ()
    return table((*header, *rule_header), [(*_error_row(one), *(_rule(one) if ruled else ())) for one in shown])


def _error_row(one: Summary) -> tuple[str, ...]:
    bias = "" if one.bias is None else f"{one.bias:+.0%}"
    figures = (percent(one.median_abs_error), percent(one.p90_abs_error), bias, percent(one.interval_coverage))
    return (one.group, str(one.n), str(one.publications), *figures)


def _rule(one: Summary) -> tuple[str, ...]:
    rule = one.fixed_efficiency
    if rule is None:
        return ("",) * 4
    return (*map(percent, (rule.efficiency, rule.median_abs_error, rule.p90_abs_error)), f"{rule.gain:+.0%}")


def verdicts(accuracy: Accuracy) -> str:
    rows = []
    for one in accuracy.summary:
        if one.oom is not None and one.n >= LEAST and one.group.split(":")[0] in ("all", GUESSED, "stack", "job"):
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
        "alike; each publication below is judged by what the others give. That a peak as large as the card is an even "
        "chance is chosen: a run that failed is seldom published, so more of those that were published ran. Brier "
        "scores (lower is better; 0.25 is a coin):"),
        table(("said by", "all runs", "without guessed ones"), [
            (name, f"{score:.3f}", f"{alone:.3f}") for (name, score), alone in zip(pairs, of_known, strict=True)
        ]),
        "Runs by the probability to fit that they were given:",
        table(("said", "mean", "ran", "runs", "publications", "out of memory"), rows),
        (f"What is left of a card has a range of its own: {runs} measured peaks of {sources} publications that state "
        f"lengths and batch lie at {spread.low:.2f} (10 %), {spread.middle:.2f} (50 %) and {spread.high:.2f} (90 %) of "
        "the cautious peak. Measured peaks below a quantile of it, publications left out:"),
        table(("quantile", "peaks below it"), below),
    ]  # fmt: skip


def worst(accuracy: Accuracy, quantities: Sequence[str]) -> str:
    times = [one for one in accuracy.records if one.quantity in quantities and one.ratio and not one.guessed]
    ranked = sorted(times, key=lambda one: max(one.ratio or 1.0, 1.0 / (one.ratio or 1.0)), reverse=True)
    return table(("run", "predicted / measured", "what had to be assumed"), [_worst_row(one) for one in ranked[:WORST]])


def _worst_row(one: Prediction) -> tuple[str, ...]:
    return one.id, f"{one.ratio:.2f}", "; ".join(one.assumed).replace("|", "/")


def trained(records: list[Record]) -> list[str]:
    """Sections on training."""
    accuracy, runs = validate(records), [run for run in runs_of(records) if not run.assumed]
    terms = [(name, f"{middle:.1%}", f"{high:.0%}", f"{moved:.0%}") for name, middle, high, moved in ablate(records)]
    everything = ("all", WEIGHTED, GUESSED)
    return [
        "## Training",
        (f"{_counted(records)} Stacks state what their software does; some of their constants, and the sustained "
        "rates of some accelerators, were fitted to such runs, as the comments beside them say. Without their own "
        f"source {left_out_coverage(runs):.0%} of the runs lie inside their range, at a median width (high over low) "
        f"of {left_out_width(runs):.2f}."),
        "### Time of a step", errors(accuracy, "step_time", (*everything, "stack", "job")),
        "### Time of a step by accelerator", errors(accuracy, "step_time", ("gpu",)),
        "### Peak memory", "By what the publication measured (`metric`), by stack and by job.",
        errors(accuracy, "peak_memory", (*everything, "metric", "stack", "job")),
        "### Does it fit?", verdicts(accuracy),
        *certainty(records),
        "### What each term of the time explains",
        "Error of the time, sources weighted alike, with one term switched off and the layout held fixed.",
        table(("without", "median error", "90 % below", "runs that move by over 2 %"), terms),
        "### Largest errors of the time", worst(accuracy, ("step_time",)),
        "### Not predicted", reasons(accuracy),
    ]  # fmt: skip


def served(records: list[Record]) -> list[str]:
    """Sections on inference."""
    accuracy = validate(records)
    kinds = ("all", WEIGHTED, GUESSED, "stack", "gpu")
    return [
        "## Inference",
        (f"{_counted(records)} Engines are data, and part of what they state was read off these runs; "
        "`scripts/leave_source_out.py` predicts each publication without what it gave. Without their own source "
        f"{left_out_coverage(serving_runs_of(records)):.0%} of the figures lie inside their range."),
        "### Time to the first token", errors(accuracy, "ttft", (*kinds, "source")),
        "### Time per output token", errors(accuracy, "tpot", (*kinds, "source")),
        "### Throughput", errors(accuracy, "throughput", (*kinds, "source")),
        "### Peak memory of a batch", errors(accuracy, "peak_memory", ("all", WEIGHTED, GUESSED, "source")),
        "### Does it fit?", verdicts(accuracy),
        "### Largest errors", worst(accuracy, ("ttft", "tpot", "throughput")),
        "### Not predicted", reasons(accuracy),
    ]  # fmt: skip


def _counted(records: list[Record]) -> str:
    sources = len({record.title for record in records})
    return f"{len(records):,} published records of {sources} publications."


def reasons(accuracy: Accuracy) -> str:
    found = Counter(one.reason for one in accuracy.skipped).most_common(REASONS)
    return table(("reason", "runs"), [(text, str(count)) for text, count in found])


def page(records: list[Record]) -> str:
    sections = [
        "# Accuracy",
        (
            "Written by `scripts/build_accuracy.py`. Every record is predicted as a user's scenario would be; "
            "gaps are filled from the defaults of its stack or engine and said. The error is predicted / measured"
            " - 1, its median the bias. Ranges are taken from the residuals, and in range counts a run's own "
            "source with them; 80 % is the aim where it has no part. Publications weigh alike, except in the "
            "group `all`. Records that leave out lengths, batch or the number of GPUs, or the micro-batch of a "
            "peak, are the group `guessed` and in no other. Fixed efficiency is what a rule without a model of "
            "software makes of the same runs: 6 N T FLOPs (4 N T where the base is frozen; N active parameters, T"
            " tokens, padding included) over a share of the peak of all GPUs, at the share with the least median "
            "error on these very runs. The gain is its median error less ours."
        ),
        *trained([record for record in records if not record.serves]),
        *served([record for record in records if record.serves]),
    ]
    return "\n\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    PAGE.write_text(page([record for file in files for record in read_records(file).records]), encoding="utf-8")


if __name__ == "__main__":
    main()
