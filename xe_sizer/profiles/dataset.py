"""Data set profiles: statistics of token lengths, with their source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import Finder
from xe_sizer.profiles.source import check_name, load_yaml

if TYPE_CHECKING:
    from xe_sizer.errors import Where


class DatasetProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set's statistics, with their source."""

    name: str
    samples: Annotated[int, msgspec.Meta(ge=1)]
    mean_tokens: Annotated[float, msgspec.Meta(gt=0)]
    source: dict[str, str]
    min_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


def load_dataset(name: str, where: Where = None, finder: Finder | None = None) -> DatasetProfile:
    """The data set profile of a name, or of a path. Raises InputError."""
    finder = finder or Finder()
    return finder.once("dataset", finder.path("dataset", name, where), _read)


def _read(path: Path) -> DatasetProfile:
    document = load_yaml(path)
    profile = convert(document.value, DatasetProfile, document.locate)
    check_name(profile.name, document)
    return profile
