"""A step as a Chrome trace, which Perfetto opens: what each pipeline stage does when, and memory of the fullest.

One process a stage with a row each for compute, communication and offloading; the spans of a stage add up to the step.
The order of the passes is that of the schedule. What compute does not hide of an exchange follows the pass that it
belongs to. Where the time of the pipeline is not that of the drawn order, as for schedules that split the backward, the
spans are stretched to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.result.training import Result

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
MICROSECONDS = 1e6


class Pass(Immutable, eq=True):
    """A forward or a backward of a chunk of layers for one micro-batch."""

    backward: bool
    micro_batch: int
    chunk: int


class Span(Immutable):
    """What a stage does from one time to another [s]."""

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
    events = [_event(span) for span in spans]
    stages = sorted({span.stage for span in spans})
    rows = sorted({(span.stage, span.row) for span in spans})
    events += [_named("process_name", stage, 0, _stage_name(stage, len(stages))) for stage in stages]
    events += [_named("thread_name", stage, row, ROWS[row]) for stage, row in rows]
    events += _memory(result, spans)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _spans(result: Result) -> Iterator[Span]:
    """Everything that the stages do, with their waits."""
    seconds = {part.name: part.seconds for part in result.time.components}
    if result.iteration is not None:
        yield from _in_a_row(seconds, tuple(seconds), 0.0, 0)
        return
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


# Memory over the step, of the GPU that has the least room.

_STAGE = re.compile(r"pipeline stage (\d+) of")


def _memory(result: Result, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """A counter through the moments of the ledger: its maximum is the peak."""
    moments = [moment.bytes for moment in result.memory.moments]
    if not moments or result.iteration is not None:
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


def _event(span: Span) -> dict[str, Any]:
    told = {} if span.micro_batch is None else {"args": {"micro-batch": span.micro_batch}}
    place = {"pid": span.stage, "tid": span.row}
    return {
        "ph": "X",
        "name": span.name,
        **place,
        "ts": span.start_s * MICROSECONDS,
        "dur": span.seconds * MICROSECONDS,
        **told,
    }


def _named(kind: str, stage: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": stage, "tid": row, "args": {"name": name}}


def _counter(stage: int, time_s: float, size: float) -> dict[str, Any]:
    return {"ph": "C", "name": "memory", "pid": stage, "ts": time_s * MICROSECONDS, "args": {"bytes": size}}


def _stage_name(stage: int, stages: int) -> str:
    return f"pipeline stage {stage + 1} of {stages}" if stages > 1 else "GPU"
