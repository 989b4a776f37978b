"""What a reader must know of measured token lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.profiles.samples.measure import Measured

_SHOWN_REASONS = 2


def remarks(measured: Measured) -> Iterator[str]:
    """Rows that were left out, what was not counted, and samples of several kinds."""
    unread = sum(source.broken.count for source in measured.sources)
    if unread:
        rows = f"{unread:,} row{'s' if unread > 1 else ''} of {unread + measured.scan.samples:,}"
        yield f"{rows} could not be read and {'are' if unread > 1 else 'is'} left out"
    if measured.tokenizer is not None and not measured.longest.exact:
        yield "many sequences are about as long as the longest: a longer one than was tokenised is possible"
    refused = measured.tokenizer.refused if measured.tokenizer else {}
    for reason, times in list(refused.items())[:_SHOWN_REASONS]:
        yield f"the chat template refused {times:,} of the tokenised conversations, counted without it: {reason}"
    if measured.scan.images:
        yield f"{measured.scan.images:,} images are not counted: their tokens depend on the model"
    if len(measured.scan.kinds) > 1:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in measured.scan.kinds.most_common())
        yield f"samples of several kinds: {kinds}"
