"""A report before it has a look: blocks of facts, tables, notes and steps for prose formats to lay out.

What a report says is decided once, in `content.py` and `explain.py`; a format only decides how it looks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Fact:
    """One resolved value; `origin` says where it came from (flag, env, file, stack, default) or is empty."""

    label: str
    value: str
    origin: str = ""


@dataclass(frozen=True, eq=False)
class Facts:
    title: str
    rows: tuple[Fact, ...]


@dataclass(frozen=True, eq=False)
class FactsPair:
    """Two lists of facts that stand side by side where there is room."""

    left: Facts
    right: Facts


@dataclass(frozen=True, eq=False)
class Column:
    name: str
    numeric: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of text; `shares` (0 to 1 a row, None for none) become bars; the last `totals` rows are sums."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    shares: tuple[float | None, ...] = ()
    totals: int = 0
    note: str = ""
    detail: bool = False


@dataclass(frozen=True, eq=False)
class Notes:
    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """One numbered piece of advice; `command` can be copied into a shell as it stands."""

    change: str
    effect: str
    command: str


@dataclass(frozen=True, eq=False)
class Steps:
    title: str
    steps: tuple[Step, ...]


Block = Facts | FactsPair | Table | Notes | Steps


@dataclass(frozen=True, eq=False)
class Document:
    """`verdict` is the word, `headline` the sentence a manager reads, `reasons` why the answer is no."""

    verdict: str
    ok: bool
    headline: str
    reasons: tuple[str, ...]
    blocks: tuple[Block, ...]
