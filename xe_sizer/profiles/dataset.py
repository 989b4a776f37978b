"""Data set profiles: statistics of token lengths, with their source."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.source import PATH_HINT, load_yaml

DATASETS = Path(__file__).parent / "datasets"


class DatasetProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set's statistics, with their source."""

    name: str
    samples: Annotated[int, msgspec.Meta(ge=1)]
    mean_tokens: Annotated[float, msgspec.Meta(gt=0)]
    source: dict[str, str]
    min_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


def dataset_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in DATASETS.glob("*.yaml")))


def load_dataset(name: str, where: Location | None = None) -> DatasetProfile:
    """The data set profile of a name, or of a path. Raises InputError."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError(Problem(f"no such file: {path}", where, PATH_HINT))
        return _read(path)
    if name not in dataset_names():
        hint = did_you_mean(name, dataset_names()) or "shipped: " + ", ".join(dataset_names())
        raise InputError(Problem(f"no data set is called '{name}'", where, hint))
    return _shipped(name)


@cache
def _shipped(name: str) -> DatasetProfile:
    return _read(DATASETS / f"{name}.yaml")


def _read(path: Path) -> DatasetProfile:
    document = load_yaml(path)
    return convert(document.value, DatasetProfile, document.locate)
