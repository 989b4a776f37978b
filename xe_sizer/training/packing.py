"""What packing makes of the optimizer's steps: the same tokens are fewer sequences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate

SAME_NUMBER = 0.1  # share by which a number of steps may differ and count as kept


def packed_steps(sized: TrainingEstimate, seq_len: int) -> int:
    """Optimizer steps that read the same samples packed into sequences of `seq_len` tokens; 0: less than one batch."""
    batches = _packed_sequences(sized, seq_len) / sized.resolved.job.global_batch
    return round(batches) if sized.resolved.fixed_steps else math.ceil(batches)


def kept_steps_words(sized: TrainingEstimate, seq_len: int) -> str:
    """The global batch, a multiple of what the data-parallel ranks read at once, that keeps the number of steps.

        batch = packed sequences / steps, to the nearest multiple

    With fewer packed sequences a step than ranks no batch keeps it: then the one that comes nearest.
    """
    layouts, steps = sized.layouts, sized.resolved.job.steps
    micro = int(layouts.micro_batch[0]) if "micro_batch" in sized.resolved.fixed else 1
    together, sequences = int(layouts.dp[0]) * micro, _packed_sequences(sized, seq_len)
    batch = max(round(sequences / steps / together), 1) * together
    kept = max(math.ceil(sequences / batch), 1)
    if abs(kept - steps) <= SAME_NUMBER * steps:
        return f"a global batch of {batch:,} keeps the number of steps"
    return f"a global batch of {batch:,} comes nearest, with {kept:,} steps"


def _packed_sequences(sized: TrainingEstimate, seq_len: int) -> float:
    return sized.resolved.job.read_tokens / seq_len
