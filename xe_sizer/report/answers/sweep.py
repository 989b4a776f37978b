"""A sweep as a report: one row a question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Document, Table
from xe_sizer.report.findings import TOOL, Case, Finding, Remark
from xe_sizer.report.format import NOT_A_NUMBER, clean, count, duration, gib, money, number, plural
from xe_sizer.report.pictures.sweep import pictures
from xe_sizer.report.plan_words import hardware_words, layout_words
from xe_sizer.result.studies import SweepResult

if TYPE_CHECKING:
    from xe_sizer.report.options import Options
    from xe_sizer.result.studies import SweepRow

ANSWER = SweepResult
FIGURES = (
    "gpu", "server", "gpus", "step_s", "gpu_hours", "price", "currency", "energy_kwh", "peak_bytes", "headroom_bytes",
    "command",
)  # fmt: skip


def _keys(result: SweepResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for row in result.rows for key in row.values))


def document(result: SweepResult, options: Options) -> Document:
    keys = _keys(result)
    files = len({row.scenario for row in result.rows}) > 1
    columns = (
        *((Column("scenario"),) if files else ()),
        *(Column(key) for key in keys),
        Column("verdict"),
        Column("GPUs", True),
        Column("time", True),
        Column("GPU-hours", True),
        Column("price", True),
        Column("GiB used", True),
        Column("layout"),
    )
    rows = tuple(
        (
            *((clean(row.scenario),) if files else ()),
            *(clean(row.values.get(key, "")) for key in keys),
            *_figures(row),
        )
        for row in result.rows
    )
    met = sum(row.ok for row in result.rows)
    words = f"{plural(len(result.rows), 'plan')}, {met} fit and meet their limits"
    return Document("SWEEP", met == len(result.rows), words, (), (*pictures(result), Table("Plans", columns, rows)))


def _figures(row: SweepRow) -> tuple[str, ...]:
    one = row.candidate
    if one is None:
        return ("no", *[NOT_A_NUMBER] * 5, clean(row.reason))
    price = money(one.price, one.currency)
    verdict = "yes" if row.ok else "misses limits"
    figures = (count(one.gpus), duration(one.total_s.expected), number(one.gpu_hours), price, gib(one.peak_bytes))
    return (verdict, *figures, layout_words(one.layout))


def rows(result: SweepResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a question: the figures of its chosen plan, or why there is none."""
    keys = _keys(result)
    names = [name for name in FIGURES if name not in keys]
    yield "scenario", *keys, "ok", "reason", "total_s", *names
    for row in result.rows:
        one = row.candidate
        figures = [getattr(one, name) for name in names] if one else [None] * len(names)
        total = one.total_s.expected if one else None
        yield row.scenario, *(row.values.get(key) for key in keys), row.ok, row.reason, total, *figures


def findings(result: SweepResult, options: Options) -> Iterator[Finding]:
    """Each question with its chosen plan."""
    for row in result.rows:
        asked = ", ".join(f"{key}={value}" for key, value in row.values.items())
        name = " ".join(part for part in (row.scenario, asked) if part) or "plan"
        yield Finding(name, (_case(row),), (_remark(row, name),))


def _case(row: SweepRow) -> Case:
    said = _plan_words(row) if row.candidate else ""
    return Case("plan", output=said) if row.ok else Case("plan", "failed", "no-plan", row.reason, output=said)


def _remark(row: SweepRow, name: str) -> Remark:
    title = "meets its limits" if row.ok else "misses its limits" if row.candidate else "no plan"
    lines = (f"{name}: {_plan_words(row)}", *([row.reason] if row.candidate and row.reason else []))
    return Remark("notice" if row.ok else "error", f"{TOOL}: {title}", "\n".join(lines), row.scenario or None)


def _plan_words(row: SweepRow) -> str:
    """The chosen plan in a line, or why there is none."""
    one = row.candidate
    if one is None:
        return row.reason
    return f"{hardware_words(one)}, {duration(one.total_s.expected)}, {layout_words(one.layout)}"
