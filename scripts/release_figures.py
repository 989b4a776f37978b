"""Write docs/reference/figures.md from benchmarks/releases: python scripts/release_figures.py

`python benchmarks/history.py --write` measures a release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RELEASES = ROOT / "benchmarks" / "releases"
PAGE = ROOT / "docs" / "reference" / "figures.md"
HEADER = """# Figures of releases

Written by `python scripts/release_figures.py` from what `python benchmarks/history.py --write` keeps of each release
(`benchmarks/README.md`). `python benchmarks/history.py` measures again and says what moved since the
last release, as CI does every night.

## Speed

CPU time of each question over that of `python -c "import typer, numpy, yaml"` in the same run, because machines differ.
Differences of 25 % may be noise. What is asked from Python, and of services, is without start-up.

"""
ACCURACY = """
## Accuracy

Predictions for the measured runs that ship (`xe-sizer validate`), publications weighted alike: the median error, what
nine of ten are below, the bias, and the share inside the 80 % range. They flatter, as most of these runs were looked
at: [accuracy](accuracy.md) has those that were left out.

"""
QUANTITIES = {
    "step_time": "time of a step",
    "phase_time": "time of a phase of reinforcement learning",
    "ttft": "time to the first token",
    "tpot": "time per output token",
    "encoding": "time of a request without answers",
    "throughput": "tokens per second of a service",
    "peak_memory": "peak memory",
    "oom": "fits or runs out of memory",
}


def page() -> str:
    """The whole page, the newest release first."""
    found = sorted(
        (json.loads(file.read_text(encoding="utf-8")) for file in RELEASES.glob("*.json")),
        key=lambda each: [-int(part) for part in each["version"].split(".")],
    )
    names = dict.fromkeys(name for each in found for name in each["speed"])
    speed = [(name, *(_number(each["speed"].get(name)) for each in found)) for name in names]
    measured = (f"{each['version']}: {each['date']}, Python {each['python']}, {each['system']}" for each in found)
    quantities = dict.fromkeys(name for each in found for name in each["accuracy"])
    errors = [(_quantity(name), *(_errors(each["accuracy"].get(name)) for each in found)) for name in quantities]
    versions = [each["version"] for each in found]
    return (
        HEADER + "\n".join(_table(("question", *versions), speed)) + f"\n\nMeasured: {'; '.join(measured)}.\n"
        + ACCURACY + "\n".join(_table(("quantity", *versions), errors)) + "\n"
    )  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|---{'|---:' * (len(head) - 1)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _quantity(name: str) -> str:
    quantity, _, job = name.partition(", ")
    return QUANTITIES[quantity] + (f", {job}" if job else "")


def _errors(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    counted = f"{row['runs']:.0f} runs of {row['publications']:.0f} publications"
    if "right" in row:
        said = f"{row['called_fitting']:.0f} of {row['out_of_memory']:.0f} that ran out of memory called fitting"
        return f"{row['right']:.0%} right, {said}; {counted}"
    inside = f", {row['in_range']:.0%} in range" if "in_range" in row else ""
    said = f"{row['median_error']:.1%}, 90% below {row['p90_error']:.0%}, bias {row['bias']:+.1%}{inside}"
    return f"{said}; {counted}"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
