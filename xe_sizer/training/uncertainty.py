"""How far off the times of a training job may be: from the residuals of published runs that are like it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.result.common import LIKELY
from xe_sizer.software.host import host_slowdown
from xe_sizer.software.release import split_release
from xe_sizer.software.uncertainty import (
    TABLES,
    Evidence,
    from_residuals,
    in_words,
    memory_chance,
    memory_spread,
    of_fixed,
    published,
    seen,
    symmetric,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import MeasuredHere
    from xe_sizer.software.stack import Stack
    from xe_sizer.software.uncertainty import MemoryChance, Spread, Uncertainty
    from xe_sizer.training.job import Job

TABLE = TABLES / "training.json"
SEEN = TABLES / "training-seen.json"
PEAKS = TABLES / "training-memory.json"
STEP = "step_time"
# Measured: of 40 jobs of the Trainer on one H100, whose card, host and software are known
# (xe_sizer/evidence/data/measured.jsonl), one in ten took less than the first times the prediction, one in ten more
# than the second. It is what laws of kernels do not see: the host between them, allocations, kernels that are no law's.
KNOWN_MACHINE = (0.94, 1.63)
# Chosen: kinds of kernels whose errors are independent and that share most of a step: products of attention and MLP, in
# three forms, of which each law errs by its own.
KINDS_OF_KERNELS = 6.0
EAGER_LAUNCH_US = 10.0  # chosen: between launches from Python, 12 us and more in all stacks, and those of tuned ones


def uncertainty(job: Job, efficiency: Efficiency, assumed: bool = False) -> Uncertainty:
    """Estimate the range of a job's times; 80 % of unseen measurements should lie inside.

    assumed : lengths or batch are a guess, as they are where a publication leaves them out
    """
    stack = job.stack
    if fixed := of_fixed(efficiency, stack.uncertainty):
        return fixed
    if stack.calibrated_on:
        text = f"four in five new runs should be {in_words(stack.uncertainty)}, by {stack.calibrated_on}"
        return symmetric(stack.uncertainty, text, True)
    evidence = Evidence(seen(SEEN), kin(stack), "comparable runs", "runs of other jobs", alike=True)
    told = from_residuals(published(TABLE), STEP, conditions(job, assumed), job.method.evidence, evidence)
    measured = job.server.accelerator.measured
    return told if measured is None else of_measured_laws(told, measured, launched_from_python(job))


def of_measured_laws(told: Uncertainty, measured: MeasuredHere, from_python: bool) -> Uncertainty:
    """The range where the kernels were measured on the machine at hand.

        low = exp(-hypot(ln low, e)),  high = exp(hypot(ln high, e)),  e = ln(1 + p90 error) / sqrt(6)

    with the ends of published runs, or those of runs on one known machine where they are nearer: of a machine that was
    measured nobody has to guess card, clocks and host. What a stack does between its kernels is as unknown as before.

    told : by published runs; from_python : whether the stack starts each kernel from Python, as the runs on the known
    machine did
    """
    low, high = told.low, told.high
    if from_python:
        low, high = max(low, KNOWN_MACHINE[0]), min(high, KNOWN_MACHINE[1])
    fit = math.log1p(measured.p90_error) / math.sqrt(KINDS_OF_KERNELS)
    ends = math.exp(-math.hypot(math.log(low), fit)), math.exp(math.hypot(math.log(high), fit))
    rest = "runs on one known machine" if from_python else told.evidence
    words = f"kernels measured on your machine, {measured.date}, nine in ten {in_words(measured.p90_error)}; {rest}"
    told_of = {"measured_on": measured.date, **({"bias": None} if from_python else {})}
    basis = replace(told.basis, **told_of) if told.basis else None
    return replace(told, low=ends[0], high=ends[1], evidence=words, basis=basis)


def launched_from_python(job: Job) -> bool:
    """Whether the stack starts one kernel after the other from Python, whatever the host at hand takes for it."""
    return job.stack.host.forward_launch_us >= EAGER_LAUNCH_US * host_slowdown(job.server.accelerator)


def conditions(job: Job, assumed: bool) -> tuple[str, ...]:
    """What the error of a time turns on, the gravest first.

    Where lengths or batch are a guess, the job may have been another one. Times of stacks that launch from Python, one
    kernel after another, turn on what no publication says: the host, releases, settings. A stack that is none of those
    that ship is taken for the plainest.
    """
    return (
        "guessed" if assumed else "stated",
        "launched from Python" if launched_from_python(job) else "launched by graphs or C++",
        "no stack of its own" if job.stack.parent is None else "stack of its own",
    )


def kin(stack: Stack) -> tuple[str, ...]:
    """The stack and its parent, the nearest first."""
    parent = split_release(stack.parent)[0] if stack.parent else None
    return tuple(one for one in (stack.name, parent) if one)


def peak_spread() -> Spread:
    """Range of the peak of memory of a run about the cautious one that a verdict uses."""
    return memory_spread(PEAKS)


def memory_suffices(lengths_assumed: bool) -> MemoryChance:
    """Chance that memory suffices, by the room that the cautious peak of a verdict leaves."""
    known = memory_chance(PEAKS)
    return known.of_a_guess if lengths_assumed else known


def memory_doubtful(job: Job, peak_bytes: Array) -> NDArray[np.bool_]:
    """Whether memory is not even likely to suffice, in the words of a verdict.

    peak_bytes : of shape (layout,) [bytes]

    Returns
    -------
    ndarray of bool, shape (layout,) [-]
    """
    return np.asarray(peak_bytes > job.server.accelerator.memory_bytes - doubtful_bytes(job))


def doubtful_bytes(job: Job) -> float:
    """Headroom below which memory is not even likely to suffice [bytes]."""
    likely = memory_suffices(job.lengths_assumed).quantile(LIKELY)
    return job.server.accelerator.memory_bytes * (1.0 - 1.0 / likely)
