"""The sequences of an optimizer step: as given, as micro-batches, accumulation and replicas make them, or as usual."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.software.stack import PARALLEL_WAYS

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack

DEFAULT_GLOBAL_BATCH = 128  # chosen: sequences of a step where neither somebody nor the stack says how many


def replicas_of(given: Given, gpus: int | None, stack: Stack) -> int | None:
    """Data-parallel replicas that are given, or that the GPUs come to; None where the search chooses them [-]."""
    layout = given.values.layout
    dp: int | None = layout.dp
    if dp is not None or gpus is None:
        return dp
    sizes = {key: getattr(layout, key) for key in ("tp", "pp", "cp")}
    if any(size is None and getattr(stack.supports, PARALLEL_WAYS[key]) for key, size in sizes.items()):
        return None
    return max(gpus // int(math.prod(size or 1 for size in sizes.values())), 1)


def global_batch(given: Given, gpus: int | None, stack: Stack) -> int | None:
    """Sequences of a step over all GPUs [-]; None where they follow the layout that a search chooses.

    Where nobody gives them they are micro-batch x accumulation x replicas, as far as these are given.
    """
    train = given.values.train
    whole: int | None = train.global_batch
    if whole is not None:
        return whole
    if assumes_batch(given):
        return default_global_batch(given, gpus, stack)
    replicas = replicas_of(given, gpus, stack)
    together = (train.micro_batch or 1) * (train.grad_accum or 1)
    return None if replicas is None else together * replicas


def assumes_batch(given: Given) -> bool:
    """Whether the global batch is assumed: nobody gives it, nor what makes it."""
    train = given.values.train
    return train.global_batch is None and (train.micro_batch is None or train.grad_accum is None)


def default_global_batch(given: Given, gpus: int | None, stack: Stack) -> int:
    """The smallest batch at or above the usual one that can be split: over micro-batches, steps, replicas and GPUs.

    The usual one is what each of the GPUs takes by the stack's own defaults, where it has such and the GPUs are known.
    GPUs: their odd factor must go into the batch or the model; powers of two find their place in any layout.
    """
    each, odd = stack.defaults.batch_per_gpu, gpus or 1
    usual = DEFAULT_GLOBAL_BATCH if each is None or gpus is None else each * gpus
    while odd % 2 == 0:
        odd //= 2
    train, dp = given.values.train, given.values.layout.dp
    parts = (train.micro_batch or 1) * (train.grad_accum or 1)
    share = parts * (dp or 1)
    if share % odd == 0 and (dp or train.grad_accum is None):
        return math.ceil(usual / share) * share
    step = math.lcm(share, odd)
    if train.grad_accum is not None:
        step = math.lcm(step, parts * (replicas_of(given, gpus, stack) or 1))
    return step << max(math.ceil(math.log2(usual / step)), 0)
