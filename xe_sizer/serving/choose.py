"""Which placement a replica gets, how many replicas there are, and how they are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.cases import (
    PERCENTILES,
    Point,
    alike,
    cases_of,
    fewest_that_fit,
    first,
    missed,
    missed_for,
    replicas_of,
)
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.space import worthwhile
from xe_sizer.serving.states import capacity, curve
from xe_sizer.serving.static import static_batch
from xe_sizer.serving.steady import steady
from xe_sizer.serving.traffic import FULL, TARGET_LOAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.cases import Cases, Choice, Flags
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.queueing import Curve, Latencies
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.static import StaticBatch
    from xe_sizer.serving.step import StepTime


def choose(resolved: ResolvedService, placements: ReplicaLayouts) -> Choice:
    """The best of the placements, which must not be empty, and its replicas under their load.

    Where the load needs more than a server, every number of stages is looked at: one that is no multiple of the fewest
    may need fewer GPUs.
    """
    cases = cases_of(resolved, placements)
    minimum = fewest_that_fit(cases)
    few = cases[worthwhile(placements, cases.fitting)]
    if resolved.load == "batch":
        return _static(resolved, few, minimum)
    choice = _online(resolved, few, minimum)
    open_ = resolved.gpus is None and resolved.load is not None and resolved.objective is None
    many = choice.replicas * int(choice.placement.gpus[0]) > resolved.job.server.accelerators
    return _online(resolved, cases[cases.fitting], minimum) if open_ and many and choice.fits else choice


def _pick(array: Array, index: int) -> float:
    return float(np.broadcast_to(array, max(index + 1, np.size(array)))[index])


def _static(resolved: ResolvedService, cases: Cases, minimum: int | None) -> Choice:
    """A batch that starts together: the fewest GPUs that hold it and keep the limits, then the fastest."""
    job, traffic, placements = resolved.job, resolved.traffic, cases.placements
    most = np.inf if job.engine.memory.grows else capacity(job, placements, cases.memory, traffic)
    found = static_batch(job, placements, resolved.amount, traffic.inputs, traffic.outputs, most, traffic)
    gpus = as_array(placements.gpus if resolved.gpus is None else -placements.gpus)
    late = missed_for(missed(resolved, found.ttft_s, found.tpot_s), np.maximum(gpus, 1.0), cases.fitting)
    best = cases.order(late, *_batch_order(resolved, placements, gpus, found.request_s))
    replicas, places = int(replicas_of(resolved, placements)[best]), _pick(as_array(most), best)
    rate = resolved.amount / _pick(found.request_s, best)
    values = [_pick(getattr(found, name), best) for name in ("ttft_s", "tpot_s", "request_s")]
    point = Point(
        running=min(resolved.amount, float(max(np.floor(places), 1.0))),
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
    return cases.chosen(best)(
        minimum=minimum,
        full_rate=rate,
        top_rate=rate,
        top_load=resolved.amount,
        places=places,
        replicas=replicas + resolved.spare_replicas,
        point=point,
    )


def _servers(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Servers of a replica: where nobody says how many GPUs there are, it is not spread for the sake of latency [-]."""
    return np.ceil(placements.gpus / resolved.job.server.accelerators) * (resolved.gpus is None)


def _batch_order(
    resolved: ResolvedService, placements: ReplicaLayouts, gpus: Array, request_s: Array
) -> tuple[Array, ...]:
    """What comes first after the limits: the batch that is done soonest, or the most batches in a second."""
    if resolved.objective == "latency":
        return _servers(resolved, placements), alike(request_s), np.abs(gpus)
    if resolved.objective == "throughput":
        rate = replicas_of(resolved, placements) / request_s
        return -alike(rate / np.where(resolved.gpus is None, gpus, 1.0)), request_s
    return gpus, request_s


def _step(found: StaticBatch, index: int, name: str) -> StepTime:
    step: StepTime = getattr(found, name)
    return step.at(lambda values: np.array([_pick(values, index)]))


@frozen
class Fleets:
    """Replicas of each placement under the load that all of them have; arrays of shape (placements,).

    found : the states of a replica; most : of the load that one takes, within the limits where it can keep them
    replicas : at work, spare ones not counted; rate : requests per second of one
    at : latencies at the asked percentile; overloaded : whether they have no end
    taken : requests per second of all replicas, as asked for or as many as they could take
    """

    cases: Cases
    found: Curve
    most: Array
    replicas: Array
    rate: Array
    top: Array
    at: Latencies
    overloaded: Flags
    taken: Array

    @property
    def gpus(self) -> Array:
        """GPUs of all replicas at work [-]."""
        return as_array(self.replicas * self.cases.placements.gpus)

    @property
    def columns(self) -> tuple[Array | Flags, ...]:
        """What `first_of` compares."""
        cases, at = self.cases, self.at
        sizes = cases.fitting, cases.need_bytes, self.overloaded, as_array(cases.placements.gpus), self.gpus, self.taken
        return (*sizes, at.ttft_s, at.tpot_s, at.request_s)

    def missed(self, resolved: ResolvedService) -> Array:
        """How far the limits on latency are missed; 0 where they are kept [-]."""
        late = missed(resolved, self.at.ttft_s, self.at.tpot_s)
        return np.asarray(np.where(self.overloaded | ~self.cases.fitting, np.inf, late))


def fleets_of(resolved: ResolvedService, cases: Cases) -> Fleets:
    """Of each placement as many replicas as the load needs, or as the GPUs asked for hold, and what they get."""
    placements, load = cases.placements, LOADS[resolved.load]
    found = curve(resolved.job, placements, cases.memory, resolved.traffic)
    inside = np.where(cases.fitting, load.within(resolved, found), 0.0)
    most = np.where(inside > 0, inside, load.full(resolved, found) * cases.fitting)
    replicas = _fleet(resolved, placements, found, most, inside > 0)
    rate, at = load.served(resolved, found, _each(resolved, found, replicas, most), resolved.percentile)
    top, _ = load.served(resolved, found, most)
    overloaded = ~np.isfinite(at.ttft_s)
    counted = load.by_chance and resolved.load is not None  # the rate of the others follows from the placement
    taken = np.where(overloaded, found.top_rate, top if counted else rate) * replicas
    return Fleets(cases, found, most, replicas, rate, top, at, overloaded, taken)


def first_of(resolved: ResolvedService, fleets: Sequence[Fleets]) -> int:
    """The fleet to take, counted through all of them: the fewest GPUs that keep the limits, then the fastest.

    GPUs that are there anyway are used for the most requests. Of as many GPUs a replica inside one server comes before
    one that spans several: a server that fails takes fewer requests with it.
    """
    columns = zip(*(one.columns for one in fleets), strict=True)
    fitting, need_bytes, overloaded, size, all_gpus, taken, ttft_s, tpot_s, request_s = map(np.concatenate, columns)
    gpus = all_gpus * (resolved.gpus is None)
    counted = LOADS[resolved.load].by_chance and resolved.load is not None
    preferred = taken * (overloaded | (resolved.gpus is not None) | (not counted))
    late = missed_for(missed(resolved, ttft_s, tpot_s), np.maximum(gpus, 1.0), fitting & ~overloaded)
    servers = np.ceil(size / resolved.job.server.accelerators)
    order: tuple[Array, ...] = (gpus, servers * (resolved.load is not None), -alike(preferred), tpot_s)
    if resolved.objective == "latency":
        order = (servers * (resolved.gpus is None), alike(request_s), gpus, tpot_s)
    elif resolved.objective == "throughput" and resolved.load is None:
        order = (-alike(taken / all_gpus), *order)
    return first(fitting, need_bytes, overloaded, late, *order)


def _online(resolved: ResolvedService, cases: Cases, minimum: int | None) -> Choice:
    """Requests that come and go."""
    fleets = fleets_of(resolved, cases)
    return chosen_of(resolved, fleets, first_of(resolved, (fleets,)), minimum)


def chosen_of(resolved: ResolvedService, fleets: Fleets, best: int, minimum: int | None) -> Choice:
    """The choice of one of the fleets."""
    place = slice(best, best + 1)
    found = fleets.found
    each = _each(resolved, found[place], fleets.replicas[place], fleets.most[place])
    return fleets.cases.chosen(best)(
        minimum=minimum,
        full_rate=float(found.top_rate[best]),
        top_rate=float(fleets.top[best]),
        top_load=float(fleets.most[best]),
        places=float(found.most[best]),
        replicas=int(fleets.replicas[best]) + resolved.spare_replicas,
        point=_point(resolved, fleets.cases.placements[place], found[place], each),
        curve=found[place],
    )


def _fleet(resolved: ResolvedService, placements: ReplicaLayouts, found: Curve, most: Array, keeps: Flags) -> Array:
    """Replicas of each placement: those that the GPUs asked for hold, else as many as the load needs.

    most : of the load that one replica takes; keeps : whether that keeps the limits on latency
    Where the user does not say how long requests may wait, replicas that requests reach by chance are not run full.
    """
    if resolved.replicas is not None:
        return np.full(len(placements), float(resolved.replicas))
    if resolved.gpus is not None or resolved.load is None:
        return replicas_of(resolved, placements)
    share = np.where(keeps & resolved.limits_latency, 1.0, TARGET_LOAD)
    each = LOADS[resolved.load].filled(resolved, found, most, share)
    needed = np.ceil(resolved.amount / np.maximum(each, 1e-12) - 1e-9)
    return np.asarray(np.where(most > 0, np.maximum(needed, 1.0), 1.0))


def _each(resolved: ResolvedService, found: Curve, replicas: Array, most: Array) -> Array:
    """What each replica gets: its share of the load, or all that it takes, a hair below."""
    if resolved.load is None:
        return np.asarray(np.minimum(most, FULL * found.top_rate))
    return np.asarray(resolved.amount / replicas)


def _point(resolved: ResolvedService, placement: ReplicaLayouts, found: Curve, each: Array) -> Point:
    """One replica with its share of the load: latencies in the mean and at percentiles, and the steps that it runs."""
    traffic, load = resolved.traffic, LOADS[resolved.load]
    rates, mean = load.served(resolved, found, each)
    rate, means = float(rates[0]), mean.one
    percentiles: dict[float, tuple[float, float, float]] = {}
    if load.by_chance:
        lightest = float(found.rates[0, 0])
        (inside,) = found.at_rate(np.minimum(rates, found.top_rate), found.states.running)
        running = min(float(inside[0]) * min(rate / lightest, 1.0), rate * means[2])
        wanted = sorted({*PERCENTILES, resolved.percentile})
        percentiles = {one: load.served(resolved, found, each, one)[1].one for one in wanted}
    else:
        running = float(np.minimum(each, np.maximum(found.most, 1.0))[0])
    state = steady(resolved.job, placement, traffic, max(running, 1.0))
    prompt_s = float(state.prompt_s[0])
    answer_s = 1.0 / float(state.requests_per_s[0]) - prompt_s
    return Point(running, rate, *means, percentiles, state.prefill, state.decode, prompt_s, answer_s)
