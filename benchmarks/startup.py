"""Start-up cost of the command: CPU time of an estimate against that of its bare imports.

    python benchmarks/startup.py [--runs 9] [--limit 2.0]

Run it with the interpreter of an environment that has xe-sizer. Both commands run in turns, so that a busy
machine slows both; the smallest time of each counts. Exit code 1 if the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys

BARE_IMPORTS = ("-c", "import typer, numpy, yaml")
ESTIMATE = (
    "-m", "xe_sizer", "estimate", "--model", "llama-2-70b", "--server", "dell-xe9680-h100", "--gpus", "16",
    "--job", "lora", "--stack", "nemo", "--dataset", "alpaca", "--steps", "1000", "--format", "json",
)  # fmt: skip


def cpu_s(*arguments: str) -> float:
    """User and system time of one interpreter with these arguments [s]; it must return 0."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode; so must a checkout
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(runs: int) -> tuple[float, float]:
    """Smallest CPU time of the bare imports and of the estimate [s]; the first pair only warms the caches."""
    pairs = [(cpu_s(*BARE_IMPORTS), cpu_s(*ESTIMATE)) for _ in range(runs + 1)][1:]
    return min(bare for bare, _ in pairs), min(estimate for _, estimate in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up cost of xe-sizer.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--limit", type=float, default=2.0)
    chosen = parser.parse_args()
    bare_s, estimate_s = measure(chosen.runs)
    ratio = estimate_s / bare_s
    print(f"import typer, numpy, yaml  {bare_s * 1e3:6.1f} ms CPU")
    print(f"xe-sizer estimate          {estimate_s * 1e3:6.1f} ms CPU")
    print(f"ratio                      {ratio:6.2f}  (limit {chosen.limit:g})")
    return int(ratio > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
