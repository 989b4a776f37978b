"""Many scenarios, each answered or refused: what `check` reports."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.report.blocks import listed
from xe_sizer.report.certainty import RANGE, close_words, doubts, estimate_words, fit_doubt, says_nothing
from xe_sizer.report.check_changes import (
    change_in_words,
    change_properties,
    change_remark,
    changes_in_words,
    changes_table,
)
from xe_sizer.report.document import Column, Document, Point, Summary, Table
from xe_sizer.report.findings import TOOL, Case, Finding, Remark
from xe_sizer.report.format import NOT_A_NUMBER, clean, count, gib, plural
from xe_sizer.report.pictures.check import pictures
from xe_sizer.report.scenario_findings import line_of, scenario_finding
from xe_sizer.report.study_points import MOST_SHOWN
from xe_sizer.report.verdict import (
    cautions,
    currency_of,
    is_tight,
    required_words,
    unjudged,
    unsure_of_host,
    verdict_word,
    why_text,
    words_of,
)
from xe_sizer.result.check import CheckResult
from xe_sizer.result.common import UNSURE_MEMORY, assumed_hardware
from xe_sizer.result.serving import OVERLOADED

if TYPE_CHECKING:
    from xe_sizer.report.document import Block
    from xe_sizer.report.options import Options
    from xe_sizer.result.changes import Change
    from xe_sizer.result.check import Checked
    from xe_sizer.result.common import Sized

ANSWER = CheckResult
TIGHT = "tight"
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
    blocks += listed("Problems", (_detail(one) for one in check.scenarios if not one.ok))
    folder = _folder(check)
    rows = tuple((row[0].removeprefix(folder), *row[1:]) for row in map(_row, check.scenarios))
    blocks.append(Table(f"Scenarios in {folder}" if folder else "Scenarios", columns, rows))
    judged = ((one.file, cautions(one.result)) for one in check.scenarios if one.result)
    blocks += listed("Cautions", (f"{clean(file)}: {text}" for file, text in judged if text))
    blocks += changes_table(check, folder)
    blocks += listed("Skipped", (f"{clean(one.file)}: {clean(one.reason)}" for one in check.skipped))
    counts = f"{summary.passed} passed{_narrowly(check)}, {summary.failed} failed, {summary.invalid} with bad input"
    changed = changes_in_words(check)
    since = f"; since {clean(check.compared_to)}: {changed}" if changed else ""
    headline_ = f"{plural(summary.total, 'scenario')}: {counts}{since}"
    return Document("PASS" if check.ok else "FAIL", check.ok, headline_, (), tuple(blocks))


def _narrowly(check: CheckResult) -> str:
    """How many of the passed are not sure, by the least of their memory and limits: ` (1 tight, 2 unsure)`."""
    counted = Counter(_narrow(one.result) for one in check.scenarios if one.result and one.ok)
    told = ", ".join(f"{counted[word]} {word}" for word in _NARROW if counted[word])
    return f" ({told})" if told else ""


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
        return (clean(one.file), "BAD INPUT", *[NOT_A_NUMBER] * 4, "", note)
    return (
        clean(one.file),
        verdict_word(result),
        count(result.gpus.count),
        gib(result.memory.peak_bytes),
        gib(result.memory.usable_bytes),
        words_of(result).pace(result)[2],
        words_of(result).pace_range(result),
        _note(result),
    )


def _note(result: Sized) -> str:
    """Why not, in a few words; else how sure it fits and what became of the limits; and what was not judged."""
    unread = ", ".join(unjudged(result))
    assumed = "hardware assumed" if assumed_hardware(result.scenario) else ""
    return "; ".join(filter(None, (_outcome(result), assumed, f"not judged: {unread}" if unread else "")))


def _outcome(result: Sized) -> str:
    if not result.verdict.fits:
        return ", ".join(filter(None, (words_of(result).missing_memory(result), close_words(result.verdict))))
    if any(reason.code == OVERLOADED for reason in result.verdict.reasons):
        return "load exceeds capacity"
    failed = (limit for limit in result.verdict.limits if not limit.ok)
    missed = [
        f"{clean(limit.name)} ({estimate_words(limit, currency_of(result))}{required_words(limit, result.verdict)})"
        for limit in failed
    ]
    missed += ["confidence in memory" for reason in result.verdict.reasons if reason.code == UNSURE_MEMORY]
    if missed:
        return f"misses {', '.join(missed)}"
    fit, unsure = fit_doubt(result.verdict), doubts(result.verdict)
    if result.verdict.limits:
        return "; ".join(unsure if len(unsure) > len(fit) else (*fit, "limits met"))
    return "; ".join(fit) or ("" if unjudged(result) else "no limits set")


def _detail(one: Checked) -> str:
    """The file once, and its worst reason; a problem in the file itself begins with its place there."""
    reason = _worst_reason(one)
    placed = one.result is None and one.problems and one.problems[0].file == one.file
    return reason if placed else f"{clean(one.file)}: {reason}"


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
    cells: dict[str, object] = {"file": one.file, "ok": one.ok}
    result: Sized | None = one.result
    if result is None:
        return cells | {"verdict": "BAD INPUT", "note": _worst_reason(one)}
    pace, seconds, _ = words_of(result).pace(result)
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
    changes = {change.file: change for change in check.changes or ()}
    for one in check.scenarios:
        if one.result is None:
            case = Case("input", "error", "bad-input", "\n".join(map(str, one.problems)))
            found = Finding(one.file, (case,), (_bad_input(one),))
        else:
            found = scenario_finding(one.result, one.file, one.file)
            found = _at(found, line_of(one.result, one.lines))
        yield _with_change(found, changes.pop(one.file), one.lines) if one.file in changes else found
    for gone in changes.values():
        remark = change_remark(gone)
        yield Finding(gone.file, (), (remark,) if remark else (), tuple(change_properties(gone)))


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
