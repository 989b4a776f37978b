"""Latencies of requests that arrive at random: mean and percentiles, and the rate that a replica can take.

Arrivals are Poisson. A request waits for a place (where the cache or the engine's limit is full), then for the prompts
before it, then for its own prefill; afterwards it gets a token in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.serving.job import HIGHEST_LOAD
from xe_sizer.serving.memory import held_tokens, max_sequences, sequences_held
from xe_sizer.serving.step_time import Work, encoding_time, step_time, texts_of_a_step

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.step_time import StepTime

# Steady state of continuous batching: what each step holds, how long a token and a request take.

LEAST_STEPS = 1e-3  # chosen: of an answer of one token, which the prefill produces


class Steady(Immutable):
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


class _Chunks(Immutable):
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
    if not traffic.outputs:
        return encoding(job, placements, traffic, running)
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


def encoding(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic, running: ArrayLike) -> Steady:
    """A replica whose requests get no tokens, and that always has the same number of them inside.

        t = t(b requests),  b = max(running / 2, 1)
        rate = b / t
        a further request = min(t(b + 1) - t(b), t / b)

    While some are read the others wait, and are read together when these are done: in the mean the halves are equal.
    An engine that does not batch requests reads one after the other, b = 1.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,) or (points,)
    traffic : tokens of a text, and texts of a request
    running : requests inside, shape (points,) [-]

    Returns
    -------
    Steady, shape (points,), seconds [s] and requests per second [1/s]

    Source: own derivation, bulk service (N. T. J. Bailey, J. R. Stat. Soc. B 16, 1954) in its mean.
    """
    running = np.broadcast_to(as_array(running), np.broadcast_shapes(np.shape(running), placements.tp.shape))
    together = np.maximum(running / 2.0, 1.0)
    if job.engine.batching.batching == "static":
        together = np.ones(running.shape)
    read, more = (
        encoding_time(job, placements, many * traffic.documents, traffic) for many in (together, together + 1.0)
    )
    nothing = np.zeros(running.shape)
    return Steady(
        running=running,
        decoding=nothing,
        decode=read.step,
        prefill=read.step,
        step_s=read.total_s,
        tpot_s=nothing,
        prefill_s=read.total_s + job.request_s,
        prompt_s=np.minimum(more.total_s - read.total_s, read.total_s / together),
        requests_per_s=together / read.total_s,
        room_s=nothing,
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


# Open loads: requests that arrive at random.

TRIED, REFINED = 33, 3  # chosen: values that a search tries at once, and how often it looks
TO_THE_END = 11  # chosen: how often it looks where as much is wanted as a float tells apart: 32^11 = 2^55
# Fields of a steady state other than the parts of its steps.
OF_A_STATE = ("running", "decoding", "step_s", "tpot_s", "prefill_s", "prompt_s", "requests_per_s", "room_s")


class Curve(Immutable):
    """A replica from one request inside to as many as fit; arrays of shape (states, placements).

    most : requests that fit at once, shape (placements,); below one where not even one does
    """

    states: Steady
    most: Array

    @cached_property
    def rates(self) -> Array:
        """Requests finished per second, ascending (with a plateau where the step's tokens are full)."""
        return np.asarray(np.maximum.accumulate(self.states.requests_per_s, axis=0))

    @cached_property
    def top_rate(self) -> Array:
        """The rate that a replica cannot exceed, shape (placements,) [1/s]; none where no request fits."""
        return np.where(self.most >= 1.0, self.rates[-1], 0.0)

    def __getitem__(self, index: slice | IntArray | NDArray[np.bool_]) -> Curve:
        """The curves of some placements."""
        states = {name: getattr(self.states, name)[:, index] for name in OF_A_STATE}
        return Curve(replace(self.states, **states), self.most[index])

    def at_rate(self, rate: ArrayLike, *values: Array) -> tuple[Array, ...]:
        """Values of the states at a rate per replica, linear between states, each of shape (..., placements)."""
        return _interpolated(as_array(rate), self.rates, values)

    def at_running(self, running: Array, *values: Array) -> tuple[Array, ...]:
        """Values of the states at a number of requests inside, linear between states, shape (..., placements)."""
        return _interpolated(running, self.states.running, values)


def _interpolated(x: Array, known: Array, values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Linear interpolation in every column at once; beyond the ends the nearest value.

    x : shape (..., columns); known : ascending along the first axis, shape (points, columns), as each of `values`
    """
    above = np.minimum(np.maximum((x[..., None, :] >= known).sum(axis=-2), 1), known.shape[0] - 1)
    columns = np.arange(known.shape[1])
    left, right = known[above - 1, columns], known[above, columns]
    share = np.divide(x - left, right - left, out=np.zeros(np.shape(x)), where=right > left)
    share = np.minimum(np.maximum(share, 0.0), 1.0)
    lows = (one[above - 1, columns] for one in values)
    return tuple(np.asarray(low + share * (one[above, columns] - low)) for low, one in zip(lows, values, strict=True))


class Latencies(Immutable):
    """Seconds at a percentile or in the mean, of the shape of the rates asked for."""

    ttft_s: Array
    tpot_s: Array
    request_s: Array

    @property
    def one(self) -> tuple[float, float, float]:
        """Of the one placement that they are of."""
        return float(self.ttft_s[0]), float(self.tpot_s[0]), float(self.request_s[0])


def latencies(
    found: Curve, traffic: Traffic, rate: ArrayLike, percentile: float | None = None, clients: ArrayLike = np.inf
) -> Latencies:
    """Latencies of one replica at a rate of arrivals.

        ttft = step / 2 + wait for a place + wait for prompts + prefill
        ttft = busy x step / 2 + wait + prefill,  busy = min(rate / rate of one alone, 1)      no outputs
        request = ttft + (outputs - 1) tpot
        wait for a place = S (1 + v^2) / 2 x rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho))
        wait for prompts = rho_p P (1 + v_p^2) / 2 / (1 - rho_p)

    c places, answers S long of spread v, load rho; P the time that a prompt adds to the steps of others, v_p the spread
    of prompts, rho_p = rate x P. Waits have exponential tails. The number of requests inside varies as a Poisson
    variable, and steps with it. Of N clients who wait for their answers a request finds those of the N - 1 others: it
    waits as at (N - 1) / N of the rate, and for a place only where clients are more than places.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    rate : requests per second and replica; at and above the top rate nothing is bounded, shape (..., placements) [1/s]
    percentile : of requests, 50 to 99.9; None: the mean [-]
    clients : of a replica who each have one request at most, shape of the rates; by default any number [-]

    Returns
    -------
    Latencies, shape of the rates, seconds [s]

    Source: Sakasegawa's approximation of M/G/c for places; M/G/1 (Pollaczek-Khinchine) for prompts; what a request
    finds among N clients after Bard (1979) and Schweitzer (1979), exact for one of them.
    """
    rate = np.broadcast_to(as_array(rate), np.broadcast_shapes(np.shape(rate), found.most.shape))
    deviations = 0.0 if percentile is None else NormalDist().inv_cdf(percentile / 100.0)
    sized = np.minimum(rate, HIGHEST_LOAD * found.top_rate)
    (inside,) = found.at_rate(sized, found.states.running)
    spread = deviations * np.sqrt(np.maximum(inside, 1.0))
    crowd = np.maximum(as_array(clients), 1.0)
    crowded = np.clip(inside + spread, 1.0, np.maximum(np.minimum(found.most, crowd), 1.0))
    states = found.states
    tpot_s, step_s, prefill_s = found.at_running(crowded, states.tpot_s, states.step_s, states.prefill_s)
    prompts, answers = 1.0, traffic.outputs
    if percentile is not None:
        prompts = traffic.inputs_at(deviations) / traffic.inputs
        answers = traffic.outputs_at(deviations)
    wait_s = _wait_s(found, traffic, sized * (1.0 - 1.0 / crowd), crowd, percentile)
    ttft_s = _before_s(found, traffic, sized, step_s, wait_s, percentile) + prefill_s * prompts
    request_s = ttft_s + max(answers - 1.0, 0.0) * tpot_s
    unbounded = np.where(rate <= sized, 0.0, np.inf)
    return Latencies(ttft_s + unbounded, tpot_s, request_s + unbounded)


def _before_s(
    found: Curve, traffic: Traffic, rate: Array, step_s: Array, wait_s: Array, percentile: float | None
) -> Array:
    """What is left of the step that a request finds, and what it waits for then [s].

    Half of a step. Without outputs a replica is idle below the rate of one request after the other, and what is left
    lies evenly between nothing and a whole step, which is as long as what is read in it: at a percentile the parts,
    which vary by themselves, are added as squares.
    """
    if traffic.outputs:
        return np.asarray(step_s / 2.0 + wait_s)
    busy = np.minimum(rate / np.maximum(found.rates[0], 1e-12), 1.0)
    if percentile is None:
        return np.asarray(busy * step_s / 2.0 + wait_s)
    left_s = step_s * np.maximum(1.0 - (1.0 - percentile / 100.0) / np.maximum(busy, 1e-12), 0.0)
    return np.asarray(np.hypot(left_s, wait_s))


def _wait_s(found: Curve, traffic: Traffic, rate: Array, crowd: Array, percentile: float | None) -> Array:
    """Waiting for a place and for the prompts before, in the mean or at a percentile [s].

    rate : of the others' requests [1/s]; crowd : clients, who find a place each where there are as many [-]
    """
    places, top = np.maximum(found.most, 1.0), np.maximum(found.top_rate, 1e-12)
    load = np.minimum(rate / top, HIGHEST_LOAD)
    busy = np.where(crowd <= found.most, 0.0, load ** (np.sqrt(2.0 * (places + 1.0)) - 1.0))
    answer_s = places / top
    place_s = answer_s * (1.0 + traffic.output_spread**2) / 2.0 / (places * (1.0 - load))
    if not traffic.outputs:
        return _read_wait_s(found, traffic, rate, (busy, place_s), percentile)
    # Steps that take several prompts shorten the queue only for prompts that arrive together.
    ahead_at = np.minimum(found.rates * found.states.prompt_s, HIGHEST_LOAD)
    line_at = found.states.prompt_s * (1.0 + traffic.input_spread**2) / 2.0 / (1.0 - ahead_at)
    ahead, line_s = found.at_rate(rate, *(np.maximum.accumulate(one, axis=0) for one in (ahead_at, line_at)))
    ahead = ahead * np.minimum(rate / np.maximum(found.rates[0], 1e-12), 1.0)
    return _waited_s(busy, place_s, percentile) + _waited_s(ahead, line_s, percentile)


def _waited_s(chance: Array, waiting_s: Array, percentile: float | None) -> Array:
    """A wait with an exponential tail, in the mean or at a percentile. waiting_s : in the mean of those who wait [s]"""
    if percentile is None:
        return np.asarray(chance * waiting_s)
    return np.asarray(waiting_s * np.log(np.maximum(chance / (1.0 - percentile / 100.0), 1.0)))


def _read_wait_s(
    found: Curve, traffic: Traffic, rate: Array, place: tuple[Array, Array], percentile: float | None
) -> Array:
    """Waiting of requests without outputs, for the others that are read in the same step, or for a step with room [s].

        max(rho c (1 + v^2) (1/2 + rho) / (1 - rho^2), wait for a place),  rho = rate c

    c is what a further request adds to a step: steps t = a + c n take the n that came in the one before, whose mean and
    variance follow. Both are the same queue, where steps are short and where they are full.
    """
    (each_s,) = found.at_rate(rate, found.states.prompt_s)
    ahead = np.minimum(rate * each_s, HIGHEST_LOAD)
    line_s = each_s * (1.0 + traffic.input_spread**2) * (0.5 + ahead) / (1.0 - ahead**2)
    return np.maximum(_waited_s(ahead, line_s, percentile), _waited_s(*place, percentile))


def rate_within(
    found: Curve, traffic: Traffic, max_ttft_s: float | None, max_tpot_s: float | None, percentile: float,
    clients: ArrayLike = np.inf,
) -> Array:  # fmt: skip
    """Find the highest rate of a replica that keeps both limits at the percentile; 0: none does.

        rate = max of those with ttft <= max_ttft_s and tpot <= max_tpot_s

    Latencies rise with the rate, so the limit is where the last of the tried rates keeps them, refined twice.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    max_ttft_s, max_tpot_s : limits; None: none [s]
    percentile : of requests [-]
    clients : who each have one request at most; by default any number [-]

    Returns
    -------
    ndarray of float, shape (placements,) [1/s]

    Source: own derivation: search on a grid, on latencies that do not fall with the rate.
    """
    top = found.top_rate
    if max_ttft_s is None and max_tpot_s is None:
        return np.asarray(HIGHEST_LOAD * top)

    def keeps(rates: Array) -> Array:
        at = latencies(found, traffic, rates, percentile, clients)
        return np.asarray((at.ttft_s <= (max_ttft_s or np.inf)) & (at.tpot_s <= (max_tpot_s or np.inf)))

    none, most = np.zeros(top.shape), np.asarray(HIGHEST_LOAD * top)
    return highest(none, most, evenly, keeps)


def highest(
    low: Array, high: Array, between: Callable[[Array, Array, Array], Array], keeps: Callable[[Array], Array],
    rounds: int = REFINED,
) -> Array:  # fmt: skip
    """Find the highest value between two bounds up to which all are kept; 0 where the lower bound is not.

        highest = max of x with low <= x <= high and kept(y) for all y <= x

    Parameters
    ----------
    low, high : bounds, shape (..., placements), in the unit of the value [-]
    between : values at shares of the way from one bound to the other, shape (33, ..., placements) [-]
    keeps : whether values of that shape are kept [-]
    rounds : how often it looks, each time 32 times closer [-]

    Returns
    -------
    ndarray of float, shape (..., placements), in the unit of the bounds [-]

    Source: own derivation: 33 values at once, and closer between the last that is kept and the next.
    """
    shares = np.linspace(0.0, 1.0, TRIED).reshape(-1, *(1 for _ in low.shape))
    none = np.zeros(low.shape, dtype=bool)
    for _ in range(rounds):
        tried = between(low, high, shares)
        kept = np.logical_and.accumulate(keeps(tried), axis=0)
        last = np.maximum(kept.sum(axis=0) - 1, 0)
        none = none | ~kept[0]
        low, high = (
            np.take_along_axis(tried, place[None], axis=0)[0] for place in (last, np.minimum(last + 1, TRIED - 1))
        )
    return np.asarray(np.where(none, 0.0, low))


def evenly(low: Array, high: Array, share: Array) -> Array:
    """Values between two bounds, evenly spaced.

        value = low + share x (high - low)

    Parameters
    ----------
    low, high : bounds, shape (..., placements), in the unit of the value [-]
    share : of the way between them, shape (33, ..., 1) [-]

    Returns
    -------
    ndarray of float, shape (33, ..., placements), in the unit of the bounds [-]

    Source: own definition.
    """
    return low + share * (high - low)


# States of a replica, from one request inside to as many as fit, between which latencies are interpolated.

State = Callable[["ServingJob", "ReplicaLayouts", "Traffic", "Array"], Steady]
GRID = 20  # chosen: states that are evaluated between one request and as many as fit


def capacity(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic) -> Array:
    """Requests that a replica holds at once.

        c = min(max_sequences of the pool, limit of the engine x groups)
        c = min(sequences_held, limit x groups)      the cache grows with the sequences
        c = 2 max(texts of a step / texts of a request, 1)      no outputs: those that are read, and as many that wait

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation; the limit stands in the engine's file.
    """
    limit = job.engine.batching.max_sequences * job.groups(placements)
    if not traffic.outputs:
        most = np.maximum(texts_of_a_step(job, placements, traffic) / traffic.documents, 1.0)
        fitting = sequences_held(job, placements, memory, traffic.inputs, 0.0) >= 1.0
        return np.asarray(np.where(fitting, 2.0 * most, 0.0))
    if job.grows:
        return np.asarray(np.minimum(sequences_held(job, placements, memory, traffic.inputs, traffic.outputs), limit))
    tokens = held_tokens(job, traffic.inputs, traffic.outputs_in_time)
    return np.asarray(np.minimum(max_sequences(job, placements, memory, tokens), limit))


def curve(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, state: State = steady
) -> Curve:
    """Evaluate a replica between one request and its capacity.

        running_i = c^(i / (GRID - 1)),  i = 0 ... GRID - 1

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers
    state : a replica with so many requests inside

    Returns
    -------
    Curve, shape (GRID, placements), seconds [s]

    Source: own derivation: evenly spaced in their logarithm, as times grow with the share of running requests.
    """
    most = capacity(job, placements, memory, traffic)
    steps = np.linspace(0.0, 1.0, GRID)[:, None]
    running = np.maximum(most, 1.0) ** steps
    flat = np.tile(np.arange(len(placements)), GRID)
    found = state(job, placements[flat], traffic, running.reshape(-1))
    # States and placements apart; the parts of the steps stay flat.
    values: dict[str, Any] = {
        name: np.broadcast_to(getattr(found, name), flat.shape).reshape(GRID, len(placements)) for name in OF_A_STATE
    }
    return Curve(replace(found, **values), most)


# Closed loads: requests always in flight, or users who think in between.
#
# A closed system slows its own arrivals down: however full it is, its latencies have an end.


def in_flight(found: Curve, traffic: Traffic, requests: ArrayLike) -> tuple[Array, Latencies]:
    """Rate and mean latencies of a replica that always has so many requests in flight.

        running = min(max(requests, 1), c)
        ttft = rest of a step + wait for room and for prompts + prefill + (max(requests, 1) - running) / rate
        request = ttft + (outputs - 1) tpot
        rate = max(requests, 1) / request

    A request comes as another one ends, which is at the end of a step: the next step has begun before the request is
    taken in. It finds the prompts of the other requests before it. Those beyond the c places wait for a place. Below
    one request the replica is idle between two of them.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers
    requests : in flight of one replica, shape (..., placements) [-]

    Returns
    -------
    (ndarray, Latencies), shape of the requests: requests per second [1/s], seconds [s]

    Source: Little's law (J. D. C. Little, Operations Research 9, 1961); M/G/1 (Pollaczek-Khinchine) for prompts.
    """
    requests = np.broadcast_to(as_array(requests), np.broadcast_shapes(np.shape(requests), found.most.shape))
    inside = np.maximum(requests, 1.0)
    running = np.minimum(inside, np.maximum(found.most, 1.0))
    states = found.states
    wanted = (states.step_s, states.tpot_s, states.prefill_s, states.prompt_s, states.room_s)
    step_s, tpot_s, prefill_s, prompt_s, room_s = found.at_running(running, *wanted)
    others = running - 1.0
    begun_s = others / running * step_s + prefill_s
    answer_s = max(traffic.outputs - 1.0, 0.0) * tpot_s
    # Without outputs all that are there wait for one step, and are read in the next.
    line_s = _line_s(others, prompt_s, begun_s + answer_s, traffic) if traffic.outputs else np.zeros(others.shape)
    first_s = begun_s + room_s + line_s
    answered_s = first_s + answer_s
    wait_s = (inside - running) * answered_s / running
    return requests / (answered_s + wait_s), Latencies(first_s + wait_s, tpot_s, answered_s + wait_s)


def _line_s(others: Array, prompt_s: Array, rest_s: Array, traffic: Traffic) -> Array:
    """Wait for the prompts of the others, who are in line only as they are not decoding [s].

        w = x p w + x p^2 (1 + v^2) / 2,  x = others / (rest + w)
        w^2 + (rest - others p) w = others p^2 (1 + v^2) / 2

    others : requests beside the one that waits [-]; prompt_s : p, what a prompt keeps others from [s]
    rest_s : of a request without the wait [s]; v is the spread of prompts

    Source: M/G/1 (Pollaczek-Khinchine) at the rate of a closed loop, as its others see it (mean value analysis).
    """
    free_s = rest_s - others * prompt_s
    residual = others * prompt_s**2 * (1.0 + traffic.input_spread**2) / 2.0
    return np.asarray((np.sqrt(free_s**2 + 4.0 * residual) - free_s) / 2.0)


def requests_within(
    found: Curve, traffic: Traffic, max_ttft_s: float | None, max_tpot_s: float | None, most: float
) -> Array:
    """Find the most requests in flight with which a replica keeps both limits in the mean; 0: not even one does.

        requests = max of those with ttft <= max_ttft_s and tpot <= max_tpot_s

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers
    max_ttft_s, max_tpot_s : limits; None: none [s]
    most : how many are looked for at most [-]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation: search on a geometric grid, on latencies that do not fall with the requests.
    """
    ones = np.ones(found.most.shape)

    def keeps(requests: Array) -> Array:
        _, at = in_flight(found, traffic, requests)
        return np.asarray((at.ttft_s <= (max_ttft_s or np.inf)) & (at.tpot_s <= (max_tpot_s or np.inf)))

    return highest(ones, max(most, 1.0) * ones, lambda low, high, share: low * (high / low) ** share, keeps)


def users_at(found: Curve, traffic: Traffic, rate: ArrayLike, think_s: float, clients: ArrayLike = np.inf) -> Array:
    """Users whose requests come to a rate, as each thinks for a time between an answer and the next request.

        users = rate x (request(rate) + think)

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    rate : requests per second and replica, shape (..., placements) [1/s]
    think_s : mean time between an answer and the next request [s]
    clients : so many users at most, who wait for the others alone; by default any number [-]

    Returns
    -------
    ndarray of float, shape of the rates [-]

    Source: the response time law of interactive systems (Little's law for users who wait or think).
    """
    return np.asarray(as_array(rate) * (latencies(found, traffic, rate, None, clients).request_s + think_s))


def users_within(
    found: Curve, traffic: Traffic, think_s: float, max_ttft_s: float | None, max_tpot_s: float | None,
    percentile: float, clients: float,
) -> Array:  # fmt: skip
    """Find the most users with whom a replica keeps both limits at the percentile; 0: none does.

        users = rate x (request(rate) + think)                             rate: the highest that keeps the limits
        users = rate x (request(rate) + think + max_ttft_s - ttft(rate))   where that is the top rate

    A full replica takes as many more as may wait: each comes back only once he is answered.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    think_s : mean time between an answer and the next request [s]
    max_ttft_s, max_tpot_s : limits; None: none [s]
    percentile : of requests [-]
    clients : so many users at most [-]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: the response time law of interactive systems.
    """
    rate = rate_within(found, traffic, max_ttft_s, max_tpot_s, percentile, clients)
    users = users_at(found, traffic, rate, think_s, clients)
    if max_ttft_s is None:
        return users
    spare_s = np.maximum(max_ttft_s - latencies(found, traffic, rate, percentile, clients).ttft_s, 0.0)
    full = (rate > 0) & (rate >= HIGHEST_LOAD * found.top_rate * (1.0 - 1e-9))
    return np.asarray(users + np.where(full, rate * spare_s, 0.0))


def users_rate(found: Curve, traffic: Traffic, users: ArrayLike, think_s: float) -> Array:
    """Rate at which so many users ask a replica, slowed by its own latencies.

        users = rate x (request(rate) + think),  rate <= 0.999 top rate

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    users : of one replica, shape (..., placements) [-]
    think_s : mean time between an answer and the next request [s]

    Returns
    -------
    ndarray of float, shape of the users [1/s]

    Source: the response time law of interactive systems, solved by search: its right side rises with the rate.
    """
    users = np.broadcast_to(as_array(users), np.broadcast_shapes(np.shape(users), found.most.shape))

    def keeps(rates: Array) -> Array:
        return np.asarray(users_at(found, traffic, rates, think_s, users) <= users)

    none, most = np.zeros(users.shape), np.broadcast_to(HIGHEST_LOAD * found.top_rate, users.shape)
    return highest(none, most, evenly, keeps, TO_THE_END)


def users_latencies(
    found: Curve, traffic: Traffic, users: ArrayLike, think_s: float, *percentiles: float | None
) -> tuple[Array, tuple[Latencies, ...]]:
    """Rate and latencies of a replica with so many users.

        request = users / rate - think      in the mean

    Users think for times that vary, so that their requests come by chance (see `latencies`); of those who find the
    replica full the waiting is what the rate leaves of their time.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    users : of one replica, shape (..., placements) [-]
    think_s : mean time between an answer and the next request [s]
    percentiles : of requests, 50 to 99.9; None: the mean [-]

    Returns
    -------
    (ndarray, Latencies at each of the percentiles), shape of the users: requests per second [1/s], seconds [s];
    unbounded where no request fits

    Source: the response time law of interactive systems.
    """
    users = np.broadcast_to(as_array(users), np.broadcast_shapes(np.shape(users), found.most.shape))
    rate = users_rate(found, traffic, users, think_s)
    mean = latencies(found, traffic, rate, None, users)
    left_s = np.divide(users, rate, out=np.full(users.shape, np.inf), where=rate > 0) - think_s - mean.request_s
    full = rate >= HIGHEST_LOAD * found.top_rate
    wait_s = np.where(full, np.maximum(left_s, 0.0), 0.0)
    each = (mean if one is None else latencies(found, traffic, rate, one, users) for one in percentiles)
    return rate, tuple(Latencies(at.ttft_s + wait_s, at.tpot_s, at.request_s + wait_s) for at in each)
