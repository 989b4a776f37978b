"""Prefill and decode on replicas of their own: a queue of prompts, the cache on its way, and steps of decodes alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.serving.memory import request_bytes
from xe_sizer.serving.states import curve
from xe_sizer.serving.static import prefill_time
from xe_sizer.serving.steady import Steady, mean_past
from xe_sizer.serving.step import Work, step_time
from xe_sizer.serving.traffic import HIGHEST_LOAD

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.step import StepTime
    from xe_sizer.serving.traffic import Traffic


@frozen
class Prompts:
    """Replicas that only read prompts; arrays of shape (placements,), seconds [s].

    step, steps : a step of one prompt alone, and how many it takes
    alone_s : such a prompt; each_s : of the replica's time what a prompt takes in full steps
    """

    step: StepTime
    steps: Array
    alone_s: Array
    each_s: Array


def prompts_of(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic) -> Prompts:
    """What a replica that only reads prompts takes for one, alone and among others.

        alone = steps x t(one prompt)
        each = steps x t(n prompts) / n,  n = groups x max(floor(limit / new tokens), 1)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    traffic : lengths of prompts, and the share of them that is cached

    Returns
    -------
    Prompts, shape (placements,), seconds [s]

    Source: `serving.static.prefill_time`; n prompts fill a step of `max_step_tokens` in every group of the replica.
    """
    new, cached = traffic.new_inputs, traffic.inputs - traffic.new_inputs
    together = job.groups(placements) * max(job.engine.batching.max_step_tokens // new, 1.0)
    step, steps = prefill_time(job, placements, 1.0, traffic.inputs, cached)
    full, times = prefill_time(job, placements, together, traffic.inputs, cached)
    steps = np.broadcast_to(steps, len(placements))
    return Prompts(step, steps, np.asarray(step.total_s * steps), np.asarray(full.total_s * times / together))


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


def decode_curve(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic) -> Curve:
    """The states of replicas that only decode, from one request to as many as their cache holds.

        running_i = c^(i / (GRID - 1)),  i = 0 ... GRID - 1

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers [tokens]

    Returns
    -------
    Curve, shape (GRID, placements), seconds [s]

    Source: `serving.states.curve` over `decoding_only`.
    """
    return curve(job, placements, memory, replace(traffic, input_spread=0.0), decoding_only)


def decoding_only(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic, running: ArrayLike) -> Steady:
    """A replica that always has the same number of requests inside, whose prompts others have read.

        t = t(decodes),  rate = running / (t outputs / tokens per step)

    The first token comes out of its first step, as the last position of a prompt is computed where the answer is
    made. Nothing stops the decodes.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,) or (points,)
    traffic : lengths of prompts and answers
    running : requests inside, shape (points,) [-]

    Returns
    -------
    Steady, shape (points,), seconds [s] and requests per second [1/s]

    Source: vLLM's and SGLang's decode instances, which get every prompt's cache but for its last token.
    """
    running = np.broadcast_to(as_array(running), np.broadcast_shapes(np.shape(running), placements.tp.shape))
    work = Work(decodes=running, decode_past=mean_past(traffic), decode_tokens=traffic.draft_tokens + 1.0)
    decode = step_time(job, placements, work)
    step_s = decode.total_s * (1.0 + traffic.draft_tokens * traffic.draft_cost)
    return Steady(
        running=running,
        decoding=running,
        decode=decode,
        prefill=decode,
        step_s=step_s,
        tpot_s=step_s / traffic.tokens_per_step * (traffic.outputs > 1.0),
        prefill_s=step_s + job.request_s,
        prompt_s=np.zeros(running.shape),
        requests_per_s=running / (step_s * traffic.outputs / traffic.tokens_per_step),
        room_s=np.zeros(running.shape),
    )
