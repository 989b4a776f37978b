"""A global batch that starts small and grows by the same number of sequences until it is whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.layout import Layouts


@frozen(eq=True)
class BatchRamp:
    """The first batch, what it grows by each time, and sequences until it is whole [-]."""

    start: int
    increment: int
    samples: int

    def levels(self, whole: int, available: float) -> tuple[Array, Array]:
        """Batches before the whole one, and how many steps each has.

            batch_k = start + k increment,  k = 0 ... K - 1,  K = (whole - start) / increment
            steps_k = samples / K / batch_k

        Parameters
        ----------
        whole : global batch in the end [-]
        available : sequences that the run reads, which may be fewer than those until then [-]

        Returns
        -------
        (batches, steps), ndarrays of float, shape (level,) [-]; empty where the batch is whole from the start

        Source: Megatron-LM's --rampup-batch-size (core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatches-
        Calculator): each size takes the same number of samples.
        """
        batches = as_array(np.arange(self.start, whole, self.increment))
        each = self.samples / max(len(batches), 1)
        left = np.clip(available - each * np.arange(len(batches)), 0.0, each)
        return batches, left / batches

    def more_steps(self, whole: int, available: float) -> float:
        """Steps beyond those that whole batches would make of the same sequences [-]."""
        batches, steps = self.levels(whole, available)
        return float(np.sum(steps - steps * batches / whole))


def ramp_time_s(ramp: BatchRamp, whole: int, available: float, first_s: Array, whole_s: Array) -> Array:
    """What smaller batches take beyond whole ones over the same sequences.

        t = sum over k of steps_k (t(batch_k) - t(whole) batch_k / whole)
        t(b) = t(start) + (t(whole) - t(start)) (b - start) / (whole - start)

    A step is a part for each of its micro-batches, and a part of its own: a line over the batch.

    Parameters
    ----------
    ramp : how the batch grows
    whole : global batch in the end [-]
    available : sequences that the run reads [-]
    first_s, whole_s : steps of the first and of the whole batch, shape (layout,) [s]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: own derivation.
    """
    batches, steps = ramp.levels(whole, available)
    more: Array = np.zeros(np.shape(whole_s))
    for batch, count in zip(batches, steps, strict=True):
        share = (batch - ramp.start) / (whole - ramp.start)
        step_s = first_s + (whole_s - first_s) * share
        more = more + count * (step_s - whole_s * batch / whole)
    return more


def first_layouts(ramp: BatchRamp, layouts: Layouts) -> Layouts:
    """The layouts with as many micro-batches as the first batch has.

        grad_accum = start / (micro-batch dp)

    Parameters
    ----------
    ramp : how the batch grows, from its start on [-]
    layouts : those of the whole batch, shape (layout,)

    Returns
    -------
    Layouts, shape (layout,) [-]

    Source: definition.
    """
    together = np.maximum(layouts.micro_batch * layouts.dp, 1)
    return replace(layouts, grad_accum=np.maximum(ramp.start // together, 1))
