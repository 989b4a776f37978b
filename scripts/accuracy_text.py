"""Tables of docs/accuracy.md, and what it says of how its figures came about."""

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
    frozen = yaml.safe_load(FROZEN.read_text(encoding="utf-8"))
    return [
        "### How these figures came about",
        (
            "- **Left out** is a third of the publications: those whose title has a sha256 that 3 divides. From that "
            f"split until {frozen['date']} development looked neither at their records nor at the error of any one of "
            "them, and this page still has only sums over them. It was no blind test: the sums were seen while it was "
            "decided which terms go in, and some equations and constants are older than the split and had seen runs "
            "on either side of it.\n"
            f"- **Opened**: on {frozen['date']} predictions were frozen, and the records that had been left out were "
            "read. The table below is from before that, and is the fairest test on this page. What was changed "
            f"since because of what they showed: {'; '.join(frozen['changed_since'])}. All other figures of `left "
            "out` are with these changes.\n"
            "- **Looked at** are all others. Their errors were read one by one and explained where a cause was found, "
            "so they flatter the predictions. Tables by stack, job and accelerator are of these alone.\n"
            "- **Fitted**: constants that were adjusted to runs, and to which, are on the "
            "[page of constants](constants.md).\n"
            "- **Ranges** rest on how far the predictions of all publications were off, those left out too. If each "
            f"publication is judged by the others alone, {inside:.0%} of the runs lie inside their range, where 80 % "
            f"is the aim; half of the ranges have a high end that is at most {width:.2f} times the low one."
        ),
        *_frozen(frozen),
    ]


def _frozen(frozen: dict[str, Any]) -> list[str]:
    """Figures of the publications left out from before they were opened."""
    rows = [
        (row["what"], str(row["runs"]), str(row["publications"]), percent(row["median"]), percent(row["high"]))
        for row in frozen["rows"]
    ]
    biases = [percent(row["bias"], "+") for row in frozen["rows"]]
    counts = frozen["verdicts"]
    return [
        f"### Left out, before they were opened ({frozen['date']})",
        table(
            ("which", "runs", "publications", "median error", "90 % below", "bias"),
            [(*row, bias) for row, bias in zip(rows, biases, strict=True)],
        ),
        (
            f"{frozen['in_range']:.0%} of the times lay inside their range, half of the ranges within a factor of "
            f"{frozen['range_width']:.2f}. {counts['right']:.0%} of {counts['runs']} verdicts were right; "
            f"{counts['called_fitting']} of {counts['out_of_memory']} runs that went out of memory were called fitting."
        ),
    ]
