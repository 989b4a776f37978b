"""How a search grows: layouts, seconds and memory of whole `xe-sizer plan` processes, and layouts a second.

    python benchmarks/search.py [--largest 7] [--limit 14]

GPT-3 175B pre-training on 8-way H100 servers, with more and more servers and batch sizes to choose from. The ratio is
CPU time over that of `python -c "import typer, numpy, yaml"`. Exit code 1 if a million layouts are above the limit.
"""

from __future__ import annotations

import argparse
import json
import sys

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


def main() -> int:
    """Ask the questions in order of their size; one row each."""
    parser = argparse.ArgumentParser(description="CPU time and memory of searches among ever more layouts.")
    parser.add_argument("--largest", type=int, default=7, help="largest power of ten")
    parser.add_argument("--limit", type=float, default=14.0, help="largest ratio of a million layouts")
    chosen = parser.parse_args()
    print(f"{'layouts':>12} {'CPU s':>8} {'ratio':>7} {'search s':>9} {'layouts/s':>10} {'MB':>6}")
    ratios = {}
    for power, options in SIZES.items():
        if power <= chosen.largest:
            bare_s = bare_imports_s()
            plan = run((*COMMAND, *options))
            search = json.loads(plan.output)["search"]
            ratios[power] = plan.cpu_s / bare_s
            layouts, search_s = search["layouts_considered"], search["seconds"]
            print(
                f"{layouts:12,} {plan.cpu_s:8.2f} {ratios[power]:7.1f} {search_s:9.2f} {layouts / search_s:10,.0f} "
                f"{plan.memory_bytes / 1e6:6.0f}",
                flush=True,
            )
    print(f"a million layouts may take {chosen.limit:g} times the bare imports")
    return int(ratios.get(MILLION, 0.0) > chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
