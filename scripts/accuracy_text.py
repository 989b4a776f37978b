"""Tables of docs/reference/accuracy.md, and what it says of how its figures came about."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

FROZEN = Path(__file__).parent / "frozen.yaml"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()) -> str:
    """Numbers are aligned right; the first column and those named in `words` left."""
    aligned = ["---" if not place or name in words else "---:" for place, name in enumerate(header)]
    lines = [header, aligned, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(share: float | None, sign: str = "") -> str:
    """Per cent, with a sign where asked; a latency of a load beyond what is predicted to be possible has no bound."""
    if share is None:
        return ""
    return f"{share:{sign}.0%}" if math.isfinite(share) else "no bound"


def origins(inside: float, width: float) -> list[str]:
    """What the figures of training rest on.

    `inside`: share of runs within their range, each publication judged by the others; `width`: median of high over low.
    """
    rounds = yaml.safe_load(FROZEN.read_text(encoding="utf-8"))
    return [
        "### How these figures came about",
        (
            "- **Left out** is a third of the publications, drawn by a hash of their titles anew before each round of "
            f"work on the equations, last on {rounds[-1]['date']}. During a round nobody looks at their records, nor "
            "at the error of any one of them, and this page has only sums over them. Constants that are older than a "
            "draw had seen runs on either side of it.\n"
            "- **Looked at** are all others. Their errors were read one by one and explained where a cause was found, "
            "so they flatter the predictions. Tables by stack, job and accelerator are of these alone.\n"
            "- **Round by round** below has the sums of what each draw left out, as they were when they were taken: "
            "the fairest test on this page.\n"
            "- **Fitted**: constants that were adjusted to runs, and to which, are on the "
            "[page of constants](constants.md).\n"
            "- **Ranges** rest on how far the predictions of all publications were off, those left out too. If each "
            f"publication is judged by the others alone, {inside:.0%} of the runs lie inside their range, where 80 % "
            f"is the aim; half of the ranges have a high end that is at most {width:.2f} times the low one."
        ),
        "### Left out, round by round",
        round_by_round(rounds, "training"),
    ]


def round_by_round(rounds: Iterable[dict[str, Any]], wing: str) -> str:
    """Sums over the publications that each draw left out, as they were when they were taken."""
    cells = [
        (
            one["date"], f"{row['what']}, {one['when']}", str(row["runs"]), str(row["publications"]),
            percent(row["median"]), percent(row["high"]), percent(row["bias"], "+"),
        )
        for one in rounds
        for row in one.get(wing, ())
    ]  # fmt: skip
    header = ("drawn", "which", "runs", "publications", "median error", "90 % below", "bias")
    return table(header, cells, words=("which",))
