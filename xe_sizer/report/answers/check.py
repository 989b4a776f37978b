"""Many scenarios, each answered or refused: what `check` reports."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.report.answers.sensitivity import MOST_SHOWN
from xe_sizer.report.blocks import find_line, listed, scenario_finding
from xe_sizer.report.document import TOOL, Case, Column, Document, Finding, Picture, Point, Remark, Summary, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    clean,
    count,
    duration,
    estimate_words,
    fit_doubt,
    gib,
    given,
    limit_doubts,
    limit_quantity,
    money,
    plural,
    says_nothing,
)
from xe_sizer.report.picture import Cell, Strip
from xe_sizer.report.verdict import (
    caution,
    cautions,
    find_words,
    is_tight,
    required_words,
    unjudged,
    unsure_of_host,
    verdict_word,
    why_text,
)
from xe_sizer.result.check import BAD, KINDS, LIMITS, CheckResult, less_sure
from xe_sizer.result.common import TIGHT, UNSURE_MEMORY, assumed_hardware
from xe_sizer.result.serving import OVERLOADED

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Options
    from xe_sizer.report.picture import Tone
    from xe_sizer.result.check import Change, Checked, Figures, Moved
    from xe_sizer.result.common import Sized

# Changes of a branch in words: `check --compare-to`.

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
    rows = tuple(_change_row(change, folder) for change in ordered if _differs(change))
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


def _change_row(change: Change, folder: str) -> tuple[str, ...]:
    old, new = _before_and_after(change)
    names = ("verdict", *FIGURES)
    return (
        clean(change.name).removeprefix(folder),
        change.kind,
        *(_cell(old.get(name), new.get(name)) for name in names),
        _scenario_in_words(change),
    )


def _before_and_after(change: Change) -> tuple[dict[str, str], dict[str, str]]:
    """What was and is, in words; passes that are not as sure as each other say how sure they are."""
    before, after = change.before, change.after
    old, new = (dict(figures_in_words(one)) if one else {} for one in (before, after))
    if before and after and less_sure(before, after) is not None:
        old["verdict"], new["verdict"] = f"{before.verdict}, {before.certainty}", f"{after.verdict}, {after.certainty}"
    return old, new


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
        yield "price", f"{money(one.price, one.currency)}{' an hour' if one.tpot_s is not None else ''}"


def change_in_words(change: Change) -> str:
    """One line: what was and is different, `worse: GPUs 8 -> 16, time 3.0 h -> 6.1 h; train.epochs 1 -> 2`."""
    old, new = _before_and_after(change)
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
            "notice", f"{TOOL}: removed", f"{clean(change.name)} is no longer checked; before: {_was(change)}"
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


# Picture: scenarios that passed, as a strip of cells.

LEGEND: tuple[tuple[Tone, str], ...] = (
    ("yes", "passed"),
    ("caution", "passed, tight or unsure"),
    ("no", "failed"),
    ("unknown", "with bad input"),
)


def pictures(result: CheckResult) -> Iterator[Picture]:
    cells = tuple(Cell(f"{clean(one.name)}: {_word(one)}", _tone(one)) for one in result.scenarios)
    if not cells:
        return
    words = dict(LEGEND)
    counts = [f"{sum(cell.tone == tone for cell in cells)} {words[tone]}" for tone in words]
    note = "Numbered in the order of the table."
    yield Picture("Outcome", f"{plural(len(cells), 'scenario')}: {', '.join(counts)}", Strip(cells, LEGEND), note)


def _word(one: Checked) -> str:
    return verdict_word(one.result) if one.result else "BAD INPUT"


def _tone(one: Checked) -> Tone:
    if one.result is None:
        return "unknown"
    if not one.ok:
        return "no"
    return "caution" if caution(one.result) else "yes"


# The report.

ANSWER = CheckResult
_NARROW = (TIGHT, "likely", "unsure", "unlikely")


def document(check: CheckResult, options: Options) -> Document:
    """Pass/fail table, what is wrong with each scenario that did not pass, and which passed narrowly."""
    summary = check.summary
    columns = (
        Column("file"),
        Column("verdict"),
        Column("GPUs", True, spare=1),
        Column("GiB used", True, spare=2),
        Column("usable", True, spare=3),
        Column("time", True),
        Column(RANGE),
        Column("note"),
    )
    blocks: list[Block] = [_summary(check)] if options.brief else [*pictures(check)]
    blocks += listed("Problems", _problems(check))
    folder = _folder(check)
    rows = tuple((row[0].removeprefix(folder), *row[1:]) for row in map(_row, check.scenarios))
    blocks.append(Table(f"Scenarios in {folder}" if folder else "Scenarios", columns, rows))
    judged = ((one.name, cautions(one.result)) for one in check.scenarios if one.result)
    blocks += listed("Cautions", (f"{clean(name)}: {text}" for name, text in judged if text))
    blocks += changes_table(check, folder)
    blocks += listed("Skipped", (f"{clean(one.file)}: {clean(one.reason)}" for one in check.skipped))
    narrow = Counter(_narrow(one.result) for one in check.scenarios if one.result and one.ok)
    told = ", ".join(f"{narrow[word]} {word}" for word in _NARROW if narrow[word])  # not sure, by the least of them
    passed = f"{summary.passed} passed{f' ({told})' if told else ''}"
    counts = f"{passed}, {summary.failed} failed, {summary.invalid} with bad input"
    changed = changes_in_words(check)
    since = f"; since {clean(check.compared_to)}: {changed}" if changed else ""
    headline_ = f"{plural(summary.total, 'scenario')}: {counts}{since}"
    return Document("PASS" if check.ok else "FAIL", check.ok, headline_, (), tuple(blocks))


def _narrow(result: Sized) -> str | None:
    if is_tight(result) and not unsure_of_host(result):
        return TIGHT
    return result.verdict.certainty


def _folder(check: CheckResult) -> str:
    """The folder that all files lie in, with its slash; empty for one file, or where there is none."""
    if len(check.scenarios) < 2:
        return ""
    folders = [clean(one.file).rpartition("/")[0].split("/") for one in check.scenarios]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    common = "/".join(parts[0] for parts in shared)
    return f"{common}/" if common else ""


def _summary(check: CheckResult) -> Summary:
    """Scenarios for a brief report, those that failed first."""
    folder, shown = _folder(check), sorted(check.scenarios, key=lambda one: one.ok)[:MOST_SHOWN]
    points = (_point(_row(one), folder, place) for place, one in enumerate(shown))
    return Summary(tuple(points), len(check.scenarios) - len(shown), "scenario")


def _point(row: tuple[str, ...], folder: str, place: int) -> Point:
    file, verdict, *_, time, span, note = row
    took = f", {time} ({span})" if span else ""
    return Point(verdict, f"{file.removeprefix(folder)}{took}, {note}", spare=place)


def _row(one: Checked) -> tuple[str, ...]:
    result = one.result
    if result is None:
        note = _with_number(one, one.problems[0].message) if one.problems else ""
        return (clean(one.name), "BAD INPUT", *[NOT_A_NUMBER] * 4, "", note)
    return (
        clean(one.name),
        verdict_word(result),
        count(result.gpus.count),
        gib(result.memory.peak_bytes),
        gib(result.memory.usable_bytes),
        find_words(result).pace(result)[2],
        find_words(result).pace_range(result),
        _note(result),
    )


def _note(result: Sized) -> str:
    """Why not, in a few words; else how sure it fits and what became of the limits; and what was not judged."""
    unread = ", ".join(unjudged(result))
    assumed = "hardware assumed" if assumed_hardware(result.scenario) else ""
    return "; ".join(filter(None, (_outcome(result), assumed, f"not judged: {unread}" if unread else "")))


def _outcome(result: Sized) -> str:
    if not result.verdict.fits:
        return ", ".join(filter(None, (find_words(result).missing_memory(result), fit_doubt(result.verdict))))
    if any(reason.code == OVERLOADED for reason in result.verdict.reasons):
        return "load exceeds capacity"
    failed = (limit for limit in result.verdict.limits if not limit.ok)
    missed = [
        f"{clean(limit.name)} ({estimate_words(limit, result.currency)}{required_words(limit, result.verdict)})"
        for limit in failed
    ]
    missed += ["confidence in memory" for reason in result.verdict.reasons if reason.code == UNSURE_MEMORY]
    if missed:
        return f"misses {', '.join(missed)}"
    fit = fit_doubt(result.verdict)
    if result.verdict.limits:
        return "; ".join(filter(None, (fit, *(limit_doubts(result.verdict) or ("limits met",)))))
    return fit or ("" if unjudged(result) else "no limits set")


def _problems(check: CheckResult) -> Iterator[str]:
    """Of what did not pass the file once, and its worst reason; a problem in the file itself begins with its place."""
    for one in check.scenarios:
        placed = one.result is None and one.problems and one.problems[0].file == one.file
        if not one.ok:
            yield _worst_reason(one) if placed else f"{clean(one.name)}: {_worst_reason(one)}"


def _with_number(one: Checked, first: object) -> str:
    """The first problem, and how many there are besides."""
    more = sum(problem.count for problem in one.problems) - 1
    return f"{clean(first)} (and {plural(more, 'more problem')})" if more > 0 else clean(first)


def _worst_reason(one: Checked) -> str:
    """The first problem or reason; the estimator lists the gravest first."""
    if one.result is None:
        return _with_number(one, one.problems[0]) if one.problems else "cannot be read"
    return why_text(one.result)


def rows(check: CheckResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a scenario file."""
    lines = [_cells(one) for one in check.scenarios]
    names = dict.fromkeys(name for line in lines for name in line)
    yield tuple(names)
    yield from (tuple(line.get(name) for name in names) for line in lines)


def _cells(one: Checked) -> dict[str, object]:
    cells: dict[str, object] = {"file": one.file, **({"service": one.service} if one.service else {}), "ok": one.ok}
    result: Sized | None = one.result
    if result is None:
        return cells | {"verdict": "BAD INPUT", "note": _worst_reason(one)}
    pace, seconds, _ = find_words(result).pace(result)
    judged = (limit for limit in result.verdict.limits if not says_nothing(result.verdict, limit))
    chances = [limit.probability for limit in judged if limit.probability is not None]
    return cells | {
        "verdict": verdict_word(result),
        "note": _note(result),
        "fits": result.verdict.fits,
        "meets_limits": result.verdict.meets_limits,
        "gpus": result.gpus.count,
        "nodes": result.gpus.nodes,
        "peak_bytes": result.memory.peak_bytes,
        "usable_bytes": result.memory.usable_bytes,
        "headroom_bytes": result.memory.headroom_bytes,
        pace: seconds,
        "fit_probability": result.verdict.fit_probability,
        "limits_probability": min(chances) if chances else None,
    }


def findings(check: CheckResult, options: Options) -> Iterator[Finding]:
    """Each scenario file: its fit and limits, or what is wrong with it."""
    changes = {change.name: change for change in check.changes or ()}
    for one in check.scenarios:
        if one.result is None:
            case = Case("input", "error", "bad-input", "\n".join(map(str, one.problems)))
            found = Finding(one.name, (case,), (_bad_input(one),))
        else:
            found = scenario_finding(one.result, one.name, one.file)
            found = _at(found, find_line(one.result, one.lines))
        yield _with_change(found, changes.pop(one.name), one.lines) if one.name in changes else found
    for gone in changes.values():
        remark = change_remark(gone)
        yield Finding(gone.name, (), (remark,) if remark else (), tuple(change_properties(gone)))


def _at(found: Finding, line: int | None) -> Finding:
    """Its remarks at a line of the file."""
    return replace(found, remarks=tuple(replace(remark, line=line) for remark in found.remarks))


def _with_change(found: Finding, change: Change, lines: dict[str, int]) -> Finding:
    """A verdict with what it was before; one remark a file, so that a change is told in the one there is."""
    remark = change_remark(change)
    if remark:
        remark = replace(remark, line=next((lines[each.key] for each in change.scenario if each.key in lines), None))
    if found.remarks and (change.kind != "same" or change.scenario):
        said = f"{found.remarks[0].message}\n{change_in_words(change)}"
        remark = replace(found.remarks[0], message=said)
    remarks = (remark,) if remark else found.remarks
    return replace(found, remarks=remarks, properties=tuple(change_properties(change)))


def _bad_input(one: Checked) -> Remark:
    """One remark with all problems, at the place of the first that stands in the file itself."""
    first = next((problem for problem in one.problems if problem.file == one.file), None)
    others = [str(problem) for problem in one.problems if problem is not first]
    said = [part for part in (first.message, first.hint) if part] if first else []
    line, column = (first.line, first.column) if first else (None, None)
    return Remark("error", f"{TOOL}: bad input", "\n".join([*said, *others]), one.file, line, column)
