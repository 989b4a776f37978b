"""The KV cache on its way between replicas, and waiting for what is served one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.serving.memory import request_bytes
from xe_sizer.serving.traffic import HIGHEST_LOAD

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts


def waiting_s(
    rate: ArrayLike, alone_s: ArrayLike, each_s: ArrayLike, spread: float = 0.0, percentile: float | None = None
) -> Array:
    """Waiting for what is served one after the other: prompts of a replica, caches on a link.

        wait = min(rate alone, 1) x alone (1 + v^2) / 2 / (1 - rho),  rho = rate each

    At a percentile the tail beyond the chance to wait is exponential, with the mean of those who wait.

    Parameters
    ----------
    rate : that come [1/s]
    alone_s, each_s : one alone, and what one takes of the time where many come together [s]
    spread : v, standard deviation of the times over their mean [-]
    percentile : of requests, 50 to 99.9; None: the mean [-]

    Returns
    -------
    ndarray of float, shape that rates and times broadcast to [s]

    Source: Pollaczek-Khinchine; with each = alone and v = 0 the M/D/1 queue of DistServe (arXiv:2401.09670, eq. 1).
    """
    rate, alone_s = as_array(rate), as_array(alone_s)
    load = np.minimum(rate * as_array(each_s), HIGHEST_LOAD)
    busy = np.minimum(rate * alone_s, 1.0)
    mean_s = alone_s * (1.0 + spread**2) / 2.0 / (1.0 - load)
    if percentile is None:
        return np.asarray(busy * mean_s)
    return np.asarray(mean_s * np.log(np.maximum(busy / (1.0 - percentile / 100.0), 1.0)))


def transfer_s(
    job: ServingJob, prefill: ReplicaLayouts, decode: ReplicaLayouts, tokens: float, same_node: ArrayLike
) -> Array:
    """Time of one prompt's cache from the replica that read it to the one that answers, behind the prefill.

        t = alpha + bytes / B,  bytes = max(request_bytes(prefill), request_bytes(decode))

    All ranks of a pair of replicas send at once, each over its own link: inside a node the accelerator's, between
    nodes its share of the NICs. The side with fewer ranks, which hold more each, sets the pace.

    Parameters
    ----------
    job : model, format of the cache, and the network
    prefill, decode : placements of the same shape (pairs,)
    tokens : of a prompt [tokens]
    same_node : whether both replicas stand in one node [-]

    Returns
    -------
    ndarray of float, shape (pairs,) [s]

    Source: `laws.collectives.collective_time_s`; NIXL and Mooncake send rank by rank (vLLM
    distributed/kv_transfer/kv_connector/v1/nixl_connector.py, SGLang disaggregation/mooncake/conn.py).
    """
    message = np.maximum(request_bytes(job, prefill, tokens), request_bytes(job, decode, tokens))
    return collective_time_s(POINT_TO_POINT, message, 2.0, np.where(same_node, 2.0, 1.0), job.network)
