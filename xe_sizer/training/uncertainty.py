"""How far off the times of a training job may be: from the residuals of published runs that are like it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.result.common import CERTAINTIES
from xe_sizer.software.uncertainty import (
    ANY,
    TABLES,
    Evidence,
    from_residuals,
    memory_chance,
    memory_spread,
    of_fixed,
    published,
    reaching_own,
    seen,
    symmetric,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.software.certainty import MemoryChance, Spread
    from xe_sizer.software.uncertainty import Uncertainty
    from xe_sizer.training.job import Job

TABLE = TABLES / "training.json"
SEEN = TABLES / "training-seen.json"
PEAKS = TABLES / "training-memory.json"


def uncertainty(job: Job, efficiency: Efficiency, assumed: bool = False) -> Uncertainty:
    """The range of a job's times; 80 % of unseen measurements should lie inside.

    assumed : lengths or batch are a guess, as they are where a publication leaves them out
    """
    stack = job.stack
    if fixed := of_fixed(efficiency, stack.uncertainty):
        return fixed
    if stack.calibrated_on:
        text = f"8 of 10 of {stack.calibrated_on} are closer than {100 * stack.uncertainty:.0f} %"
        return symmetric(stack.uncertainty, text, True)
    table, kind = published(TABLE), job.method.kind.evidence
    name = next((known for known in (stack.name, stack.parent or ANY) if (known, ANY, False) in table), stack.name)
    kin = tuple(dict.fromkeys(one for one in (stack.name, name, stack.parent) if one))
    evidence = Evidence(seen(SEEN), kin, "comparable runs", "runs of other jobs", alike=True)
    span = from_residuals(table, name, kind, assumed, bool(job.server.accelerator.laws.assumed), evidence)
    return with_expert_loop(reaching_own(span, evidence.own(kind)), job)


def with_expert_loop(span: Uncertainty, job: Job) -> Uncertainty:
    """The range up to what runs took whose stack computes the experts of a layer one after another."""
    loop = job.expert_loop
    return span if loop is None else replace(span, high=max(span.high, loop.slowest))


def peak_spread() -> Spread:
    """How far the peak of memory of a run lies from the cautious one that a verdict uses."""
    return memory_spread(PEAKS)


def memory_suffices() -> MemoryChance:
    """How likely memory suffices, by the room that the cautious peak of a verdict leaves."""
    return memory_chance(PEAKS)


def memory_doubtful(job: Job, peak_bytes: Array) -> NDArray[np.bool_]:
    """Whether memory is not even likely to suffice, in the words of a verdict.

    peak_bytes : of shape (layout,) [bytes]

    Returns
    -------
    ndarray of bool, shape (layout,) [-]
    """
    likely = memory_suffices().quantile(CERTAINTIES["likely"])
    return np.asarray(peak_bytes * likely > job.server.accelerator.memory_bytes)
