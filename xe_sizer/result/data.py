"""Token lengths of a data set: what `data` answers. The names are the JSON contract."""

from __future__ import annotations

from typing import ClassVar, Literal

from xe_sizer.result.common import Answer, Range, Struct

Method = Literal["counted", "sampled", "assumed"]


class TokenHistogram(Struct, frozen=True):
    """At most 64 lengths [tokens] and how many sequences have each: mean, shortest and longest are kept."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]


class EndOfLengths(Struct, frozen=True):
    """The shortest or longest sequence, and where its row stands.

    exact : whether it was tokenised and none can be beyond it; unit : line or row
    """

    tokens: int
    exact: bool
    file: str
    unit: str
    number: int


class UnreadRow(Struct, frozen=True):
    """A row that was left out, and why."""

    file: str
    number: int | None
    reason: str


class DataStatistics(Answer, frozen=True, kw_only=True):
    """Token lengths of the samples in some files, read as one data set.

    kinds : samples by how they were read, as chat or preference pairs
    sequences_per_sample : 2 for preference pairs, whose answers are sequences of their own
    tokens : of all sequences together; mean_tokens : of a sequence. Ranges are 80 % where a sample was tokenised, and
    what tokenizers differ by where nothing was
    percentiles : tokens by p5 to p99
    method : counted (every token), sampled (some sequences tokenised, the others by their bytes) or assumed (by bytes)
    tokenised : sequences that were tokenised; tokenizer, template : files; tokens_per_message : where there is
    no template
    unread : rows that were left out, the first of them in unread_rows; images : in the samples, not counted
    """

    question: ClassVar[str] = "data"

    files: tuple[str, ...]
    kinds: dict[str, int]
    samples: int
    sequences_per_sample: float
    tokens: Range
    mean_tokens: Range
    percentiles: dict[str, float]
    shortest: EndOfLengths
    longest: EndOfLengths
    histogram: TokenHistogram
    method: Method
    tokenised: int
    tokenizer: str | None
    template: str | None
    tokens_per_message: int | None
    unread: int
    unread_rows: tuple[UnreadRow, ...]
    images: int
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Statistics are no verdict."""
        return True
