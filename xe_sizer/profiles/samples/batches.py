"""Lists of texts that a tokenizer takes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
BATCH_CHARS = 1 << 17  # chosen: a tokenizer needs some 200 bytes a token
_BATCH_TEXTS = 512


def in_batches(items: Iterable[T], chars: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists of so many that their text is not much longer than BATCH_CHARS. chars : of an item"""
    batch: list[T] = []
    held = 0
    for item in items:
        batch.append(item)
        held += chars(item)
        if len(batch) >= _BATCH_TEXTS or held >= BATCH_CHARS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
