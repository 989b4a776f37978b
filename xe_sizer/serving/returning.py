"""Services whose users come back to a cache that may be gone: sized with the share that finds its own again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.result.serving import SessionCache
from xe_sizer.serving.cases import cases_of, fewest_that_fit
from xe_sizer.serving.choose import chosen_of, first_of, fleets_of
from xe_sizer.serving.host_cache import fetch_s, hit_shares, sessions_in_host, sessions_on_gpu
from xe_sizer.serving.space import worthwhile
from xe_sizer.serving.static import prefill_time
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.serving.cases import Cases, Choice, Point
    from xe_sizer.serving.choose import Fleets
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.host_cache import Hits, HostCache
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.resolved import ResolvedService

MOST_TIMES = 64  # the replicas that would be enough if every session was found: more mend nothing
MOST_ROUNDS = 16  # in which the share that is found is looked for
CLOSE = 0.002  # of the share, at which the search ends


@frozen
class _Kept:
    """A sized replica's sessions: those whose users think, what there is room for, and how many find theirs."""

    idle: float
    on_gpu: float
    in_host: float
    hits: Hits


@frozen
class _Settled:
    """A service whose sessions find the share that they leave, with one placement and a number of replicas."""

    resolved: ResolvedService
    fleets: Fleets

    @property
    def keeps_limits(self) -> bool:
        """Whether the limits on latency are kept, on no fewer replicas than the load needs at this share."""
        needed = fleets_of(replace(self.resolved, replicas=None), self.fleets.cases)
        enough = self.resolved.gpus is not None or float(needed.replicas[0]) <= float(self.fleets.replicas[0])
        return enough and float(self.fleets.missed(self.resolved)[0]) == 0.0 == float(needed.missed(self.resolved)[0])


def choose_returning(
    resolved: ResolvedService, asked: HostCache, placements: ReplicaLayouts
) -> tuple[ResolvedService, Choice]:
    """The best placement, each with the share of prompts that its own sessions find in the cache.

    A replica that has fewer users keeps more of their sessions, so that the share depends on the placement and on the
    number of replicas. Placements are looked at in the order of the GPUs that they would need if every session was
    found, until the next one could be no better than the best so far.

    Returns
    -------
    The service with the share that is found, and the choice
    """
    cases = cases_of(resolved, placements)
    minimum = fewest_that_fit(cases)
    cases = cases[worthwhile(placements, cases.fitting)]
    ideal = fleets_of(_finding(resolved, asked, 1.0, 0.0), cases)
    least = ideal.gpus * (resolved.gpus is None)
    misses = ideal.missed(resolved)
    settled: list[_Settled] = []
    best_gpus = np.inf
    for index in np.lexsort((least, misses)):
        if settled and (least[index] > best_gpus or (misses[index] > 0.0 and np.isfinite(best_gpus))):
            break
        place = slice(int(index), int(index) + 1)
        one = _least_replicas(resolved, asked, cases[place], int(ideal.replicas[index]))
        settled.append(one)
        if one.keeps_limits:
            best_gpus = min(best_gpus, float(one.fleets.gpus[0]) * (resolved.gpus is None))
    best = settled[first_of(resolved, [one.fleets for one in settled])]
    return replace(best.resolved, replicas=None), chosen_of(best.resolved, best.fleets, 0, minimum)


def _finding(resolved: ResolvedService, asked: HostCache, share: float, fetched_s: float) -> ResolvedService:
    """The service of which so many sessions find their cache, which the mean request waits for so long."""
    traffic = replace(resolved.traffic, prefix_hit_share=asked.seen_share * share)
    return replace(resolved, traffic=traffic, job=replace(resolved.job, fetch_s=fetched_s))


def _least_replicas(resolved: ResolvedService, asked: HostCache, cases: Cases, least: int) -> _Settled:
    """One placement on the fewest replicas, from `least` on, that keep the limits with the share that they find.

    More replicas find more, so that what is enough stays enough; where none is, the fewest.
    """
    start = tried = _settle(resolved, asked, cases, least)
    if resolved.gpus is not None or start.keeps_limits:
        return start
    short, enough = least, least
    while not tried.keeps_limits:
        short, enough = enough, 2 * enough
        if enough > MOST_TIMES * least:
            return start
        tried = _settle(resolved, asked, cases, enough)
    found = tried
    while enough - short > 1:
        middle = (short + enough) // 2
        tried = _settle(resolved, asked, cases, middle)
        if tried.keeps_limits:
            enough, found = middle, tried
        else:
            short = middle
    return found


def _settle(resolved: ResolvedService, asked: HostCache, cases: Cases, replicas: int) -> _Settled:
    """One placement with so many replicas and the share of prompts found that its sessions leave there.

    What is found makes requests shorter, which leaves more users thinking: solved by taking the mean of both.
    """
    found, fetched_s = 1.0, 0.0
    for _ in range(MOST_ROUNDS):
        service = replace(_finding(resolved, asked, found, fetched_s), replicas=replicas)
        fleets = fleets_of(service, cases)
        point = chosen_of(service, fleets, 0, None).point
        hits = _kept(service, cases.placements, cases.memory, replicas, point, asked).hits
        share, host = float(hits.both[0]), float(hits.host[0])
        once_s = float(fetch_s(service.job, cases.placements, asked.seen_share * service.traffic.inputs)[0])
        if abs(share - found) < CLOSE and abs(host * once_s - fetched_s) < CLOSE * once_s:
            break
        found, fetched_s = (found + share) / 2.0, (fetched_s + host * once_s) / 2.0
    return _Settled(service, fleets)


def _kept(
    resolved: ResolvedService, placement: ReplicaLayouts, memory: ServingMemory, replicas: int, point: Point,
    asked: HostCache,
) -> _Kept:  # fmt: skip
    job, traffic = resolved.job, resolved.traffic
    seen = asked.seen_share * traffic.inputs
    idle = max(resolved.amount / replicas - point.in_flight, 0.0)
    on_gpu = sessions_on_gpu(job, placement, memory, traffic, point.running, seen)
    in_host = sessions_in_host(job, placement, asked.size_bytes, seen)
    hits = hit_shares(idle, on_gpu, in_host, job.engine.memory.host_cache)
    return _Kept(idle, float(on_gpu[0]), float(in_host[0]), hits)


def session_cache(sized: ServingEstimate) -> SessionCache | None:
    """Sessions held and found again as the result shows them; None where nobody asks."""
    resolved, asked = sized.resolved, sized.resolved.host_cache
    if asked is None or not sized.fits:
        return None
    job, placement = resolved.job, sized.placement
    kept = _kept(resolved, placement, sized.memory, sized.working_replicas, sized.point, asked)
    inputs = resolved.traffic.inputs
    seen = asked.seen_share * inputs
    again_s, whole_s = (_prefill_s(sized, inputs - past) - job.fetch_s for past in (seen, 0.0))
    once_s = float(fetch_s(job, placement, seen)[0])
    mean_s = _prefill_s(sized, resolved.traffic.new_inputs)
    before_s = sized.point.ttft_s - mean_s
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


def _prefill_s(sized: ServingEstimate, new: float) -> float:
    """A prompt of which so many tokens are new, once nothing is before it, with what the mean request fetches [s]."""
    job, traffic = sized.resolved.job, sized.resolved.traffic
    step, steps = prefill_time(job, sized.placement, 1.0, traffic.inputs, traffic.inputs - max(new, 1.0))
    return float((step.total_s * steps)[0]) + job.request_s


def host_cache_warnings(sized: ServingEstimate) -> Iterator[str]:
    """That the caches of a server's replicas are more than its host memory, where that is known."""
    asked, server = sized.resolved.host_cache, sized.resolved.job.server
    if asked is None or server.host_usable_bytes is None:
        return
    replicas = max(server.accelerators // int(sized.placement.gpus[0]), 1)
    together = min(replicas, sized.replicas) * asked.size_bytes
    if together > server.host_usable_bytes:
        have = f"{server.host_usable_bytes / GIB:,.0f} GiB of host memory that {server.name} has free"
        yield f"the KV caches of a server's replicas take {together / GIB:,.0f} GiB, more than the {have}"
