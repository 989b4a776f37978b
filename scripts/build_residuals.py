"""Write xe_sizer/residuals.json from measured runs: python scripts/build_residuals.py FILE...

Prints how many runs lie inside a range in which their own source had no part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from xe_sizer.evidence.records import read_records
from xe_sizer.evidence.residuals import left_out_coverage, residual_table, runs_of
from xe_sizer.uncertainty import TABLE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    runs = runs_of(record for file in parser.parse_args().files for record in read_records(file).records)
    rows = [
        {
            "stack": stack, "kind": kind, "assumed": assumed, "runs": found.runs, "sources": found.sources,
            "low": round(found.low, 4), "high": round(found.high, 4),
        }
        for (stack, kind, assumed), found in sorted(residual_table(runs).items())
    ]  # fmt: skip
    TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"{len(runs)} runs, {len(rows)} groups; {left_out_coverage(runs):.1%} inside a range without their source")


if __name__ == "__main__":
    main()
