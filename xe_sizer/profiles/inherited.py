"""YAML profiles that name a `parent` of their kind and override what differs; what older releases did otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec

from xe_sizer.errors import InputError, Problem, place_of
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN, KINDS, Finder, is_path
from xe_sizer.profiles.source import load_yaml, name_problems

if TYPE_CHECKING:
    from xe_sizer.errors import Location, Where
    from xe_sizer.profiles.source import Document, KeyPath

# Say something of the file itself, and not of those that inherit from it.
OWN_KEYS = ("default", "aliases", "lighter", "releases", "origins", "stacks")
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


class _Releases(msgspec.Struct, frozen=True):
    releases: tuple[Release, ...] = ()


class Named(Protocol):
    """A profile as its file has it."""

    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)
Check = Callable[[P, "Document", Finder], Iterable[Problem]]
"""What else is wrong with a profile, of its document, where a finder finds the profiles that it names."""


def load_inherited(
    kind: str, struct: type[P], name: str, where: Where, finder: Finder | None, check: Check[P] | None = None
) -> P:
    """The profile of a name, or of a path to a user's own file; each is read once, built-in ones once for all finders.

    A name may end in a release (nemo@24.07) where the profiles of the kind have them.

    Raises
    ------
    InputError    unknown name; problems in the file
    """
    finder = finder or Finder()
    name, release = of_release(name) if hasattr(struct, "release") and not is_path(name) else (name, None)
    if release is None and "@" in name and not is_path(name):
        stem, _, written = name.partition("@")
        message = f"'{written}' is no release of a {KINDS[kind].title}"
        raise InputError(Problem(message, place_of(where), f"write a number or a month: {stem}@4.36, {stem}@24.07"))
    path = finder.path(kind, name, where)
    reader = BUILT_IN if path.parent == KINDS[kind].shipped else finder
    return reader.once(f"{kind}@{release}", path, lambda file: read_profile(kind, struct, file, reader, check, release))


def of_release(name: str) -> tuple[str, str | None]:
    """Name and release of a profile as people write it; no release: the newest that is known."""
    found = _OF_A_RELEASE.fullmatch(name.strip())
    return (found["name"], found["release"] or found["dotted"]) if found else (name, None)


def read_profile(
    kind: str, struct: type[P], path: Path, finder: Finder, check: Check[P] | None = None, release: str | None = None
) -> P:
    """What a file and its parents say of a release. Raises InputError with every problem.

    The file of a user is checked with all of its releases.
    """
    document = load_yaml(path)
    value = read_inherited(document, kind, finder, release=release)
    if release is not None:
        value["release"] = release
    profile = convert(value, struct, document.locate)
    problems = [*name_problems(profile.name, document), *(check(profile, document, finder) if check else ())]
    if finder is not BUILT_IN:
        problems += _of_releases(document, kind, struct, finder)
    if problems:
        raise InputError(problems)
    return profile


def _of_releases(document: Document, kind: str, struct: type[P], finder: Finder) -> Iterator[Problem]:
    """What is wrong with the releases of a file that is right in its newest one, where each says so."""
    rows = releases(document)
    stated: Any = document.value
    for count, row in enumerate(rows, 1):
        index = next(at for at, each in enumerate(stated["releases"]) if each["before"] == row.before)
        locate = partial(location_below, document, ("releases", index, "differs"))
        try:
            convert(_over_parents(_with(document, rows[:count]), document, kind, finder, ()), struct, locate)
        except InputError as error:
            yield from error.problems


def location_below(document: Document, above: KeyPath, path: KeyPath, *, key: bool = False) -> Location:
    """Where a path below another stands."""
    return document.locate((*above, *path), key=key)


def read_inherited(
    document: Document, kind: str, finder: Finder, below: tuple[Path, ...] = (), release: str | None = None
) -> dict[str, Any]:
    """A file's own keys over those of its parent, and so on; a file may override the built-in one of its own name.

    A parent may be named with a release, of which it then is; `release` is one of this file. Where the file names a
    backend of the parent, that is as it runs on this one.

    Raises
    ------
    InputError    an unknown parent; one whose parent is the file itself
    """
    rows = [row for row in releases(document) if release is not None and row.follows(release)]
    return _over_parents(_with(document, rows), document, kind, finder, below)


def _over_parents(
    value: dict[str, Any], document: Document, kind: str, finder: Finder, below: tuple[Path, ...]
) -> dict[str, Any]:
    """The keys of a document over those of the parent that they name. Raises InputError as `read_inherited` does."""
    if value.get("parent") is None:
        return value
    parent, parent_release = of_release(str(value["parent"]))
    below = (*below, document.path.resolve())
    files = list(finder.files(kind, parent))
    found = next((file for file in files if file.resolve() not in below), None)
    if found is None:
        place = document.locate(("parent",))
        if files:
            message = f"'parent' leads back to this file by way of '{parent}'"
            if files[0].resolve() == below[-1]:
                message = f"'parent' is '{parent}', which is this file itself"
            raise InputError(Problem(message, place, "name one that does not have this file as a parent"))
        message = f"'parent' must be a known {KINDS[kind].title}, not '{parent}'"
        raise InputError(Problem(message, place, finder.suggestion(kind, parent)))
    inherited = read_inherited(load_yaml(found), kind, finder, below, parent_release)
    inherited = _merged((inherited.get("backends") or {}).get(value.get("backend")) or {}, inherited)
    return _merged(value, {key: item for key, item in inherited.items() if key not in OWN_KEYS})


def releases(document: Document) -> tuple[Release, ...]:
    """What a file says of older releases, the newest first. Raises InputError with every problem."""
    value: Any = document.value
    found = convert({"releases": value.get("releases", [])}, _Releases, document.locate).releases
    return tuple(sorted(found, key=lambda row: version(row.month), reverse=True))


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


def _with(document: Document, rows: Iterable[Release]) -> dict[str, Any]:
    """A file's own keys, and what releases say instead, the newest first."""
    whole: Any = document.value
    value = dict(whole)
    for row in rows:
        value = _merged(row.differs, value)
    return value


def _merged(child: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        inherited = parent.get(key)
        merged[key] = _merged(value, inherited) if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
