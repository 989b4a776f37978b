"""The data set that a scenario names: a profile, or a file of samples whose tokens are counted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.dataset import load_dataset
from xe_sizer.profiles.text import at_home
from xe_sizer.scenario.provenance import relative

if TYPE_CHECKING:
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.read import Given

PROFILE_SUFFIXES = (".yaml", ".yml")
COUNTED_SUFFIXES = (".jsonl", ".json", ".parquet")
OTHER_SUFFIXES = (".arrow", ".csv", ".tsv", ".txt", ".gz", ".zst")
STATISTICS_EXAMPLE = (("samples", "50000"), ("mean_tokens", "350"), ("max_tokens", "2048"))


@frozen
class KnownData:
    """A data set's profile, whether its samples were counted just now, and what is to be known of its figures."""

    profile: DatasetProfile
    counted: bool = False
    remarks: tuple[str, ...] = ()


def known_data(given: Given, finder: Finder) -> KnownData | None:
    """The data set that the scenario names, None where it names none. Raises InputError."""
    data = given.values.data
    key, name = ("profile", data.profile) if data.file is None else ("file", data.file)
    if name is None:
        return None
    path = _path(given, f"data.{key}", name)
    suffix = path.suffix.lower()
    if key == "file" or suffix in COUNTED_SUFFIXES:
        return _counted(given, key, name, path, finder)
    if suffix in OTHER_SUFFIXES or (path.is_file() and suffix not in PROFILE_SUFFIXES):
        raise InputError(_other_file(given, name, path))
    where = partial(given.locate, ("data", "profile"))
    return KnownData(load_dataset(relative(given, "data.profile", name), where, finder))


def _path(given: Given, key: str, name: str) -> Path:
    """Where a file is: a path in a scenario starts at the scenario's folder."""
    return (given.folder_for(key) or Path()) / at_home(name)


def _counted(given: Given, key: str, name: str, path: Path, finder: Finder) -> KnownData:
    """A file of samples, counted with the scenario's tokenizer or assumed from bytes. Raises InputError."""
    from xe_sizer.datasets.profile import counted_samples

    if not path.exists():
        raise InputError(Problem(f"no such file: {path}", given.locate(("data", key)), _statistics_hint(given)))
    tokenizer = given.values.data.tokenizer
    by = None if tokenizer is None else _path(given, "data.tokenizer", tokenizer)
    if by is not None and not by.exists():
        hint = "the path of a tokenizer.json, or of a folder with one; without it tokens are assumed from bytes"
        raise InputError(Problem(f"no such file or folder: {by}", given.locate(("data", "tokenizer")), hint))
    found = counted_samples(path, by, finder)
    return KnownData(found.profile, counted=True, remarks=found.remarks)


def _other_file(given: Given, name: str, path: Path) -> Problem:
    """What to say to a file of a format that is not counted."""
    known = path.exists()
    message = f"'{name}' is no data set profile (.yaml) and no file of samples" if known else f"no such file: {path}"
    return Problem(message, given.locate(("data", "profile")), _statistics_hint(given))


def _statistics_hint(given: Given) -> str:
    keys = (given.caller.setting(f"data.{key}", number) for key, number in STATISTICS_EXAMPLE)
    return (
        "samples are read from .jsonl, .json and .parquet; or say how long they are, for example "
        f"{' '.join(keys)}, or name a data set profile (.yaml) that does"
    )
