"""A sweep as a report: one row a question."""

from __future__ import annotations

import csv
import io

from xe_sizer.report.document import Column, Document, Table
from xe_sizer.report.format import NOT_A_NUMBER, amount, clean, count, duration, gib, number, plural
from xe_sizer.report.formats.json import pretty
from xe_sizer.report.options import Options
from xe_sizer.report.plan import layout_words, render_document, safe
from xe_sizer.result.studies import SweepResult, SweepRow

FIGURES = (
    "gpu", "server", "gpus", "step_s", "gpu_hours", "price", "currency", "energy_kwh", "peak_bytes", "headroom_bytes",
    "command",
)  # fmt: skip


def render_sweep(result: SweepResult, name: str, options: Options) -> str:
    """The sweep as table, markdown, html, JSON or CSV."""
    if name == "json":
        return pretty(result)
    if name == "csv":
        return _csv(result)
    return render_document(_document(result), name, options)


def _keys(result: SweepResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for row in result.rows for key in row.values))


def _document(result: SweepResult) -> Document:
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
    return Document("SWEEP", met == len(result.rows), words, (), (Table("Plans", columns, rows),))


def _figures(row: SweepRow) -> tuple[str, ...]:
    one = row.candidate
    if one is None:
        return ("no", *[NOT_A_NUMBER] * 5, clean(row.reason))
    price = NOT_A_NUMBER if one.price is None else f"{amount(one.price)} {clean(one.currency)}"
    verdict = "yes" if row.ok else "misses limits"
    figures = (count(one.gpus), duration(one.total_s.expected), number(one.gpu_hours), price, gib(one.peak_bytes))
    return (verdict, *figures, layout_words(one.layout))


def _csv(result: SweepResult) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    keys = _keys(result)
    writer.writerow(["scenario", *keys, "ok", "reason", "total_s", *FIGURES])
    for row in result.rows:
        one = row.candidate
        figures = [getattr(one, name) for name in FIGURES] if one else [None] * len(FIGURES)
        total = one.total_s.expected if one else None
        cells = [row.scenario, *(row.values.get(key) for key in keys), row.ok, row.reason, total, *figures]
        writer.writerow([safe(cell) for cell in cells])
    return stream.getvalue()
