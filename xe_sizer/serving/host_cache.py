"""KV cache of sessions that come back: what stays on the GPU, what in host memory, and how many find theirs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.serving.memory import held_tokens, request_bytes

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.traffic import Traffic


@frozen(eq=True)
class HostCache:
    """What is asked: host memory for the cache of one replica, and the share of a prompt that was computed before.

    size_bytes : of one replica [bytes]; seen_share : of the tokens of a prompt, in its session's earlier requests [-]
    """

    size_bytes: float
    seen_share: float


@frozen
class Hits:
    """Shares of returning sessions that find their cache on the GPU, or in host memory alone [-]."""

    gpu: Array
    host: Array

    @property
    def both(self) -> Array:
        """That need not be computed again [-]."""
        return self.gpu + self.host


def hit_shares(idle: ArrayLike, on_gpu: ArrayLike, in_host: ArrayLike, host_holds: str) -> Hits:
    """Sessions that find their cache again, of those that come back.

        gpu = min(g / n, 1)
        gpu + host = min(max(g, h) / n, 1)      the host has a copy of what is on the GPU
        gpu + host = min((g + h) / n, 1)        it has what the GPU evicted

    n sessions whose users think, g of which the GPU has room for, h the host. Users think for exponential times and the
    oldest is evicted, so that a session is found if it comes back within a time T: its share 1 - e^(-T/Z) is the room
    over the sessions.

    Parameters
    ----------
    idle, on_gpu, in_host : n, g and h of a replica [-]
    host_holds : copies or evicted

    Returns
    -------
    Hits, shape that the numbers broadcast to [-]

    Source: Che's approximation of an LRU cache (IEEE JSAC 20, 2002), exact here as all sessions come back alike.
    """
    idle, on_gpu, in_host = (as_array(one) for one in (idle, on_gpu, in_host))
    room = np.maximum(on_gpu, in_host) if host_holds == "copies" else on_gpu + in_host
    sessions = np.maximum(idle, 1e-12)
    gpu = np.minimum(on_gpu / sessions, 1.0)
    return Hits(gpu, np.minimum(room / sessions, 1.0) - gpu)


def sessions_on_gpu(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, running: ArrayLike,
    seen_tokens: float,
) -> Array:  # fmt: skip
    """Idle sessions that the pool of a replica has room for beside the requests that run.

        g = (pool x attention ranks - running x request_bytes(held)) / request_bytes(seen)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers [tokens]
    running : requests that run on a replica [-]
    seen_tokens : of a session that its next prompt begins with [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation: prefix caches keep blocks that no request uses until these are needed (vLLM, SGLang).
    """
    held = request_bytes(job, placements, held_tokens(job, traffic.inputs, traffic.outputs_in_time))
    free = memory.pool_bytes * placements.dp - as_array(running) * held
    return np.asarray(np.maximum(free, 0.0) / request_bytes(job, placements, seen_tokens))


def sessions_in_host(job: ServingJob, placements: ReplicaLayouts, size_bytes: float, seen_tokens: float) -> Array:
    """Sessions that the host memory of a replica has room for.

        h = size / (request_bytes(seen) x tp pp)

    Every rank keeps its own part, so that latent caches are kept once a rank.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    size_bytes : of one replica [bytes]
    seen_tokens : of a session that its next prompt begins with [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: SGLang's HiCache (mem_cache/memory_pool_host.py) and vLLM's OffloadingConnector keep the pages of each rank.
    """
    return size_bytes / (request_bytes(job, placements, seen_tokens) * placements.tp * placements.pp)


def fetch_s(job: ServingJob, placements: ReplicaLayouts, tokens: float) -> Array:
    """Time to bring the cache of one session from host memory back to all GPUs that serve it.

        t = request_bytes / (0.88 x PCIe rate)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    tokens : of the session [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [s]

    Source: `laws.collectives.copy_time_s`; every rank has a bus of its own.
    """
    return copy_time_s(request_bytes(job, placements, tokens), job.server.pcie_bytes_per_s)
