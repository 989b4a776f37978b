"""Services whose users come back to a cache that may be gone: sized with the share that finds its own again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.result.replicas import SessionCache
from xe_sizer.serving.host_cache import fetch_s, hit_shares, sessions_in_host, sessions_on_gpu
from xe_sizer.serving.static import prefill_time
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.host_cache import Hits, HostCache
    from xe_sizer.serving.resolved import ResolvedService

MOST_ROUNDS = 16  # in which the share that is found is looked for
CLOSE = 0.002  # of the share, at which the search ends


@frozen
class _Kept:
    """A sized replica's sessions: those whose users think, what there is room for, and how many find theirs."""

    idle: float
    on_gpu: float
    in_host: float
    hits: Hits


def size_returning(
    resolved: ResolvedService, asked: HostCache, size_once: Callable[[ResolvedService], ServingEstimate]
) -> ServingEstimate:
    """The service with the share of prompts found in the cache that its sessions leave there.

    What is found makes requests shorter, which leaves more users thinking: solved by taking the mean of both.
    """
    found, fetched = 1.0, 0.0
    for _ in range(MOST_ROUNDS):
        traffic = replace(resolved.traffic, prefix_hit_share=asked.seen_share * found)
        job = replace(resolved.job, fetch_s=fetched)
        sized = size_once(replace(resolved, traffic=traffic, job=job))
        hits = _kept(sized, asked).hits
        share, host = float(hits.both[0]), float(hits.host[0])
        once_s = float(fetch_s(job, sized.placement, asked.seen_share * traffic.inputs)[0])
        if abs(share - found) < CLOSE and abs(host * once_s - fetched) < CLOSE * once_s:
            break
        found, fetched = (found + share) / 2.0, (fetched + host * once_s) / 2.0
    return sized


def _kept(sized: ServingEstimate, asked: HostCache) -> _Kept:
    resolved, placement = sized.resolved, sized.placement
    job, traffic = resolved.job, resolved.traffic
    seen = asked.seen_share * traffic.inputs
    idle = max(resolved.amount / sized.working_replicas - sized.point.in_flight, 0.0)
    on_gpu = sessions_on_gpu(job, placement, sized.memory, traffic, sized.point.running, seen)
    in_host = sessions_in_host(job, placement, asked.size_bytes, seen)
    hits = hit_shares(idle, on_gpu, in_host, job.engine.memory.host_cache)
    return _Kept(idle, float(on_gpu[0]), float(in_host[0]), hits)


def session_cache(sized: ServingEstimate) -> SessionCache | None:
    """Sessions held and found again as the result shows them; None where nobody asks."""
    resolved, asked = sized.resolved, sized.resolved.host_cache
    if asked is None or not sized.fits:
        return None
    job, placement, kept = resolved.job, sized.placement, _kept(sized, asked)
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
