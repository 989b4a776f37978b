"""How well the search ranks published layouts: python scripts/rank_layouts.py FILE...

Runs of one source that share all but the layout form a group: the model and its sizes, the job, the lengths, the
kernels and the GPUs. Times are per token, as the batch may differ. Runs of one layout and batch count once, with their
median. The layout that is ranked first should be near the measured best; layouts that are said not to fit are not
ranked, nor runs of which the source leaves out lengths or batch. Of two layouts that measured times tell apart, the
model should say which is faster. Of publications that development does not look at, only the sums are printed
(`held_out`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from held_out import held_out
from numpy.typing import NDArray

from xe_sizer.evidence.predict import PredictedRecord, timed
from xe_sizer.evidence.records import Record, read_records

NEAR = 0.05
APART = 0.03  # share by which measured times of two layouts must differ
LEAST_LAYOUTS = 3
LAYOUT = ("layout.", "train.micro_batch")
BATCH = "train.global_batch"
Choices = tuple[tuple[str, str], ...]
"""Keys and values of a scenario, by key."""
Conditions = tuple[str, str, Choices]
"""What runs of a group share: the source, model and GPUs in words, and all that is asked for but layout and batch."""


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


@dataclass(frozen=True)
class Run:
    """A layout that ran: its global batch, and its measured and predicted time of a token [s]."""

    layout: Choices
    batch: float
    measured: float
    predicted: float


def per_token(run: PredictedRecord, step_s: float) -> float:
    job = run.sized.resolved.job
    return step_s / (job.global_batch * float(run.sized.choice.sequences.mean_tokens[0]))


def groups(records: Iterable[Record]) -> list[Group]:
    """Every group with enough different layouts that fit."""
    found: dict[Conditions, list[Run]] = defaultdict(list)
    for run, prediction in timed(records):
        if not isinstance(run, PredictedRecord) or not run.fits or run.asked.guessed:
            continue
        record, flags = run.record, run.asked.flags
        name = f"{record.model} on {record.gpus} x {record.gpu}"
        times = [per_token(run, float(value)) for value in (prediction.measured, prediction.predicted)]
        batch = float(run.sized.resolved.job.global_batch)
        layout, rest = (_chosen(flags, of_layout=which) for which in (True, False))
        found[record.title, name, rest].append(Run(layout, batch, *times))
    scored = (_scored(source, name, runs) for (source, name, _), runs in found.items())
    return [group for group in scored if group is not None]


def _once_each(runs: Sequence[Run]) -> list[Run]:
    """Of runs of one layout and batch the median time, measured and predicted."""
    alike: dict[tuple[Choices, float], list[Run]] = defaultdict(list)
    for run in runs:
        alike[run.layout, run.batch].append(run)
    return [
        Run(layout, batch, median(run.measured for run in same), median(run.predicted for run in same))
        for (layout, batch), same in alike.items()
    ]


def _scored(source: str, name: str, every: Sequence[Run]) -> Group | None:
    runs = _once_each(every)
    if len({run.layout for run in runs}) < LEAST_LAYOUTS:
        return None
    measured, predicted = np.array([(run.measured, run.predicted) for run in runs]).T
    loss = float(measured[np.argmin(predicted)] / measured.min() - 1.0)
    told = [
        (one.measured - other.measured) * (one.predicted - other.predicted) > 0
        for one, other in combinations(runs, 2)
        if one.layout != other.layout and abs(np.log(one.measured / other.measured)) > np.log1p(APART)
    ]
    return Group(name, source, len(runs), loss, spearman(measured, predicted), len(told), sum(told))


def _chosen(flags: Mapping[str, object], *, of_layout: bool) -> Choices:
    """What a scenario says of the layout, or of all else but the batch."""
    chosen = (key for key in flags if key.startswith(LAYOUT) is of_layout and key != BATCH)
    return tuple((key, str(flags[key])) for key in sorted(chosen))


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
