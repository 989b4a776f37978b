"""Start-up cost of the command: CPU time of an estimate against that of its bare imports.

    python benchmarks/startup.py [--runs 9] [--limit 1.7]

Run it with the interpreter of an environment that has xe-sizer. Both commands run in turns, so that a busy
machine slows both; the smallest time of each counts. Exit code 1 if the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import sys

from yardstick import BARE_IMPORTS, run

ESTIMATE = (
    "-m", "xe_sizer", "estimate", "--model", "llama-2-70b", "--server", "dell-xe9680-h100", "--gpus", "16",
    "--job", "lora", "--stack", "nemo", "--dataset", "alpaca", "--steps", "1000", "--format", "json",
)  # fmt: skip


def measure(runs: int) -> tuple[float, float]:
    """Smallest CPU time of the bare imports and of the estimate [s]; the first pair only warms the caches.

    Raises RuntimeError where the estimate gives no answer.
    """
    pairs = []
    for _ in range(runs + 1):
        bare, estimate = run(BARE_IMPORTS), run(ESTIMATE)
        if estimate.code:
            raise RuntimeError(f"exit code {estimate.code}: the estimate has no answer")
        pairs.append((bare.cpu_s, estimate.cpu_s))
    return min(bare for bare, _ in pairs[1:]), min(estimate for _, estimate in pairs[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up cost of xe-sizer.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--limit", type=float, default=1.7)
    chosen = parser.parse_args()
    bare_s, estimate_s = measure(chosen.runs)
    ratio = estimate_s / bare_s
    print(f"import typer, numpy, yaml  {bare_s * 1e3:6.1f} ms CPU")
    print(f"xe-sizer estimate          {estimate_s * 1e3:6.1f} ms CPU")
    print(f"ratio                      {ratio:6.2f}  (limit {chosen.limit:g})")
    return int(ratio > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
