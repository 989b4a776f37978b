"""How well the search ranks published layouts: python scripts/rank_layouts.py FILE...

Runs of one source with the same model, job, GPUs, sequence length and precision form a group. The layout that is
ranked first should be near the measured best; layouts that are said not to fit are not ranked.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.training import PredictedRecord
from xe_sizer.evidence.validate import timed

NEAR = 0.05
LEAST_LAYOUTS = 3
LAYOUT = ("layout.", "train.micro_batch")
Conditions = tuple[str, str, tuple[object, ...]]
"""What runs of a group share: the source, model and GPUs in words, and the rest."""


@dataclass(frozen=True)
class Group:
    """One group: layouts ranked, how far the first one's measured time is from the best, and Spearman's rho."""

    name: str
    source: str
    layouts: int
    loss: float
    correlation: float


def per_token(run: PredictedRecord, step_s: float) -> float:
    job = run.sized.resolved.job
    return step_s / (job.global_batch * float(job.sequences(run.sized.layouts).mean_tokens[0]))


def groups(records: Iterable[Record]) -> list[Group]:
    """Every group with enough different layouts that fit."""
    found: dict[Conditions, list[tuple[Mapping[str, object], float, float]]] = defaultdict(list)
    for run, prediction in timed(records):
        record = run.record
        if not run.fits:
            continue
        name = f"{record.model} on {record.gpus} x {record.gpu}"
        rest = (record.job, record.seq_len, record.precision, record.framework)
        measured_s, predicted_s = (float(value) for value in (prediction.measured, prediction.predicted))
        found[record.title, name, rest].append(
            (run.asked.flags, per_token(run, measured_s), per_token(run, predicted_s))
        )
    scored = []
    for (source, name, _), runs in found.items():
        layouts = {tuple(sorted((k, str(v)) for k, v in flags.items() if k.startswith(LAYOUT))) for flags, _, _ in runs}
        if len(layouts) >= LEAST_LAYOUTS:
            measured, predicted = np.array([run[1] for run in runs]), np.array([run[2] for run in runs])
            loss = float(measured[np.argmin(predicted)] / measured.min() - 1.0)
            scored.append(Group(name, source, len(runs), loss, spearman(measured, predicted)))
    return scored


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    ranks = np.argsort(np.argsort(np.stack([a, b]))).astype(float)
    return float(np.corrcoef(ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    scored = groups(record for file in files for record in read_records(file).records)
    for group in sorted(scored, key=lambda group: group.source):
        print(
            f"{group.source[:40]:40} {group.name[:44]:44} {group.layouts:3} layouts  first is {group.loss:6.1%} off"
            f"  rho {group.correlation:5.2f}"
        )
    near = sum(group.loss <= NEAR for group in scored)
    rho = np.median([group.correlation for group in scored])
    print(f"{near} of {len(scored)} groups: the first is within {NEAR:.0%} of the best; median rho {rho:.2f}")


if __name__ == "__main__":
    main()
