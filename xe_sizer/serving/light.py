"""What no software can beat on an accelerator: latencies at the speed of light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.laws.device import Efficiency
from xe_sizer.serving.device import serving_job
from xe_sizer.serving.static import decode_time, prefill_time

if TYPE_CHECKING:
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.traffic import Traffic


def fastest(job: ServingJob, placement: ReplicaLayouts, traffic: Traffic, running: float) -> tuple[float, float, float]:
    """The least time to the first token, per token and of a request that the accelerators allow.

        t = max(operations / peak, bytes / bandwidth) of every operator
        tpot = t(a decode of all running requests) / tokens of a step
        ttft = t(the prefill of one prompt)
        request = ttft + (outputs - 1) tpot

    Weights and caches are read once in a step; exchanges, launches and the host take no time.

    Parameters
    ----------
    job, placement : the job, and one placement
    traffic : lengths of prompts and answers, prefix hits and speculation
    running : requests that decode together at the least [-]

    Returns
    -------
    (float, float, float) : seconds [s]

    Source: roofline model (S. Williams, A. Waterman, D. Patterson, CACM 52, 2009), peaks of the profile.
    """
    ideal = serving_job(job.model, job.engine, job.scheme, job.server, Efficiency(ideal=True))
    prefill, steps = prefill_time(ideal, placement, 1.0, traffic.inputs, traffic.inputs - traffic.new_inputs)
    decode = decode_time(ideal, placement, running, traffic.inputs, traffic.outputs, traffic.draft_tokens + 1.0)
    tpot_s = float(decode.total_s[0]) / traffic.tokens_per_step if traffic.outputs > 1.0 else 0.0
    ttft_s = float((prefill.total_s * steps).reshape(-1)[0])
    return ttft_s, tpot_s, ttft_s + max(traffic.outputs - 1.0, 0.0) * tpot_s
