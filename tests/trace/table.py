"""Traces every way of training and says how far the ledger is off, as tables: `python -m tests.trace.table --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from tests.trace.compare import ledger_of, predicted_bytes
from tests.trace.items import Item, items
from tests.trace.matrix import Case
from tests.trace.seeing import SeeingCase, predicted
from tests.trace.seeing import trace as trace_seeing
from tests.trace.training import trace

Peaks = Mapping[str, float]
TITLES = {
    "method": "jobs", "adapter": "kinds of adapters", "optimizer": "optimizers", "layers": "layers that learn",
    "model": "kinds of models",
}  # fmt: skip


def traced_bytes(case: Case | SeeingCase) -> float:
    """Peak of live tensors of the real modules."""
    return float((trace(case) if isinstance(case, Case) else trace_seeing(case)).worst.peak_bytes)


def error(case: Case | SeeingCase, peak_bytes: float) -> float:
    """Relative error of the ledger's peak."""
    ours = predicted_bytes(ledger_of(case)) if isinstance(case, Case) else predicted(case)
    return ours / peak_bytes - 1.0


def name_of(case: Case | SeeingCase) -> str:
    """Unique among all items."""
    return f"{case.name}/{case.trainable_layers}" if isinstance(case, Case) else case.name


def write(chosen: Iterable[Item], known: Peaks, out: Path) -> None:
    """Trace what is not known yet, and append name and peak, one line a case."""
    with out.open("a", encoding="utf-8", buffering=1) as file:
        for item in chosen:
            for case in item.cases:
                if (name := name_of(case)) not in known:
                    file.write(json.dumps({"name": name, "peak_bytes": traced_bytes(case)}) + "\n")


def peaks_of(out: Path) -> dict[str, float]:
    """The peaks that a file has, by the names of their cases [bytes]."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return {each["name"]: each["peak_bytes"] for each in map(json.loads, lines)}


def errors_of(item: Item, peaks: Peaks) -> list[float]:
    """Absolute errors of the cases of an item that were traced."""
    return [abs(error(case, peaks[name])) for case in item.cases if (name := name_of(case)) in peaks]


def _row(name: str, families: Iterable[str], errors: list[float]) -> str:
    listed = ", ".join(dict.fromkeys(families))
    return f"| {name} | {listed} | {len(errors)} | {np.median(errors):.1%} | {max(errors):.1%} |"


def by_item(peaks: Peaks) -> Iterator[str]:
    """One line an item."""
    yield "| | families | cases | median | worst |"
    yield "|---|---|---|---|---|"
    for item in items():
        if errors := errors_of(item, peaks):
            yield _row(item.name, (case.family for case in item.cases), errors)


def by_kind(peaks: Peaks) -> Iterator[str]:
    """One line a kind of items."""
    yield "| | how many | cases | median | worst |"
    yield "|---|---|---|---|---|"
    for kind, title in TITLES.items():
        found = [errors for item in items() if item.kind == kind and (errors := errors_of(item, peaks))]
        if found:
            every = [one for errors in found for one in errors]
            yield f"| {title} | {len(found)} | {len(every)} | {np.median(every):.2%} | {max(every):.1%} |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peaks", type=Path, help="file of peaks; what it lacks is traced and appended")
    parser.add_argument("--kind", nargs="+", choices=sorted(TITLES), default=list(TITLES), help="trace these alone")
    options = parser.parse_args()
    write((item for item in items() if item.kind in options.kind), peaks_of(options.peaks), options.peaks)
    peaks = peaks_of(options.peaks)
    print("\n".join((*by_kind(peaks), "", *by_item(peaks))), file=sys.stdout)


if __name__ == "__main__":
    main()
