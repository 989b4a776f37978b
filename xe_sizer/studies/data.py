"""What is known of a data set's token lengths, as an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.datasets.fit import QUANTILES
from xe_sizer.datasets.profile import remarks
from xe_sizer.result.common import SCHEMA_VERSION, Range
from xe_sizer.result.studies import DataStatistics, EndOfLengths, TokenHistogram, UnreadRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.datasets.fit import Extreme
    from xe_sizer.datasets.profile import Measured
    from xe_sizer.result.studies import Method

_SHOWN_UNREAD = 5


def data_statistics(measured: Measured) -> DataStatistics:
    """The answer of what was measured."""
    low, mean, high = measured.mean
    sequences, counter = measured.sequences, measured.tokenizer
    chat = any(kind in measured.scan.kinds for kind in ("chat", "instruction", "preference pairs", "prompts"))
    templated = counter is not None and counter.template is not None
    return DataStatistics(
        schema_version=SCHEMA_VERSION,
        files=tuple(str(source.path) for source in measured.sources),
        kinds=dict(measured.scan.kinds.most_common()),
        samples=measured.scan.samples,
        sequences_per_sample=sequences / measured.scan.samples,
        tokens=Range(low=low * sequences, expected=mean * sequences, high=high * sequences),
        mean_tokens=Range(low=low, expected=mean, high=high),
        percentiles={
            f"p{100 * share:g}": round(tokens, 1)
            for share, tokens in zip(QUANTILES, measured.histogram.quantiles, strict=True)
        },
        shortest=_end(measured, measured.shortest),
        longest=_end(measured, measured.longest),
        histogram=TokenHistogram(lengths=measured.histogram.lengths, counts=measured.histogram.counts),
        method=counting_method(measured),
        tokenised=measured.tokenised,
        tokenizer=None if counter is None else str(counter.path),
        template=str(counter.template.path) if counter and counter.template and chat else None,
        tokens_per_message=measured.per_message if chat and not templated else None,
        unread=sum(source.broken.count for source in measured.sources),
        unread_rows=tuple(_unread(measured))[:_SHOWN_UNREAD],
        images=measured.scan.images,
        warnings=(*_assumed(measured), *remarks(measured)),
    )


def counting_method(measured: Measured) -> Method:
    """How tokens came about."""
    if measured.counted:
        return "counted"
    return "assumed" if measured.tokenizer is None else "sampled"


def _end(measured: Measured, end: Extreme) -> EndOfLengths:
    source = measured.sources[end.file]
    return EndOfLengths(
        tokens=round(end.tokens), exact=end.exact, file=str(source.path), unit=source.unit, number=end.number
    )


def _unread(measured: Measured) -> Iterator[UnreadRow]:
    for source in measured.sources:
        for problem in source.broken.problems:
            place = problem.location
            yield UnreadRow(file=str(source.path), number=place.line if place else None, reason=problem.message)


def _assumed(measured: Measured) -> Iterator[str]:
    """That nothing was tokenised, with the range of what tokenizers make of such text."""
    if counting_method(measured) == "assumed":
        low, mean, high = measured.mean
        yield (
            f"tokens are assumed from bytes: {mean:,.0f} a sequence, between {low:,.0f} and {high:,.0f}; "
            "--tokenizer counts them"
        )
