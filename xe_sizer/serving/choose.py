"""Which placement a replica gets, how many replicas there are, and how they are loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import max_sequences, request_bytes, serving_memory, static_peak
from xe_sizer.serving.space import legal_placements, worthwhile
from xe_sizer.serving.states import capacity, curve
from xe_sizer.serving.static import static_batch
from xe_sizer.serving.steady import steady
from xe_sizer.serving.traffic import FULL, TARGET_LOAD
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation_offered import Outcome
    from xe_sizer.serving.static import StaticBatch
    from xe_sizer.serving.step import StepTime

ALIKE = 1.1  # what is closer than this is as good as equal: placements are not told apart more finely
PERCENTILES = (50.0, 95.0, 99.0)
Flags = NDArray[np.bool_]


@frozen
class Point:
    """One replica at work; seconds and rates of it.

    percentiles : percentile -> latencies, where requests arrive by chance; else the mean alone stands for all
    running : requests that it works at, in the mean
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

    @property
    def in_flight(self) -> float:
        """Requests that the replica has, waiting or running: by Little's law rate x time of a request [-]."""
        return self.requests_per_s * self.request_s


@frozen
class PrefillReplicas:
    """The replicas that only read prompts, beside those that answer.

    stages_s : seconds of the mean time to the first token: queue, prefill, transfer, decode
    utilisation, link_utilisation : of the prefill replicas, and of the links that the cache goes over [-]
    transfer_bytes : of a prompt's cache, of all ranks [bytes]; same_node : whether the cache stays inside a node
    """

    placement: ReplicaLayouts
    memory: ServingMemory
    replicas: int
    stages_s: dict[str, float]
    utilisation: float
    link_utilisation: float
    transfer_bytes: float
    same_node: bool

    @property
    def gpus(self) -> int:
        return self.replicas * int(self.placement.gpus[0])


@frozen
class Choice:
    """The placement of a replica with its memory, and the replicas at work.

    minimum : fewest GPUs on which a replica fits; None where none of the tried placements does
    holds : requests of this length that a replica's cache holds at once; fits : at least the one, or the batch
    full_rate : requests per second that a replica cannot exceed
    top_rate : the same within the limits on latency, where they can be kept; top_load : that in the unit of the load
    places : requests that a replica runs at once
    curve : the states of the placement, from one request to as many as fit; None for a batch, and beside prefills
    prefills : replicas that only read prompts; the others then only decode
    test : what the requests of a test see of one replica; None where the service goes on for ever
    """

    placement: ReplicaLayouts
    memory: ServingMemory
    minimum: int | None
    holds: float
    fits: bool
    full_rate: float
    top_rate: float
    top_load: float
    places: float
    replicas: int
    point: Point
    curve: Curve | None = None
    prefills: PrefillReplicas | None = None
    test: Outcome | None = None


@frozen
class Cases:
    """Placements to choose from, with their memory; arrays of shape (placements,).

    holds : requests at their full length that fit at once; fitting : whether that is enough
    need_bytes : of a GPU for everything beside the cache, and for the cache of the least that serves
    """

    placements: ReplicaLayouts
    memory: ServingMemory
    holds: Array
    fitting: Flags
    need_bytes: Array

    def __getitem__(self, index: Flags | slice) -> Cases:
        arrays = (self.holds[index], self.fitting[index], self.need_bytes[index])
        return Cases(self.placements[index], self.memory[index], *arrays)

    def chosen(self, place: int) -> partial[Choice]:
        """The choice of one of them, but for its replicas and their load."""
        one = self[place : place + 1]
        holds, fits = float(one.holds[0]), bool(one.fitting[0])
        return partial(Choice, placement=one.placements, memory=one.memory, holds=holds, fits=fits)

    def order(self, *keys: Array | Flags) -> int:
        """The first by these keys, of those that fit; where none does, the one that misses least."""
        missing = np.where(self.fitting, 0.0, self.need_bytes)
        return int(np.lexsort((*reversed(keys), missing, ~self.fitting))[0])


def choose(resolved: ResolvedService, placements: ReplicaLayouts) -> Choice:
    """The best of the placements, which must not be empty, and its replicas under their load."""
    cases = cases_of(resolved, placements)
    minimum = _fewest(cases)
    cases = cases[worthwhile(placements, cases.fitting)]
    return _static(resolved, cases, minimum) if resolved.load == "batch" else _online(resolved, cases, minimum)


def fewest_gpus(resolved: ResolvedService) -> int | None:
    """Fewest GPUs on which a replica fits in any layout, on any number of GPUs; None where it fits on none."""
    placements = legal_placements(resolved.job, {}, replace(resolved, gpus=None).most_gpus())
    return _fewest(cases_of(resolved, placements)) if len(placements) else None


def _fewest(cases: Cases) -> int | None:
    return int(cases.placements.gpus[cases.fitting].min()) if np.any(cases.fitting) else None


def cases_of(resolved: ResolvedService, placements: ReplicaLayouts) -> Cases:
    """Placements with their memory: what a replica holds, and whether that is enough."""
    job, traffic = resolved.job, resolved.traffic
    memory = serving_memory(job, placements, traffic.inputs)
    starts = job.engine.memory.grows or max_sequences(job, placements, memory, resolved.must_hold) >= 1.0
    holds = np.broadcast_to(_holds(resolved, placements, memory), len(placements))
    least = resolved.amount if resolved.load == "batch" and job.engine.memory.grows else 1.0
    if job.engine.memory.grows:
        live = sum(static_peak(job, placements, least, traffic.inputs, traffic.outputs).values())
        need_bytes = memory.beside_tensors + live
    else:
        need_bytes = sum(memory.fixed.values()) + request_bytes(job, placements, resolved.must_hold)
    fitting = np.asarray((holds >= least) & starts)
    return Cases(placements, memory, holds, fitting, np.broadcast_to(need_bytes, len(placements)))


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


def replicas_of(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Replicas at work on the GPUs asked for, spare ones set aside; one where the number is open."""
    if resolved.gpus is None:
        return np.ones(len(placements))
    node, each = resolved.job.server.accelerators, placements.gpus
    packed = -(-resolved.gpus // node) * (node // each)  # a replica that fits a server lies inside one
    found = np.where(each <= node, np.minimum(packed, resolved.gpus // each), resolved.gpus // each)
    return np.asarray(np.maximum(found - resolved.spare_replicas, 1), dtype=float)


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


def missed(resolved: ResolvedService, ttft_s: Array, tpot_s: Array) -> Array:
    """How far the limits on latency are missed: steps of 10 % of the worse one, 0 where both are kept [-]."""
    allowed = zip(allowed_latencies(resolved), (ttft_s, tpot_s), strict=True)
    shares = [np.asarray(values) / limit for limit, values in allowed if limit is not None]
    worst = np.asarray(np.maximum.reduce(shares)) if shares else np.zeros(np.shape(ttft_s))
    return np.asarray(np.where(worst > 1.0, np.ceil(np.log(np.maximum(worst, 1.0)) / np.log(ALIKE)), 0.0))


def missed_for(miss: Array, gpus: Array, possible: Flags) -> Array:
    """How far limits are missed, where none of the possible placements keeps them, with what a smaller miss costs [-].

        miss = log(value / limit) + log(gpus)

    Twice the GPUs must halve the miss: what no number of GPUs mends is not answered with hundreds of them.
    """
    if np.any(possible & (miss <= 0.0)):
        return miss
    return np.asarray(miss + alike(gpus))


def _step(found: StaticBatch, index: int, name: str) -> StepTime:
    step: StepTime = getattr(found, name)
    return step.at(lambda values: np.array([_pick(values, index)]))


def _online(resolved: ResolvedService, cases: Cases, minimum: int | None) -> Choice:
    """Requests that come and go: the fewest GPUs on which the load keeps the limits, then the fastest placement.

    GPUs that are there anyway are used for the most requests.
    """
    placements, load = cases.placements, LOADS[resolved.load]
    found = curve(resolved.job, placements, cases.memory, resolved.traffic)
    inside = np.where(cases.fitting, load.within(resolved, found), 0.0)
    most = np.where(inside > 0, inside, load.full(resolved, found) * cases.fitting)
    replicas = _fleet(resolved, placements, found, most, inside > 0)
    each = _each(resolved, found, replicas, most)
    rate, at = load.served(resolved, found, each, resolved.percentile)
    top, _ = load.served(resolved, found, most)
    overloaded = ~np.isfinite(at.ttft_s)
    counted = load.by_chance and resolved.load is not None  # the rate of the others follows from the placement
    taken = np.where(overloaded, found.top_rate, top if counted else rate) * replicas
    preferred = taken * (overloaded | (resolved.gpus is not None) | (not counted))
    gpus = as_array(replicas * placements.gpus * (resolved.gpus is None))
    late = missed_for(missed(resolved, at.ttft_s, at.tpot_s), np.maximum(gpus, 1.0), cases.fitting & ~overloaded)
    order: tuple[Array, ...] = (gpus, -alike(preferred), at.tpot_s)
    if resolved.objective == "latency":
        order = (_servers(resolved, placements), alike(at.request_s), gpus, at.tpot_s)
    elif resolved.objective == "throughput" and resolved.load is None:
        order = (-alike(taken / (replicas * placements.gpus)), *order)
    best = cases.order(overloaded, late, *order)
    place = slice(best, best + 1)
    point = _point(resolved, cases.placements[place], found[place], each[place])
    test = None
    if resolved.requests is not None:
        from xe_sizer.serving.simulation_load import run_test  # a service that goes on for ever needs none of it

        test = run_test(resolved, cases.placements[place], cases.memory[place], int(replicas[best]))
        point = _tested(resolved, point, test, int(replicas[best]))
    return cases.chosen(best)(
        minimum=minimum,
        full_rate=float(found.top_rate[best]),
        top_rate=float(top[best]),
        top_load=float(most[best]),
        places=float(found.most[best]),
        replicas=int(replicas[best]) + resolved.spare_replicas,
        point=point,
        curve=found[place],
        test=test,
    )


def alike(rates: Array) -> Array:
    """Rates in steps of 10 %."""
    return np.asarray(np.round(np.log(np.maximum(rates, 1e-9)) / np.log(ALIKE)))


def _fleet(resolved: ResolvedService, placements: ReplicaLayouts, found: Curve, most: Array, keeps: Flags) -> Array:
    """Replicas of each placement: those that the GPUs asked for hold, else as many as the load needs.

    most : of the load that one replica takes; keeps : whether that keeps the limits on latency
    Where the user does not say how long requests may wait, replicas that requests reach by chance are not run full.
    """
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


def _tested(resolved: ResolvedService, point: Point, test: Outcome, replicas: int) -> Point:
    """One of the replicas over a test: its share of the whole test's rate, and latencies of its requests."""
    wanted = sorted({*PERCENTILES, resolved.percentile})
    columns = (np.percentile(one, wanted).tolist() for one in (test.ttft_s, test.tpot_s, test.request_s))
    return replace(
        point,
        running=float((test.finish_s - test.start_s).sum()) / test.duration_s,
        requests_per_s=(resolved.requests or 1) / replicas / test.duration_s,
        ttft_s=float(test.ttft_s.mean()),
        tpot_s=float(test.tpot_s.mean()),
        request_s=float(test.request_s.mean()),
        percentiles=dict(zip(wanted, zip(*columns, strict=True), strict=True)),
    )


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
