"""Traces cases and writes one JSON line a case: `python -m tests.trace.run --out trace.jsonl --family llama`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tests.trace.matrix import Case, cases_of
from tests.trace.subjects import BY_FAMILY, shape_of
from tests.trace.tracer import Phase
from tests.trace.training import VERSIONS, Traced, trace
from xe_sizer.graph.weights import count_parameters

TOP = 60


def _live(phase: Phase) -> list[tuple[str, int, int]]:
    """What lives at a phase's peak, largest first: who made it, bytes, number of storages."""
    largest = sorted(phase.live.items(), key=lambda item: -item[1][0])
    return [(label, size, count) for label, (size, count) in largest[:TOP]]


def record(case: Case, traced: Traced) -> dict[str, Any]:
    """A case and what was counted, as one flat record."""
    subject = case.subject
    return {
        "name": case.name,
        **asdict(case),
        "model": subject.model,
        "lora": {"rank": case.rank, "targets": case.targets},
        "versions": VERSIONS,
        "parameters": traced.parameters,
        "catalogue_parameters": count_parameters(shape_of(subject, case.layers, case.length)).total,
        "adapter_parameters": traced.adapters,
        "weights_bytes": traced.weights_bytes,
        "states_bytes": traced.states_bytes,
        "peak_bytes": traced.worst.peak_bytes,
        "peak_phase": traced.worst.name,
        "forward_peak_bytes": traced.forward.peak_bytes,
        "after_forward_bytes": traced.forward.end_bytes,
        "backward_peak_bytes": traced.backward.peak_bytes,
        "after_backward_bytes": traced.backward.end_bytes,
        "optimizer_peak_bytes": traced.optimizer.peak_bytes,
        "live": {phase.name: _live(phase) for phase in (traced.forward, traced.backward, traced.optimizer)},
    }


def chosen(families: list[str], part: str = "") -> Iterator[Case]:
    """The matrix of the families, as far as a case's name contains the part."""
    for family in families:
        yield from (case for case in cases_of(family) if part in case.name)


def write(cases: Iterable[Case], out: RawIOBase) -> int:
    """Trace and write; a case that fails is reported and counted, the others go on."""
    failed = 0
    for case in cases:
        try:
            line = record(case, trace(case))
        except Exception as error:  # noqa: BLE001  counted and named; the other cases go on
            failed += 1
            print(f"{case.name}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
            continue
        out.write(json.dumps(line).encode() + b"\n")
    return failed


def main() -> int:
    """Command line; the exit code is 1 when a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file to append to")
    parser.add_argument("--family", nargs="+", choices=sorted(BY_FAMILY), default=list(BY_FAMILY))
    parser.add_argument("--name", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    with options.out.open("ab", buffering=0) as out:  # one write a line: several processes may append
        return int(write(chosen(options.family, options.name), out) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
