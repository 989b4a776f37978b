"""The figures of a release, and what moved since the last one: time of commands, and accuracy on the shipped records.

    python benchmarks/history.py                    measure, and say what differs from the last release
    python benchmarks/history.py --write [VERSION]  keep the figures as benchmarks/releases/VERSION.json
    python benchmarks/history.py --figures FILE     compare figures that were kept in a file, and measure nothing

Takes three minutes. Machines differ, so that times are ratios: CPU time over that of `python -c "import typer,
numpy, yaml"`, measured in the same run (yardstick.py). What moved is told as Markdown; it is no failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import check
import search
import serve
import startup
import warm
from yardstick import bare_imports_s

import xe_sizer
from xe_sizer.report.answers.validate import HEADLINE
from xe_sizer.result.accuracy import Accuracy

RELEASES = Path(__file__).parent / "releases"
NOISE = 0.25  # share by which a ratio of times differed between two runs on a busy machine: up to 0.20
ROUNDS = 3  # of questions from Python, with the imports before each: the least of both counts
LEAST = 0.005  # of an error or a share, which are the same in every run; counts are told whatever they differ by
LEAST_PUBLICATIONS = 3  # of a job whose times of a step stand apart


def speed() -> dict[str, float]:
    """What questions take, over bare imports [-]."""
    bare_s, estimate_s = startup.measure(9)
    found = {"estimate, from the shell": estimate_s / bare_s}
    with tempfile.TemporaryDirectory() as folder:
        check.write(Path(folder))
        bare_s, gate_s, _ = check.measure(Path(folder), 2)
    found[f"check of {check.NUMBER} scenarios, from the shell"] = gate_s / bare_s
    found["plan among a million layouts, from the shell"] = min(search.measure(search.MILLION).ratio for _ in range(2))
    rounds = [(bare_imports_s(), warm.measure(), serve.measure()) for _ in range(ROUNDS)]
    unit_s = min(bare_s for bare_s, _, _ in rounds)
    _, python, services = rounds[0]
    found |= {f"{name}, from Python": min(each[name] for _, each, _ in rounds) / unit_s for name in python}
    found |= {f"services: {name}": min(each[name] for _, _, each in rounds) / unit_s for name in services}
    return found


def accuracy(of: Accuracy) -> dict[str, dict[str, float]]:
    """Errors on measured runs, publications weighted alike [-]: of each quantity, and of times of a step by job."""
    found: dict[str, dict[str, float]] = {}
    for each in of.summary:
        kind, _, job = each.group.partition(":")
        apart = kind == "job" and each.quantity == "step_time" and each.publications >= LEAST_PUBLICATIONS
        if each.group != HEADLINE and not apart:
            continue
        name = f"{each.quantity}, {job}" if apart else each.quantity
        row: dict[str, float | None] = {"runs": each.n, "publications": each.publications}
        if each.oom is None:
            row |= {"median_error": each.median_abs_error, "p90_error": each.p90_abs_error, "bias": each.bias}
            row["in_range"] = each.interval_coverage
        else:
            row["right"] = (each.oom.true_fit + each.oom.true_oom) / each.n
            row |= {"out_of_memory": each.oom.true_oom + each.oom.false_fit, "called_fitting": each.oom.false_fit}
        found[name] = {key: round(value, 4) for key, value in row.items() if value is not None}
    return found


def measure(version: str) -> dict[str, Any]:
    """All figures."""
    started, bare_s = time.monotonic(), bare_imports_s()
    ratios, errors = speed(), accuracy(xe_sizer.validate())
    return {
        "schema_version": 1,
        "version": version,
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "bare_imports_s": round(bare_s, 3),
        "took_s": round(time.monotonic() - started),
        "speed": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "accuracy": errors,
    }


def releases() -> list[dict[str, Any]]:
    """The figures of all releases, the last one last."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in RELEASES.glob("*.json")]
    return sorted(found, key=lambda each: [int(part) for part in each["version"].split(".")])


def flat(figures: Mapping[str, Any]) -> dict[str, float]:
    """Every figure by its name."""
    errors = {f"{name}: {key}": value for name, row in figures["accuracy"].items() for key, value in row.items()}
    return {**figures["speed"], **errors}


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, float | None, float | None]]:
    """Figures that differ by more than NOISE and LEAST; None where one of the two has none."""
    was, now = flat(before), flat(after)
    for name in {**was, **now}:
        old, new = was.get(name), now.get(name)
        if old is None or new is None or abs(new - old) > (NOISE * old if name in after["speed"] else LEAST):
            yield name, old, new


def report(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What moved, as Markdown."""
    rows = list(moved(before, after))
    title = f"### Figures of {after['version']} against release {before['version']}\n\n"
    if not rows:
        return f"{title}Nothing moved: {len(flat(after))} figures, times within {NOISE:.0%}.\n"
    lines = [f"| {name} | {_shown(old)} | {_shown(new)} | {_change(old, new)} |" for name, old, new in rows]
    head = f"| figure | {before['version']} | now | |\n|---|---:|---:|---:|\n"
    others = len(flat(before) | flat(after)) - len(rows)
    return f"{title}{head}" + "\n".join(lines) + f"\n\n{others} others are as they were.\n"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _change(old: float | None, new: float | None) -> str:
    if old is None or new is None:
        return "new" if old is None else "gone"
    return f"{new / old - 1.0:+.0%}" if old > 0.0 else f"{new - old:+.4g}"


def main() -> int:
    """Measure, keep and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", nargs="?", const=xe_sizer.__version__, metavar="VERSION")
    parser.add_argument("--figures", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    version = chosen.write or xe_sizer.__version__
    figures = json.loads(chosen.figures.read_text(encoding="utf-8")) if chosen.figures else measure(version)
    earlier = [each for each in releases() if not chosen.write or each["version"] != version]
    if chosen.write:
        RELEASES.mkdir(exist_ok=True)
        (RELEASES / f"{version}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(report(earlier[-1], figures) if earlier else json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
