"""What anybody could predict without a model of software: FLOPs at the peak of the GPUs, for a fixed share of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.parameters import count_parameters

if TYPE_CHECKING:
    from xe_sizer.training.job import Job

# Counted: two FLOPs a weight and token for forward, input gradient and weight gradient; a frozen base lacks the last.
PASSES, FROZEN_PASSES = 6, 4


def seconds_at_peak(job: Job, gpus: int, tokens_per_sequence: float) -> float:
    """What a step takes if every GPU computed at its peak and nothing but the weights' products.

        t = 6 N T / (peak GPUs)    4 N T where the base is frozen

    Parameters
    ----------
    job : a resolved job; N are its active parameters, T the tokens of its global batch
    gpus : number of GPUs [-]
    tokens_per_sequence : processed tokens of an average sequence [-]

    Returns
    -------
    float [s]

    Source: Kaplan et al. (arXiv:2001.08361, section 2.1); without the gradient of weights that are frozen.
    """
    passes = PASSES if job.method.learning.base else FROZEN_PASSES
    tokens = job.global_batch * tokens_per_sequence
    return passes * count_parameters(job.model).active * tokens / (job.device.peak_flops_per_s * gpus)
