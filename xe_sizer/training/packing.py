"""What packing makes of the optimizer's steps: the same tokens are fewer sequences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.training.padding import PACKED

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate

MUCH_LONGER = 1.5  # chosen: times the longest sample from which a sequence length that nothing reaches is another job
SAME_NUMBER = 0.1  # share by which a number of steps may differ and count as kept


def packed_seq_len(sized: TrainingEstimate) -> int:
    """Tokens of the sequences to pack into: those of the job, of the longest sample where these are far longer."""
    seq_len, longest = sized.resolved.job.seq_len, int(sized.choice.sequences.longest_tokens[0])
    return longest if seq_len > MUCH_LONGER * longest else seq_len


def packed_settings(sized: TrainingEstimate) -> dict[str, object]:
    """The settings that pack the samples so, the number of steps left as it is."""
    seq_len = packed_seq_len(sized)
    shorter: dict[str, object] = {} if seq_len == sized.resolved.job.seq_len else {"train.seq_len": seq_len}
    return {"train.padding": PACKED, **shorter}


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
