"""Prefill and decode on replicas of their own: a queue of prompts, the cache on its way, and steps of decodes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.static import prefill_time
from xe_sizer.serving.steady import Steady, mean_past
from xe_sizer.serving.step import Work, step_time

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
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
