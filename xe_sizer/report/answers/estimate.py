"""One training job: what `estimate` reports, in the order people ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.report.blocks import (
    framed,
    groups_kept,
    limits_table,
    memory_table,
    parts_table,
    remarks,
    scenario_facts,
    words,
)
from xe_sizer.report.certainty import middle_word, range_words, spanned
from xe_sizer.report.document import Column, Fact, Point, Summary, Table
from xe_sizer.report.estimate_words import pace_words, stack_words
from xe_sizer.report.explain import explanations
from xe_sizer.report.first_screen import (
    change_point,
    evidence_point,
    gpus_point,
    host_point,
    limits_points,
    memory_point,
)
from xe_sizer.report.format import (
    amount,
    byte_size,
    clean,
    count,
    duration,
    duration_range,
    gib,
    money,
    number,
    offer_words,
    percent,
    price_words,
    value_range,
    whole,
)
from xe_sizer.report.iterations import iteration_points, iteration_rows, iteration_tables, round_noun
from xe_sizer.report.names import monitor_name
from xe_sizer.report.parts_words import image_point, model_parts_table
from xe_sizer.report.pictures.estimate import pictures
from xe_sizer.report.plan_words import layout_words
from xe_sizer.report.scenario_findings import scenario_finding
from xe_sizer.report.verdict import currency_of, is_tight, unsure_of_host
from xe_sizer.result.training import Result
from xe_sizer.units import GIGA

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Document
    from xe_sizer.report.findings import Finding
    from xe_sizer.report.options import Options
    from xe_sizer.result.training import Checkpoint, Cost, Data, Time

ANSWER = Result
WORST_LOSSES = 2
PAIR = 2  # sequences of a sample that is a chosen and a rejected answer
NEVER_RUNS = "no time and no cost: the job does not fit"
UNITS = (
    ("tokens_per_s_per_gpu", "tokens/s"),
    ("samples_per_s", "samples/s"),
    ("gpu_hours", "h"),
    ("hours", "h"),
    ("kwh", "kWh"),
    ("gib", "GiB"),
    ("bytes", "bytes"),
    ("seconds", "s"),
    ("_s", "s"),
    ("share", "fraction"),
    ("mfu", "fraction"),
    ("hfu", "fraction"),
    ("tokens", "tokens"),
)
PROSE = frozenset({"advice", "warnings", "sources", "reasons", "formula", "source", "origin", "energy_formula"})


def document(result: Result, options: Options) -> Document:
    """The whole report on `result`; `options.explain` adds sections."""
    return framed(result, _blocks(result, options))


def _blocks(result: Result, options: Options) -> Iterator[Block]:
    yield Summary(tuple(_points(result)))
    yield from pictures(result)
    yield totals_table(result)
    if result.verdict.limits:
        yield limits_table(result)
    yield scenario_facts(result, _facts(result))
    if result.parts:
        yield model_parts_table(result)
    if result.beside and result.iteration is None:  # else the phases say what it takes
        yield _beside_table(result)
    yield from iteration_tables(result)
    yield memory_table(result, _typical(result))
    if result.memory.host_bytes:
        yield host_table(result)
    if result.verdict.fits:
        yield time_table(result)
    if result.verdict.fits and result.time.modules:
        yield module_table(result)
    yield from explanations(result, options.explain)
    yield from remarks(result)


def _points(result: Result) -> Iterator[Point]:
    """Time and cost where it fits, GPUs, memory, limits, and the one thing to change."""
    if result.verdict.fits:
        yield Point("Time", f"{spanned(result.time.total_s, result.time.calibrated)}{pace_words(result)}")
        yield from evidence_point(result.time.basis)
        yield Point("Cost", ", ".join(_cost_words(result.cost)))
    yield from iteration_points(result)
    yield gpus_point(result.gpus, kept=groups_kept(result), why_more=_held_less(result))
    yield Point("Layout", f"{layout_words(result.layout)}, {stack_words(result)}")
    yield from image_point(result)
    yield memory_point(result.memory, result.verdict, _tight_on_card(result))
    yield from _host_point(result)
    yield from limits_points(result.verdict, currency_of(result))
    yield from change_point(result.advice)


def _held_less(result: Result) -> str:
    """What a GPU has less of where there are more replicas, as the groups that split the model are fixed."""
    in_flight = "fewer micro-batches in flight" if result.layout.pp > 1 else ""
    shared = "a smaller share of the states" if result.layout.zero else ""
    return " and ".join(filter(None, (in_flight, shared))) if groups_kept(result) else ""


def _tight_on_card(result: Result) -> bool:
    memory = result.memory
    return memory.headroom_bytes < memory.error_share * memory.peak_bytes or not memory.host_bytes


def _host_point(result: Result) -> Iterator[Point]:
    """What a node keeps of the job in its own memory."""
    memory = result.memory
    tight = is_tight(result) and not _tight_on_card(result)
    yield from host_point(memory.host_bytes, memory.host_available_bytes, memory.host_reserve_bytes, tight=tight)


def _cost_words(cost: Cost) -> Iterator[str]:
    if cost.price is not None:
        price, currency = cost.price, clean(cost.price.currency)
        yield f"{money(price.expected, currency)} ({value_range(price.low, price.high, amount)})"
    yield f"{number(cost.gpu_hours.expected)} GPU-hours ({value_range(cost.gpu_hours.low, cost.gpu_hours.high)})"
    if cost.energy_kwh is not None:
        yield f"{number(cost.energy_kwh)} kWh"
    yield from price_words(cost.hourly_price)


def _facts(result: Result) -> Iterator[Fact]:
    if result.memory.trainable_parameters:
        yield Fact("trainable parameters", count(result.memory.trainable_parameters), "")


def _typical(result: Result) -> str:
    """What the usual instruments show; a result saved by an older version does not have it."""
    memory = result.memory
    if not memory.device_bytes:
        return ""
    cached, given_back = "", ""
    if memory.cached_bytes:
        cached = f", {gib(memory.cached_bytes)} of it kept from batches of other lengths"
        given_back = " without what is kept, as PyTorch gives it back before memory runs out"
    return (
        f"A run typically shows {gib(memory.allocated_bytes)} GiB allocated, "
        f"{gib(memory.reserved_bytes)} reserved, {gib(memory.device_bytes)} in {monitor_name(result)}{cached}. "
        f"The verdict uses a cautious peak{given_back}: {gib(memory.peak_bytes)}."
    )


def host_table(result: Result) -> Table:
    """Host memory that offloading takes in one node, against what the node has."""
    needed, available = result.memory.host_bytes, result.memory.host_available_bytes
    columns = (Column("offloading"), Column("GiB", True), Column("of available", True))
    title = "Host memory of a node"
    if not available:
        unknown = ("available", "unknown", "")
        doubt = ", so the verdict is unsure: set --host-memory-gib" if unsure_of_host(result) else ""
        note = f"The host memory of a node is not known{doubt}."
        return Table(title, columns, (("needed", gib(needed), ""), unknown), totals=1, note=note)
    reserve = result.memory.host_reserve_bytes
    share, kept = needed / available, reserve / available
    rows = (
        ("needed", gib(needed), percent(share)),
        *((("operating system and process (assumed)", gib(reserve), percent(kept)),) if reserve else ()),
        ("available", gib(available), percent(1.0)),
        ("headroom", gib(available - reserve - needed), percent(1.0 - share - kept)),
    )
    shares = (share, *((kept,) if reserve else ()), None, None)
    return Table(title, columns, rows, shares=shares, totals=2)


def time_table(result: Result) -> Table:
    """An optimizer step by part, or an iteration."""
    time, noun = result.time, round_noun(result.scenario)
    title = f"Time of {'an' if result.iteration else 'a'} {noun} (bound by {clean(time.bound)})"
    return parts_table(title, time.components, time.step_s.expected, noun)


def module_table(result: Result) -> Table:
    modules = result.time.modules
    rows = tuple((words(module.name), duration(module.forward_s), duration(module.backward_s)) for module in modules)
    return Table(
        title=f"Time of {'an optimizer step of the actor' if result.iteration else 'a step'} by module",
        columns=(Column("module"), Column("forward", True), Column("backward", True)),
        rows=rows,
        detail=True,
    )


def totals_table(result: Result) -> Table:
    """Time, money, tokens and efficiency of the whole job, with ranges where there are any.

    Of what does not fit, its data: it will never run, and no time or price is that of anything.
    """
    time, data = result.time, result.data
    tokens = (
        *_pair_rows(result),
        _samples_row(result),
        ("real tokens", count(data.real_tokens), ""),
        ("processed tokens", count(data.processed_tokens), f"{percent(data.padding_share)} padding"),
    )
    noun = round_noun(result.scenario)
    steps = (f"{noun}s", whole(time.steps), _epochs(data))
    if not result.verdict.fits:
        columns = (Column("quantity"), Column("expected", True), Column(""))
        return Table(title="Whole job", columns=columns, rows=(steps, *tokens), note=NEVER_RUNS)
    rows = [
        (f"time per {noun}", duration(time.step_s.expected), duration_range(time.step_s)),
        steps,
        ("total time", duration(time.total_s.expected), duration_range(time.total_s)),
        *_run_rows(time),
        *_start_up_rows(time),
        *_checkpoint_rows(result.checkpoint),
        *_cost_rows(result.cost),
        *iteration_rows(result),
        *tokens,
        ("tokens per second per GPU", number(time.tokens_per_s_per_gpu), ""),
        (f"{_read(result)} per second", number(time.samples_per_s), ""),
        ("model FLOPs utilisation", percent(time.mfu), f"{percent(time.hfu)} with recomputation"),
        *_ideal_rows(result),
    ]
    span, note = range_words(time.evidence, time.calibrated, time.basis)
    columns = (Column("quantity"), Column(middle_word(time.basis), True), Column(span))
    return Table(
        title="Whole job",
        columns=columns,
        rows=tuple(rows),
        note=note,
    )


def _epochs(data: Data) -> str:
    if data.epochs is None:
        return ""
    told = number(data.epochs)
    return "1 epoch" if float(told.replace(",", "")) == 1.0 else f"{told} epochs"


def _samples_row(result: Result) -> tuple[str, str, str]:
    """What the job reads of the data set; a result saved by an older version has the data set alone."""
    data = result.data
    if data.samples_read is None:
        return "samples in the data set", count(data.samples), ""
    of = "" if data.epochs is None else f"of {count(data.samples)} in the data set"
    return f"{'prompts' if result.iteration else _noun(data)} read", count(round(data.samples_read)), of


def _noun(data: Data) -> str:
    """What a sample is: a pair of answers where it has two sequences."""
    return "pairs" if data.sequences_per_sample == PAIR else "samples"


def _pair_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Pairs of a step, and the tokens of both answers."""
    data, batch = result.data, result.scenario.get("train", {}).get("global_batch")
    if data.sequences_per_sample == PAIR and batch:
        tokens = PAIR * data.sequence_tokens
        yield "pairs per step", count(batch), f"{count(round(tokens))} tokens each: both answers with their prompts"


def _beside_table(result: Result) -> Table:
    """What stands frozen beside the model, and what that costs."""
    step_s, total_s = result.time.step_s.expected, result.time.total_s.expected
    rows = []
    for one in result.beside:
        whole_s, of = (total_s, "the run") if one.beforehand else (step_s, "a step")
        held = byte_size(one.bytes) if one.bytes else "none of its own"
        time = f"{duration(one.seconds)}, {percent(one.seconds / whole_s)} of {of}" if result.verdict.fits else "-"
        rows.append((clean(one.name), clean(one.model), held, whole(one.passes), time))
    columns = (
        Column("weights"),
        Column("model"),
        Column("per GPU", True),
        Column("passes", True),
        Column("time", True),
    )
    return Table(title="Frozen beside the model", columns=columns, rows=tuple(rows))


def _read(result: Result) -> str:
    """What a step reads: a packed sequence holds several samples, or part of one."""
    sample = "sequences" if result.data.padding == "packed" else _noun(result.data)
    return "answers" if result.iteration else sample


def _run_rows(time: Time) -> Iterator[tuple[str, str, str]]:
    """What comes between the steps, and the share of the time that they keep."""
    for part in time.run:
        yield f"  {clean(part.name)}", duration(part.seconds), f"{percent(part.share)} of the total"
    if time.goodput is not None:
        yield "goodput", percent(time.goodput), "steps, counted once, of the total"


def _checkpoint_rows(saved: Checkpoint | None) -> Iterator[tuple[str, str, str]]:
    """One checkpoint and how often the run is saved; a result saved by an older version does not have it."""
    if saved is None:
        return
    of = f"weights {byte_size(saved.weights_bytes)}, optimizer states {byte_size(saved.optimizer_bytes)}"
    yield "size of a checkpoint", byte_size(saved.bytes), of
    if saved.every_steps is None:
        return
    how = f"asynchronous, written in {duration(saved.save_s)}" if saved.asynchronous else "training waits"
    yield "pause for a checkpoint", duration(saved.pause_s), f"{how}; storage {_rate(saved.write_bytes_per_s)}"
    best = "" if saved.best_every_steps is None else f"least is lost with {_every(saved.best_every_steps)}"
    yield "checkpoints", whole(saved.count), "; ".join(filter(None, (_every(saved.every_steps), best)))
    if saved.mean_time_between_failures_s is not None:
        yield "mean time between failures", duration(saved.mean_time_between_failures_s), ""


def _every(steps: int) -> str:
    return f"one every {f'{steps:,} steps' if steps > 1 else 'step'}"


def _rate(bytes_per_s: float) -> str:
    return f"{number(bytes_per_s / GIGA)} GB/s"


def _start_up_rows(time: Time) -> Iterator[tuple[str, str, str]]:
    """What passes before the first step; a result saved by an older version does not have it."""
    if time.start_up_s:
        yield "start-up, not included", duration(time.start_up_s), "assumed"


def _ideal_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """How near the step comes to the speed of light, and what keeps it from there."""
    time = result.time
    if time.ideal_step_s:
        lost = ", ".join(f"{clean(loss.name)} {percent(loss.share)}" for loss in time.losses[:WORST_LOSSES])
        yield "roofline efficiency", percent(time.ideal_step_s / time.step_s.expected), f"lost: {lost}" if lost else ""


def _cost_rows(cost: Cost) -> Iterator[tuple[str, str, str]]:
    hours = cost.gpu_hours
    yield "GPU-hours", number(hours.expected), value_range(hours.low, hours.high)
    if cost.energy_kwh is not None:
        yield "energy", f"{number(cost.energy_kwh)} kWh", clean(cost.energy_formula)
    if cost.price is not None:
        price = cost.price
        span = value_range(price.low, price.high, amount)
        yield "price", f"{amount(price.expected)} {clean(price.currency)}", f"{span} {clean(price.currency)}"
    if cost.hourly_price is not None:
        hourly = cost.hourly_price
        yield f"hour of {clean(hourly.hardware)}", money(hourly.per_hour, hourly.currency), offer_words(hourly)


def rows(result: Result, options: Options) -> Iterator[tuple[object, ...]]:
    """Every number as section, name, value and unit."""
    yield "section", "name", "value", "unit"
    currency = result.cost.price.currency if result.cost.price else ""
    for section, value in msgspec.to_builtins(result).items():
        if section in PROSE:
            continue
        for path, leaf in _leaves(value, ()):
            is_money = path[:1] == ("price",) or path == ("hourly_price", "per_hour")
            unit = currency if is_money else _unit(leaf, section, path)
            yield section, ".".join(path) or section, leaf, unit


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Scalars below `value`; an entry of a list goes by its name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in PROSE and not (key == "name" and path):
                yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            named = isinstance(item, Mapping) and "name" in item
            yield from _leaves(item, (*path, str(item["name"]) if named else str(index)))
    elif value is not None:
        yield path, value


def _unit(value: Any, section: str, path: tuple[str, ...]) -> str:
    """The unit that the nearest key names: `step_s.low` is seconds, `max_hours.value` hours."""
    if isinstance(value, bool | str):
        return ""
    for key in reversed((section, *path)):
        for ending, unit in UNITS:
            if key.endswith(ending):
                return unit
    return ""


def findings(result: Result, options: Options) -> Iterator[Finding]:
    yield scenario_finding(result, options.file, options.file)
