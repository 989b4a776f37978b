"""Which placement a replica gets, how many replicas there are, and how they are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.memory import max_sequences, request_bytes, serving_memory, static_peak
from xe_sizer.serving.queueing import Latencies, capacity, curve, latencies, rate_within
from xe_sizer.serving.space import worthwhile
from xe_sizer.serving.static import static_batch
from xe_sizer.serving.steady import steady
from xe_sizer.serving.step import StepTime
from xe_sizer.serving.traffic import FULL, TARGET_LOAD
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.static import StaticBatch

ALIKE = 1.1  # what is closer than this is as good as equal: placements are not told apart more finely
PERCENTILES = (50.0, 95.0, 99.0)
Flags = NDArray[np.bool_]


@frozen
class Point:
    """One replica at work; seconds and rates of it.

    percentiles : percentile -> latencies, where requests arrive by chance; else the mean alone stands for all
    prompt_s, answer_s : of the replica's time what one request takes for its prompt and for its answer
    """

    running: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    request_s: float
    percentiles: dict[float, tuple[float, float, float]]
    prefill: StepTime
    decode: StepTime
    prompt_s: float
    answer_s: float


@frozen
class Choice:
    """The placement of a replica with its memory, and the replicas at work.

    minimum : fewest GPUs on which a replica fits; None where none of the tried placements does
    holds : requests of this length that a replica's cache holds at once; fits : at least the one, or the batch
    full_rate : requests per second that a replica cannot exceed
    top_rate : the same within the limits on latency, where they can be kept
    """

    placement: ReplicaLayouts
    memory: ServingMemory
    minimum: int | None
    holds: float
    fits: bool
    full_rate: float
    top_rate: float
    replicas: int
    point: Point


@frozen
class _Cases:
    """Placements to choose from, with their memory; arrays of shape (placements,).

    holds : requests at their full length that fit at once; fitting : whether that is enough
    need_bytes : of a GPU for everything beside the cache, and for the cache of the least that serves
    """

    placements: ReplicaLayouts
    memory: ServingMemory
    holds: Array
    fitting: Flags
    need_bytes: Array

    def __getitem__(self, index: Flags | slice) -> _Cases:
        arrays = (self.holds[index], self.fitting[index], self.need_bytes[index])
        return _Cases(self.placements[index], self.memory[index], *arrays)

    def order(self, *keys: Array | Flags) -> int:
        """The first by these keys, of those that fit; where none does, the one that misses least."""
        missing = np.where(self.fitting, 0.0, self.need_bytes)
        return int(np.lexsort((*reversed(keys), missing, ~self.fitting))[0])


def choose(resolved: ResolvedService, placements: ReplicaLayouts) -> Choice:
    """The best of the placements, which must not be empty, and its replicas under their load."""
    cases = _cases(resolved, placements)
    minimum = int(placements.gpus[cases.fitting].min()) if np.any(cases.fitting) else None
    cases = cases[worthwhile(placements, cases.fitting)]
    return _static(resolved, cases, minimum) if resolved.load == "batch" else _online(resolved, cases, minimum)


def _cases(resolved: ResolvedService, placements: ReplicaLayouts) -> _Cases:
    job, traffic = resolved.job, resolved.traffic
    memory = serving_memory(job, placements, traffic.inputs)
    holds = np.broadcast_to(_holds(resolved, placements, memory), len(placements))
    least = resolved.amount if resolved.load == "batch" and job.engine.memory.grows else 1.0
    if job.engine.memory.grows:
        live = sum(static_peak(job, placements, least, traffic.inputs, traffic.outputs).values())
        need_bytes = memory.beside_tensors + live
    else:
        need_bytes = sum(memory.fixed.values()) + request_bytes(job, placements, traffic.inputs + traffic.outputs)
    return _Cases(placements, memory, holds, holds >= least, np.broadcast_to(need_bytes, len(placements)))


def _holds(resolved: ResolvedService, placements: ReplicaLayouts, memory: ServingMemory) -> Array:
    """Requests at their full length that fit a replica at once: in the pool, or beside the weights where it grows."""
    job, traffic = resolved.job, resolved.traffic
    if not job.engine.memory.grows:
        tokens = traffic.inputs + traffic.outputs
        return max_sequences(job, placements, memory, tokens)
    one, two = (
        sum(static_peak(job, placements, batch, traffic.inputs, traffic.outputs).values()) for batch in (1.0, 2.0)
    )
    room = memory.usable_bytes - memory.beside_tensors - np.asarray(one)
    return np.asarray(np.maximum(1.0 + room / np.maximum(np.asarray(two) - np.asarray(one), 1.0), 0.0))


def _pick(array: Array, index: int) -> float:
    return float(np.broadcast_to(array, max(index + 1, np.size(array)))[index])


def _replicas_of(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Replicas at work on the GPUs asked for, spare ones set aside; one where the number is open."""
    if resolved.gpus is None:
        return np.ones(len(placements))
    return np.maximum(resolved.gpus // placements.gpus - resolved.spare_replicas, 1).astype(float)


def _static(resolved: ResolvedService, cases: _Cases, minimum: int | None) -> Choice:
    """A batch that starts together: the fewest GPUs that hold it and keep the limits, then the fastest."""
    job, traffic, placements = resolved.job, resolved.traffic, cases.placements
    most = np.inf if job.engine.memory.grows else capacity(job, placements, cases.memory, traffic)
    found = static_batch(job, placements, resolved.amount, traffic.inputs, traffic.outputs, most, traffic)
    missed = _missed(resolved, found.ttft_s, found.tpot_s)
    gpus = as_array(placements.gpus if resolved.gpus is None else -placements.gpus)
    best = cases.order(missed, gpus, found.request_s)
    replicas = int(_replicas_of(resolved, placements)[best])
    rate = resolved.amount / _pick(found.request_s, best)
    values = [_pick(getattr(found, name), best) for name in ("ttft_s", "tpot_s", "request_s")]
    point = Point(
        running=resolved.amount,
        requests_per_s=rate,
        ttft_s=values[0],
        tpot_s=values[1],
        request_s=values[2],
        percentiles={},
        prefill=_step(found, best, "prefill"),
        decode=_step(found, best, "decode"),
        prompt_s=values[0] / resolved.amount,
        answer_s=(values[2] - values[0]) / resolved.amount,
    )
    one = cases[best : best + 1]
    return Choice(
        placement=one.placements,
        memory=one.memory,
        minimum=minimum,
        holds=float(one.holds[0]),
        fits=bool(one.fitting[0]),
        full_rate=rate,
        top_rate=rate,
        replicas=replicas + resolved.spare_replicas,
        point=point,
    )


def _missed(resolved: ResolvedService, ttft_s: Array, tpot_s: Array) -> Array:
    """How far the limits on latency are missed: steps of 10 % of the worse one, 0 where both are kept [-]."""
    allowed = zip(allowed_latencies(resolved), (ttft_s, tpot_s), strict=True)
    shares = [np.asarray(values) / limit for limit, values in allowed if limit is not None]
    worst = np.asarray(np.maximum.reduce(shares)) if shares else np.zeros(np.shape(ttft_s))
    return np.asarray(np.where(worst > 1.0, np.ceil(np.log(np.maximum(worst, 1.0)) / np.log(ALIKE)), 0.0))


def _step(found: StaticBatch, index: int, name: str) -> StepTime:
    step: StepTime = getattr(found, name)
    return StepTime(
        {part: np.array([_pick(value, index)]) for part, value in step.parts.items()},
        {part: np.array([_pick(value, index)]) for part, value in step.modules.items()},
    )


def _online(resolved: ResolvedService, cases: _Cases, minimum: int | None) -> Choice:
    """Requests that come and go: the cheapest placement that takes the load within the limits, then the fastest.

    GPUs that are there anyway are used for the most requests.
    """
    placements = cases.placements
    found = curve(resolved.job, placements, cases.memory, resolved.traffic)
    inside = rate_within(found, resolved.traffic, *allowed_latencies(resolved), resolved.percentile)
    inside = np.where(cases.fitting, inside, 0.0)
    top = np.where(inside > 0, inside, found.top_rate * cases.fitting)
    replicas = _fleet(resolved, placements, top, inside > 0)
    rate = _rate_of_replica(resolved, found, replicas, top)
    at = _latencies(resolved, found, rate)
    missed = _missed(resolved, at.ttft_s, at.tpot_s)
    overloaded = ~np.isfinite(at.ttft_s)
    asked = resolved.load == "request_rate"
    gpus = (replicas if asked else 1.0) * placements.gpus * (resolved.gpus is None)
    taken = np.where(overloaded, found.top_rate, top if asked else rate) * replicas
    preferred = taken * (overloaded | (resolved.gpus is not None) | (not asked))
    best = cases.order(overloaded, missed, as_array(gpus), -_alike(preferred), at.tpot_s)
    one = cases[best : best + 1]
    point = _point(resolved, one.placements, found[best : best + 1], float(rate[best]))
    return Choice(
        placement=one.placements,
        memory=one.memory,
        minimum=minimum,
        holds=float(one.holds[0]),
        fits=bool(one.fitting[0]),
        full_rate=float(found.top_rate[best]),
        top_rate=float(top[best]),
        replicas=int(replicas[best]) + resolved.spare_replicas,
        point=point,
    )


def _alike(rates: Array) -> Array:
    """Rates in steps of 10 %."""
    return np.asarray(np.round(np.log(np.maximum(rates, 1e-9)) / np.log(ALIKE)))


def _fleet(resolved: ResolvedService, placements: ReplicaLayouts, top: Array, keeps: Flags) -> Array:
    """Replicas of each placement: those that the GPUs asked for hold, else as many as the request rate needs.

    keeps : whether `top` keeps limits on latency, if there are any
    """
    if resolved.gpus is not None or resolved.load != "request_rate":
        return _replicas_of(resolved, placements)
    limits = resolved.given.values.limits
    bounded = limits.max_ttft_s is not None or limits.max_tpot_s is not None
    loaded = np.where(keeps & bounded, 1.0, TARGET_LOAD)
    needed = np.ceil(resolved.amount / np.maximum(top * loaded, 1e-12) - 1e-9)
    return np.asarray(np.where(top > 0, np.maximum(needed, 1.0), 1.0))


def _rate_of_replica(resolved: ResolvedService, found: Curve, replicas: Array, top: Array) -> Array:
    """Requests per second that each replica gets: its share of the load, what keeps it so full, or all it can take."""
    if resolved.load == "request_rate":
        return np.asarray(resolved.amount / replicas)
    if resolved.load == "concurrency":
        return found.at_running(_running(resolved, found), found.rates)[0]
    return np.asarray(np.minimum(top, FULL * found.top_rate))


def _running(resolved: ResolvedService, found: Curve) -> Array:
    """Of the requests that a replica always has, those that run; the others wait for a place."""
    return np.asarray(np.minimum(resolved.amount, np.maximum(found.most, 1.0)))


def _latencies(resolved: ResolvedService, found: Curve, rate: Array) -> Latencies:
    """What limits are compared with: the percentile of arrivals by chance, the mean of a load that is kept.

    With so many requests always inside, each takes amount / rate (Little's law), and what its tokens leave of that it
    waits for the first one.
    """
    if resolved.load != "concurrency":
        return latencies(found, resolved.traffic, rate, resolved.percentile)
    (tpot_s,) = found.at_running(_running(resolved, found), found.states.tpot_s)
    request_s = resolved.amount / rate
    return Latencies(request_s - max(resolved.traffic.outputs - 1.0, 0.0) * tpot_s, tpot_s, request_s)


def _point(resolved: ResolvedService, placement: ReplicaLayouts, found: Curve, rate: float) -> Point:
    """The replica at its rate: latencies in the mean and at the percentiles, and the steps that it runs."""
    traffic, at = resolved.traffic, np.array([rate])
    if resolved.load == "concurrency":
        running = float(_running(resolved, found)[0])
        mean, percentiles = _values(_latencies(resolved, found, at)), {}
    else:
        lightest = float(found.rates[0, 0])
        (inside,) = found.at_rate(np.minimum(at, found.top_rate), found.states.running)
        running = float(inside[0]) * min(rate / lightest, 1.0)
        mean = _values(latencies(found, traffic, at))
        wanted = sorted({*PERCENTILES, resolved.percentile})
        percentiles = {one: _values(latencies(found, traffic, at, one)) for one in wanted}
    state = steady(resolved.job, placement, traffic, max(running, 1.0))
    prompt_s = float(state.prompt_s[0])
    answer_s = 1.0 / float(state.requests_per_s[0]) - prompt_s
    return Point(running, rate, *mean, percentiles, state.prefill, state.decode, prompt_s, answer_s)


def _values(found: Latencies) -> tuple[float, float, float]:
    return float(found.ttft_s[0]), float(found.tpot_s[0]), float(found.request_s[0])
