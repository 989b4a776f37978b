"""How far off a time may be: until residuals against measurements are known, from the errors of the laws."""

from __future__ import annotations

import math
from collections.abc import Mapping

from xe_sizer.result import Range
from xe_sizer.training.job import Job

# Errors of the parts where no law states one; a 90th percentile of the law's own fit where it does.
DEFAULT_LAW_ERROR = 0.2
MEMORY_BOUND_ERROR = 0.1
COMMUNICATION_ERROR = 0.25
BORROWED_FACTOR = 1.5
COMPUTE_PARTS = ("forward", "backward", "recompute")


def relative_error(job: Job, components: Mapping[str, float]) -> float:
    """Relative half-width of a time's range [-].

    r^2 = stack^2 + sum over parts of (share x error)^2; laws borrowed from another accelerator count 1.5 times.
    """
    total = sum(components.values()) or 1.0
    matmul = job.device.matmul.p90_error or DEFAULT_LAW_ERROR
    if job.server.accelerator.laws.assumed:
        matmul *= BORROWED_FACTOR
    squared = job.stack.uncertainty**2
    for name, seconds in components.items():
        error = (
            matmul if name in COMPUTE_PARTS else COMMUNICATION_ERROR if "communication" in name else MEMORY_BOUND_ERROR
        )
        squared += (error * seconds / total) ** 2
    return math.sqrt(squared)


def spread(expected: float, error: float) -> Range:
    """A range around an expected value: times are off by a factor rather than by a difference."""
    return Range(low=expected / (1.0 + error), expected=expected, high=expected * (1.0 + error))


def evidence(job: Job) -> str:
    """What the range rests on, in words."""
    laws = job.server.accelerator.laws
    origin = f"borrowed from {laws.assumed}" if laws.assumed else f"of {job.server.accelerator.name}"
    assumed = f"the stack {job.stack.name}'s assumed {job.stack.uncertainty:.0%}"
    return f"errors of the operator laws {origin} and {assumed}"
