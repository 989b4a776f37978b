"""A file of samples in the place of a data set profile: its tokens are counted when a scenario names it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.profiles.samples.measure import Asked, measure
from xe_sizer.profiles.samples.profile import profile_name, profile_of
from xe_sizer.profiles.samples.remarks import remarks

if TYPE_CHECKING:
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.finder import Finder


@frozen
class CountedSamples:
    """The profile of a file of samples, and what is to be known of its figures."""

    profile: DatasetProfile
    remarks: tuple[str, ...]


def counted_samples(path: Path, tokenizer: Path | None, finder: Finder) -> CountedSamples:
    """Token lengths of a file; each file is counted once for a finder.

    tokenizer : a tokenizer.json or a folder with one; None: tokens are assumed from bytes

    Raises
    ------
    InputError : a file that cannot be read, or without samples; a tokenizer that is none; a library that is missing
    """
    return finder.once(f"samples by {tokenizer or 'bytes'}", path, partial(_counted, tokenizer))


def _counted(tokenizer: Path | None, path: Path) -> CountedSamples:
    found = measure([path], Asked(tokenizer), lambda done, total: None)
    return CountedSamples(profile_of(found, profile_name(path)), tuple(remarks(found)))
