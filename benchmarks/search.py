"""How a search grows: layouts, seconds and memory of whole `xe-sizer plan` processes, and layouts a second.

    python benchmarks/search.py [--largest 7]

GPT-3 175B pre-training on 8-way H100 servers, with more and more servers and batch sizes to choose from.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys

COMMAND = (
    "plan", "--model", "gpt3-175b", "--server", "dell-xe9680-h100", "--job", "pretrain",
    "--stack", "megatron-lm", "--tokens", "3e11", "--format", "json", "--exit-zero",
)  # fmt: skip
# Powers of ten of layouts, and the questions that have about so many.
SIZES = {
    4: ("--seq-len", "2048", "--global-batch", "1536", "--max-gpus", "128", "--offload", "none", "--micro-batch", "1"),
    5: ("--seq-len", "2048", "--global-batch", "1536", "--max-gpus", "512"),
    6: ("--seq-len", "2048", "--global-batch", "3072", "--max-gpus", "4096"),
    7: ("--seq-len", "16384", "--global-batch", "7680", "--max-gpus", "16384"),
}


def measure(options: tuple[str, ...]) -> tuple[int, float, float, float]:
    """Layouts, CPU seconds of the process, seconds of the search alone, and memory [MB]."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    script = (
        "import resource, sys; from xe_sizer.cli.main import main; code = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, "-c", script, *COMMAND, *options],
        env=environment, capture_output=True, check=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    search = json.loads(run.stdout)["search"]
    return search["layouts_considered"], cpu_s, search["seconds"], int(run.stderr.split()[-1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=7, help="largest power of ten")
    largest = parser.parse_args().largest
    print(f"{'layouts':>12} {'CPU s':>8} {'search s':>9} {'layouts/s':>10} {'MB':>6}")
    for power, options in SIZES.items():
        if power <= largest:
            layouts, cpu_s, search_s, memory = measure(options)
            print(f"{layouts:12,} {cpu_s:8.2f} {search_s:9.2f} {layouts / search_s:10,.0f} {memory:6.0f}")


if __name__ == "__main__":
    main()
