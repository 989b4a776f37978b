"""How well the model tells two configurations of one job apart: python scripts/pair_error.py FILE...

Runs of one publication with the same model, job, software and kind of GPU are paired: those that differ in the number
of GPUs, and those on the same GPUs that differ in their layout. What the stack, the model and the machine add to all
predictions of a publication cancels in a pair, so the error is that of the ratio of two predictions:

    error = exp |ln (predicted_1 / measured_1) - ln (predicted_2 / measured_2)| - 1

The median of each publication counts once. Source of `training.search`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from xe_sizer.evidence.predict import PredictedRecord, timed
from xe_sizer.evidence.records import Record, read_records

FEWEST_PAIRS = 3
KINDS = ("GPUs", "layout")


@dataclass(frozen=True)
class Run:
    """One measured run: what says which pair it may be in, and the logarithm of predicted over measured [-]."""

    gpus: int
    layout: tuple[object, ...]
    log_error: float


def runs(records: Iterable[Record]) -> dict[tuple[str, tuple[object, ...]], list[Run]]:
    """Runs by their publication and what a pair shares."""
    found: dict[tuple[str, tuple[object, ...]], list[Run]] = defaultdict(list)
    for run, prediction in timed(records):
        if not isinstance(run, PredictedRecord):
            continue
        record, flags = run.record, run.asked.flags
        measured, predicted = prediction.measured, prediction.predicted
        if not run.fits or not isinstance(measured, float | int) or not isinstance(predicted, float | int):
            continue
        shared = (record.model, record.job, record.gpu, record.seq_len, record.precision, record.framework)
        log_error = float(np.log(predicted / measured))
        found[record.title, shared].append(Run(run.sized.gpus, _layout(flags), log_error))
    return found


def _layout(flags: Mapping[str, object]) -> tuple[object, ...]:
    """The layout that a record states."""
    return tuple(sorted((key, str(value)) for key, value in flags.items() if _of_layout(key)))


def _of_layout(key: str) -> bool:
    return key.startswith("layout.") or key == "train.micro_batch"


def pair_errors(
    records: Iterable[Record],
) -> dict[str, dict[str, list[float]]]:
    """Errors of the ratios of each publication, by what the two runs differ in."""
    found: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in KINDS}
    for (title, _), group in runs(records).items():
        for one, other in combinations(group, 2):
            error = float(np.expm1(abs(one.log_error - other.log_error)))
            if one.gpus != other.gpus:
                found["GPUs"][title].append(error)
            elif one.layout != other.layout:
                found["layout"][title].append(error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    found = pair_errors(record for file in files for record in read_records(file).records)
    for kind, publications in found.items():
        medians = {
            title: (float(np.median(errors)), len(errors))
            for title, errors in publications.items()
            if len(errors) >= FEWEST_PAIRS
        }
        for title, (median, pairs) in sorted(medians.items(), key=lambda entry: entry[1]):
            print(f"{kind:7} {median:6.1%}  {pairs:6} pairs  {title[:80]}")
        values = [median for median, _ in medians.values()]
        print(f"{kind:7} median {np.median(values):.1%} of {len(values)} publications")


if __name__ == "__main__":
    main()
