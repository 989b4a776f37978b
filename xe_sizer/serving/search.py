"""The placement of a service: replicas that fit, the fewest that keep the limits, pools for prefill and decode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.result.serving import Fit, SessionCache, SessionTurns, Turn
from xe_sizer.scenario.provenance import with_values
from xe_sizer.serving.disaggregation import Kinds, Pools, decoding_only, encoders, prompts_of
from xe_sizer.serving.estimate import (
    PERCENTILES,
    Point,
    PrefillReplicas,
    ServingEstimate,
    alike,
    build_cases,
    count_replicas,
    fewest_that_fit,
    first,
    missed,
    missed_for,
)
from xe_sizer.serving.job import FULL, HIGHEST_LOAD, TARGET_LOAD, ReplicaLayouts
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import (
    fetch_s,
    longest_context,
    request_bytes,
    sessions_held,
    sessions_in_host,
    sessions_on_gpu,
)
from xe_sizer.serving.queueing import capacity, curve, steady
from xe_sizer.serving.search_space import legal_placements, worthwhile
from xe_sizer.serving.simulation import Offered, offered, poisson_arrivals, simulate
from xe_sizer.serving.step_time import prefill_time, static_batch
from xe_sizer.serving.uncertainty import allowed_latencies
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.serving.disaggregation import Encoders
    from xe_sizer.serving.estimate import Cases, Choice, Flags
    from xe_sizer.serving.job import ServingJob, Traffic
    from xe_sizer.serving.load import Load
    from xe_sizer.serving.memory import Hits, ServingMemory
    from xe_sizer.serving.queueing import Curve, Latencies
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.sessions import Returning
    from xe_sizer.serving.simulation import Outcome
    from xe_sizer.serving.step_time import StaticBatch, StepTime

# The placement, the number of replicas, and their load.


def choose(resolved: ResolvedService, placements: ReplicaLayouts) -> Choice:
    """Choose the best of the placements, which must not be empty, and its replicas under their load.

    Where the load needs more than a server, every number of stages is looked at: one that is no multiple of the fewest
    may need fewer GPUs.
    """
    cases = build_cases(resolved, placements)
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
    most = np.inf if job.grows else capacity(job, placements, cases.memory, traffic)
    found = static_batch(job, placements, resolved.amount, traffic.inputs, traffic.outputs, most, traffic)
    gpus = as_array(placements.gpus if resolved.gpus is None else -placements.gpus)
    late = missed_for(missed(resolved, found.ttft_s, found.tpot_s), np.maximum(gpus, 1.0), cases.fitting)
    best = cases.order(late, *_batch_order(resolved, placements, gpus, found.request_s))
    replicas, places = int(count_replicas(resolved, placements)[best]), _pick(as_array(most), best)
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


def _batch_order(
    resolved: ResolvedService, placements: ReplicaLayouts, gpus: Array, request_s: Array
) -> tuple[Array, ...]:
    """What comes first after the limits: the batch that is done soonest, or the most batches in a second."""
    if resolved.objective == "latency":
        # Where nobody says how many GPUs there are, a replica is not spread over servers for the sake of latency.
        servers = np.ceil(placements.gpus / resolved.job.server.accelerators) * (resolved.gpus is None)
        return servers, alike(request_s), np.abs(gpus)
    if resolved.objective == "throughput":
        rate = count_replicas(resolved, placements) / request_s
        return -alike(rate / np.where(resolved.gpus is None, gpus, 1.0)), request_s
    return gpus, request_s


def _step(found: StaticBatch, index: int, name: str) -> StepTime:
    step: StepTime = getattr(found, name)
    return step.at(lambda values: np.array([_pick(values, index)]))


class Fleets(Immutable):
    """Replicas of each placement under the load that all of them have; arrays of shape (placements,).

    What is not asked for is not computed: a search that looks for one figure asks for many fleets.

    found : the states of a replica
    """

    resolved: ResolvedService
    cases: Cases
    found: Curve

    @property
    def load(self) -> Load:
        """What the service has to bear."""
        return LOADS[self.resolved.load]

    @cached_property
    def inside(self) -> Array:
        """Of the load what one replica takes within the limits on latency; 0 where it keeps them with none."""
        return np.asarray(np.where(self.cases.fitting, self.load.within(self.resolved, self.found), 0.0))

    @cached_property
    def most(self) -> Array:
        """Of the load what one replica takes, within the limits on latency where it can keep them."""
        full = self.load.full(self.resolved, self.found) * self.cases.fitting
        return np.asarray(np.where(self.inside > 0, self.inside, full))

    @cached_property
    def replicas(self) -> Array:
        """Replicas at work, spare ones not counted: those that the GPUs asked for hold, or what the load needs [-].

        Where the user does not say how long requests may wait, replicas that requests reach by chance are not run full.
        """
        resolved, placements = self.resolved, self.cases.placements
        if resolved.replicas is not None:
            return np.full(len(placements), float(resolved.replicas))
        if resolved.gpus is not None or resolved.load is None:
            return count_replicas(resolved, placements)
        share = np.where((self.inside > 0) & resolved.limits_latency, 1.0, TARGET_LOAD)
        each = self.load.filled(resolved, self.found, self.most, share)
        needed = np.ceil(resolved.amount / np.maximum(each, 1e-12) - 1e-9)
        return np.asarray(np.where(self.most > 0, np.maximum(needed, 1.0), 1.0))

    @cached_property
    def each(self) -> Array:
        """Of the load what each replica gets: its share, or all that it takes, a hair below."""
        if self.resolved.load is None:
            return np.asarray(np.minimum(self.most, FULL * self.found.top_rate))
        return np.asarray(self.resolved.amount / self.replicas)

    @cached_property
    def served(self) -> tuple[Array, Latencies]:
        """Requests per second of one replica [1/s], and latencies at the asked percentile."""
        rate, (at,) = self.load.served(self.resolved, self.found, self.each, self.resolved.percentile)
        return rate, at

    @cached_property
    def top(self) -> Array:
        """Requests per second of one replica with the most load that it takes [1/s]."""
        rate, _ = self.load.served(self.resolved, self.found, self.most, None)
        return rate

    @property
    def overloaded(self) -> Flags:
        """Whether latencies have no end."""
        return ~np.isfinite(self.served[1].ttft_s)

    @property
    def taken(self) -> Array:
        """Requests per second of all replicas, as asked for or as many as they could take [1/s]."""
        counted = self.load.by_chance and self.resolved.load is not None  # the others' rate follows from the placement
        rate = self.top if counted else self.served[0]
        return np.asarray(np.where(self.overloaded, self.found.top_rate, rate) * self.replicas)

    @property
    def gpus(self) -> Array:
        """GPUs of all replicas at work [-]."""
        return as_array(self.replicas * self.cases.placements.gpus)

    @property
    def columns(self) -> tuple[Array | Flags, ...]:
        """What `choose_fleet` compares."""
        cases, (_, at) = self.cases, self.served
        sizes = cases.fitting, cases.need_bytes, self.overloaded, as_array(cases.placements.gpus), self.gpus, self.taken
        return (*sizes, at.ttft_s, at.tpot_s, at.request_s)

    @property
    def missed(self) -> Array:
        """How far the limits on latency are missed; 0 where they are kept [-]."""
        _, at = self.served
        late = missed(self.resolved, at.ttft_s, at.tpot_s)
        return np.asarray(np.where(self.overloaded | ~self.cases.fitting, np.inf, late))

    @cached_property
    def keeps_limits(self) -> Flags:
        """Whether the limits on latency are kept, on no fewer replicas than the load needs."""
        kept: Flags = self.missed == 0.0
        if self.resolved.replicas is None or not kept.any():
            return kept
        needed = replace(self, resolved=replace(self.resolved, replicas=None))
        enough = (self.resolved.gpus is not None) | (needed.replicas <= self.replicas)
        return kept & enough & needed.keeps_limits


def build_fleets(resolved: ResolvedService, cases: Cases) -> Fleets:
    """Give each placement as many replicas as the load needs, or as the GPUs asked for hold, and what they get."""
    return Fleets(resolved, cases, curve(resolved.job, cases.placements, cases.memory, resolved.traffic))


def choose_fleet(resolved: ResolvedService, fleets: Sequence[Fleets]) -> int:
    """Choose the fleet to take, counted through all of them: the fewest GPUs that keep the limits, then the fastest.

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
    fleets = build_fleets(resolved, cases)
    return build_choice(fleets, choose_fleet(resolved, (fleets,)), minimum)


def build_choice(fleets: Fleets, best: int, minimum: int | None) -> Choice:
    """Build the choice of one of the fleets."""
    place = slice(best, best + 1)
    found, resolved = fleets.found, fleets.resolved
    return fleets.cases.chosen(best)(
        minimum=minimum,
        full_rate=float(found.top_rate[best]),
        top_rate=float(fleets.top[best]),
        top_load=float(fleets.most[best]),
        places=float(found.most[best]),
        replicas=int(fleets.replicas[best]) + resolved.spare_replicas,
        point=_point(resolved, fleets.cases.placements[place], found[place], fleets.each[place]),
        curve=found[place],
    )


def _point(resolved: ResolvedService, placement: ReplicaLayouts, found: Curve, each: Array) -> Point:
    """One replica with its share of the load: latencies in the mean and at percentiles, and the steps that it runs."""
    traffic, load = resolved.traffic, LOADS[resolved.load]
    wanted = sorted({*PERCENTILES, resolved.percentile}) if load.by_chance else []
    work = _working(resolved, found, each, *wanted)
    percentiles = {one: latency.one for one, latency in zip(wanted, work.at, strict=True)}
    state = steady(resolved.job, placement, traffic, max(work.running, 1.0))
    whole_s = 1.0 / float(state.requests_per_s[0])
    prompt_s = float(state.prompt_s[0]) if traffic.outputs else whole_s
    answer_s = whole_s - prompt_s
    steps = state.prefill, state.decode
    return Point(work.running, work.requests_per_s, *work.mean.one, percentiles, *steps, prompt_s, answer_s)


class _Working(Immutable):
    """What one replica does with its share of the load.

    running : requests that it works at, in the mean [-]; mean, at : latencies in the mean and at percentiles
    """

    requests_per_s: float
    running: float
    mean: Latencies
    at: Sequence[Latencies]

    @property
    def in_flight(self) -> float:
        """Requests that the replica has, waiting or running: by Little's law rate x time of a request [-]."""
        return self.requests_per_s * float(self.mean.request_s[0])


def _working(resolved: ResolvedService, found: Curve, each: Array, *percentiles: float) -> _Working:
    """Requests of one replica with its share of the load, and their latencies."""
    load = LOADS[resolved.load]
    rates, (mean, *at) = load.served(resolved, found, each, None, *percentiles)
    rate = float(rates[0])
    if not load.by_chance:
        return _Working(rate, float(np.minimum(each, np.maximum(found.most, 1.0))[0]), mean, at)
    (inside,) = found.at_rate(np.minimum(rates, found.top_rate), found.states.running)
    lightest, request_s = float(found.rates[0, 0]), float(mean.request_s[0])
    return _Working(rate, min(float(inside[0]) * min(rate / lightest, 1.0), rate * request_s), mean, at)


# Users who come back to a cache that may be gone: sized with the share that finds its own again.

MOST_TIMES = 64  # the replicas that would be enough if every session was found: more mend nothing
MOST_ROUNDS = 16  # in which the share that is found is looked for
CLOSE = 0.002  # of the share, at which the search ends


class _Kept(Immutable):
    """A sized replica's sessions: those whose users think, what there is room for, and how many find theirs."""

    idle: float
    on_gpu: float
    in_host: float
    hits: Hits


def choose_returning(
    resolved: ResolvedService, asked: Returning, placements: ReplicaLayouts
) -> tuple[ResolvedService, Choice]:
    """Choose the best placement, each with the share of prompts that its own sessions find in the cache.

    A replica that has fewer users keeps more of their sessions, so that the share depends on the placement and on the
    number of replicas. Placements are looked at in the order of the GPUs that they would need if every session was
    found, until the next one could be no better than the best so far.

    Returns
    -------
    The service with the share that is found, and the choice
    """
    cases = build_cases(resolved, placements)
    minimum = fewest_that_fit(cases)
    cases = cases[worthwhile(placements, cases.fitting)]
    ideal = build_fleets(_finding(resolved, asked, 1.0, 0.0), cases)
    least = ideal.gpus * (resolved.gpus is None)
    misses = ideal.missed
    settled: list[Fleets] = []
    best_gpus = np.inf
    for index in np.lexsort((least, misses)):
        if settled and (least[index] > best_gpus or (misses[index] > 0.0 and np.isfinite(best_gpus))):
            break
        place = slice(int(index), int(index) + 1)
        one = _least_replicas(resolved, asked, cases[place], int(ideal.replicas[index]))
        settled.append(one)
        if one.keeps_limits[0]:
            best_gpus = min(best_gpus, float(one.gpus[0]) * (resolved.gpus is None))
    best = settled[choose_fleet(resolved, settled)]
    return replace(best.resolved, replicas=None), build_choice(best, 0, minimum)


def _finding(resolved: ResolvedService, asked: Returning, share: float, fetched_s: float) -> ResolvedService:
    """The service of which so many sessions find their cache, which the mean request waits for so long."""
    traffic = asked.traffic(resolved.traffic, share)
    return replace(resolved, traffic=traffic, job=replace(resolved.job, fetch_s=fetched_s))


def _least_replicas(resolved: ResolvedService, asked: Returning, cases: Cases, least: int) -> Fleets:
    """One placement on the fewest replicas, from `least` on, that keep the limits with the share that they find.

    More replicas find more, so that what is enough stays enough; where none is, the fewest.
    """
    start = tried = _settle(resolved, asked, cases, least)
    if resolved.gpus is not None or start.keeps_limits[0]:
        return start
    short, enough = least, least
    while not tried.keeps_limits[0]:
        short, enough = enough, 2 * enough
        if enough > MOST_TIMES * least:
            return start
        tried = _settle(resolved, asked, cases, enough)
    found = tried
    while enough - short > 1:
        middle = (short + enough) // 2
        tried = _settle(resolved, asked, cases, middle)
        if tried.keeps_limits[0]:
            enough, found = middle, tried
        else:
            short = middle
    return found


def _settle(resolved: ResolvedService, asked: Returning, cases: Cases, replicas: int) -> Fleets:
    """One placement with so many replicas and the share of prompts found that its sessions leave there.

    What is found makes requests shorter, which leaves more users thinking: solved by taking the mean of both.
    """
    found, fetched_s = 1.0, 0.0
    for _ in range(MOST_ROUNDS):
        service = replace(_finding(resolved, asked, found, fetched_s), replicas=replicas)
        fleets = build_fleets(service, cases)
        work = _working(service, fleets.found, fleets.each)
        hits = _kept(service, cases.placements, cases.memory, replicas, work, asked).hits
        share, host = float(hits.both[0]), float(hits.host[0])
        once_s = asked.returning * float(fetch_s(service.job, cases.placements, asked.seen_tokens(service.traffic))[0])
        if abs(share - found) < CLOSE and abs(host * once_s - fetched_s) < CLOSE * once_s:
            break
        found, fetched_s = (found + share) / 2.0, (fetched_s + host * once_s) / 2.0
    return fleets


def _kept(
    resolved: ResolvedService, placement: ReplicaLayouts, memory: ServingMemory, replicas: int, work: Point | _Working,
    asked: Returning,
) -> _Kept:  # fmt: skip
    job, traffic = resolved.job, resolved.traffic
    seen, rate = asked.seen_tokens(traffic), work.requests_per_s
    idle = asked.idle(resolved.amount / replicas, work.in_flight, rate)
    on_gpu = sessions_on_gpu(job, placement, memory, traffic, work.running, seen)
    in_host = sessions_in_host(job, placement, asked.size_bytes, seen)
    hits = asked.hits(idle, on_gpu, in_host, job.engine.memory.host_cache, rate)
    return _Kept(idle, float(on_gpu[0]), float(in_host[0]), hits)


def session_cache(estimate: ServingEstimate) -> SessionCache | None:
    """Sessions held and found again as the result shows them; None where nobody asks."""
    resolved, asked = estimate.resolved, estimate.resolved.returning
    if asked is None or not estimate.fits or (resolved.turns is not None and not resolved.turns.cached):
        return None
    job, placement = resolved.job, estimate.placement
    kept = _kept(resolved, placement, estimate.memory, estimate.working_replicas, estimate.point, asked)
    seen, prompt = asked.seen_tokens(resolved.traffic), asked.prompt_tokens(resolved.traffic)
    again_s, whole_s = (_prefill_s(estimate, prompt, prompt - past) - job.fetch_s for past in (seen, 0.0))
    once_s = float(fetch_s(job, placement, seen)[0])
    before_s = _before_s(estimate)
    return SessionCache(
        host_gib=asked.size_bytes / GIB,
        sessions=kept.idle,
        on_gpu=kept.on_gpu,
        in_host=kept.in_host,
        hit_gpu=float(kept.hits.gpu[0]),
        hit_host=float(kept.hits.host[0]),
        missed=1.0 - float(kept.hits.both[0]),
        fetch_s=once_s,
        recompute_s=whole_s - again_s,
        ttft_gpu_s=before_s + again_s,
        ttft_host_s=before_s + again_s + once_s,
        ttft_missed_s=before_s + whole_s,
    )


def _before_s(estimate: ServingEstimate) -> float:
    """What the mean request waits for before its own prefill [s]."""
    traffic = estimate.resolved.traffic
    return estimate.point.ttft_s - _prefill_s(estimate, traffic.inputs, traffic.new_inputs)


def _prefill_s(estimate: ServingEstimate, prompt: float, new: float) -> float:
    """A prompt of which so many tokens are new, once nothing is before it, with what the mean request fetches [s]."""
    job = estimate.resolved.job
    step, steps = prefill_time(job, estimate.placement, 1.0, prompt, prompt - max(new, 1.0))
    return float((step.total_s * steps)[0]) + job.request_s


def session_turns(estimate: ServingEstimate, details: bool = True) -> SessionTurns | None:
    """Build the turns of sessions that grow: what of them is found, and how soon each is answered; None without turns.

        ttft_k = wait + found x prefill(new tokens after the history) + (1 - found) x prefill(all of the prompt)

    details : with the same service without a prefix cache, or with one

    Source: own derivation; the wait is that of the mean request.
    """
    resolved, asked = estimate.resolved, estimate.resolved.turns
    if asked is None or not estimate.fits or estimate.overloaded:
        return None
    job, point, traffic = resolved.job, estimate.point, resolved.traffic
    kept = _kept(resolved, estimate.placement, estimate.memory, estimate.working_replicas, point, asked)
    found, prompts, seen = float(kept.hits.both[0]), asked.prompts, asked.seen
    places = {1, (asked.turns + 1) // 2, asked.turns}
    fetched_s = float(kept.hits.host[0]) * float(fetch_s(job, estimate.placement, asked.seen_tokens(traffic))[0])

    def prefill_s(turn: int) -> float:
        prompt, history = float(prompts[turn - 1]), float(seen[turn - 1])
        new_s, whole_s = (_prefill_s(estimate, prompt, prompt - past) for past in (history, 0.0))
        own_s = found * new_s + (1.0 - found) * whole_s
        # The mean request fetches; the first turn has nothing to fetch, the others all of it.
        return own_s - job.fetch_s + (fetched_s if turn > 1 else 0.0)

    answer_s = max(traffic.outputs - 1.0, 0.0) * point.tpot_s
    before_s = max(_before_s(estimate), 0.0)
    by_turn = tuple(
        Turn(
            turn=turn,
            prompt_tokens=float(prompts[turn - 1]),
            history_tokens=float(seen[turn - 1]),
            ttft_s=before_s + prefill_s(turn),
            request_s=before_s + prefill_s(turn) + answer_s,
        )
        for turn in sorted(places)
    )
    room = np.asarray(kept.on_gpu)
    otherwise = estimate.resized(returning=replace(asked, cached=not asked.cached)) if details else None
    return SessionTurns(
        turns=asked.turns,
        gap_s=asked.gap_s,
        mean_prompt_tokens=traffic.inputs,
        found_share=traffic.prefix_hit_share,
        history_share=asked.returning * asked.seen_tokens(traffic) / traffic.inputs,
        sessions=(point.in_flight + kept.idle) * estimate.working_replicas,
        sessions_per_s=estimate.taken_per_s / asked.turns,
        kept_s=float(asked.kept_s(room, point.requests_per_s)) if asked.cached else 0.0,
        by_turn=by_turn,
        cached=asked.cached,
        otherwise_gpus=otherwise.gpus if otherwise else None,
        otherwise_requests_per_s=otherwise.most_per_s if otherwise else None,
        otherwise_meets_limits=otherwise.ok if otherwise else None,
    )


def host_cache_warnings(estimate: ServingEstimate) -> Iterator[str]:
    """That the caches of a server's replicas are more than its host memory, where that is known."""
    asked, server = estimate.resolved.returning, estimate.resolved.job.server
    if asked is None or not asked.size_bytes or server.host_usable_bytes is None:
        return
    replicas = max(server.accelerators // int(estimate.placement.gpus[0]), 1)
    together = min(replicas, estimate.replicas) * asked.size_bytes
    if together > server.host_usable_bytes:
        have = f"{server.host_usable_bytes / GIB:,.0f} GiB of host memory that {server.name} has free"
        yield f"the KV caches of a server's replicas take {together / GIB:,.0f} GiB, more than the {have}"


# Two pools: replicas that only read prompts, and replicas that only decode.

AUTO = "auto"
MOST_COUNTS = 48  # numbers of prefill replicas that are tried on GPUs that are given
NEAR = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6, 2.0, 3.0)  # times the replicas that the load needs at a guess
FULL_BATCH = 64  # prefill and decode replicas that a service without a load is looked for with, at most
MOST_TRIED = 64  # numbers of replicas of a kind that a search looks at near the best so far


def decode_curve(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic) -> Curve:
    """Evaluate replicas that only decode, from one request to as many as their cache holds.

        running_i = c^(i / (GRID - 1)),  i = 0 ... GRID - 1

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers [tokens]

    Returns
    -------
    Curve, shape (GRID, placements), seconds [s]

    Source: `serving.queueing.curve` over `decoding_only`.
    """
    return curve(job, placements, memory, replace(traffic, input_spread=0.0), decoding_only)


def choose_pools(resolved: ResolvedService, prefill: ReplicaLayouts, decode: ReplicaLayouts) -> Choice | None:
    """Choose the numbers and placements of replicas that read prompts and that answer; None where no pair fits.

    Without GPUs that are given the fewest that keep the limits, else what serves the load best on these.

    Parameters
    ----------
    resolved : the service
    prefill, decode : legal placements of each kind, shape (placements,)

    Source: own derivation: numbers near those that the rates of both kinds ask for, and then each near the best.
    """
    kinds = _kinds(resolved, prefill, decode)
    tried = None if kinds is None else _tried(resolved, kinds)
    if kinds is None or tried is None or not len(tried.prefills):
        return None
    best = _best(resolved, tried)
    if resolved.gpus is None:
        near = _near(resolved, kinds, tried[best : best + 1])
        tried, best = near, _best(resolved, near)
    return _choice(resolved, tried[best : best + 1])


def _kinds(resolved: ResolvedService, prefill: ReplicaLayouts, decode: ReplicaLayouts) -> Kinds | None:
    """The placements of both kinds that hold their part and that no other beats in what they are for."""
    job, traffic = resolved.job, resolved.traffic
    reads, answers = (_fitting(resolved, placements) for placements in (prefill, decode))
    if not (len(reads.placements) and len(answers.placements)):
        return None
    prompts, gpus = prompts_of(job, reads.placements, traffic), as_array(reads.placements.gpus)
    readers = reads.placements[pareto_front(gpus * prompts.each_s, prompts.alone_s, gpus)]
    prompts = prompts_of(job, readers, traffic)
    found = decode_curve(job, answers.placements, answers.memory, traffic)
    some = found.top_rate > 0.0  # longer answers than any replica ends
    if not np.any(some):
        return None
    answers, found, gpus = answers[some], found[some], as_array(answers.placements.gpus[some])
    kept = pareto_front(gpus / found.top_rate, found.states.tpot_s[0], gpus)
    return Kinds(readers, prompts, answers.placements[kept], found[kept])


def _fitting(resolved: ResolvedService, placements: ReplicaLayouts) -> Cases:
    cases = build_cases(resolved, placements)
    kept = cases.fitting & worthwhile(placements, cases.fitting)
    return cases[kept]


def pareto_front(*costs: Array) -> NDArray[np.bool_]:
    """Whether no other point costs less in one and no more in all; of equal ones the first stays."""
    each = np.stack([np.broadcast_to(one, np.size(costs[-1])) for one in costs])
    no_more = np.all(each[:, :, None] <= each[:, None, :], axis=0)
    same = no_more & no_more.T
    earlier = np.arange(each.shape[1])[:, None] < np.arange(each.shape[1])
    return np.asarray(~np.any((no_more & ~same) | (same & earlier), axis=0))


def _tried(resolved: ResolvedService, kinds: Kinds) -> Pools | None:
    """Services to choose from: every pair of placements, each with numbers of replicas."""
    first, second = (one.reshape(-1) for one in np.indices((len(kinds.prefill), len(kinds.decode))))
    if resolved.gpus is not None:
        return _on_gpus(resolved, kinds, first, second)
    one = Pools(resolved, kinds, first, second, np.ones(first.size), np.ones(first.size))
    if resolved.load is None:
        counts = np.unique(np.geomspace(1, FULL_BATCH, 24).astype(int)).astype(float)
        reads, answers = (each[None, :] for each in np.meshgrid(counts, counts))
        reads, answers = reads.reshape(-1, 1), answers.reshape(-1, 1)
    else:
        reads, answers = guess_pools(resolved, one)
        share = np.array(NEAR)[:, None]
        reads = np.maximum(np.ceil(np.repeat(share, len(NEAR), axis=0) * reads), 1.0)
        answers = np.maximum(np.ceil(np.tile(share, (len(NEAR), 1)) * answers), 1.0)
    return _services(resolved, kinds, first, second, reads, answers)


def _services(
    resolved: ResolvedService, kinds: Kinds, first: IntArray, second: IntArray, reads: Array, answers: Array
) -> Pools:
    """Pairs of shape (pairs,) by numbers of replicas of shape (numbers, pairs), the numbers as asked where they are."""
    asked = resolved.prefill_replicas
    shape = np.broadcast_shapes(reads.shape, answers.shape, (1, first.size))
    if asked != AUTO:
        reads = np.full(shape, float(asked or 1))
    both = (np.broadcast_to(one, shape).reshape(-1) for one in (first, second, reads, answers))
    table = np.unique(np.stack([np.asarray(one, dtype=float) for one in both]), axis=1)
    found = Pools(resolved, kinds, table[0].astype(int), table[1].astype(int), table[2], table[3])
    most = resolved.limits.max_gpus
    return found if most is None or np.all(found.gpus > most) else found[found.gpus <= most]


def _on_gpus(resolved: ResolvedService, kinds: Kinds, first: IntArray, second: IntArray) -> Pools | None:
    """All ways to give the GPUs that are there to both kinds."""
    whole, reader, answerer = resolved.gpus or 0, kinds.prefill.gpus[first], kinds.decode.gpus[second]
    counts = np.unique(np.geomspace(1, max(whole, 1), MOST_COUNTS).round().astype(int))[:, None]
    if resolved.prefill_replicas != AUTO:
        counts = np.array([[int(resolved.prefill_replicas or 1)]])
    answers = (whole - counts * reader) // answerer
    kept = answers >= 1
    both = (np.broadcast_to(one, answers.shape)[kept] for one in (first, second, counts, answers))
    picked = [np.asarray(one) for one in both]
    return Pools(resolved, kinds, picked[0], picked[1], picked[2].astype(float), picked[3].astype(float))


def guess_pools(resolved: ResolvedService, one: Pools) -> tuple[Array, Array]:
    """Replicas of both kinds that the load needs, from the rate that it comes to if answers keep their limit."""
    amount, load = resolved.amount, resolved.load
    _, tpot_s = allowed_latencies(resolved)
    pace_s = one.found.states.tpot_s
    allowed = pace_s <= (np.inf if tpot_s is None else tpot_s)
    place = np.maximum(allowed.sum(axis=0) - 1, 0)
    columns = np.arange(one.first.size)
    inside, each = one.found.states.running[place, columns], one.found.rates[place, columns]
    rate = np.full(one.first.size, amount)
    if load != "request_rate":
        rate = amount / (one.alone_s + one.sent_s + inside / each + resolved.think_s)
    return rate * one.each_s, rate / each


def _near(resolved: ResolvedService, kinds: Kinds, best: Pools) -> Pools:
    """The best so far with every number of replicas near its own, or with some of them where there are many."""
    spans = []
    for count in (float(best.prefills[0]), float(best.decodes[0])):
        low, high = max(int(0.6 * count), 1), int(1.1 * count) + 1
        spans.append(np.unique(np.linspace(low, high, min(high - low + 1, MOST_TRIED)).round()))
    reads, answers = (one.reshape(-1, 1) for one in np.meshgrid(*spans))
    return _services(resolved, kinds, best.first, best.second, reads, answers)


def _best(resolved: ResolvedService, tried: Pools) -> int:
    """Which keeps the load and the limits on the fewest GPUs, then takes the most and is fastest."""
    is_open, by_chance = resolved.gpus is None, LOADS[resolved.load].by_chance
    reserve = TARGET_LOAD if is_open and by_chance and resolved.load and not resolved.limits_latency else 1.0
    rate, at = tried.under(resolved.amount / reserve, _percentile(resolved))
    overloaded = ~np.isfinite(at.ttft_s)
    gpus = tried.gpus * is_open
    preferred = np.where(overloaded, tried.top_rate, rate)
    if resolved.load == "request_rate":
        preferred = tried.top_rate
        if not is_open:  # the rate within the limits on latency, where they can be kept
            within = tried.rate_within(_percentile(resolved))
            preferred = np.asarray(np.where(within > 0, within, tried.top_rate))
    if resolved.load is None:
        preferred, gpus = preferred / tried.gpus, np.zeros(gpus.shape)
    late = missed_for(missed(resolved, at.ttft_s, at.tpot_s), np.maximum(gpus, 1.0), ~overloaded)
    # Of as many GPUs replicas inside one server come before those that span several, as in `choose_fleet`.
    node = resolved.job.server.accelerators
    sizes = (tried.kinds.prefill.gpus[tried.first], tried.kinds.decode.gpus[tried.second])
    servers = sum(np.ceil(as_array(each) / node) for each in sizes) * (resolved.load is not None)
    keys = (late, gpus, servers, -alike(preferred), tried.gpus, at.tpot_s)
    return int(np.lexsort((*reversed(keys), overloaded))[0])


def _choice(resolved: ResolvedService, one: Pools) -> Choice:
    """The service as a choice: its decode replicas, and beside them those that read prompts."""
    decodes, place = float(one.decodes[0]), one.kinds.decode[one.second]
    within = float(one.rate_within(_percentile(resolved))[0])
    top = within or float(one.top_rate[0])
    load = top
    if resolved.load not in (None, "request_rate"):  # the load that comes to the rate
        load = top * (float(one.latencies(top).request_s[0]) + resolved.think_s)
    return build_cases(resolved, place).chosen(0)(
        minimum=int(place.gpus[0]),
        full_rate=float(one.top_rate[0]) / HIGHEST_LOAD / decodes,
        top_rate=top / decodes,
        top_load=load / decodes,
        places=float(one.found.most[0]),
        replicas=int(decodes),
        point=_pools_point(resolved, one),
        prefills=_readers(resolved, one),
    )


def _percentile(resolved: ResolvedService) -> float | None:
    """What limits are compared with; None: the mean."""
    return resolved.percentile if LOADS[resolved.load].by_chance else None


def _readers(resolved: ResolvedService, one: Pools) -> PrefillReplicas:
    """The replicas that read prompts, with the means of what a request waits for until its first token."""
    rate, at = one.under(resolved.amount)
    taken, stages = np.minimum(rate, one.top_rate), one.stages_s(rate)
    parts = {name: float(stages[name][0]) for name in ("queue", "prefill", "transfer", "decode")}
    parts["queue"] += float(np.nan_to_num(at.ttft_s - one.latencies(taken).ttft_s, posinf=0.0)[0])
    place, whole = one.kinds.prefill[one.first], ReplicaLayouts.of()
    return PrefillReplicas(
        placement=place,
        memory=build_cases(resolved, place).memory,
        replicas=int(one.prefills[0]),
        stages_s=parts,
        utilisation=float((taken * one.each_s / one.prefills)[0]),
        link_utilisation=float((taken * one.sent_s / one.links)[0]),
        transfer_bytes=float(request_bytes(resolved.job, whole, resolved.traffic.inputs)[0]),
        same_node=bool(one.gpus[0] <= resolved.job.server.accelerators),
    )


def _pools_point(resolved: ResolvedService, one: Pools) -> Point:
    """One decode replica with its share of the load; latencies are those of the service, prompts included."""
    decodes, traffic, placement = float(one.decodes[0]), resolved.traffic, one.kinds.decode[one.second]
    rate, mean = one.under(resolved.amount)
    each = np.minimum(rate, one.top_rate) / decodes
    (inside,) = one.found.at_rate(each, one.found.states.running)
    running = float((inside * np.minimum(each / one.found.rates[0], 1.0))[0])
    percentiles: dict[float, tuple[float, float, float]] = {}
    if LOADS[resolved.load].by_chance:
        wanted = sorted({*PERCENTILES, resolved.percentile})
        percentiles = {at: one.under(resolved.amount, at)[1].one for at in wanted}
    busy_s = 1.0 / float(each[0])
    reading = float(one.prefills[0] * one.kinds.prefill[one.first].gpus[0] / one.gpus[0])
    return Point(
        running,
        float(rate[0]) / decodes,
        *mean.one,
        percentiles,
        one.kinds.prompts.step.at(lambda values: np.broadcast_to(values, len(one.kinds.prefill))[one.first]),
        decoding_only(resolved.job, placement, traffic, max(running, 1.0)).decode,
        prompt_s=reading * busy_s,
        answer_s=(1.0 - reading) * busy_s,
    )


# `--fit`: how long sequences may be, and how many of them fit.

CONTEXT, SESSIONS = "context", "sessions"
FOUND = "fit"  # origin of what was looked for
Sized = Callable[["ResolvedService"], "ServingEstimate"]


def size_fitting(resolved: ResolvedService, size_once: Sized) -> ServingEstimate:
    """Size the service with the longest sequences, or the most of them, that fit the GPUs.

    Without a number of GPUs those are meant that one replica needs at least.
    """
    placements = legal_placements(resolved.job, resolved.fixed, resolved.most_gpus())
    shortest = replace(resolved.traffic, inputs=1.0) if _context(resolved) else resolved.traffic
    least = replace(resolved, traffic=shortest)
    fitting = build_cases(least, placements).fitting if len(placements) else np.zeros(0, dtype=bool)
    if not np.any(fitting):
        return size_once(resolved)
    placements = placements[fitting]
    gpus = resolved.gpus or int(placements.gpus.min())
    on_them = replace(resolved, gpus=gpus)
    placements = placements[placements.gpus <= (on_them.most_gpus() or gpus)]
    return _longest(on_them, placements, size_once) if _context(resolved) else _most(on_them, placements, size_once)


def _context(resolved: ResolvedService) -> bool:
    return resolved.fit == CONTEXT


def _longest(resolved: ResolvedService, placements: ReplicaLayouts, size_once: Sized) -> ServingEstimate:
    job, outputs = resolved.job, resolved.traffic.outputs
    replicas = np.minimum(count_replicas(resolved, placements), resolved.amount)
    found = longest_context(job, placements, np.ceil(resolved.amount / replicas), outputs, _bound(resolved))
    best = float(found.max())
    if best <= 0:
        return size_once(resolved)
    traffic = replace(resolved.traffic, inputs=best - outputs)
    asked = replace(resolved, traffic=traffic, fixed=_sizes(placements, found))
    return size_once(_told(asked, {"serve.input_tokens": best - outputs}))


def _most(resolved: ResolvedService, placements: ReplicaLayouts, size_once: Sized) -> ServingEstimate:
    job, traffic = resolved.job, resolved.traffic
    limit = job.engine.batching.max_sequences * job.groups(placements)
    each = np.minimum(sessions_held(job, placements, traffic.inputs, traffic.outputs), limit)
    found = each * (1.0 if resolved.load == "batch" else count_replicas(resolved, placements))
    best = float(found.max())
    if best < 1:
        return size_once(resolved)
    asked = replace(resolved, amount=best, fixed=_sizes(placements, found))
    return size_once(_told(asked, {f"serve.{resolved.load}": int(best)}))


def _sizes(placements: ReplicaLayouts, found: Array) -> dict[str, int]:
    """The smallest placement of those that come furthest."""
    place = int(np.argmax(found))
    return {name: int(getattr(placements, name)[place]) for name in ("tp", "pp", "ep", "dp")}


def _bound(resolved: ResolvedService) -> int | None:
    """The longest sequence that model or user allow [tokens]; None: none is known."""
    known = (resolved.job.model.max_positions, resolved.scenario.values.serve.max_model_len)
    return min((one for one in known if one), default=None)


def _told(resolved: ResolvedService, found: dict[str, object]) -> ResolvedService:
    """With what was found as the value of its key."""
    origins = {**resolved.origins, **dict.fromkeys(found, FOUND)}
    return replace(resolved, values=with_values(resolved.values, found), origins=origins)


def build_fit(estimate: ServingEstimate) -> Fit | None:
    """Build what was looked for as the result shows it; None where nothing was, or nothing fits."""
    resolved = estimate.resolved
    if resolved.fit is None or not estimate.fits:
        return None
    job, traffic, asked = resolved.job, resolved.traffic, resolved.scenario.values.serve.max_model_len
    tokens = int(traffic.inputs + traffic.outputs)
    working = 1 if resolved.load == "batch" else estimate.working_replicas
    held = float(sessions_held(job, estimate.placement, traffic.inputs, traffic.outputs)[0])
    bound, limit = "memory", job.engine.batching.max_sequences * float(job.groups(estimate.placement)[0])
    if resolved.fit == SESSIONS and held > limit:
        bound = "max_sequences"
    if resolved.fit == CONTEXT and tokens == _bound(resolved):
        bound = "max_model_len" if tokens == asked else "positions"
    return Fit(
        question=resolved.fit,
        tokens=tokens,
        input_tokens=int(traffic.inputs),
        output_tokens=int(traffic.outputs),
        sessions=int(resolved.amount),
        sessions_per_replica=int(np.ceil(resolved.amount / working)),
        bound=bound,
    )


def what_fits(estimate: ServingEstimate) -> tuple[float, str]:
    """The most of what was looked for, and its unit."""
    resolved = estimate.resolved
    if _context(resolved):
        return resolved.traffic.inputs + resolved.traffic.outputs, "tokens"
    return resolved.amount, "sessions"


# The estimate.


def size(resolved: ResolvedService) -> ServingEstimate:
    """Choose the placement of a replica and the number of replicas.

    Raises
    ------
    InputError : no placement is legal on the GPUs asked for, or no pair of a prefill and a decode replica fits
    """
    if resolved.fit is not None:
        return size_fitting(resolved, _size_once)
    return _size_once(resolved)


def _size_once(resolved: ResolvedService) -> ServingEstimate:
    """The same with the lengths of its requests as they are."""
    if resolved.encode_replicas is not None:
        return _behind_encoders(resolved)
    if resolved.prefill_replicas is not None:
        return _in_two_pools(resolved)
    placements = legal_placements(resolved.job, resolved.fixed, resolved.most_gpus())
    if not len(placements):
        raise InputError(_no_placement(resolved))
    turns = resolved.turns
    if turns is not None and not turns.cached:  # nothing is found, whichever the placement
        resolved = _finding(resolved, turns, 0.0, 0.0)
        choice = choose(resolved, placements)
    elif resolved.returning is not None:
        resolved, choice = choose_returning(resolved, resolved.returning, placements)
    else:
        choice = choose(resolved, placements)
    if resolved.requests is not None:
        choice = tested(resolved, choice)
    return ServingEstimate(resolved, choice, size)


def _behind_encoders(resolved: ResolvedService) -> ServingEstimate:
    """Images encoded on GPUs of their own; the replicas have the model without its encoder.

    What requests wait for their images shortens what is left for the first token, and the rate that comes of it says
    how many encoders there are: both are found in turns.
    """
    job, asked, server = resolved.job, resolved.encode_replicas, resolved.job.server
    number = None if asked == AUTO else int(asked or 1)
    lean = replace(job, model=replace(job.model, vision=None), images=None)
    near = resolved.gpus is not None and resolved.gpus <= server.accelerators
    in_front, rate = encoders(job, 0.0, number, near), 0.0
    for _ in range(MOST_ROUNDS):
        left = None if resolved.gpus is None else resolved.gpus - in_front.replicas
        if left is not None and left < 1:
            message = f"{in_front.replicas} GPUs that encode images leave none of {resolved.gpus} for the model"
            raise InputError(Problem(message, resolved.scenario.locate(("serve", "encode_replicas")), "give more GPUs"))
        behind = replace(lean, encode_s=in_front.total_s)
        sized = _size_once(replace(resolved, encode_replicas=None, gpus=left, job=behind))
        before, rate = rate, sized.requests_per_s
        near = sized.gpus + in_front.replicas <= server.accelerators
        again = encoders(job, rate, number, near)
        if again.replicas == in_front.replicas and math.isclose(rate, before, rel_tol=CLOSE):
            break
        in_front = again

    def size_again(changed: ResolvedService) -> ServingEstimate:
        """Another service of the same model, which has its encoder again."""
        whole = replace(changed.job, model=job.model, images=job.images, encode_s=0.0)
        return size(replace(changed, job=whole))

    shown = replace(sized.resolved, encode_replicas=asked, gpus=resolved.gpus)
    choice = _no_faster_than(in_front, sized) if in_front.utilisation >= HIGHEST_LOAD else sized.choice
    return ServingEstimate(shown, replace(choice, encoders=in_front), size_again)


def _no_faster_than(in_front: Encoders, sized: ServingEstimate) -> Choice:
    """The choice of replicas that get no more requests than encoders let through; others wait, or no more come."""
    choice, point, resolved = sized.choice, sized.point, sized.resolved
    each = in_front.top_rate / sized.working_replicas
    more_s = 0.0
    if resolved.load == "request_rate":
        more_s = math.inf
    elif resolved.load is not None:
        more_s = max(resolved.amount / in_front.top_rate - resolved.think_s - point.request_s, 0.0)
    longer = {at: (ttft + more_s, tpot, whole + more_s) for at, (ttft, tpot, whole) in point.percentiles.items()}
    slower = replace(
        point,
        requests_per_s=point.requests_per_s if math.isinf(more_s) else min(point.requests_per_s, each),
        ttft_s=point.ttft_s + more_s,
        request_s=point.request_s + more_s,
        percentiles=longer,
    )
    full, top = min(choice.full_rate, each / HIGHEST_LOAD), min(choice.top_rate, each)
    load = choice.top_load * top / choice.top_rate if choice.top_rate else 0.0
    return replace(choice, point=slower, full_rate=full, top_rate=top, top_load=load)


def _in_two_pools(resolved: ResolvedService) -> ServingEstimate:
    """Prompts read on replicas of their own."""
    job, most = resolved.job, resolved.most_gpus()
    prefill = legal_placements(replace(job, expert_gpus=0), resolved.prefill_fixed, most)
    decode = legal_placements(job, resolved.fixed, most)
    choice = choose_pools(resolved, prefill, decode) if len(prefill) and len(decode) else None
    if choice is None:
        room = f" on {resolved.gpus} GPUs" if resolved.gpus else ""
        message = f"no prefill replica fits beside a decode replica{room}"
        hint = "each holds the whole model: give more GPUs, narrower weights or other sizes of the replicas"
        raise InputError(Problem(message, resolved.scenario.locate(("serve", "prefill_replicas")), hint))
    return ServingEstimate(resolved, choice, size)


def _no_placement(resolved: ResolvedService) -> Problem:
    fixed = ", ".join(f"{name} {value}" for name, value in resolved.fixed.items())
    message = "no placement is possible" + (f" with {fixed}" if fixed else "")
    message += f" on {resolved.gpus} GPUs" if resolved.gpus else ""
    message += f" with {resolved.spare_replicas} replicas of them spare" if resolved.spare_replicas else ""
    hint = "tp divides heads and stays inside a node, pp is at most the layers, ep divides experts and is tp x dp"
    return Problem(message, resolved.scenario.locate(("gpus",)), hint)


# Tests: what one replica is offered, and what comes of it.


def run_test(resolved: ResolvedService, placement: ReplicaLayouts, memory: ServingMemory, replicas: int) -> Outcome:
    """One replica's share of a test: every so manieth of its requests, or its share of the clients.

        requests, clients of a replica = those of the test / replicas

    Parameters
    ----------
    resolved : what is asked, with the requests of the test
    placement, memory : of a replica, and its pool of shape (1,) [bytes]
    replicas : at work [-]

    Returns
    -------
    Outcome, shape (requests of a replica,), seconds [s]

    Source: own definition: a router that gives requests out in turn (round robin).
    """
    return simulate(resolved.job, placement, memory, resolved.traffic, offered_load(resolved, replicas))


def offered_load(resolved: ResolvedService, replicas: int) -> Offered:
    total = resolved.requests or 1
    requests = math.ceil(total / replicas)
    if resolved.trace:
        trace, images = resolved.trace, resolved.job.images
        seen = images.each * images.seen.tokens if images else 0
        return Offered(trace.inputs[::replicas] + seen, trace.outputs[::replicas], trace.arrivals_s[::replicas])
    if resolved.load == "concurrency":
        return offered(resolved.traffic, requests, max(round(resolved.amount / replicas), 1))
    if resolved.load == "request_rate":
        arrivals_s = ARRIVALS[resolved.arrivals](resolved.amount, total)[::replicas]
        return offered(resolved.traffic, requests, arrivals_s=arrivals_s)
    return offered(resolved.traffic, requests)


def constant_arrivals(rate: float, requests: int) -> Array:
    """Times of requests that come one after the other.

        t_i = i / rate

    Parameters
    ----------
    rate : requests per second [1/s]
    requests : how many [-]

    Returns
    -------
    ndarray of float, shape (requests,), the first at zero [s]

    Source: benchmark tools that are given a rate without its chance (burstiness infinite, constant request rate).
    """
    return np.arange(requests) / rate


ARRIVALS: Mapping[str, Callable[[float, int], Array]] = {"poisson": poisson_arrivals, "constant": constant_arrivals}


def tested(resolved: ResolvedService, choice: Choice) -> Choice:
    """Add to the choice what the requests of a test see of one of its working replicas.

    Where their number is open, it is the least whose test keeps the limits on latency: waves of requests see other
    latencies than a steady load.

    Raises
    ------
    InputError : what the requests cannot be
    """
    spare, each = resolved.spare_replicas, int(choice.placement.gpus[0])
    points: dict[int, tuple[Point, Outcome]] = {}

    def keeps(working: int) -> bool:
        test = run_test(resolved, choice.placement, choice.memory, working)
        points[working] = _tested(resolved, choice.point, test, working), test
        ttft_s, tpot_s, _ = points[working][0].percentiles[resolved.percentile]
        return not float(missed(resolved, np.array([ttft_s]), np.array([tpot_s]))[0])

    working = choice.replicas - spare
    if resolved.gpus is None and resolved.limits_latency:
        gpus, requests = resolved.limits.max_gpus, resolved.requests or 1
        most = max(requests if gpus is None else min(gpus // each - spare, requests), 1)
        working = least(keeps, working, most)
    if working not in points:
        keeps(working)
    point, test = points[working]
    return replace(choice, replicas=working + spare, point=point, test=test)


def least(keeps: Callable[[int], bool], guess: int, most: int) -> int:
    """The least number that keeps what greater ones keep too; the guess where not even the most does.

        twice the guess until it is enough, then halves of what lies between

    Parameters
    ----------
    keeps : of a number from 1 to `most`
    guess, most : to begin with, and to end with [-]

    Returns
    -------
    int [-]

    Source: exponential search (J. L. Bentley, A. C. Yao, Information Processing Letters 5, 1976).
    """
    low, high = 0, min(guess, most)
    while not keeps(high):
        if high == most:
            return guess
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


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
