"""A step as a Chrome trace, which Perfetto opens: what each pipeline stage does when, and memory of the fullest.

One process a stage with a row each for compute, communication and offloading; the spans of a stage add up to the step.
An iteration of reinforcement learning has one process for the GPUs that do the same work, and memory of each of them.
The order of the passes is that of the schedule. What compute does not hide of an exchange follows the pass that it
belongs to. Where the time of the pipeline is not that of the drawn order, as for schedules that split the backward, the
spans are stretched to it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.result.training import Phase, Pool, Result

FORWARD = ("forward", "frozen forward", "image encoder", "generator")
BACKWARD = ("recompute", "backward")
EXCHANGES = ("tensor-parallel communication", "context-parallel communication", "expert-parallel communication")
WAITS = ("pipeline bubble", "pipeline transfers")
HOST = "host"
COMPUTE, COMMUNICATION, OFFLOADING = 1, 2, 3
ROWS = {COMPUTE: "compute", COMMUNICATION: "communication", OFFLOADING: "offloading"}
AFTER = {
    "data-parallel communication": COMMUNICATION, "gathered states": COMMUNICATION,
    "transfers to and from host memory": OFFLOADING, "offload": OFFLOADING, "optimizer": COMPUTE,
    "matrix work of the optimizer": COMMUNICATION, "step overhead": COMPUTE,
}  # fmt: skip
"""Parts of a step that follow its micro-batches, in their order, with the row on which they stand."""
WAITING = "waiting"
NANOSECONDS = 1e9
ROLLOUT, SYNCHRONISATION = "rollout", "weight synchronisation"


class Pass(Immutable, eq=True):
    """A forward or a backward of a chunk of layers for one micro-batch."""

    backward: bool
    micro_batch: int
    chunk: int


class Span(Immutable):
    """What a stage, or a pool of GPUs, does from one time to another [s]; both are counted from 0."""

    stage: int
    row: int
    name: str
    start_s: float
    seconds: float
    micro_batch: int | None = None


def step_trace(result: Result) -> str:
    """The JSON of a trace, of a result that fits.

    Source: Trace Event Format (Google, 2016): complete events, counters and names of processes and threads.
    """
    spans = list(_spans(result))
    stages = sorted({span.stage for span in spans})
    names = _names(result, len(stages))
    rows = sorted({(span.stage, span.row) for span in spans})
    events = list(_complete_events(spans))
    events += [_named("process_name", _process(stage), None, names[stage]) for stage in stages]
    events += [_named("thread_name", _process(stage), _process(stage) + row, ROWS[row]) for stage, row in rows]
    events += _iteration_memory(result) if result.iteration else _memory(result, spans)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _names(result: Result, stages: int) -> list[str]:
    if result.iteration:
        return [f"{pool.name} ({pool.gpus} GPUs)" for pool in result.pools]
    return [f"pipeline stage {stage + 1} of {stages}" if stages > 1 else "GPU" for stage in range(stages)]


def _spans(result: Result) -> Iterator[Span]:
    """Everything that the stages do, with their waits."""
    if result.iteration is not None:
        yield from _iteration_spans(result)
        return
    seconds = {part.name: part.seconds for part in result.time.components}
    stages = range(result.layout.pp)
    within = [name for name in seconds if name not in AFTER]
    pipeline_s = sum(seconds[name] for name in within)
    parts = {backward: _weights(backward, seconds) for backward in (False, True)}
    passes = _scheduled(result, parts)
    last_s = max((start + length for done in passes for _, start, length in done), default=0.0)
    stretch = pipeline_s / last_s if last_s else 1.0
    for stage in stages:
        at = 0.0
        for one, start, length in passes[stage]:
            start_s, length_s = start * stretch, length * stretch
            if start_s > at * (1.0 + 1e-9):
                yield Span(stage, COMPUTE, WAITING, at, start_s - at)
            yield from _parts_of(one, stage, parts[one.backward], start_s, length_s)
            at = start_s + length_s
        if pipeline_s > at * (1.0 + 1e-9):
            yield Span(stage, COMPUTE, WAITING, at, pipeline_s - at)
        yield from _in_a_row(seconds, tuple(AFTER), pipeline_s, stage)


def _in_a_row(seconds: Mapping[str, float], names: Sequence[str], start_s: float, stage: int) -> Iterator[Span]:
    """Parts of the step one after the other."""
    for name in names:
        if seconds.get(name):
            yield Span(stage, AFTER.get(name, COMPUTE), name, start_s, seconds[name])
            start_s += seconds[name]


def _parts_of(one: Pass, stage: int, parts: Mapping[str, float], start_s: float, length_s: float) -> Iterator[Span]:
    """A pass part by part: its compute, then what is exposed of its exchanges."""
    whole = sum(parts.values())
    for name, weight in parts.items():
        if weight:
            part_s = length_s * weight / whole
            row = COMMUNICATION if name in EXCHANGES else COMPUTE
            yield Span(stage, row, name, start_s, part_s, one.micro_batch)
            start_s += part_s


def _weights(backward: bool, seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds of all passes of a kind by part; exchanges and the host go with compute."""
    computes = {name: sum(seconds.get(part, 0.0) for part in names)
                for name, names in (("forward", FORWARD), ("backward", BACKWARD))}  # fmt: skip
    both = sum(computes.values())
    share = computes["backward" if backward else "forward"] / both if both else 0.5
    own = BACKWARD if backward else FORWARD
    parts = {name: seconds[name] for name in own if seconds.get(name)}
    return parts | {name: share * seconds[name] for name in (*EXCHANGES, HOST) if seconds.get(name)}


def _scheduled(result: Result, parts: Mapping[bool, Mapping[str, float]]) -> list[list[tuple[Pass, float, float]]]:
    """Passes of each stage with start and length [s], each as early as its order and what it needs allow."""
    stages, micro_batches, chunks = result.layout.pp, result.layout.grad_accum, max(result.layout.vpp, 1)
    if micro_batches % stages:
        chunks = 1  # chunks take turns by groups of as many micro-batches as there are stages
    lengths = [sum(parts[backward].values()) / micro_batches / chunks for backward in (False, True)]
    orders = [_order(result.layout.schedule, stage, stages, micro_batches, chunks) for stage in range(stages)]
    done: list[list[tuple[Pass, float, float]]] = [[] for _ in range(stages)]
    ends: dict[tuple[int, Pass], float] = {}
    while any(len(found) < len(order) for found, order in zip(done, orders, strict=True)):
        moved = False
        for stage in range(stages):
            while len(done[stage]) < len(orders[stage]):
                one = orders[stage][len(done[stage])]
                needs = _needs(one, stage, stages, chunks)
                if needs is not None and needs not in ends:
                    break
                before = sum(done[stage][-1][1:]) if done[stage] else 0.0
                start = max(before, ends.get(needs, 0.0) if needs else 0.0)
                done[stage].append((one, start, lengths[one.backward]))
                ends[stage, one] = start + lengths[one.backward]
                moved = True
        if not moved:
            raise AssertionError("the order of the passes waits for itself")
    return done


def _needs(one: Pass, stage: int, stages: int, chunks: int) -> tuple[int, Pass] | None:
    """The stage and pass whose output a pass reads; None for the first forward."""
    ahead = 1 if one.backward else -1
    other, chunk = stage + ahead, one.chunk
    if not 0 <= other < stages:
        other, chunk = (0, chunk + 1) if one.backward else (stages - 1, chunk - 1)
    if chunk < 0:
        return None
    if chunk >= chunks:  # the loss turns the last forward round
        return stage, Pass(False, one.micro_batch, one.chunk)
    return other, Pass(one.backward, one.micro_batch, chunk)


def _order(schedule: str, stage: int, stages: int, micro_batches: int, chunks: int) -> list[Pass]:
    """Passes of a stage in their order: all forwards first, or so many as fill the pipeline and then by turns.

    Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; Huang et al. 2019 (arXiv:1811.06965).
    """
    count = micro_batches * chunks
    forwards = [_nth(place, stages, chunks, backward=False) for place in range(count)]
    backwards = [_nth(place, stages, chunks, backward=True) for place in range(count)]
    if schedule == "gpipe":
        return [*forwards, *backwards]
    ahead = stages - stage if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
    ahead = min(ahead, count)
    order = forwards[:ahead]
    for place, backward in enumerate(backwards):
        order.append(backward)
        order += forwards[ahead + place : ahead + place + 1]
    return order


def _nth(place: int, stages: int, chunks: int, *, backward: bool) -> Pass:
    """The pass at a place of the order; chunks take turns by groups of as many micro-batches as there are stages."""
    if chunks == 1:
        return Pass(backward, place, 0)
    group, within = divmod(place, stages * chunks)
    chunk, micro_batch = divmod(within, stages)
    return Pass(backward, group * stages + micro_batch, chunks - 1 - chunk if backward else chunk)


# An iteration of reinforcement learning: its phases on the GPUs that do them, in turn or beside each other.


def phases_of_pools(result: Result) -> list[tuple[Pool, list[tuple[float, Phase]]]]:
    """The phases that each pool works in, and when they begin [s]; nothing of other jobs.

    Who trains waits for the answers, or works on older ones meanwhile; weights are synchronised when both are done.
    Models on GPUs of their own work beside the trainer.
    """
    one, phases = result.iteration, {phase.name: phase for phase in result.phases}
    written = phases.get(ROLLOUT)
    first_s = 0.0 if written is None or (one and one.asynchronous) else written.seconds
    found: list[tuple[Pool, list[tuple[float, Phase]]]] = []
    for pool in result.pools:
        writes = pool.replicas and not pool.model
        work = [(0.0, written)] if writes and written else []
        at_s = first_s
        for name, phase in phases.items():
            own = phase.pool == pool.name if phase.pool else bool(pool.layout)
            if name not in (ROLLOUT, SYNCHRONISATION) and own:
                at_s = max(at_s, phase.start_s)
                work.append((at_s, phase))
                at_s += phase.seconds
        if (last := phases.get(SYNCHRONISATION)) and not pool.model:
            work.append((result.time.step_s.expected - last.seconds, last))
        found.append((pool, work))
    return found


def _iteration_spans(result: Result) -> Iterator[Span]:
    """The parts of every phase, and what each pool waits."""
    for place, (_, work) in enumerate(phases_of_pools(result)):
        at_s = 0.0
        for start_s, phase in work:
            if start_s > at_s * (1.0 + 1e-9):
                yield Span(place, COMPUTE, WAITING, at_s, start_s - at_s)
            at_s = start_s
            row = COMMUNICATION if phase.name == SYNCHRONISATION else COMPUTE
            for part in phase.components:
                yield Span(place, row, part.name, at_s, part.seconds)
                at_s += part.seconds
        if result.time.step_s.expected > at_s * (1.0 + 1e-9):
            yield Span(place, COMPUTE, WAITING, at_s, result.time.step_s.expected - at_s)


def _iteration_memory(result: Result) -> Iterator[dict[str, Any]]:
    """The peak of each phase on the GPUs that are at work in it; an engine alone on its GPUs keeps its memory."""
    for place, (pool, work) in enumerate(phases_of_pools(result)):
        trains = [(start_s, phase.peak_bytes) for start_s, phase in work if pool.layout]
        yield from (_counter(place, start_s, size) for start_s, size in trains or [(0.0, pool.peak_bytes)])


# Memory over the step, of the GPU that has the least room.

_STAGE = re.compile(r"pipeline stage (\d+) of")


def _memory(result: Result, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """A counter through the moments of the ledger: its maximum is the peak."""
    moments = [moment.bytes for moment in result.memory.moments]
    if not moments:
        return [_counter(0, 0.0, result.memory.peak_bytes)]
    match = _STAGE.search(result.memory.gpu or "")
    stage = int(match[1]) - 1 if match else 0
    own = [span for span in spans if span.stage == stage]
    backwards = [span for span in own if span.micro_batch is not None and span.name in BACKWARD]
    end_s = max(span.start_s + span.seconds for span in own)
    first_s, first = (backwards[0].start_s, backwards[0].micro_batch) if backwards else (end_s, None)
    through_s = max((span.start_s + span.seconds for span in backwards if span.micro_batch == first), default=end_s)
    updates_s = min((span.start_s for span in own if span.name == "optimizer"), default=end_s)
    last_s = max((span.start_s + span.seconds for span in backwards), default=end_s)
    forward, loss, last_layer, first_layer, backward, update = moments
    at = ((0.0, min(moments)), (first_s, max(forward, loss)), (first_s, last_layer), (through_s, first_layer),
          (last_s, backward), (updates_s, update), (end_s, min(moments)))  # fmt: skip
    return [_counter(stage, time_s, size) for time_s, size in at]


# Events, as Perfetto reads them: whole nanoseconds, as two that share one on a row would not both be kept, and ids that
# no two rows of a trace have in common.

_IDS = 10  # of a process: its own, then those of its rows


def _process(stage: int) -> int:
    return _IDS * (stage + 1)


def _complete_events(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Spans as events; none begins before the one before it on its row has ended."""
    free: dict[tuple[int, int], int] = {}
    for span in spans:
        row, process = (span.stage, span.row), _process(span.stage)
        start = max(round(span.start_s * NANOSECONDS), free.get(row, 0))
        end = free[row] = max(round((span.start_s + span.seconds) * NANOSECONDS), start)
        times = {"ts": _microseconds(start), "dur": _microseconds(end - start)}
        told = {} if span.micro_batch is None else {"args": {"micro-batch": span.micro_batch}}
        yield {"ph": "X", "name": span.name, "pid": process, "tid": process + span.row, **times, **told}


def _microseconds(nanoseconds: int) -> float:
    """Microseconds that are these nanoseconds again, whether a thousandfold is rounded or cut."""
    value = nanoseconds / 1000
    return value if int(value * 1000) == nanoseconds else math.nextafter(value, math.inf)


def _named(kind: str, process: int, row: int | None, name: str) -> dict[str, Any]:
    of = {} if row is None else {"tid": row}
    return {"ph": "M", "name": kind, "pid": process, **of, "args": {"name": name}}


def _counter(stage: int, time_s: float, size: float) -> dict[str, Any]:
    at = _microseconds(round(time_s * NANOSECONDS))
    return {"ph": "C", "name": "memory", "pid": _process(stage), "ts": at, "args": {"bytes": size}}
