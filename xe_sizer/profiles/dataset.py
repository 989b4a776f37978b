"""Data set profiles: statistics of token lengths, with their source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.yaml_reader import check_name, load_yaml

if TYPE_CHECKING:
    from xe_sizer.profiles.yaml_reader import Document


class LengthHistogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token lengths and how many sequences have each."""

    lengths: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=1)]
    counts: Annotated[tuple[Annotated[float, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)]


class DatasetProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set's statistics, with their source.

    mean_tokens : of a row of it; template_tokens : that a trainer's prompt template adds to each
    min_tokens, max_tokens : of what a trainer reads, template included
    mean_tokens_low, mean_tokens_high : between which the mean is, where nobody counted it
    sequences_per_sample : 2 of preference pairs; lengths are those of sequences
    histogram : of the lengths of sequences
    aliases : what else it is called
    """

    name: str
    samples: Annotated[int, msgspec.Meta(ge=1)]
    mean_tokens: Annotated[float, msgspec.Meta(gt=0)]
    source: dict[str, str]
    min_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    template_tokens: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    mean_tokens_low: Annotated[float, msgspec.Meta(gt=0)] | None = None
    mean_tokens_high: Annotated[float, msgspec.Meta(gt=0)] | None = None
    sequences_per_sample: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    histogram: LengthHistogram | None = None
    aliases: tuple[str, ...] = ()

    @property
    def tokens_read(self) -> float:
        """Mean tokens of a sample as a trainer reads it."""
        return self.mean_tokens + self.template_tokens

    @property
    def described(self) -> str:
        """The source, with what a sample is made of."""
        title = self.source.get("title", self.name)
        if not self.template_tokens:
            return title
        parts = f"{self.mean_tokens:g} of a row and {self.template_tokens:g} of the prompt template"
        return f"{title}: {self.tokens_read:g} tokens a sample, {parts}"


def load_dataset_profile(path: Path) -> DatasetProfile:
    """Read one data set profile. Raises InputError."""
    document = load_yaml(path)
    profile = convert(document.value, DatasetProfile, document.locate)
    check_name(profile.name, document)
    _check_histogram(profile, document)
    return profile


def _check_histogram(profile: DatasetProfile, document: Document) -> None:
    """Raises InputError: lengths without counts, or no sequence at all."""
    found = profile.histogram
    if found is None:
        return
    if len(found.lengths) != len(found.counts):
        message = f"the histogram has {len(found.lengths)} 'lengths' but {len(found.counts)} 'counts'"
        raise InputError(Problem(message, document.locate(("histogram", "counts")), "give one count per length"))
    if not any(found.counts):
        raise InputError(Problem("the histogram counts no samples", document.locate(("histogram", "counts"))))
