"""Sections that show where a number comes from: its formula, its inputs and their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xe_sizer.report.document import Block, Column, Table
from xe_sizer.report.format import clean, count, duration, gib, number, percent
from xe_sizer.result import Result


def explanations(result: Result, topics: tuple[str, ...]) -> Iterator[Block]:
    """One section per topic (see `options.EXPLAINABLE`), in the order of the report, each once."""
    for topic, section in _SECTIONS.items():
        if topic in topics:
            yield section(result)


def _memory(result: Result) -> Table:
    memory = result.memory
    rows = tuple(
        (clean(part.name), gib(part.bytes), clean(part.formula), clean(part.source)) for part in memory.components
    )
    columns = (Column("component"), Column("GiB", True), Column("formula"), Column("source"))
    total = ("peak", gib(memory.peak_bytes), "sum of the components", "")
    return Table("How the memory adds up", columns, (*rows, total), totals=1)


def _time(result: Result) -> Table:
    time = result.time
    rows = tuple(
        (clean(part.name), duration(part.seconds), clean(part.formula), clean(part.source)) for part in time.components
    )
    columns = (Column("part"), Column("time", True), Column("formula"), Column("source"))
    total = ("step", duration(time.step_s.expected), "sum of the parts", "")
    return Table("How the time adds up", columns, (*rows, total), totals=1)


def _data(result: Result) -> Table:
    data = result.data
    inflation = data.processed_tokens / data.real_tokens if data.real_tokens else float("nan")
    rows = (
        ("samples", count(data.samples), "read in the whole job"),
        ("real tokens", count(data.real_tokens), "in those samples, after cutting at the sequence length"),
        ("padding", clean(data.padding), "what a sequence is padded to"),
        ("tokens of a sequence", number(data.sequence_tokens), "processed, padding included"),
        ("longest sequence", number(data.longest_tokens), "tokens that memory must hold"),
        ("processed tokens", count(data.processed_tokens), "what the time follows"),
        ("padding share", percent(data.padding_share), "1 - real tokens / processed tokens"),
        ("processed per real token", number(inflation), "processed tokens / real tokens"),
    )
    return Table("How the data adds up", (Column("quantity"), Column("value", True), Column("meaning")), rows)


def _sources(result: Result) -> Table:
    rows = tuple((clean(source.name), clean(source.source)) for source in result.sources)
    return Table("Sources", (Column("figure"), Column("source")), rows)


_SECTIONS: dict[str, Callable[[Result], Table]] = {
    "memory": _memory,
    "time": _time,
    "data": _data,
    "sources": _sources,
}
