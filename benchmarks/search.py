"""How a search grows: layouts, seconds and memory of whole `xe-sizer plan` processes, and layouts a second.

    python benchmarks/search.py [--largest 7] [--limit 14]

GPT-3 175B pre-training on 8-way H100 servers, with more and more servers and batch sizes to choose from. The ratio is
CPU time over that of `python -c "import typer, numpy, yaml"`. Exit code 1 if a million layouts are above the limit.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

from yardstick import bare_imports_s, run

COMMAND = (
    "-m", "xe_sizer", "plan", "--model", "gpt3-175b", "--server", "dell-xe9680-h100", "--job", "pretrain",
    "--stack", "megatron-lm", "--tokens", "3e11", "--format", "json", "--exit-zero",
)  # fmt: skip
# Powers of ten of layouts, and the questions that have about so many.
SIZES = {
    4: ("--seq-len", "2048", "--global-batch", "1536", "--max-gpus", "128", "--offload", "none", "--micro-batch", "1"),
    5: ("--seq-len", "2048", "--global-batch", "1536", "--max-gpus", "512"),
    6: ("--seq-len", "2048", "--global-batch", "3072", "--max-gpus", "4096"),
    7: ("--seq-len", "16384", "--global-batch", "7680", "--max-gpus", "16384"),
}
MILLION = 6


@dataclass(frozen=True)
class Search:
    """A search that was run: layouts, seconds of the search alone, the whole process over bare imports, most memory."""

    layouts: int
    search_s: float
    cpu_s: float
    ratio: float
    memory_bytes: int


def measure(power: int) -> Search:
    """Ask the question that has about ten to this power of layouts."""
    bare_s = bare_imports_s()
    plan = run((*COMMAND, *SIZES[power]))
    found = json.loads(plan.output)["search"]
    return Search(found["layouts_considered"], found["seconds"], plan.cpu_s, plan.cpu_s / bare_s, plan.memory_bytes)


def main() -> int:
    """Ask the questions in order of their size; one row each."""
    parser = argparse.ArgumentParser(description="CPU time and memory of searches among ever more layouts.")
    parser.add_argument("--largest", type=int, default=7, help="largest power of ten")
    parser.add_argument("--limit", type=float, default=14.0, help="largest ratio of a million layouts")
    chosen = parser.parse_args()
    print(f"{'layouts':>12} {'CPU s':>8} {'ratio':>7} {'search s':>9} {'layouts/s':>10} {'MB':>6}")
    ratios = {}
    for power in SIZES:
        if power <= chosen.largest:
            found = measure(power)
            ratios[power] = found.ratio
            print(
                f"{found.layouts:12,} {found.cpu_s:8.2f} {found.ratio:7.1f} {found.search_s:9.2f} "
                f"{found.layouts / found.search_s:10,.0f} {found.memory_bytes / 1e6:6.0f}",
                flush=True,
            )
    print(f"a million layouts may take {chosen.limit:g} times the bare imports")
    return int(ratios.get(MILLION, 0.0) > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
