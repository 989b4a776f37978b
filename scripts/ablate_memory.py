"""What each part of the ledger explains: python scripts/ablate_memory.py FILE...

Every measured peak is predicted again without one part, its layout held fixed. A part that does not change the errors
explains nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from xe_sizer.evidence.predict import PredictedRecord, predict_records, predicted_peak_bytes
from xe_sizer.evidence.records import Record, measured_peak_bytes, read_records
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.memory import Ledger, at_level, ledger_of
from xe_sizer.training.memory_parts import MEMORY_PARTS

ON_CARD = {
    code: OFFLOAD.index(name.removesuffix("activations").rstrip("+") or "none") for code, name in enumerate(OFFLOAD)
}
Peaks = Callable[[PredictedRecord], Ledger]


def typical(run: PredictedRecord) -> Ledger:
    sized = run.sized
    return at_level(sized.ledger, sized.choice.evaluation, "typical")


def _without(name: str) -> Peaks:
    """The ledger without one of its parts."""

    def ledger(run: PredictedRecord) -> Ledger:
        whole = typical(run)
        return replace(whole, components={part: size for part, size in whole.components.items() if part != name})

    return ledger


def _nothing_cached(run: PredictedRecord) -> Ledger:
    return replace(typical(run), cached_bytes=np.zeros(1))


def _activations_on_card(run: PredictedRecord) -> Ledger:
    job, layouts = run.sized.resolved.job, run.sized.layouts
    there = replace(layouts, offload=np.array([ON_CARD[int(code)] for code in layouts.offload]))
    evaluation = Evaluation(job, there)
    return at_level(ledger_of(evaluation), evaluation, "typical")


TERMS: dict[str, Peaks] = {
    "all parts": typical,
    "blocks of other lengths": _nothing_cached,
    "activations in host memory": _activations_on_card,
    **{part.name: _without(part.name) for part in MEMORY_PARTS},
}


def measured_peaks(records: Iterable[Record]) -> list[tuple[PredictedRecord, float, str]]:
    """Runs whose lengths and batch are known, with their peak [bytes] and its metric."""
    found = []
    for run in predict_records(record for record in records if not record.serves):
        peak = measured_peak_bytes(run.record.measured) if isinstance(run, PredictedRecord) else None
        if isinstance(run, PredictedRecord) and peak is not None and not run.asked.guessed:
            found.append((run, peak[0].value, peak[1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    runs = measured_peaks(record for file in files for record in read_records(file).records)
    weights = source_weights([run.record.title for run, _, _ in runs])
    for name, ledger in TERMS.items():
        ratios = np.array([predicted_peak_bytes(ledger(run), metric) / measured for run, measured, metric in runs])
        error = np.abs(ratios - 1.0)
        median, high = (weighted_quantile(error, weights, share) for share in (0.5, 0.9))
        print(f"{name:30} median {median:6.1%}  90 % {high:6.1%}")


if __name__ == "__main__":
    main()
