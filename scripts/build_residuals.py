"""Write the tables of residuals from measured runs: python scripts/build_residuals.py FILE...

Records of training fill xe_sizer/software/residuals/training.json, those of inference serving.json beside it. Prints
how many runs lie inside a range in which their own source had no part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from xe_sizer.evidence.records import read_records
from xe_sizer.evidence.residuals import Run, left_out_coverage, residual_table, runs_of, serving_runs_of
from xe_sizer.serving import uncertainty as serving
from xe_sizer.training import uncertainty as training


def write(runs: Sequence[Run], table: Path) -> None:
    rows = [
        {
            "stack": stack, "kind": kind, "assumed": assumed, "runs": found.runs, "sources": found.sources,
            "low": round(found.low, 4), "high": round(found.high, 4),
        }
        for (stack, kind, assumed), found in sorted(residual_table(runs).items())
    ]  # fmt: skip
    table.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"{len(runs)} runs, {len(rows)} groups; {left_out_coverage(runs):.1%} inside a range without their source")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    records = [record for file in parser.parse_args().files for record in read_records(file).records]
    trained = [record for record in records if not record.serves]
    served = [record for record in records if record.serves]
    if trained:
        write(runs_of(trained), training.TABLE)
    if served:
        write(serving_runs_of(served), serving.TABLE)


if __name__ == "__main__":
    main()
