"""How well the search ranks published layouts: python scripts/rank_layouts.py FILE...

Runs of one source with the same model, job, GPUs, sequence length and precision form a group. The layout that is
ranked first should be near the measured best; layouts that are said not to fit are not ranked.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.validate import PredictedRecord, timed

NEAR = 0.05
LEAST_LAYOUTS = 3
LAYOUT = ("layout.", "train.micro_batch")


@dataclass(frozen=True)
class Group:
    """One group: layouts ranked, how far the first one's measured time is from the best, and Spearman's rho."""

    name: str
    source: str
    layouts: int
    loss: float
    correlation: float


def per_token(record: Record, run: PredictedRecord, step_s: float) -> float:
    job = run.sized.resolved.job
    return step_s / (job.global_batch * float(job.sequences(run.sized.layouts).mean_tokens[0]))


def groups(records: Iterable[Record]) -> list[Group]:
    """Every group with enough different layouts that fit."""
    found = defaultdict(list)
    for run, prediction in timed(records):
        record = run.record
        if not run.fits:
            continue
        key = (record.title, record.job, record.model, record.gpu, record.gpus, record.seq_len, record.precision,
               record.framework)  # fmt: skip
        times = (per_token(record, run, float(value)) for value in (prediction.measured, prediction.predicted))
        found[key].append((run.asked.flags, *times))
    scored = []
    for key, runs in found.items():
        layouts = {tuple(sorted((k, str(v)) for k, v in flags.items() if k.startswith(LAYOUT))) for flags, _, _ in runs}
        if len(layouts) >= LEAST_LAYOUTS:
            measured, predicted = (np.array([run[place] for run in runs]) for place in (1, 2))
            loss = float(measured[np.argmin(predicted)] / measured.min() - 1.0)
            scored.append(
                Group(f"{key[2]} on {key[4]} x {key[3]}", key[0], len(runs), loss, spearman(measured, predicted))
            )
    return scored


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


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
