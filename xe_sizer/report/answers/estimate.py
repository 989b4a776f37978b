"""One training job: what `estimate` reports, in the order people ask."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.report.blocks import (
    assumed_run,
    change_point,
    evidence_point,
    framed,
    gpus_point,
    groups_kept,
    host_point,
    limits_points,
    limits_table,
    memory_point,
    memory_table,
    parts_table,
    remarks,
    scenario_facts,
    scenario_finding,
    words,
)
from xe_sizer.report.document import Column, Fact, Picture, Point, Summary, Table
from xe_sizer.report.explain import explanations
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    amount,
    byte_size,
    clean,
    component_name,
    count,
    duration,
    duration_range,
    electricity_words,
    gib,
    layout_words,
    memory_place,
    money,
    monitor_name,
    number,
    offer_words,
    part_words,
    percent,
    plural,
    price_words,
    probability_words,
    range_words,
    round_noun,
    spanned,
    time_unit,
    value_range,
    whole,
)
from xe_sizer.report.picture import Axis, Bar, Bars, Mark, Part, Piece, Row, Rows, Stack
from xe_sizer.report.trace import phases_of_pools
from xe_sizer.report.verdict import (
    gpu_memory_missing,
    is_tight,
    job_words,
    may_run,
    missed_text,
    profile_name,
    unsure_of_host,
)
from xe_sizer.result.common import ELECTRICITY
from xe_sizer.result.training import Holding, Result
from xe_sizer.units import BARE_SERVER, GIB, GIGA, HOUR_S, WATT_PER_KW

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Document, Finding, Options
    from xe_sizer.result.common import Sized, TimeComponent
    from xe_sizer.result.training import (
        Checkpoint,
        Cost,
        Data,
        Iteration,
        Memory,
        Phase,
        Pool,
        StageMemory,
        Time,
        Tools,
        TrainedPart,
    )

# Images, and the parts of a model that sees.

NAMES = {
    "language": "language model",
    "generator": "generator of replaced tokens",
    "vision": "image encoder",
    "projector": "projector",
}


def image_point(result: Result) -> Iterator[Point]:
    """Images in each sample: their tokens, and where these come from."""
    images = result.images
    if images is None:
        return
    each = f"{plural(images.per_sample, 'image')} of {clean(images.size)} in each sample"
    pieces = f" in {images.pieces_each} pieces" if images.pieces_each > 1 else ""
    made = f"{images.patches_each:,} patches{pieces} become {images.tokens_each:,} tokens"
    frozen = [_name(part) for part in result.parts if not part.trainable_parameters]
    learns = f"; frozen: {', '.join(frozen)}" if frozen else "; all parts learn"
    yield Point("Images", f"{each}: {images.tokens:,} tokens ({made} each){learns}")


def model_parts_table(result: Result) -> Table:
    """Parts of a model that sees, and what learns of each."""
    columns = (Column("part"), Column("parameters", True), Column("trainable", True), Column("learns"))
    rows = tuple(
        (_name(part), count(part.parameters), count(part.trainable_parameters), _learns(part)) for part in result.parts
    )
    return Table(title="Parts of the model", columns=columns, rows=rows)


def _name(part: TrainedPart) -> str:
    return clean(NAMES.get(part.name, part.name))


def _learns(part: TrainedPart) -> str:
    if not part.trainable_parameters:
        return "nothing: frozen"
    return "adapters" if part.adapters else "all of it"


# Iterations of reinforcement learning: their answers, their phases, the GPUs at work in them.

BOTH = "trainer and rollout"  # name of a pool that does both in turn
LITTLE = 0.01  # share of an iteration under which the first screen does not name a phase
WAIT_NOTE = "wait: share of an iteration spent waiting for the other GPUs"
DOES = {"trainer": "train", "rollout": "generate", BOTH: "generate and train", "critic": "train the critic"}
UPDATES = {
    "drain": "which end before new weights come",
    "abort": "interrupted by new weights and read again",
    "in-flight": "going on under new weights",
}
WAITS = 0.05  # share of GPU time that is worth a word of the first screen


def iteration_points(result: Result) -> Iterator[Point]:
    """What an iteration spends its time on, its answers, and who writes them; nothing of other jobs."""
    one = result.iteration
    if one is None:
        return
    if may_run(result):
        yield Point("Iteration", ", ".join(_shares(result)))
    yield Point("Responses", _responses(one), spare=2)
    yield Point("Rollout", _rollout(one, result.pools))
    if one.tools is not None:
        yield Point("Tools", _tools(one.tools))


def _shares(result: Result) -> Iterator[str]:
    """The phases, the longest first; those that others hide stand behind."""
    for phase in sorted(result.phases, key=lambda phase: -phase.seconds):
        if phase.hidden and phase.seconds >= LITTLE * result.time.step_s.expected:
            yield f"{clean(phase.name)} {duration(phase.seconds)} overlapped"
        elif phase.share >= LITTLE:
            yield f"{clean(phase.name)} {duration(phase.seconds)} ({percent(phase.share)})"


def _tools(tools: Tools) -> str:
    """Calls of a response, the CPUs of them, and what of the rollout they take."""
    each = f"{number(tools.turns)} turns, {number(tools.calls)} calls per response, {duration(tools.wait_s)} of waiting"
    cores = f"{count(math.ceil(tools.calls_at_once))} calls at once take {count(math.ceil(tools.cores))} CPU cores"
    servers = f" ({plural(tools.servers, 'server')} of {number(tools.server_cores)})"
    return f"{each}; {cores}{servers}; they add {percent(tools.share)} of the rollout"


def _responses(one: Iteration) -> str:
    each = f" ({plural(round(one.prompts), 'prompt')} x {one.group})" if one.group > 1 else ""
    longest = f"the longest about {count(round(one.longest_tokens))}"
    cut = f", {percent(one.cut_share)} truncated at {count(one.max_output_tokens)}" if one.cut_share >= LITTLE else ""
    trained = "" if one.trained_answers == one.answers else f", {count(round(one.trained_answers))} trained on"
    tokens = f"{count(round(one.output_tokens))} tokens each on average"
    return f"{count(round(one.answers))} per iteration{each}{trained}; {tokens}, {longest}{cut}"


def _rollout(one: Iteration, pools: tuple[Pool, ...]) -> str:
    """Which GPUs write the answers, how, and what waits."""
    writer = writing_pool(pools)
    if writer is None:
        return "none"
    engine = f"{clean(writer.engine)} in {plural(writer.replicas, 'replica')} of {_sizes(writer)}"
    where = "colocated with training" if one.colocated else f"on {plural(writer.gpus, 'GPU')} of its own"
    late = f", responses up to {plural(one.max_staleness, 'iteration')} old" if one.asynchronous else ""
    late += f", {UPDATES[one.update]}" if one.update in UPDATES else ""
    waiting = f"; GPUs wait {percent(one.idle_share)} of the time" if one.idle_share >= WAITS else ""
    return f"{engine}, {where}{late}; {number(one.output_tokens_per_s)} tokens/s{waiting}"


def _sizes(pool: Pool) -> str:
    """The parallel sizes of a replica."""
    sizes = [f"{name} {size}" for name, size in (("tp", pool.tp), ("pp", pool.pp), ("ep", pool.ep)) if size > 1]
    return ", ".join(sizes) or "one GPU"


def iteration_tables(result: Result) -> Iterator[Table]:
    """The phases, and the pools where GPUs do different work; nothing of other jobs."""
    if result.phases and may_run(result):
        yield _phases_table(result)
    if len(result.pools) > 1:
        yield _pools_table(result.pools)


def _phases_table(result: Result) -> Table:
    rows = [
        (
            clean(one.name),
            duration(one.seconds),
            _share(one),
            whole(one.gpus),
            gib(one.peak_bytes),
            clean(one.bound).rpartition(": ")[2],
        )
        for one in result.phases
    ]
    peak = gib(max(one.peak_bytes for one in result.phases))
    rows.append(("iteration", duration(result.time.step_s.expected), "100 %", whole(result.gpus.count), peak, ""))
    columns = (
        Column("phase"),
        Column("time", True),
        Column("share", True),
        Column("GPUs", True),
        Column("GiB per GPU", True),
        Column("mostly", spare=1),
    )
    hidden = any(one.hidden for one in result.phases)
    note = "overlapped: hidden behind the longer work of the other GPUs, so that it adds no time" if hidden else ""
    shares = (*(one.share for one in result.phases), None)
    return Table("Phases of an iteration", columns, tuple(rows), shares=shares, totals=1, note=note)


def _share(phase: Phase) -> str:
    return "overlapped" if phase.hidden else percent(phase.share)


def _pools_table(pools: tuple[Pool, ...]) -> Table:
    rows = tuple(
        (clean(one.name), whole(one.gpus), gib(one.peak_bytes), percent(one.idle_share), pool_words(one))
        for one in pools
    )
    columns = (
        Column("GPUs that"),
        Column("GPUs", True),
        Column("GiB per GPU", True),
        Column("wait", True),
        Column("layout", least=24),
    )
    told = tuple((DOES.get(row[0], f"run the {row[0]}"), *row[1:]) for row in rows)
    return Table("Split of the GPUs", columns, told, note=WAIT_NOTE)


def pool_words(pool: Pool) -> str:
    """What one GPU pool runs, in a few words."""
    model = f"{clean(pool.model)}: " if pool.model else ""
    if pool.layout is not None:
        return f"{model}{layout_words(pool.layout)}"
    return f"{model}{plural(pool.replicas, 'replica')} of {_sizes(pool)}, {clean(pool.engine)}"


def writing_pool(pools: tuple[Pool, ...]) -> Pool | None:
    """The GPUs that write answers; None of other jobs."""
    return next((pool for pool in pools if pool.replicas and not pool.model), None)


def split_words(pools: tuple[Pool, ...]) -> str:
    """How a plan splits its GPUs: `24 train, 8 generate (8 replicas of one GPU)`, or `colocated, ...`; else empty."""
    writer = writing_pool(pools)
    if writer is None:
        return ""
    replicas = f"{plural(writer.replicas, 'replica')} of {_sizes(writer)}"
    others = "".join(f", {pool.gpus:,} for the {clean(pool.name)}" for pool in pools if pool.model)
    trainer = sum(pool.gpus for pool in pools if not pool.replicas and not pool.model)
    if writer.name == BOTH:
        return f"colocated, {replicas}{others}" if not others else f"{writer.gpus:,} colocated ({replicas}){others}"
    return f"{trainer:,} train, {writer.gpus:,} generate ({replicas}){others}"


def iteration_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Rows of the whole job about answers; nothing of other jobs."""
    one = result.iteration
    if one is None:
        return
    steps = plural(one.optimizer_steps, "optimizer step")
    yield "responses per iteration", count(round(one.answers)), f"{plural(round(one.prompts), 'prompt')}, {steps}"
    cut = f"{percent(one.cut_share)} truncated at {count(one.max_output_tokens)} tokens" if one.cut_share else ""
    yield "tokens of a response", number(one.output_tokens), cut
    if may_run(result):
        yield "output tokens per second", number(one.output_tokens_per_s), "of all replicas, during generation"
        yield "GPU time spent waiting", percent(one.idle_share), "for the longest responses or the other GPUs"


# The answer in one sentence: what is trained on what, how long, and what a reader must know.


def yes(result: Result) -> str:
    return ""


def subject(result: Result) -> str:
    return f"{job_words(result.scenario)} on {hardware(result)}"


def hardware(result: Result) -> str:
    gpu, server = profile_name(result, "gpu"), profile_name(result, "server")
    accelerators = f"{result.gpus.count:,} x {gpu or 'GPU'}"
    named = server and not server.startswith(BARE_SERVER)
    return f"{accelerators} ({result.gpus.nodes:,} x {server})" if named else accelerators


def outcome(result: Result) -> str:
    """Memory and time, or what is missing."""
    if not result.verdict.fits:
        if result.verdict.reasons:
            return clean(result.verdict.reasons[0].message)
        return gpu_memory_missing(result.memory) or "no layout fits"
    used = f"{gib(result.memory.peak_bytes)} of {gib(result.memory.usable_bytes)} GiB per GPU used"
    missed, figures = missed_text(result.verdict, result.currency), f"{used}, {_run(result)}"
    return f"{missed}: {figures}" if missed else figures


def _run(result: Result) -> str:
    hours = number(result.cost.gpu_hours.expected)
    return f"{spanned(result.time.total_s, result.time.calibrated)}, {hours} GPU-hours"


def pace_words(result: Result) -> str:
    """Behind the time of the whole job: the steps that it is of, and whether anybody gave them."""
    assumed = assumed_run(result.scenario)
    noun = round_noun(result.scenario)
    name = noun if result.time.steps == 1 else f"{noun}s"
    words = f"{result.time.steps:,.9g} {name} of {duration(result.time.step_s.expected)}"
    words += _between(result)
    return f" {assumed} ({words})" if assumed else f", {words}"


def _between(result: Result) -> str:
    """What checkpoints, evaluations and failures take of the whole job: `, of which checkpoints 3 %, failures 1 %`."""
    parts = [f"{clean(part.name)} {percent(part.share)}" for part in result.time.run[1:]]
    return f", of which {', '.join(parts)}" if parts else ""


def stack_words(result: Result) -> str:
    """The stack, what shares its states out where that is said, and that it was chosen where nobody named one."""
    chosen = (result.scenario.get("origin") or {}).get("stack") == "default"
    stack, backend = result.scenario.get("stack", ""), (result.scenario.get("train") or {}).get("backend")
    on = f" on {clean(backend)}" if backend not in (None, stack) else ""
    return f"stack {clean(stack)}{on}{', chosen' if chosen else ''}"


def caution(result: Result) -> str:
    """What changes the meaning of the answer; what the host has to do with a tight memory."""
    return "; ".join(filter(None, (*map(clean, result.cautions), _host_doubt(result))))


def _host_doubt(result: Result) -> str:
    """That the host's memory is unknown or nearly full, where memory turns on it."""
    if not is_tight(result) or not result.verdict.fits:
        return ""
    if not unsure_of_host(result):
        return "" if _tight_on_card(result) else _little_on_the_host(result.memory)
    needed = whole(math.ceil(result.memory.host_bytes / GIB))
    return (
        f"unsure: offloading needs {needed} GiB of host memory per node, and how much a node has is not known; "
        "'host_memory_gib: N' in the scenario (--host-memory-gib N) sets it"
    )


def _little_on_the_host(memory: Memory) -> str:
    left = gib((memory.host_available_bytes or 0.0) - memory.host_reserve_bytes - memory.host_bytes)
    return (
        f"offloading leaves {left} GiB of the node's memory free beside the {gib(memory.host_reserve_bytes)} "
        f"GiB kept for the system, less than the error of the model ({percent(memory.error_share)})"
    )


def pace(result: Result) -> tuple[str, float | None, str]:
    """The whole job."""
    if not may_run(result):
        return "total_s", None, NOT_A_NUMBER
    return "total_s", result.time.total_s.expected, duration(result.time.total_s.expected)


def pace_range(result: Result) -> str:
    return duration_range(result.time.total_s) if may_run(result) else ""


def missing_memory(result: Result) -> str:
    """Of a GPU, else of the host: `80.0 GiB missing`."""
    memory = result.memory
    missing = gpu_memory_missing(memory)
    if missing:
        return missing
    available = memory.host_available_bytes
    if available is not None and memory.host_bytes > available - memory.host_reserve_bytes:
        lacks = memory.host_bytes - max(available - memory.host_reserve_bytes, 0.0)
        return f"{byte_size(lacks)} of host memory missing"
    return "no layout fits"


# Pictures that other answers have too: memory, the parts of a step, ranges against limits.

MOST_PARTS = 8  # of a stack; the smallest are one part


def time_axis(label: str, longest_s: float, logarithmic: bool = False) -> Axis:
    """An axis of times, in the unit that fits the longest."""
    unit_s, name = time_unit(longest_s)
    return Axis(f"{label} [{name}]", unit_s, logarithmic)


def memory_picture(result: Sized) -> Picture:
    """The ledger of the worst GPU against what it can use."""
    memory = result.memory
    parts = merged([(component_name(result, part.name), part.bytes) for part in memory.components])
    usable, peak = memory.usable_bytes, memory.peak_bytes
    said = f"{gib(peak)} GiB of {gib(usable)} GiB usable"
    rest = f"{byte_size(memory.headroom_bytes)} free" if memory.headroom_bytes >= 0 else (
        f"{byte_size(-memory.headroom_bytes)} missing"
    )  # fmt: skip
    stack = Stack(
        Axis("Memory [GiB]", GIB),
        tuple(Part(name, size, f"{gib(size)} GiB", _share_words(size, usable)) for name, size in parts),
        Part(f"peak, {rest}", peak, f"{gib(peak)} GiB", _share_words(peak, usable)),
        (Mark(usable, f"usable {gib(usable)} GiB"),),
        usable,
    )
    note = f"Shares are of the usable memory ({memory_place(memory, memory.phase)})."
    return Picture("Memory of the worst GPU", f"{said}, {rest}: {_listed(stack.parts)}", stack, note)


def step_picture(title: str, components: Sequence[TimeComponent], step_s: float, marks: Sequence[Mark] = ()) -> Picture:
    """The parts of a step, the largest first."""
    parts = merged([(clean(part.name), part.seconds) for part in components])
    stack = Stack(
        time_axis("Time", step_s),
        tuple(Part(name, seconds, duration(seconds), _share_words(seconds, step_s)) for name, seconds in parts),
        Part("whole step", step_s, duration(step_s), percent(1.0)),
        tuple(marks),
    )
    return Picture(title, f"{duration(step_s)}: {_listed(stack.parts)}", stack)


def merged(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Parts by size; those beyond MOST_PARTS as one."""
    ranked = sorted(((name, value) for name, value in parts if value > 0), key=lambda part: -part[1])
    if len(ranked) <= MOST_PARTS:
        return ranked
    kept, rest = ranked[: MOST_PARTS - 1], ranked[MOST_PARTS - 1 :]
    return [*kept, (f"{len(rest)} smaller parts", sum(value for _, value in rest))]


def _share_words(value: float, whole: float) -> str:
    return percent(value / whole) if whole > 0 else ""


def _listed(parts: Sequence[Part]) -> str:
    return ", ".join(_said(parts))


def _said(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        yield f"{part.name} {part.text}"


# Memory over the moments of a step, over the phases of an iteration, and over the stages of a pipeline: one scale, so
# that a reader sees which is the fullest, and why.

STATES, KEPT, ENGINE, CACHE, AROUND = "weights and states", "activations and logits", "engine", "KV cache", "buffers"
KINDS = {
    "activations": KEPT, "logits and loss": KEPT, "engine: weights": ENGINE, "engine": ENGINE,
    "engine asleep": ENGINE, "engine: KV cache": CACHE, "engine: buffers and context": AROUND,
    "context, buffers, slack": AROUND,
}  # fmt: skip
"""Kinds of holdings as a picture of phases tells them apart, where there are more than it has colours for."""
IN_TABLE = {"states": STATES, "activations": KEPT, "buffers": AROUND}


def memory_over_time(result: Result) -> Iterator[Picture]:
    """What the fullest GPU holds at each moment of a step, or in each phase of an iteration."""
    if result.phases:
        parts = [(phase.name, phase.peak_bytes, _fewer(phase.holds)) for phase in result.phases]
        title, of = "Memory by phase", "The fullest GPU of those at work in each phase"
    else:
        parts = [(moment.name, moment.bytes, moment.holds) for moment in result.memory.moments]
        title, of = "Memory over a step", f"The worst GPU ({memory_place(result.memory, 'cautious')})"
    if all(holds for _, _, holds in parts) and parts:
        lanes = [(clean(name), size, "", holds) for name, size, holds in parts]
        yield _memory_rows(result, title, lanes, f"{of}; figures as the verdict takes them.")


def stages_picture(result: Result) -> Iterator[Picture]:
    """Every stage of a pipeline at its worst moment; nothing without a pipeline."""
    stages = result.memory.stages
    if stages:
        lanes = [(f"stage {one.stage}", one.peak_bytes, _stage_words(one), one.holds) for one in stages]
        note = "Each at its own worst moment; figures as the verdict takes them."
        yield _memory_rows(result, "Memory of every pipeline stage", lanes, note)


def _stage_words(stage: StageMemory) -> str:
    layers = f"{stage.layers:,.4g} layer{'s' * (stage.layers != 1)}"
    return f"{layers}, {stage.micro_batches:,.4g} in flight"


def _fewer(holds: Sequence[Holding]) -> tuple[Holding, ...]:
    found: dict[str, float] = {}
    for one in holds:
        kind = KINDS.get(one.name, STATES)
        found[kind] = found.get(kind, 0.0) + one.bytes
    return tuple(Holding(name, size) for name, size in found.items())


def _memory_rows(
    result: Result, title: str, lanes: Sequence[tuple[str, float, str, Sequence[Holding]]], note: str
) -> Picture:
    """Bars of name, size, words and what they hold, against what is usable."""
    usable = result.memory.usable_bytes
    kinds = tuple(dict.fromkeys(clean(one.name) for *_, holds in lanes for one in holds))
    drawn = []
    for name, size, about, holds in lanes:
        ends = accumulate(one.bytes for one in holds)
        pieces = (
            Piece(end - one.bytes, end, kinds.index(clean(one.name)), says=f"{clean(one.name)}: {gib(one.bytes)} GiB")
            for one, end in zip(holds, ends, strict=True)
        )
        drawn.append(Row(f"{name}: {about}" if about else name, tuple(pieces), f"{gib(size)} GiB"))
    marks = (Mark(usable, f"usable {gib(usable)} GiB"),) if usable else ()
    says = "; ".join(f"{lane.name} {lane.text}" for lane in drawn)
    return Picture(title, says, Rows(Axis("Memory [GiB]", GIB), tuple(drawn), kinds, marks), note)


def iteration_picture(result: Result) -> Iterator[Picture]:
    """An iteration of reinforcement learning: which GPUs do what when; nothing of other jobs."""
    pools = phases_of_pools(result)
    if not pools or not may_run(result):
        return
    kinds = tuple(clean(phase.name) for phase in result.phases)
    lanes = []
    for pool, work in pools:
        pieces = tuple(
            Piece(
                start_s, start_s + phase.seconds, kinds.index(clean(phase.name)), clean(phase.name),
                f"{clean(phase.name)}: {duration(phase.seconds)}",
            )
            for start_s, phase in work
        )  # fmt: skip
        waits = f"waits {percent(pool.idle_share)}" if pool.idle_share >= WAITS else ""
        lanes.append(Row(f"{plural(pool.gpus, 'GPU')}: {_does(pool)}", pieces, waits))
    step_s = result.time.step_s.expected
    says = "; ".join(f"{clean(phase.name)} {duration(phase.seconds)}" for phase in result.phases)
    drawing = Rows(time_axis("Time", step_s), tuple(lanes), kinds)
    yield Picture(f"One iteration: {duration(step_s)}", says, drawing)


def _does(pool: Pool) -> str:
    return {"trainer": "train", "rollout": "write answers", BOTH: "write answers and train in turn"}.get(
        pool.name, clean(DOES.get(pool.name, f"run the {pool.name}"))
    )


# Pictures of one job.


def pictures(result: Result) -> Iterator[Picture]:
    """Of a job that fits: all; of one that does not: its memory, as it will never run."""
    if may_run(result):
        yield _total(result)
        if result.cost.price is not None:
            yield _price(result)
    yield memory_picture(result)
    yield from memory_over_time(result)
    yield from stages_picture(result)
    yield from iteration_picture(result)
    if may_run(result):
        time = result.time
        ideal = (Mark(time.ideal_step_s, f"roofline limit {duration(time.ideal_step_s)}"),) if time.ideal_step_s else ()
        yield step_picture("Time of a step", time.components, time.step_s.expected, ideal)


def limit_marks(result: Result, name: str, unit: float, text: str) -> tuple[Mark, ...]:
    """The line of a limit. text : the limit in words, with its value in place of {}"""
    found = [limit.limit for limit in result.verdict.limits if limit.name == name]
    return tuple(Mark(limit * unit, text.format(number(limit))) for limit in found)


def _total(result: Result) -> Picture:
    span = result.time.total_s
    text = f"{duration(span.expected)}, {duration_range(span)}"
    marks = limit_marks(result, "max_hours", HOUR_S, "limit {} h")
    bars = Bars(
        time_axis("Time", span.high),
        (Bar("whole job", span.expected, text, span.low, span.high),),
        marks,
    )
    limits = "".join(f"; {mark.text}" for mark in marks)
    return Picture("Time of the whole job", f"{EXPECTED} and range: {text}{limits}", bars, RANGE_NOTE)


EXPECTED = "expected"  # what the value between the ends of a range is called
RANGE_NOTE = f"The bar is the {EXPECTED} value, the line through its end the range."


def _price(result: Result) -> Picture:
    price = result.cost.price
    assert price is not None
    currency = clean(price.currency)
    text = f"{amount(price.expected)} {currency}, {value_range(price.low, price.high, amount)}"
    marks = limit_marks(result, "max_cost", 1.0, f"limit {{}} {currency}")
    bar = Bar("whole job", price.expected, text, price.low, price.high)
    drawing = Bars(Axis(f"Price [{currency}]"), (bar,), marks)
    limits = "".join(f"; {mark.text}" for mark in marks)
    return Picture("Price of the whole job", f"{EXPECTED} and range: {text}{limits}", drawing)


# The report, table by table.

ANSWER = Result
WORST_LOSSES = 2
PAIR = 2  # sequences of a sample that is a chosen and a rejected answer
PACKED = "packed"  # samples end to end, whose lengths do not matter
NEVER_RUNS = "no time and no cost: the job does not fit"
UNITS = (
    ("tokens_per_s_per_gpu", "tokens/s"),
    ("samples_per_s", "samples/s"),
    ("gpu_hours", "h"),
    ("hours", "h"),
    ("kwh", "kWh"),
    ("kw", "kW"),
    ("power_w", "W"),
    ("gib", "GiB"),
    ("bytes", "bytes"),
    ("seconds", "s"),
    ("_s", "s"),
    ("share", "fraction"),
    ("mfu", "fraction"),
    ("hfu", "fraction"),
    ("tokens", "tokens"),
)
MONEY = (("price",), ("parts",), ("electricity",))
"""Beginnings of the names of amounts of money."""
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
    if result.memory.stages:
        yield stages_table(result)
    if result.memory.host_bytes:
        yield host_table(result)
    if may_run(result):
        yield time_table(result)
    if may_run(result) and result.time.modules:
        yield module_table(result)
    yield from explanations(result, options.explain)
    yield from remarks(result)


_LARGEST = {
    "context": ("Context", "{:,} tokens"),
    "micro-batch": ("Micro-batch", "{:,}"),
    "rank": ("Rank", "{:,}"),
    "model": ("Model", "{}"),
}
_NO_LARGER = {
    "positions": "the model has no more positions",
    "batch": "all of the global batch",
    "width": "as wide as the model",
    "catalogue": "no larger model is in the catalogue",
}


def _fit_point(result: Result) -> Iterator[Point]:
    """The largest of what was looked for, and what the next larger lacks."""
    found = result.fit
    if found is None:
        return
    label, form = _LARGEST[found.question]
    largest = f"{form.format(found.value)} is the largest that fits"
    if found.next_value is None:
        yield Point(label, f"{largest}: {_NO_LARGER[found.bound]}")
    elif found.next_peak_bytes is None:
        yield Point(label, f"{largest}; {form.format(found.next_value)} cannot be split over these GPUs")
    else:
        over = f"{gib(found.next_peak_bytes)} of {gib(result.memory.usable_bytes)} GiB per GPU"
        chance = "" if found.next_probability is None else f", {probability_words(found.next_probability)} that it fits"
        yield Point(label, f"{largest}; {form.format(found.next_value)} needs {over}{chance}")


def _points(result: Result) -> Iterator[Point]:
    """Time and cost where it fits, GPUs, memory, limits, and the one thing to change."""
    yield from _fit_point(result)
    if may_run(result):
        yield Point("Time", f"{spanned(result.time.total_s, result.time.calibrated)}{pace_words(result)}")
        yield from evidence_point(result.time.basis, result.scenario)
        yield Point("Cost", ", ".join(_cost_words(result.cost)))
        yield from _lengths_point(result)
    yield from iteration_points(result)
    yield gpus_point(result.gpus, kept=groups_kept(result), why_more=_held_less(result))
    yield Point("Layout", f"{layout_words(result.layout)}, {stack_words(result)}")
    yield from image_point(result)
    yield memory_point(result.memory, result.verdict, _tight_on_card(result))
    memory, on_card = result.memory, _tight_on_card(result)
    tight = is_tight(result) and result.verdict.fits and not on_card
    yield from host_point(memory.host_bytes, memory.host_available_bytes, memory.host_reserve_bytes, tight=tight)
    yield from limits_points(result.verdict, result.currency)
    yield from change_point(result.advice)


def _lengths_point(result: Result) -> Iterator[Point]:
    """That all samples are counted as long as a sequence, where no data says otherwise and they are not packed."""
    scenario, train = result.scenario, result.scenario.get("train") or {}
    said = scenario.get("data") or train.get("padding", PACKED) == PACKED or assumed_run(scenario)
    if not said and "seq_len" in train:
        full = f"every sample is counted as {count(train['seq_len'])} tokens, as no data is given"
        yield Point("Assumed", f"{full} (--dataset or --mean-tokens says how long they are)")


def _held_less(result: Result) -> str:
    """What a GPU has less of where there are more replicas, as the groups that split the model are fixed."""
    in_flight = "fewer micro-batches in flight" if result.layout.pp > 1 else ""
    shared = "a smaller share of the states" if result.layout.zero else ""
    return " and ".join(filter(None, (in_flight, shared))) if groups_kept(result) else ""


def _tight_on_card(result: Result) -> bool:
    memory = result.memory
    return memory.headroom_bytes < memory.error_share * memory.peak_bytes or not memory.host_bytes


def _cost_words(cost: Cost) -> Iterator[str]:
    if cost.price is not None:
        price, currency = cost.price, clean(cost.price.currency)
        yield f"{money(price.expected, currency)} ({value_range(price.low, price.high, amount)})"
        yield from part_words(cost.parts)
    yield f"{number(cost.gpu_hours.expected)} GPU-hours ({value_range(cost.gpu_hours.low, cost.gpu_hours.high)})"
    if cost.energy_kwh is not None:
        yield f"{number(cost.energy_kwh)} kWh"
    if cost.electricity is not None:
        power = cost.electricity
        if said := electricity_words(power.expected, power.currency, cost.parts, cost.price is not None):
            yield said
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


def stages_table(result: Result) -> Table:
    """Every stage of the pipeline at its worst moment: what makes one of them the fullest."""
    usable, stages = result.memory.usable_bytes, result.memory.stages
    shares = tuple(one.peak_bytes / usable if usable else None for one in stages)
    held = [{kind.name: kind.bytes for kind in _fewer(one.holds)} for one in stages]
    rows = tuple(
        (
            whole(one.stage),
            f"{one.layers:,.4g}",
            f"{one.micro_batches:,.4g}",
            *(gib(kinds.get(kind, 0.0)) for kind in IN_TABLE.values()),
            gib(one.peak_bytes),
            NOT_A_NUMBER if share is None else percent(share),
            clean(one.phase),
        )
        for one, share, kinds in zip(stages, shares, held, strict=True)
    )
    columns = (
        Column("stage", True),
        Column("layers", True),
        Column("in flight", True),
        *(Column(name, True, spare=spare) for name, spare in zip(IN_TABLE, (2, 1, 3), strict=True)),
        Column("GiB", True),
        Column("of usable", True),
        Column("worst moment", spare=4),
    )
    note = (
        "GiB per GPU, each stage at its worst moment; in flight: micro-batches whose activations it holds; states: "
        "weights, gradients and optimizer states; activations: with logits; buffers: context, communication and slack"
    )
    return Table("Memory of every pipeline stage", columns, rows, shares=shares, note=note)


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
    if not may_run(result):
        columns = (Column("quantity"), Column("expected", True), Column(""))
        return Table(title="Whole job", columns=columns, rows=(steps, *tokens), note=NEVER_RUNS)
    rows = [
        (f"time per {noun}", duration(time.step_s.expected), duration_range(time.step_s)),
        steps,
        ("total time", duration(time.total_s.expected), duration_range(time.total_s)),
        *_run_rows(time),
        *((("start-up, not included", duration(time.start_up_s), "assumed"),) if time.start_up_s else ()),
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
    columns = (Column("quantity"), Column(EXPECTED, True), Column(span))
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
        time = f"{duration(one.seconds)}, {percent(one.seconds / whole_s)} of {of}" if may_run(result) else "-"
        rows.append((clean(one.name), clean(one.model), held, whole(one.passes), time))
    columns = (
        Column("weights"),
        Column("model"),
        Column("per GPU", True),
        Column("passes", True),
        Column("time", True),
    )
    return Table(title="Frozen models", columns=columns, rows=tuple(rows))


def _read(result: Result) -> str:
    """What a step reads: a packed sequence holds several samples, or part of one."""
    sample = "sequences" if result.data.padding == "packed" else _noun(result.data)
    return "responses" if result.iteration else sample


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
        yield from ((clean(part.name), money(part.value, price.currency), "of the price") for part in cost.parts)
    if cost.electricity is not None and not cost.parts:
        power, of = cost.electricity, "a rent includes it" if cost.price else "hardware has no price"
        yield ELECTRICITY, money(power.expected, power.currency), of
    if cost.power_w is not None:
        yield "power at load", f"{number(cost.power_w / WATT_PER_KW)} kW", "of the servers, without cooling"
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
            is_money = path[:1] in MONEY or path in (("hourly_price", "per_hour"), ("hourly_price", "own", "capex"))
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
