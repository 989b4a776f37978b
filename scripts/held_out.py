"""Errors on publications shown and held out: python scripts/held_out.py FILE... [--serving] [--open] [--json FILE]

A third of the publications is held out: those whose title, after SALT, has a sha256 that 3 divides, and of a
publication that stands for many tests the models whose name has. Development looks at the others; of these only the
summary is printed unless --open. Publications are weighted alike, and runs of which neither lengths, batch nor number
of GPUs are known (`guessed`), and peaks of unknown micro-batches, are counted apart, and once more all together.

Ranges and the three words on memory are those of the tables that ship; `build_residuals.py --shown` writes them without
the publications that are held out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xe_sizer.evidence.predict import predict_records, predictions_of
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.result.accuracy import Prediction, Skipped
from xe_sizer.result.common import DOES_NOT_FIT, FITS, TIGHT

PARTS = 3
SALT = "2026-11-27 "  # drawn anew before each round of work on equations
BY_MODEL = ("ai-dynamo/aiconfigurator silicon_sample.csv (measured e2e, NVIDIA benchmark DB dump)",)
"""Publications that are many tests in one: of these a third of the models is held out."""


def held_out(title: str) -> bool:
    """Whether a publication is one that development does not look at."""
    return int(hashlib.sha256((SALT + title).encode()).hexdigest(), 16) % PARTS == 0


def record_held_out(record: Record) -> bool:
    """The same of a record: by its publication, or by its model where that has many."""
    return held_out(record.model or "" if record.title in BY_MODEL else record.title)


def predicted(records: Sequence[Record]) -> tuple[list[Prediction], list[Prediction], int]:
    """Predictions of runs that are known, of runs that had to be guessed, and the number of runs without any."""
    known: list[Prediction] = []
    guessed: list[Prediction] = []
    skipped = 0
    for found in predict_records(records):
        if isinstance(found, Skipped):
            skipped += 1
            continue
        for one in predictions_of(found):
            (guessed if one.guessed else known).append(one)
    return known, guessed, skipped


def summary(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Medians and 90 % quantiles of the errors, share in the range, width of it, and verdicts."""
    found: dict[str, Any] = {}
    for quantity in ("step_time", "phase_time", "ttft", "tpot", "encoding", "throughput", "peak_memory"):
        mine = [one for one in predictions if one.quantity == quantity]
        if mine:
            found[quantity] = _errors(mine)
    verdicts = [one for one in predictions if one.quantity == "oom"]
    if verdicts:
        found["oom"] = _verdicts(verdicts)
    return found


STRATUM, LEAST_RUNS = "stratum:", 31  # a stratum of fewer runs is not told apart


def by_stratum(predictions: Sequence[Prediction]) -> Iterable[str]:
    """Share in the range and width of it of every quantity under conditions that enough of its runs have."""
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for one in predictions:
        for name in one.groups:
            if name.startswith(STRATUM):
                groups[one.quantity, name.removeprefix(STRATUM)].append(one)
    for (quantity, name), mine in sorted(groups.items()):
        if len(mine) >= LEAST_RUNS:
            figures = _errors(mine)
            yield (
                f"{quantity:12} {figures['n']:5.0f} runs {figures['publications']:3.0f} publications  in range "
                f"{figures.get('in_range', 0.0):4.0%} width {figures.get('width', 0.0):.2f}  {name}"
            )


Said = tuple[str, str, bool]
"""Publication, the word for memory, and whether it ran."""


def words_on_memory(said: Sequence[Said]) -> str:
    """How many are tight, went out of memory and were said to fit, or ran and were said not to; publications alike."""
    if not said:
        return "no run with an outcome"
    weights = source_weights([source for source, *_ in said])
    words, ran = np.array([word for _, word, _ in said]), np.array([ran for *_, ran in said])

    def share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> str:
        both = np.ones(len(said)), weights
        rows, alike = (float((of & among) @ each) / max(float(among @ each), 1e-9) for each in both)
        return f"{rows:5.1%} (alike {alike:5.1%})"

    fits, tight, no = (words == word for word in (FITS, TIGHT, DOES_NOT_FIT))
    everything = np.ones(len(said), dtype=bool)
    return (
        f"{len(said)} runs: tight {share(tight, everything)}; of {fits.sum()} that fit out of memory "
        f"{share(~ran, fits)}; of {no.sum()} that do not fit ran {share(ran, no)}"
    )


def memory_said(predictions: Sequence[Prediction]) -> list[Said]:
    """What was said of the verdicts."""
    return [(one.source, one.memory, not one.measured) for one in predictions if one.quantity == "oom"]


def _errors(mine: Sequence[Prediction]) -> dict[str, float]:
    weights = source_weights([one.source for one in mine])
    ratios = np.array([one.ratio or 0.0 for one in mine])
    found = {
        "n": float(len(mine)),
        "publications": float(len({one.source for one in mine})),
        "median": weighted_quantile(np.abs(ratios - 1), weights, 0.5),
        "p90": weighted_quantile(np.abs(ratios - 1), weights, 0.9),
        "bias": weighted_quantile(ratios - 1, weights, 0.5),
    }
    ranges = [(one.low, one.high, float(one.measured)) for one in mine if one.low and one.high]
    if len(ranges) == len(mine):
        low, high, measured = np.array(ranges).T
        inside = (low <= measured) & (measured <= high)
        found |= {
            "in_range": float(inside @ weights / weights.sum()),
            "width": weighted_quantile(high / low, weights, 0.5),
        }
    return found


def _verdicts(mine: Sequence[Prediction]) -> dict[str, float]:
    weights = source_weights([one.source for one in mine])
    measured, said = (np.array([bool(getattr(one, name)) for one in mine]) for name in ("measured", "predicted"))
    lost = weights[measured].sum()
    return {
        "n": float(len(mine)),
        "publications": float(len({one.source for one in mine})),
        "out_of_memory": float(measured.sum()),
        "right": float((measured == said) @ weights / weights.sum()),
        "called_fitting": float((measured & ~said).sum() / max(measured.sum(), 1)),
        "called_fitting_alike": float((measured & ~said) @ weights / lost) if lost else 0.0,
    }


def lines(found: dict[str, Any]) -> Iterable[str]:
    for quantity, figures in found.items():
        if quantity == "oom":
            yield (
                f"{quantity:12} {figures['n']:5.0f} runs {figures['publications']:3.0f} publications  "
                f"right {figures['right']:4.0%}  of {figures['out_of_memory']:.0f} out of memory called fitting "
                f"{figures['called_fitting']:4.0%} (alike {figures['called_fitting_alike']:4.0%})"
            )
            continue
        range_words = (
            f"  in range {figures['in_range']:4.0%} width {figures['width']:.2f}" if "width" in figures else ""
        )
        yield (
            f"{quantity:12} {figures['n']:5.0f} runs {figures['publications']:3.0f} publications  median "
            f"{figures['median']:6.1%}  90 % {figures['p90']:6.1%}  bias {figures['bias']:+6.1%}{range_words}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--serving", action="store_true", help="records of inference instead of training")
    parser.add_argument("--open", action="store_true", help="name the held-out publications too")
    parser.add_argument("--json", type=Path, help="write every prediction that may be looked at")
    asked = parser.parse_args()
    records = [one for file in asked.files for one in read_records(file).records if one.serves == asked.serving]
    apart = {one.id for one in records if record_held_out(one)}
    known, guessed, skipped = predicted(records)
    for name, held in (("shown", False), ("held out", True)):
        mine = [one for one in known if (one.id in apart) == held]
        unknown = [one for one in guessed if (one.id in apart) == held]
        print(f"== {name}", *lines(summary(mine)), sep="\n")
        print("-- guessed, apart", *lines(summary(unknown)), sep="\n")
        print("-- all", *lines(summary(mine + unknown)), sep="\n")
        print("-- by stratum", *by_stratum(mine + unknown), sep="\n")
        for which, told in (("known", mine), ("all", mine + unknown)):
            print(f"-- memory, {which}: {words_on_memory(memory_said(told))}")
        if not held or asked.open:
            _by_publication(mine)
    print(f"{skipped} runs without a prediction")
    if asked.json:
        rows = [one for one in known + guessed if asked.open or one.id not in apart]
        asked.json.write_text(json.dumps([_row(one) for one in rows], indent=0), encoding="utf-8")


def _by_publication(mine: Sequence[Prediction]) -> None:
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for one in mine:
        by_source[one.source].append(one)
    for source in sorted(by_source):
        print(f"-- {source}", *lines(summary(by_source[source])), sep="\n   ")


def _row(one: Prediction) -> dict[str, Any]:
    names = (
        "id",
        "quantity",
        "measured",
        "predicted",
        "ratio",
        "low",
        "high",
        "assumed",
        "groups",
        "guessed",
        "memory",
    )
    return {name: getattr(one, name) for name in names}


if __name__ == "__main__":
    main()
