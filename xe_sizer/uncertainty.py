"""How far off a time may be: until residuals against measurements are known, from the errors of the laws."""

from __future__ import annotations

import math
from collections.abc import Mapping

from xe_sizer.devices import Efficiency
from xe_sizer.result import Range
from xe_sizer.training.job import Job

# Errors of the parts where no law states one; a 90th percentile of the law's own fit where it does.
DEFAULT_LAW_ERROR = 0.2
MEMORY_BOUND_ERROR = 0.1
COMMUNICATION_ERROR = 0.25
BORROWED_FACTOR = 1.5
COMPUTE_PARTS = ("forward", "backward", "recompute")


def relative_error(job: Job, components: Mapping[str, float], efficiency: Efficiency) -> float:
    """Relative half-width of a time's range [-].

    r^2 = stack^2 + sum over laws of (share of the step x error)^2: parts under one law are wrong together. Laws
    borrowed from another accelerator count 1.5 times, laws replaced by a given efficiency not at all, and the speed of
    light is a bound without a range.
    """
    if efficiency.ideal:
        return 0.0
    if efficiency.fixed:
        return job.stack.uncertainty
    matmul = job.device.matmul.p90_error or DEFAULT_LAW_ERROR
    if job.server.accelerator.laws.assumed:
        matmul *= BORROWED_FACTOR
    total = sum(components.values()) or 1.0
    compute_s = sum(components[name] for name in COMPUTE_PARTS)
    exchange_s = sum(seconds for name, seconds in components.items() if "communication" in name)
    rest_s = total - compute_s - exchange_s
    parts = ((matmul, compute_s), (COMMUNICATION_ERROR, exchange_s), (MEMORY_BOUND_ERROR, rest_s))
    return math.hypot(job.stack.uncertainty, *(error * seconds / total for error, seconds in parts))


def spread(expected: float, error: float) -> Range:
    """A range around an expected value: times are off by a factor rather than by a difference."""
    return Range(low=expected / (1.0 + error), expected=expected, high=expected * (1.0 + error))


def evidence(job: Job, efficiency: Efficiency) -> str:
    """What the range rests on, in words."""
    if efficiency.ideal:
        return "the speed of light, below which no software comes: a bound, not an estimate"
    assumed = f"the stack {job.stack.name}'s assumed {job.stack.uncertainty:.0%}"
    if efficiency.fixed:
        return f"the efficiency that was given and {assumed}"
    laws = job.server.accelerator.laws
    origin = f"borrowed from {laws.assumed}" if laws.assumed else f"of {job.server.accelerator.name}"
    return f"errors of the operator laws {origin} and {assumed}"
