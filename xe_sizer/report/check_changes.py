"""What a branch changes about its scenarios, in words: `check --compare-to`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Table
from xe_sizer.report.findings import TOOL, Remark
from xe_sizer.report.format import NOT_A_NUMBER, clean, duration, gib, money, plural
from xe_sizer.result.changes import KINDS

if TYPE_CHECKING:
    from xe_sizer.result.changes import Change, Figures
    from xe_sizer.result.check import CheckResult

ARROW = " -> "
FIGURES = {"GPUs": 1, "memory": 3, "time": 0, "price": 2}
"""Columns of figures, and in which order they are left out where there is no room: the highest first."""


def changes_table(check: CheckResult, folder: str) -> Iterator[Table]:
    """What is not as it was, the worst first; none where nothing was compared.

    folder : what the names of files need not repeat, with its slash
    """
    if check.changes is None:
        return
    ordered = sorted(check.changes, key=lambda change: KINDS.index(change.kind))
    rows = tuple(_row(change, folder) for change in ordered if change.kind != "same")
    same = sum(change.kind == "same" for change in check.changes)
    figures = (Column(name, True, spare=spare) for name, spare in FIGURES.items())
    columns = (Column("file"), Column("change"), Column("verdict"), *figures)
    note = f"{plural(same, 'scenario')} unchanged: the same verdict, and GPUs, time and price within 1 %"
    yield Table(f"Changes since {clean(check.compared_to)}", columns, rows, note=note)


def changes_in_words(check: CheckResult) -> str:
    """`2 worse, 1 new`; empty where nothing was compared."""
    if check.changes is None:
        return ""
    counted = Counter(change.kind for change in check.changes)
    words = [f"{counted[kind]} {kind}" for kind in KINDS if counted[kind] and kind != "same"]
    return ", ".join(words) or "nothing changed"


def _row(change: Change, folder: str) -> tuple[str, ...]:
    old, new = (dict(figures_in_words(one)) if one else {} for one in (change.before, change.after))
    names = ("verdict", *FIGURES)
    return (
        clean(change.file).removeprefix(folder),
        change.kind,
        *(_cell(old.get(name), new.get(name)) for name in names),
    )


def _cell(old: str | None, new: str | None) -> str:
    shown = [text for text in (old, new) if text is not None]
    if len(shown) == 2 and old != new:
        return _moved(*shown)
    return shown[0] if shown else NOT_A_NUMBER


def _moved(old: str, new: str) -> str:
    """From one to the other, a unit that both have once: `43.0 -> 86.1 s`."""
    value, _, unit = old.partition(" ")
    shared = unit and unit == new.partition(" ")[2]
    return f"{value if shared else old}{ARROW}{new}"


def figures_in_words(one: Figures) -> Iterator[tuple[str, str]]:
    """Name and value of what a scenario has."""
    yield "verdict", one.verdict
    if one.gpus is not None:
        yield "GPUs", f"{one.gpus:,}"
    if one.peak_bytes is not None:
        yield "memory", f"{gib(one.peak_bytes)} GiB"
    if one.total_s is not None:
        yield "time", duration(one.total_s)
    elif one.tpot_s is not None:
        yield "time", f"{duration(one.tpot_s)} per token"
    if one.price is not None:
        yield "price", money(one.price, one.currency)


def change_in_words(change: Change) -> str:
    """One line: what was and is different, `worse: GPUs 8 -> 16, time 3.0 h -> 6.1 h`."""
    old, new = (dict(figures_in_words(one)) if one else {} for one in (change.before, change.after))
    if change.before is None or change.after is None:
        only = ", ".join(f"{name} {text}" for name, text in (old or new).items())
        return f"{change.kind}: {only}"
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    moved = [f"{name} {_moved(old.get(name, 'none'), new.get(name, 'none'))}" for name in names]
    return f"{change.kind}: {', '.join(moved)}" if moved else change.kind


def change_remark(change: Change) -> Remark | None:
    """What a reviewer should see of a scenario that passes, or is no longer there."""
    if change.kind == "removed":
        return Remark("notice", f"{TOOL}: removed", f"{clean(change.file)} is no longer checked; it was {_was(change)}")
    if change.kind == "worse":
        return Remark("warning", f"{TOOL}: worse than before", change_in_words(change), change.file)
    if change.kind == "mixed":
        return Remark("notice", f"{TOOL}: changed", change_in_words(change), change.file)
    return None


def _was(change: Change) -> str:
    return ", ".join(f"{name} {text}" for name, text in figures_in_words(change.before)) if change.before else ""


def change_properties(change: Change) -> Iterator[tuple[str, str]]:
    """Names and values for a test report: the kind of change, and the figures before and after in SI units."""
    yield "change", change.kind
    for when, one in (("before", change.before), ("after", change.after)):
        for name in one.__struct_fields__ if one else ():
            if (value := getattr(one, name)) is not None:
                yield f"{when}.{name}", str(value)
