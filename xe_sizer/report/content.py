"""What a report on one result says, block by block, in the order people ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xe_sizer.report.document import (
    Block,
    Column,
    Document,
    Fact,
    Facts,
    FactsPair,
    Notes,
    Step,
    Steps,
    Table,
)
from xe_sizer.report.explain import explanations
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    amount,
    clean,
    count,
    duration,
    duration_range,
    gib,
    given,
    number,
    percent,
    plural,
    value_range,
    whole,
)
from xe_sizer.report.names import component_name, monitor_name
from xe_sizer.report.options import Options
from xe_sizer.report.verdict import caution, headline, reasons_beyond, verdict_word
from xe_sizer.result.common import TimeComponent
from xe_sizer.result.serving import Answer
from xe_sizer.result.training import Cost, Result

_HARDWARE_KEYS = frozenset({"gpu", "server", "gpus", "nodes"})
_HARDWARE_SECTIONS = frozenset({"layout", "limits", "cost", "efficiency"})
_QUIET: dict[str, object] = {"vpp": 1, "cp": 1, "ep": 1, "schedule": "1f1b", "zero_group": 0}
WORST_LOSSES = 2
_SHOWN_ELSEWHERE = frozenset({"origin", "names", "gpus", "nodes", "layout", "limits"})


def document(result: Result, options: Options) -> Document:
    """The whole report on `result`; `options.explain` adds sections."""
    return framed(result, _blocks(result, options))


def framed(result: Answer, blocks: Iterable[Block]) -> Document:
    """Blocks under the verdict, the headline and the reasons of an answer."""
    return Document(
        verdict=verdict_word(result),
        ok=result.verdict.ok,
        headline=headline(result),
        reasons=reasons_beyond(result),
        blocks=tuple(blocks),
        caution=caution(result),
    )


def _blocks(result: Result, options: Options) -> Iterator[Block]:
    yield scenario_facts(result)
    yield memory_table(result)
    if result.memory.host_bytes:
        yield host_table(result)
    yield time_table(result)
    if result.time.modules:
        yield module_table(result)
    yield totals_table(result)
    if result.verdict.limits:
        yield limits_table(result)
    yield from explanations(result, options.explain)
    yield from remarks(result)


def remarks(result: Answer) -> Iterator[Block]:
    """Warnings and advice, which end a report."""
    if result.warnings:
        yield Notes("Warnings", tuple(clean(warning) for warning in result.warnings))
    if result.advice:
        steps = (Step(clean(a.change), clean(a.effect), clean(a.command)) for a in result.advice)
        yield Steps("Advice", tuple(steps))


def scenario_facts(result: Answer) -> FactsPair:
    """What was asked, and on what: every resolved key with its origin."""
    rows = [fact for fact in _scenario_facts(result.scenario) if not _is_hardware(fact.label)]
    if isinstance(result, Result) and result.memory.trainable_parameters:
        rows.append(Fact("trainable parameters", count(result.memory.trainable_parameters), ""))
    return FactsPair(Facts("Job", tuple(rows)), _hardware(result))


def _hardware(result: Answer) -> Facts:
    scenario, gpus, layout = result.scenario, result.gpus, result.layout
    origin = scenario.get("origin") or {}
    rows = [fact for fact in _scenario_facts(scenario) if _is_hardware(fact.label)]
    shape = f"{plural(gpus.nodes, 'node')} of {gpus.gpus_per_node}"
    rows.append(Fact("gpus", f"{gpus.count} ({shape})", clean(origin.get("gpus", ""))))
    minimum = gpus.minimum_that_fits
    rows.append(Fact("minimum that fits", "none found" if minimum is None else plural(minimum, "GPU")))
    for name in layout.__struct_fields__:
        value = getattr(layout, name)
        if name not in _QUIET or value != _QUIET[name]:
            key = "train.micro_batch" if name == "micro_batch" else f"layout.{name}"
            rows.append(Fact(words(name), _text(value), clean(origin.get(key, ""))))
    return Facts("Hardware and layout", tuple(rows))


def _is_hardware(label: str) -> bool:
    return label in _HARDWARE_KEYS or label.split(".")[0] in _HARDWARE_SECTIONS


def _scenario_facts(scenario: Mapping[str, Any]) -> Iterator[Fact]:
    """Every resolved value but those that have a place of their own, dotted, with its origin."""
    origin = scenario.get("origin") or {}
    for key, value in scenario.items():
        if key in _SHOWN_ELSEWHERE or value is None:
            continue
        inner = value.items() if isinstance(value, Mapping) else ((None, value),)
        for name, item in inner:
            if item is None or isinstance(item, Mapping):
                continue
            dotted = key if name is None else f"{key}.{name}"
            if item == 0 and origin.get(dotted) == "default":
                continue  # nothing of what nobody asked for
            yield Fact(clean(dotted), _text(item), clean(origin.get(dotted, "")))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return given(value)
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:8])
        return f"{shown} and {len(value) - 8} more" if len(value) > 8 else shown
    return clean(value)


def memory_table(result: Answer) -> Table:
    """The ledger of the worst GPU; the bars are shares of what is usable."""
    memory = result.memory
    usable = memory.usable_bytes
    ledger = sorted(memory.components, key=lambda part: -part.bytes)
    parts = [(component_name(result, part.name), part.bytes) for part in ledger if part.bytes]
    sums = [("peak", memory.peak_bytes), ("usable", usable), ("headroom", memory.headroom_bytes)]
    lines = [(name, value, value / usable if usable else None) for name, value in parts + sums]
    rows = tuple(
        (clean(name), gib(value), NOT_A_NUMBER if share is None else percent(share)) for name, value, share in lines
    )
    return Table(
        title=f"Memory of the worst GPU ({clean(memory.gpu)}, {clean(memory.phase)})",
        columns=(Column("component"), Column("GiB", True), Column("of usable", True)),
        rows=rows,
        shares=(*(share for _, _, share in lines[: len(parts) + 1]), None, None),
        totals=len(sums),
        note=_typical(result) if isinstance(result, Result) else "",
    )


def _typical(result: Result) -> str:
    """What the usual instruments show; a result saved by an older version does not have it."""
    memory = result.memory
    if not memory.device_bytes:
        return ""
    return (
        f"Typical readings of a run: {gib(memory.allocated_bytes)} GiB allocated, "
        f"{gib(memory.reserved_bytes)} reserved, {gib(memory.device_bytes)} in {monitor_name(result)}. "
        f"The verdict uses the cautious peak, {gib(memory.peak_bytes)}."
    )


def host_table(result: Result) -> Table:
    """Host memory that offloading takes in one node, against what the node has."""
    needed, available = result.memory.host_bytes, result.memory.host_available_bytes
    columns = (Column("offloading"), Column("GiB", True), Column("of available", True))
    title = "Host memory of a node"
    if not available:
        unknown = ("available", "unknown", "")
        note = "How much a node has is not known: the verdict leaves host memory out."
        return Table(title, columns, (("needed", gib(needed), ""), unknown), totals=1, note=note)
    share = needed / available
    rows = (
        ("needed", gib(needed), percent(share)),
        ("available", gib(available), percent(1.0)),
        ("headroom", gib(available - needed), percent(1.0 - share)),
    )
    return Table(title, columns, rows, shares=(share, None, None), totals=2)


def time_table(result: Result) -> Table:
    """An optimizer step by part."""
    time = result.time
    return parts_table(f"Time of a step (bound by {clean(time.bound)})", time.components, time.step_s.expected)


def parts_table(title: str, components: tuple[TimeComponent, ...], step_s: float) -> Table:
    """A step by part, the largest first, and its whole."""
    parts = sorted((part for part in components if part.seconds), key=lambda part: -part.seconds)
    rows = [(clean(part.name), duration(part.seconds), percent(part.share)) for part in parts]
    rows.append(("step", duration(step_s), "100 %"))
    return Table(
        title=title,
        columns=(Column("part"), Column("time", True), Column("share", True)),
        rows=tuple(rows),
        shares=(*(part.share for part in parts), None),
        totals=1,
    )


def module_table(result: Result) -> Table:
    modules = result.time.modules
    rows = tuple((words(module.name), duration(module.forward_s), duration(module.backward_s)) for module in modules)
    return Table(
        title="Time of a step by module",
        columns=(Column("module"), Column("forward", True), Column("backward", True)),
        rows=rows,
        detail=True,
    )


def words(name: str) -> str:
    """A name of the contract as people read it."""
    return clean(name).replace("_", " ")


def totals_table(result: Result) -> Table:
    """Time, money, tokens and efficiency of the whole job, with ranges where there are any."""
    time, data = result.time, result.data
    rows = [
        ("time per step", duration(time.step_s.expected), duration_range(time.step_s)),
        ("steps", whole(time.steps), ""),
        ("total time", duration(time.total_s.expected), duration_range(time.total_s)),
        *_cost_rows(result.cost),
        ("samples", count(data.samples), ""),
        ("real tokens", count(data.real_tokens), ""),
        ("processed tokens", count(data.processed_tokens), f"{percent(data.padding_share)} padding"),
        ("tokens per second and GPU", number(time.tokens_per_s_per_gpu), ""),
        ("samples per second", number(time.samples_per_s), ""),
        ("model FLOPs utilisation", percent(time.mfu), f"{percent(time.hfu)} with recomputation"),
        *_ideal_rows(result),
    ]
    span, note = range_words(time.evidence, time.calibrated)
    columns = (Column("quantity"), Column("expected", True), Column(span))
    return Table(title="Whole job", columns=columns, rows=tuple(rows), note=note)


def range_words(evidence: str, calibrated: bool) -> tuple[str, str]:
    """The name of a column of ranges, and the note that says what they rest on."""
    basis = clean(evidence).removeprefix("uncalibrated: ")
    return ("range", f"Ranges rest on {basis}") if calibrated else ("range *", f"* uncalibrated: {basis}")


def _ideal_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """How near the step comes to the speed of light, and what keeps it from there."""
    time = result.time
    if time.ideal_step_s:
        lost = ", ".join(f"{clean(loss.name)} {percent(loss.share)}" for loss in time.losses[:WORST_LOSSES])
        yield "share of the ideal", percent(time.ideal_step_s / time.step_s.expected), f"lost: {lost}" if lost else ""


def _cost_rows(cost: Cost) -> Iterator[tuple[str, str, str]]:
    hours = cost.gpu_hours
    yield "GPU-hours", number(hours.expected), value_range(hours.low, hours.high)
    if cost.energy_kwh is not None:
        yield "energy", f"{number(cost.energy_kwh)} kWh", ""
    if cost.price is not None:
        price = cost.price
        span = value_range(price.low, price.high, amount)
        yield "price", f"{amount(price.expected)} {clean(price.currency)}", f"{span} {clean(price.currency)}"


def limits_table(result: Answer) -> Table:
    rows = tuple(
        (clean(limit.name), number(limit.limit), _limit_value(limit.value), "met" if limit.ok else "MISSED")
        for limit in result.verdict.limits
    )
    columns = (Column("limit"), Column("allowed", True), Column("estimate", True), Column("outcome"))
    return Table("Limits", columns, rows)


def _limit_value(value: float | None) -> str:
    return "unknown" if value is None else number(value)
