"""Models that fit a card: what `models` reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import TOOL, Case, Column, Document, Finding, Notes, Remark, Table
from xe_sizer.report.format import clean, count, gib, layout_words, number, plural, probability_words
from xe_sizer.result.common import LIKELY
from xe_sizer.result.studies import ModelRow, ModelTable

if TYPE_CHECKING:
    from xe_sizer.report.document import Options

ANSWER = ModelTable


def document(result: ModelTable, options: Options) -> Document:
    """A row for each model that fits, the largest first."""
    columns = (
        Column("model"),
        Column("parameters", True, spare=2),
        Column("GiB per GPU", True),
        Column("fits", True, spare=1),
        Column("tokens per second", True),
        Column("longest context", True),
        Column("weights" if result.serving else "layout", spare=3),
    )
    rows = tuple(
        (
            clean(row.name), count(row.parameters), gib(row.peak_bytes), probability_words(row.fit_probability),
            number(row.tokens_per_s), f"{row.context:,}", _how(row),
        )
        for row in result.rows
    )  # fmt: skip
    shares = tuple(row.peak_bytes / row.usable_bytes for row in result.rows)
    if not result.rows:
        return Document("NO MODEL LIKELY FITS", False, _headline(result), (), tuple(_left_out(result)))
    what = "of one request at a time" if result.serving else "of training"
    at = f"at {result.context:,} tokens, or all that a model takes"
    longest = "longest context: one sequence at a time"
    if not result.serving:
        longest += ", at powers of two and half-way between (estimate --fit context is exact to 256 tokens)"
    note = f"memory and tokens per second {what} {at}; {longest}"
    table = Table("Models that fit", columns, rows, shares, note=note, bars="memory of a GPU")
    return Document("FITS", True, _headline(result), (), (table, *_left_out(result)))


def _headline(result: ModelTable) -> str:
    asked = "inference" if result.serving else clean(result.job)
    on = f"{result.gpus} x {clean(result.gpu)}"
    if not result.rows:
        return f"{asked} on {on} at {result.context:,} tokens"
    formats = {row.weights for row in result.rows if row.weights}
    form = f" in {clean(formats.pop())}" if len(formats) == 1 else ""
    by = f" with {clean(result.software)}" if result.software else ""
    largest = clean(result.rows[0].name)
    what = f"{plural(len(result.rows), 'model')} for {asked}{form}{by}"
    return f"{what} on {on} at {result.context:,} tokens, up to {largest}"


def _left_out(result: ModelTable) -> Iterator[Notes]:
    """How many models do not fit, and how many cannot be asked."""
    said = []
    if result.too_large:
        smallest = clean(result.smallest_too_large)
        unlikely = f"memory suffices with a probability below {probability_words(LIKELY)}"
        said.append(f"{plural(result.too_large, 'model')}: {unlikely}; the smallest is {smallest}")
    if result.not_possible:
        said.append(f"{plural(result.not_possible, 'model')} left out: not for such a job, or not in such a format")
    if said:
        yield Notes("Left out", tuple(said))


def _how(row: ModelRow) -> str:
    return clean(row.weights) if row.weights else layout_words(row.layout) if row.layout else ""


def rows(result: ModelTable, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a model."""
    names = [name for name in ModelRow.__struct_fields__ if name != "layout"]
    yield (*names, "layout")
    for row in result.rows:
        yield (*(getattr(row, name) for name in names), _how(row) if row.layout else None)


def findings(result: ModelTable, options: Options) -> Iterator[Finding]:
    """Each model that fits; a failure where none does."""
    name = _headline(result)
    if not result.rows:
        case = Case("fits", "failed", "does-not-fit", name)
        yield Finding(name, (case,), (Remark("error", f"{TOOL}: no model likely fits", name),))
        return
    said = ((row.name, f"{gib(row.peak_bytes)} GiB, {number(row.tokens_per_s)} tokens/s") for row in result.rows)
    cases = tuple(Case(model, output=text) for model, text in said)
    yield Finding(name, cases, (Remark("notice", f"{TOOL}: models", name),))
