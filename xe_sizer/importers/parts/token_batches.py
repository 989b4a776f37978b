"""Micro-batches that a trainer fills up to a number of tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.draft import Draft

_MOST = 65_536  # sequences of a micro-batch; no GPU holds more
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")


def assume_micro_batch(draft: Draft, tokens: int, where: Location | None) -> None:
    """Assume as many sequences of full length as go in, and as divide those that a rank has in a step.

    It waits for the number of GPUs, which may be passed. tokens : of a micro-batch
    """
    draft.following.append(lambda known: _assume(known, tokens, where))


def _assume(draft: Draft, tokens: int, where: Location | None) -> None:
    length = draft.fact("train.seq_len")
    if not isinstance(length, int):
        return
    most = max(1, min(tokens // length, _MOST))
    share = _share(draft)
    size = next((each for each in range(min(most, share), 0, -1) if share % each == 0), 1) if share else most
    draft.assume("train.micro_batch", size, f"{tokens:,} tokens hold {most} sequences of full length", where)


def _share(draft: Draft) -> int:
    """Sequences of an optimizer step that one data-parallel rank has; 0 where that is not known."""
    batch, gpus = draft.fact("train.global_batch"), draft.trainers
    sizes = (draft.fact(key) for key in _SPLIT)
    split = math.prod(size for size in sizes if isinstance(size, int))
    if not isinstance(batch, int) or not isinstance(gpus, int) or gpus % split or batch % (gpus // split):
        return 0
    return batch // (gpus // split)
