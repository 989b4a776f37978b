"""Sections that show where a number comes from: its formula, its inputs and their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from xe_sizer.report.document import OPERATORS, Column, Notes, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    byte_size,
    clean,
    component_name,
    count,
    duration,
    flops,
    gib,
    memory_place,
    monitor_name,
    number,
    percent,
)
from xe_sizer.units import GIB, KIB

if TYPE_CHECKING:
    from xe_sizer.report.document import Block
    from xe_sizer.result.common import Factor, Ledger, OperatorCost, Sized, TimeComponent
    from xe_sizer.result.training import Data, Result


def explanations(result: Result, topics: tuple[str, ...]) -> Iterator[Block]:
    """One section per topic (see `options.EXPLAINABLE`), in the order of the report, each once."""
    for topic, section in _SECTIONS.items():
        if topic in topics:
            yield from section(result)


def _memory(result: Result) -> Iterator[Table]:
    yield ledger(result)
    if result.memory.moments:
        yield _over_the_step(result)
    if result.memory.device_bytes:
        yield _instruments(result)


def ledger(result: Sized, memory: Ledger | None = None, title: str = "How the memory adds up") -> Table:
    """Every part of the memory of a GPU, the worst if none is given, with its formula and where that comes from."""
    memory = memory or result.memory
    rows = tuple(
        (
            component_name(result, part.name), gib(part.bytes), _in_numbers(part.terms),
            clean(part.formula), clean(part.source),
        )
        for part in memory.components
    )  # fmt: skip
    columns = (
        Column("component"), Column("GiB", True), Column("in numbers"), Column("formula"),
        Column("source", spare=1),
    )  # fmt: skip
    total = ("peak", gib(memory.peak_bytes), "", "sum of the components", "")
    return Table(title, columns, (*rows, total), totals=1)


def _in_numbers(terms: tuple[tuple[Factor, ...], ...]) -> str:
    """`8.62 B elements x 2 B + 66.9 M other elements x 2 B`."""
    return " + ".join(map(_product, terms)).replace("+ -", "- ")


def _product(term: tuple[Factor, ...]) -> str:
    """`8.62 B elements x 2 B / 8 ZeRO ranks`: bytes in the unit that fits them, without ones and the bytes of a GiB."""
    text = ""
    telling = [factor for factor in term if factor.value != 1.0 and (factor.name or factor.value != GIB)]
    for factor in telling or term:
        sign = " / " if factor.divides else " x " if text else ""
        text += f"{sign}{_number(factor)}"
    return text


def _number(factor: Factor) -> str:
    unit, _, of = factor.name.partition(" ")
    if unit == "B" and abs(factor.value) >= KIB:
        return f"{byte_size(factor.value)} {clean(of)}".rstrip()
    if unit == "s":
        return f"{duration(factor.value)} {clean(of)}".rstrip()
    value = f"{factor.value:.3g}" if abs(factor.value) < 1 else count(factor.value)
    return f"{value} {clean(factor.name)}".rstrip()


def _over_the_step(result: Result) -> Table:
    """Memory at each moment, or in each phase of an iteration, as a chart with the usable memory as its mark."""
    usable = result.memory.usable_bytes
    times = [(phase.name, phase.peak_bytes) for phase in result.phases]
    times = times or [(moment.name, moment.bytes) for moment in result.memory.moments]
    points = [*times, ("usable", usable)]
    shares = [size / usable if usable else None for _, size in points]
    place = memory_place(result.memory, "cautious")
    rows = tuple(
        (clean(name), gib(size), NOT_A_NUMBER if share is None else percent(share))
        for (name, size), share in zip(points, shares, strict=True)
    )
    return Table(
        title=f"Memory over the {'iteration' if result.phases else f'step ({place})'}",
        columns=(Column("phase" if result.phases else "moment"), Column("GiB", True), Column("of usable", True)),
        rows=rows,
        shares=(*shares[:-1], None),
        totals=1,
        mark=usable > 0,
    )


def _instruments(result: Result) -> Table:
    """The same memory as a run reads it, typically, and as the verdict takes it."""
    memory = result.memory
    rows = (
        (
            "allocated",
            gib(memory.allocated_bytes),
            "typical: live tensors at their peak, PyTorch's max_memory_allocated()",
        ),
        (
            "reserved",
            gib(memory.reserved_bytes),
            "typical: PyTorch's max_memory_reserved(), blocks kept from batches of other lengths too",
        ),
        (
            monitor_name(result),
            gib(memory.device_bytes),
            "typical: the whole card, including contexts and communication buffers",
        ),
        ("cautious peak", gib(memory.peak_bytes), "what the verdict uses: every part at its high end"),
        (
            "least headroom",
            gib(memory.error_share * memory.peak_bytes),
            f"{percent(memory.error_share)} of the peak; with less it is not likely to fit, and called tight",
        ),
    )
    columns = (Column("figure"), Column("GiB", True), Column("meaning"))
    return Table("Memory as monitoring tools show it", columns, rows, detail=True)


def _time(result: Result) -> Iterator[Table]:
    yield formulas("How the time adds up", result.time.components, result.time.step_s.expected)
    if result.time.run:
        total_s = result.time.total_s.expected
        yield formulas("How the time of the whole job adds up", result.time.run, total_s, whole="total")


def formulas(title: str, components: tuple[TimeComponent, ...], whole_s: float, whole: str = "step") -> Table:
    """Every part of a step, or of another whole, with its formula and where that comes from."""
    rows = tuple(
        (
            clean(part.name), duration(part.seconds), _in_numbers(part.terms), clean(part.formula), clean(part.source),
        )
        for part in components
    )  # fmt: skip
    columns = (
        Column("part"), Column("time", True), Column("in numbers"), Column("formula"), Column("source", spare=1),
    )  # fmt: skip
    total = (whole, duration(whole_s), "", "sum of the parts", "")
    return Table(title, columns, (*rows, total), totals=1)


def _data(result: Result) -> Iterator[Table]:
    data = result.data
    inflation = data.processed_tokens / data.real_tokens if data.real_tokens else float("nan")
    rows = (
        ("samples", count(data.samples), "in the data set" if data.epochs is not None else "read by all steps"),
        *_read(data),
        ("real tokens", count(data.real_tokens), "of the whole job, after truncation to the sequence length"),
        ("padding", clean(data.padding), "what a sequence is padded to"),
        ("tokens of a sequence", number(data.sequence_tokens), "processed, padding included"),
        ("longest sequence", number(data.longest_tokens), "tokens that memory must hold"),
        ("processed tokens", count(data.processed_tokens), "what determines the time"),
        ("padding share", percent(data.padding_share), "1 - real tokens / processed tokens"),
        ("processed per real token", number(inflation), "processed tokens / real tokens"),
    )
    yield Table("How the data adds up", (Column("quantity"), Column("value", True), Column("meaning")), rows)


def _read(data: Data) -> Iterator[tuple[str, str, str]]:
    """What the steps read; results of older versions do not say."""
    if data.samples_read is not None:
        yield "samples read", count(round(data.samples_read)), "in the whole job, repeats included"
    if data.epochs is not None:
        yield "epochs", number(data.epochs), "samples read / samples"


def sources(result: Sized) -> Iterator[Table]:
    """Profiles and laws that the answer rests on."""
    rows = tuple((clean(source.name), clean(source.source)) for source in result.sources)
    yield Table("Sources", (Column("figure"), Column("source")), rows)


def _operators(result: Result) -> Iterator[Block]:
    of_the_step = "all layers, micro-batches and passes of the step, on the pipeline stage that decides"
    yield operator_table("Operators of a step", result.time.operators, of_the_step)


def operator_table(title: str, operators: tuple[OperatorCost, ...], counted: str) -> Block:
    """A step operator by operator, in the order in which they run, without those that take no time."""
    if not operators:
        return Notes(title, ("This result was saved without them: run the command again with --explain operators.",))
    rows = [
        (
            _operator_name(one), ", ".join(_sizes(one.sizes)), count(one.times), flops(one.flops), byte_size(one.bytes),
            duration(one.seconds), percent(one.share), clean(one.bound),
        )
        for one in operators
        if one.seconds
    ]  # fmt: skip
    seconds, share = sum(one.seconds for one in operators), sum(one.share for one in operators)
    work = (flops(sum(one.flops for one in operators)), byte_size(sum(one.bytes for one in operators)))
    rows.append(("all operators", "", "", *work, duration(seconds), percent(share), ""))
    columns = (
        Column("operator"), Column("shape", least=16), Column("times", True, spare=2), Column("FLOPs", True, spare=1),
        Column("bytes", True, spare=1), Column("time", True), Column("share", True), Column("bound by", spare=3),
    )  # fmt: skip
    note = f"Times, FLOPs, bytes and time count {counted}. A shape is that of one; the network's bytes are those sent."
    return Table(title, columns, tuple(rows), totals=1, note=note)


def _operator_name(one: OperatorCost) -> str:
    name, module = clean(one.name), clean(one.module).replace("_", " ")
    return name if module in name else f"{module}: {name}"


def _sizes(sizes: Mapping[str, float]) -> Iterator[str]:
    """`m 4,096`, `message 64.0 MiB`."""
    for name, size in sizes.items():
        if name.endswith("_bytes"):
            yield f"{clean(name).removesuffix('_bytes')} {byte_size(size)}"
        else:
            yield f"{clean(name).replace('_', ' ')} {number(size)}"


_SECTIONS: dict[str, Callable[[Result], Iterator[Block]]] = {
    "memory": _memory,
    "time": _time,
    OPERATORS: _operators,
    "data": _data,
    "sources": sources,
}
