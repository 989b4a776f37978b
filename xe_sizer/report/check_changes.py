"""What a branch changes about its scenarios, in words: `check --compare-to`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from xe_sizer.report.document import Column, Table
from xe_sizer.report.findings import TOOL, Remark
from xe_sizer.report.format import NOT_A_NUMBER, clean, duration, gib, given, limit_quantity, money, plural
from xe_sizer.result.changes import BAD, KINDS, LIMITS

if TYPE_CHECKING:
    from xe_sizer.result.changes import Change, Figures, Moved
    from xe_sizer.result.check import CheckResult

ARROW = " -> "
FIGURES = {"GPUs": 1, "memory": 3, "time": 0, "price": 2}
"""Columns of figures, and in which order they are left out where there is no room: the highest first."""
_MOST_KEYS = 6  # changed keys of a scenario that are named


def changes_table(check: CheckResult, folder: str) -> Iterator[Table]:
    """What is not as it was, the worst first; none where nothing was compared.

    folder : what the names of files need not repeat, with its slash
    """
    if check.changes is None:
        return
    ordered = sorted(check.changes, key=lambda change: KINDS.index(change.kind))
    rows = tuple(_row(change, folder) for change in ordered if _differs(change))
    same = len(check.changes) - len(rows)
    figures = (Column(name, True, spare=spare) for name, spare in FIGURES.items())
    columns = (Column("file"), Column("change"), Column("verdict"), *figures, Column("scenario"))
    note = f"{plural(same, 'scenario')} unchanged: the same verdict, and GPUs, memory, time and price within 1 %"
    yield Table(f"Changes since {clean(check.compared_to)}", columns, rows, note=note)


def _differs(change: Change) -> bool:
    return change.kind != "same" or bool(change.scenario)


def changes_in_words(check: CheckResult) -> str:
    """`2 worse, 1 new`; empty where nothing was compared."""
    if check.changes is None:
        return ""
    counted = Counter(change.kind for change in check.changes)
    words = [f"{counted[kind]} {kind}" for kind in KINDS if counted[kind] and kind != "same"]
    return ", ".join(words) or ("the same answers" if any(map(_differs, check.changes)) else "nothing changed")


def _row(change: Change, folder: str) -> tuple[str, ...]:
    old, new = (dict(figures_in_words(one)) if one else {} for one in (change.before, change.after))
    names = ("verdict", *FIGURES)
    return (
        clean(change.file).removeprefix(folder),
        change.kind,
        *(_cell(old.get(name), new.get(name)) for name in names),
        _scenario_in_words(change),
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
    """One line: what was and is different, `worse: GPUs 8 -> 16, time 3.0 h -> 6.1 h; train.epochs 1 -> 2`."""
    old, new = (dict(figures_in_words(one)) if one else {} for one in (change.before, change.after))
    if change.before is None or change.after is None:
        only = ", ".join(f"{name} {text}" for name, text in (old or new).items())
        return f"{change.kind}: {only}"
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if BAD in (change.before.verdict, change.after.verdict):
        names = [name for name in names if name == "verdict"]
    moved = ", ".join(f"{name} {_moved(old.get(name, 'none'), new.get(name, 'none'))}" for name in names)
    said = "; ".join(filter(None, (moved, _scenario_in_words(change))))
    return f"{change.kind}: {said}" if said else change.kind


def _scenario_in_words(change: Change) -> str:
    """What is written otherwise: `limit max_hours relaxed from 24 h to 48 h; train.steps 1,000 -> 2,000`."""
    currency = next((one.currency for one in (change.after, change.before) if one and one.currency), None)
    words = [_key_in_words(moved, currency) for moved in change.scenario]
    more = len(words) - _MOST_KEYS
    return "; ".join([*words[:_MOST_KEYS], *([f"and {plural(more, 'more key')}"] if more > 0 else [])])


def _key_in_words(moved: Moved, currency: str | None) -> str:
    if not moved.key.startswith(LIMITS):
        return f"{clean(moved.key)} {_value(moved.before)}{ARROW}{_value(moved.after)}"
    name = clean(moved.key.removeprefix(LIMITS))
    old, new = (_limit(name, value, currency) for value in (moved.before, moved.after))
    if moved.before is None:
        return f"limit {name} added ({new})"
    if moved.after is None:
        return f"limit {name} removed (was {old})"
    return f"limit {name} {'relaxed' if moved.relaxed else 'tightened'} from {old} to {new}"


def _limit(name: str, value: float | None, currency: str | None) -> str:
    """A limit in its unit; a probability has none."""
    return limit_quantity(name, value, currency) if name != "confidence" or value is None else given(value)


def _value(value: Any) -> str:
    """A value of a scenario as one would write it."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return given(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{clean(name)}: {_value(each)}' for name, each in value.items())}}}"
    return clean(value)


def change_remark(change: Change) -> Remark | None:
    """What a reviewer should see of a scenario that passes, or is no longer there."""
    if change.kind == "removed":
        return Remark(
            "notice", f"{TOOL}: removed", f"{clean(change.file)} is no longer checked; before: {_was(change)}"
        )
    if change.kind == "worse":
        return Remark("warning", f"{TOOL}: worse than before", change_in_words(change), change.file)
    if any(moved.relaxed for moved in change.scenario):
        return Remark("warning", f"{TOOL}: limit relaxed", change_in_words(change), change.file)
    if change.kind == "mixed":
        return Remark("notice", f"{TOOL}: changed", change_in_words(change), change.file)
    return None


def _was(change: Change) -> str:
    """A verdict speaks for itself: `passes, GPUs 8, time 3.0 h`."""
    found = figures_in_words(change.before) if change.before else ()
    return ", ".join(text if name == "verdict" else f"{name} {text}" for name, text in found)


def change_properties(change: Change) -> Iterator[tuple[str, str]]:
    """Names and values for a test report: the kind of change, figures in SI units, and the keys that changed."""
    yield "change", change.kind
    for when, one in (("before", change.before), ("after", change.after)):
        for name in one.__struct_fields__ if one else ():
            if (value := getattr(one, name)) is not None:
                yield f"{when}.{name}", str(value)
    for moved in change.scenario:
        yield f"scenario.{moved.key}", f"{_value(moved.before)}{ARROW}{_value(moved.after)}"
