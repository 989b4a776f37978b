"""Blocks that PyTorch's allocator keeps from batches of other lengths: monitors show them, no run fails for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.training.layout import FULL
from xe_sizer.training.padding import GROUPED

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

# Simulated: batches of mean length that blocks stay reserved for beyond the peak: medians by the allocator's rules
# over log-normal lengths. 0.5 to 2.0 where layers keep many small tensors, which serve each other; 2.4 to 4.1 where
# they are recomputed and a few large ones are left (scripts/allocator.py).
KEPT_BATCHES, RECOMPUTED_BATCHES = 1.1, 3.2
# Simulated likewise: of batches in order of their length, the longest of every 50 first (LengthGroupedSampler of
# transformers); 0.04 to 0.3, and 0.15 to 2.9.
GROUPED_KEPT, GROUPED_RECOMPUTED = 0.1, 0.6
ALIKE = 1.01  # chosen: longest over mean sequence up to which lengths count as one


def cached_blocks(job: Job, layouts: Layouts, passing: Array) -> Array:
    """Freed blocks that a process holds because tensors of other lengths did not fit into them.

        bytes = batches x (1 - 1 / n) x mean / longest x max over stages and moments of what comes and goes with a batch
        batches = 1.1, with full recomputation 3.2; grouped by length 0.1 and 0.6; 0 where all sequences have one length
        n = steps after which the cache is emptied

    What comes and goes: activations, the layer in its backward, logits and loss, at the longest sequence.

    With one length every step finds the blocks of the step before. The first of n steps finds none of other lengths.

    Parameters
    ----------
    job, layouts : the job, which says how lengths vary, and layouts of shape (layout,)
    passing : what comes and goes, of shape (stage, moment, layout) or one that broadcasts to it [bytes]

    Returns
    -------
    ndarray of float, shape (layout,) [bytes]

    Source: simulation of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp: get_free_block, should_split,
    get_allocation_size); for what it is about, PyTorch issue 122781.
    """
    sequences = job.sequences(layouts)
    varies = sequences.longest_tokens > ALIKE * sequences.mean_tokens
    if not np.any(varies):
        return np.zeros(len(layouts))
    grouped = job.padding == GROUPED
    kept, recomputed = (GROUPED_KEPT, GROUPED_RECOMPUTED) if grouped else (KEPT_BATCHES, RECOMPUTED_BATCHES)
    of_others = 1.0 if job.empty_cache_steps is None else 1.0 - 1.0 / job.empty_cache_steps
    batches = np.where(layouts.recompute == FULL, recomputed, kept) * of_others
    mean_bytes = passing.max(axis=(0, 1)) * sequences.mean_tokens / sequences.longest_tokens
    return np.asarray(np.where(varies, batches * mean_bytes, 0.0))
