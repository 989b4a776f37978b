"""What passes before the first step: processes and groups come up, weights are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.weights import count_parameters
from xe_sizer.units import GIGA

if TYPE_CHECKING:
    from xe_sizer.training.job import Job

STORED_BYTES = 2.0  # of a parameter as checkpoints are published: 16 bit, also of what is quantised while it is read
READ_BYTES_PER_S = 2.0 * GIGA  # chosen: what one node reads from shared storage, or from a disk of its own
FIXED_S = 60.0  # chosen: imports, groups of the collectives, and the first steps, which compile and allocate
# Building the groups grows with the ranks where nobody saw to it: 1,047 s on 2,048 GPUs, and less than 5 s with better
# stores and barriers (MegaScale, arXiv:2402.15627, section 3.5). What jobs of today do lies inside FIXED_S.
NOTICEABLE = 0.1  # chosen: share of the job's time from which it is worth a warning


def start_up_s(job: Job) -> float:
    """Time before the first step, which is no part of the time of the job.

        t = fixed + parameters x stored / rate, nothing to read where a model is made from the start

    Parameters
    ----------
    job : its model says how much is read by every node, its method whether it is

    Returns
    -------
    float, t [s], one number: shape ()

    Source: fixed and rate are chosen (FIXED_S, READ_BYTES_PER_S); no publication states them apart.
    """
    read_bytes = count_parameters(job.model).total * STORED_BYTES if job.method.kind.fine_tunes else 0.0
    return FIXED_S + read_bytes / READ_BYTES_PER_S
