"""Continuous batching in a steady state: what each step holds, how long a token and a request take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.step import Work, step_time

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.step import StepTime
    from xe_sizer.serving.traffic import Traffic

LEAST_STEPS = 1e-3  # of an answer of one token, which the prefill produces


@frozen
class Steady:
    """A replica in a steady state with a constant number of requests inside; arrays of shape (points,).

    running : requests inside; decoding : of them those that get a token in every step
    decode : the step of decodes alone; step_s : the mean time from one token of a sequence to the next, slowed by the
    prompts of others
    prefill_s : from when a prompt is taken in to its first token, once nothing is before it
    prompt_s : time that a prompt adds to the steps of all others; requests_per_s : finished [1/s]
    room_s : what a request waits inside for room in the steps, where these are full
    """

    running: Array
    decoding: Array
    decode: StepTime
    prefill: StepTime
    step_s: Array
    tpot_s: Array
    prefill_s: Array
    prompt_s: Array
    requests_per_s: Array
    room_s: Array


@frozen
class _Chunks:
    """How prompts become pieces of steps: pieces of a prompt, their new tokens and what is cached before them."""

    pieces: Array
    tokens: Array
    past: Array


def _chunks(job: ServingJob, traffic: Traffic, decoding: Array) -> _Chunks:
    """Prompts are cut where a step has no room for them beside the decodes; uncut ones run in steps of their own.

    decoding : sequences of one group
    """
    batching, limit = job.engine.batching, float(job.engine.batching.max_step_tokens)
    new, cached = traffic.new_inputs, traffic.inputs - traffic.new_inputs
    room = np.maximum(limit - decoding, limit / 8.0) if batching.mixed_steps else np.full(1, limit)
    pieces = np.maximum(np.ceil(new / room), 1.0) if batching.chunked_prefill else np.ones(1)
    return _Chunks(pieces, new / pieces, cached + new * (1.0 - 1.0 / pieces) / 2.0)


def mean_past(traffic: Traffic) -> float:
    """Tokens before the one that a decode produces, averaged over time, in which long answers weigh more [tokens]."""
    return traffic.inputs + traffic.outputs_in_time / 2.0


def steady(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic, running: ArrayLike) -> Steady:
    """A replica that always has the same number of requests inside.

        t = (1 - n) t(decodes) + n t(decodes and one piece)      prompts share steps with decodes, n < 1
        t = t(decodes and n pieces)                              prompts share steps with decodes, n >= 1
        t = t(decodes) + n t(one piece)                          prompts stop the decodes
        n = decoding / steps of an answer x pieces of a prompt

    In the time of one answer every running sequence is replaced once; n are the pieces of prompts that come to a step,
    a prompt is one where the engine does not cut it. Steps hold `max_step_tokens` at most: no more
    than limit / (1 + new inputs / outputs) sequences decode at once.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,) or (points,)
    traffic : lengths of prompts and answers
    running : requests inside, shape (points,) [-]

    Returns
    -------
    Steady, shape (points,), seconds [s] and requests per second [1/s]

    Source: own derivation, continuous batching (arXiv:2309.06180) with chunked prefill (arXiv:2308.16369) in its mean.
    """
    running = np.broadcast_to(as_array(running), np.broadcast_shapes(np.shape(running), placements.tp.shape))
    steps = max((traffic.outputs - 1.0) / traffic.tokens_per_step, LEAST_STEPS)
    groups = job.groups(placements)
    decoding, waiting = _decoding(job, traffic, running, steps, groups)
    cut = _chunks(job, traffic, decoding / groups)
    per_step = decoding / steps * cut.pieces
    batch = _prompts_of_a_step(job, per_step, cut, groups)
    decode, prefill = _both_steps(job, placements, traffic, decoding, batch, cut)
    decode_s = decode.total_s * (1.0 + traffic.draft_tokens * traffic.draft_cost)
    beside_s = np.minimum(per_step / groups, 1.0) * (prefill.total_s - decode.total_s)
    apart_s = per_step / batch * prefill.total_s
    step_s = decode_s + (beside_s if job.engine.batching.mixed_steps else apart_s)
    # Nobody is slowed by a prompt of their own.
    felt_s = decode_s + (step_s - decode_s) * np.maximum(running - 1.0, 0.0) / running
    behind_s = felt_s if job.engine.batching.first_token == "decode" else 0.0
    requests_per_s = decoding / (steps * step_s)
    return Steady(
        running=running,
        decoding=decoding,
        decode=decode,
        prefill=prefill,
        step_s=felt_s,
        tpot_s=felt_s / traffic.tokens_per_step * (traffic.outputs > 1.0),
        prefill_s=cut.pieces * prefill.total_s + job.request_s + behind_s + _unseen_s(job, running, felt_s),
        prompt_s=(step_s - decode_s) * steps / decoding,
        requests_per_s=requests_per_s,
        room_s=waiting / requests_per_s,
    )


def _unseen_s(job: ServingJob, running: Array, step_s: Array) -> Array:
    """Time for which a scheduler does not see a request that has come, beside what is left of a step [s].

        t = ((1 with overlap) + (recv_interval - 1) / 2) step (running - 1) / running

    A step that is made up while another runs is full for those that come then; who looks at arrivals every few steps
    finds them half of these later. With nobody else inside there is no step to wait for.
    """
    batching = job.engine.batching
    steps = float(batching.overlaps) + (batching.scheduler_recv_interval - 1.0) / 2.0
    return np.asarray(steps * step_s * np.maximum(running - 1.0, 0.0) / running)


def _decoding(job: ServingJob, traffic: Traffic, running: Array, steps: float, groups: Array) -> tuple[Array, Array]:
    """Of the requests inside those that decode, and those that wait for room in the steps: the rest prefills [-]."""
    limit = float(job.engine.batching.max_step_tokens)
    pieces = _chunks(job, traffic, np.minimum(running / groups, limit)).pieces
    decoding = running * steps / (steps + pieces)
    if not job.engine.batching.mixed_steps:
        return decoding, np.zeros(decoding.shape)
    most = limit * groups / (traffic.draft_tokens + 1.0 + traffic.new_inputs / steps)
    return np.minimum(decoding, most), running * np.maximum(1.0 - most / decoding, 0.0)


def _prompts_of_a_step(job: ServingJob, per_step: Array, cut: _Chunks, groups: Array) -> Array:
    """Pieces in a step that has any [-]: with one in one of the replica's groups of sequences there is one in each."""
    batch = np.maximum(per_step, groups)
    if job.engine.batching.mixed_steps:
        return np.asarray(batch)
    return np.asarray(np.minimum(batch, groups * np.maximum(job.engine.batching.max_step_tokens // cut.tokens, 1.0)))


def _both_steps(
    job: ServingJob, placements: ReplicaLayouts, traffic: Traffic, decoding: Array, batch: Array, cut: _Chunks
) -> tuple[StepTime, StepTime]:
    """A step of decodes alone, and one with prompts: beside the decodes where these share steps, else alone."""
    points = decoding.size
    beside = decoding if job.engine.batching.mixed_steps else np.zeros(points)
    both = [np.broadcast_to(one, points) for one in (batch, cut.tokens, cut.past)]
    rows = np.tile(np.arange(points) if len(placements) > 1 else np.zeros(points, dtype=int), 2)
    found = step_time(
        job,
        placements[rows],
        Work(
            decodes=np.concatenate([decoding, beside]),
            decode_past=mean_past(traffic),
            decode_tokens=traffic.draft_tokens + 1.0,
            prefills=np.concatenate([np.zeros(points), both[0]]),
            prefill_tokens=np.tile(both[1], 2),
            prefill_past=np.tile(both[2], 2),
        ),
    )
    return found.at(lambda values: values[:points]), found.at(lambda values: values[points:])
