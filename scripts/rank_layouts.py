"""How well the search ranks published layouts: python scripts/rank_layouts.py FILE...

Runs of one source with the same model, job, GPUs, sequence length and precision form a group. The layout that is
ranked first should be near the measured best; layouts that are said not to fit are not ranked. Of two layouts that
measured times tell apart, the model should say which is faster. Of publications that development does not look
at, only the sums are printed (`held_out`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from held_out import held_out
from numpy.typing import NDArray

from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.training import PredictedRecord
from xe_sizer.evidence.validate import timed

NEAR = 0.05
APART = 0.03  # share by which measured times of two layouts must differ
LEAST_LAYOUTS = 3
LAYOUT = ("layout.", "train.micro_batch")
Conditions = tuple[str, str, tuple[object, ...]]
"""What runs of a group share: the source, model and GPUs in words, and the rest."""
Run = tuple[Mapping[str, object], float, float]
"""Flags of a run, and its measured and predicted time of a token [s]."""


@dataclass(frozen=True)
class Group:
    """One group: layouts ranked, how far the first one's measured time is from the best, and Spearman's rho.

    pairs, right : of layouts that differ by more than APART, and those of them that are ordered rightly
    """

    name: str
    source: str
    layouts: int
    loss: float
    correlation: float
    pairs: int
    right: int


def per_token(run: PredictedRecord, step_s: float) -> float:
    job = run.sized.resolved.job
    return step_s / (job.global_batch * float(job.sequences(run.sized.layouts).mean_tokens[0]))


def groups(records: Iterable[Record]) -> list[Group]:
    """Every group with enough different layouts that fit."""
    found: dict[Conditions, list[Run]] = defaultdict(list)
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
    scored = (_scored(source, name, runs) for (source, name, _), runs in found.items())
    return [group for group in scored if group is not None]


def _scored(source: str, name: str, runs: Sequence[Run]) -> Group | None:
    layouts = [_layout(flags) for flags, _, _ in runs]
    if len(set(layouts)) < LEAST_LAYOUTS:
        return None
    measured, predicted = np.array([run[1] for run in runs]), np.array([run[2] for run in runs])
    loss = float(measured[np.argmin(predicted)] / measured.min() - 1.0)
    told = [
        bool((measured[i] - measured[j]) * (predicted[i] - predicted[j]) > 0)
        for i, j in combinations(range(len(runs)), 2)
        if layouts[i] != layouts[j] and abs(np.log(measured[i] / measured[j])) > np.log1p(APART)
    ]
    right = sum(told)
    return Group(name, source, len(runs), loss, spearman(measured, predicted), len(told), right)


def _layout(flags: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in flags.items() if key.startswith(LAYOUT)))


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    ranks = np.argsort(np.argsort(np.stack([a, b]))).astype(float)
    return float(np.corrcoef(ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    scored = groups(record for file in files for record in read_records(file).records if not record.serves)
    shown = sorted((group for group in scored if not held_out(group.source)), key=lambda group: group.source)
    for group in shown:
        print(
            f"{group.source[:40]:40} {group.name[:44]:44} {group.layouts:3} layouts  first is {group.loss:6.1%} off"
            f"  rho {group.correlation:5.2f}  pairs {group.right:3} of {group.pairs:3}"
        )
    for name, some in (("shown", shown), ("left out", [group for group in scored if held_out(group.source)])):
        if some:
            print(f"{name}: {_sum(some)}")


def _sum(scored: Sequence[Group]) -> str:
    near = sum(group.loss <= NEAR for group in scored)
    rho = np.median([group.correlation for group in scored])
    right, pairs = sum(group.right for group in scored), sum(group.pairs for group in scored)
    return (
        f"{near} of {len(scored)} groups: the first is within {NEAR:.0%} of the best; median rho {rho:.2f}; "
        f"{right / max(pairs, 1):.1%} of {pairs:,} pairs that differ by over {APART:.0%} ordered rightly"
    )


if __name__ == "__main__":
    main()
