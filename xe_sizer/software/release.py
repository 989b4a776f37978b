"""Releases of software: how their names are written, which is older, and what a profile says of older ones."""

import re
from typing import Annotated, Any

import msgspec

CENTURY = 2000
MIDDLE_OF_A_YEAR = 6  # month
FIRST_YEAR = 18  # no framework has a version 18; transformers, Megatron-LM and the rest are from 2018 on
# As people write it: nemo@24.07, "NeMo 24.07", transformers==4.36, nemo-24.07, "Megatron-LM v0.8".
_OF_A_RELEASE = re.compile(
    r"(?P<name>[^@]*[^@\s=-])\s*(?:(?:@|==|\s)\s*v?(?P<release>\d+(\.\d+)*)|-v?(?P<dotted>\d+(\.\d+)+))", re.IGNORECASE
)
Number = Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)*$", extra={"must": "be numbers with points, such as 4.36"})]


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What releases before one did otherwise, as keys of the profile, and where that is known from.

    Releases are numbers with points, such as 4.36; a month is one too, 24.07 or 2024.07, and numbers containers.

    dated : the month of `before` where that is no month itself, so that releases may be named either way
    """

    before: Number
    differs: dict[str, Any]
    source: str
    dated: Number | None = None

    @property
    def month(self) -> str:
        """The month of the release, where it is known, else its number."""
        return self.dated or self.before

    def follows(self, release: str) -> bool:
        """Whether another release is older than this one: months are compared with months, numbers with numbers."""
        return version(release) < version(self.month if is_month(release) else self.before)


def split_release(name: str) -> tuple[str, str | None]:
    """Name and release of a profile as people write it; no release: the newest that is known."""
    found = _OF_A_RELEASE.fullmatch(name.strip())
    return (found["name"], found["release"] or found["dotted"]) if found else (name, None)


def version(release: str) -> tuple[int, ...]:
    """A release as numbers that can be compared: 24.07 is before 24.10, and 2024.10 the same as that.

    A year alone, 2024, stands for its middle.
    """
    first, *more = map(int, release.split("."))
    if first > CENTURY:
        return (first - CENTURY, *(more or (MIDDLE_OF_A_YEAR,)))
    return (first, *more)


def is_month(release: str) -> bool:
    """Whether a release is named by its year, as containers and dates are, and not by a version of software."""
    return version(release)[0] >= FIRST_YEAR
