"""One pass over files of samples: every row is decoded once, and its sequences are measured in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.profiles.samples.batches import in_batches
from xe_sizer.profiles.samples.classes import class_counts
from xe_sizer.profiles.samples.fields import Piece, sample_of
from xe_sizer.profiles.samples.spill import UNKNOWN

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.rows import Source
    from xe_sizer.profiles.samples.spill import Records, Spill

Count = Callable[[Sequence[Piece]], list[int]]
Said = Callable[[int, int], None]
"""Is told how many bytes of how many have been read."""


@dataclass
class Scan:
    """What a pass found. kinds : samples by how they were read; images : that are in them besides the text."""

    spill: Spill
    kinds: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    images: int = 0


def scan(sources: Sequence[Source], field_: str | None, spill: Spill, said: Said, count: Count | None) -> Scan:
    """Reads all sources to their end. count : counts tokens of all sequences at once, None: later, of some of them.

    Raises
    ------
    InputError : a file that cannot be read
    """
    found = Scan(spill)
    for batch in in_batches(_rows(sources, field_, found, said), lambda row: len(row[1].content)):
        pieces = [piece for _, piece in batch]
        counted = iter(count([piece for piece in pieces if piece.tokens is None]) if count else ())
        for where, piece in batch:
            tokens = next(counted, UNKNOWN) if piece.tokens is None else piece.tokens
            spill.add((*where, len(piece.messages), tokens, class_counts(piece.content)))
    return found


def pieces_of(sources: Sequence[Source], field_: str | None, records: Records) -> Iterator[tuple[int, Piece]]:
    """The sequences of some records, read again, each behind its place among the records."""
    order = np.lexsort((records["part"], records["place"], records["file"]))
    for file, places in groupby(order.tolist(), key=lambda each: int(records["file"][each])):
        same_row = [(row, list(each)) for row, each in groupby(places, key=lambda one: int(records["place"][one]))]
        rows = sources[file].again([row for row, _ in same_row])
        for row, (_, wanted) in zip(rows, same_row, strict=True):
            sequences = sample_of(row.value, field_).sequences
            for place in wanted:
                yield place, sequences[int(records["part"][place])]


def _rows(
    sources: Sequence[Source], field_: str | None, found: Scan, said: Said
) -> Iterator[tuple[tuple[int, int, int, int], Piece]]:
    """Every sequence with its file, its part, and the place and number of its row."""
    total, before = sum(source.size_bytes for source in sources), 0
    for file, source in enumerate(sources):
        for row in source.rows(partial(_say, said, before, total)):
            try:
                sample = sample_of(row.value, field_)
            except ValueError as error:
                source.broken.add(row.number, str(error))
                continue
            found.samples += 1
            found.kinds[sample.kind] += 1
            for part, piece in enumerate(sample.sequences):
                found.images += piece.images
                yield (file, part, row.place, row.number), piece
        before += source.size_bytes


def _say(said: Said, before: int, total: int, done: int) -> None:
    said(before + done, total)
