"""Write the tables of residuals from measured runs: python scripts/build_residuals.py [--seen-only] FILE...

Records of training fill xe_sizer/software/residuals/training.json and training-seen.json, those of inference
serving.json and serving-seen.json: the quantiles that ranges are made of, and how the runs fared in the ranges as they
are. With --seen-only the quantiles stay. training-memory.json gets the quantiles of measured over predicted peaks of
memory, and how likely a run ends for want of it. Prints how many runs lie inside a range in which their own source had
no part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict

from xe_sizer.evidence.calibrate import MemoryFits, collect_peaks, fit_spread
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.residuals import (
    Run,
    collect_runs,
    collect_serving_runs,
    coverage,
    left_out_coverage,
    left_out_width,
    observed,
    residual_table,
)
from xe_sizer.serving import uncertainty as serving
from xe_sizer.software.uncertainty import published
from xe_sizer.training import uncertainty as training


def write(rows: Iterable[Mapping[str, object]], path: Path) -> None:
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")


def write_quantiles(runs: Sequence[Run], path: Path) -> None:
    write((
        {
            "stack": stack, "kind": kind, "assumed": assumed, "runs": found.runs, "sources": found.sources,
            "low": round(found.low, 4), "high": round(found.high, 4),
        }
        for (stack, kind, assumed), found in sorted(residual_table(runs).items())
    ), path)  # fmt: skip


def write_seen(runs: Sequence[Run], path: Path) -> None:
    table = {group: asdict(found) for group, found in sorted(observed(runs).items())}
    rounded = {group: {name: round(value, 3) for name, value in row.items()} for group, row in table.items()}
    write(({"stack": stack, "kind": kind, **row} for (stack, kind), row in rounded.items()), path)


def write_peaks(records: Sequence[Record]) -> None:
    peaks = list(collect_peaks(records))
    spread, runs, sources = fit_spread(peaks)
    ends = {name: round(getattr(spread, name), 3) for name in ("low", "middle", "high")}
    chance = {name: round(value, 3) for name, value in asdict(MemoryFits(peaks).best).items()}
    table = {"runs": runs, "sources": sources, **ends, "out_of_memory": chance}
    training.PEAKS.write_text(json.dumps(table) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seen-only", action="store_true", help="leave the quantiles as they are")
    asked = parser.parse_args()
    records = [record for file in asked.files for record in read_records(file).records]
    trained = [record for record in records if not record.serves]
    served = [record for record in records if record.serves]
    for of_wing, runs_of_wing, tables in ((trained, collect_runs, training), (served, collect_serving_runs, serving)):
        runs = runs_of_wing(of_wing)
        if not runs:
            continue
        if not asked.seen_only:
            write_quantiles(runs, tables.TABLE)
            published.cache_clear()
            runs = runs_of_wing(of_wing)  # once more, in the ranges as they are now
        write_seen(runs, tables.SEEN)
        if of_wing is trained and not asked.seen_only:
            write_peaks(of_wing)
        alone, width = left_out_coverage(runs), left_out_width(runs)
        shares = f"{coverage(runs):.1%} inside, {alone:.1%} without their source at a median width of {width:.2f}"
        print(f"{len(runs)} runs; publications weighted alike: {shares}")


if __name__ == "__main__":
    main()
