"""Traces cases and writes one JSON line a case: `python -m tests.trace.run --out trace.jsonl --family llama`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO

from tests.trace.cases import Case, cases_of
from tests.trace.subjects import BY_FAMILY, shape_of
from tests.trace.tracer import Phase
from tests.trace.training import VERSIONS, Traced, trace
from xe_sizer.graph.parameters import count_parameters

TOP = 60


def _live(phase: Phase) -> list[tuple[str, int, int]]:
    """What lives at a phase's peak, largest first: who made it, bytes, number of storages."""
    largest = sorted(phase.live.items(), key=lambda item: -item[1][0])
    return [(label, size, count) for label, (size, count) in largest[:TOP]]


def record(case: Case, traced: Traced) -> dict[str, Any]:
    """A case and what was counted, as one flat record."""
    subject = case.subject
    targets = {"full": (), "lora-qv": subject.narrow_targets[0], "lora-all": ("all-linear",)}[case.method]
    return {
        "name": case.name,
        **asdict(case),
        "model": subject.model,
        "lora": {"rank": case.rank, "targets": targets},
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


def _chosen(families: list[str]) -> Iterator[Case]:
    for family in families:
        yield from cases_of(family)


def write(families: list[str], out: TextIO) -> int:
    """Trace and write; a case that fails is reported and counted, the others go on."""
    failed = 0
    for case in _chosen(families):
        try:
            line = record(case, trace(case))
        except Exception as error:
            failed += 1
            print(f"{case.name}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
            continue
        out.write(json.dumps(line) + "\n")
        out.flush()
    return failed


def main() -> int:
    """Command line; the exit code is 1 when a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="file to append to")
    parser.add_argument("--family", nargs="+", choices=sorted(BY_FAMILY), default=list(BY_FAMILY))
    options = parser.parse_args()
    with open(options.out, "a", encoding="utf-8") as out:
        return int(write(options.family, out) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
