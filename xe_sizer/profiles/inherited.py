"""YAML profiles that name a `parent` of their kind, and override what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN, KINDS, Finder
from xe_sizer.profiles.source import load_yaml, name_problems

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.profiles.source import Document

OWN_KEYS = ("default", "aliases", "lighter")  # say something of the file itself, and not of those that inherit from it


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

    Raises
    ------
    InputError    unknown name; problems in the file
    """
    finder = finder or Finder()
    path = finder.path(kind, name, where)
    reader = BUILT_IN if path.parent == KINDS[kind].shipped else finder
    return reader.once(kind, path, lambda file: read_profile(kind, struct, file, reader, check))


def read_profile(kind: str, struct: type[P], path: Path, finder: Finder, check: Check[P] | None = None) -> P:
    """What a file and its parents say. Raises InputError with every problem."""
    document = load_yaml(path)
    profile = convert(read_inherited(document, kind, finder), struct, document.locate)
    problems = [*name_problems(profile.name, document), *(check(profile, document, finder) if check else ())]
    if problems:
        raise InputError(problems)
    return profile


def read_inherited(document: Document, kind: str, finder: Finder, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's own keys over those of its parent, and so on; a file may override the built-in one of its own name.

    Raises
    ------
    InputError    an unknown parent; one whose parent is the file itself
    """
    value: Any = document.value
    parent = value.get("parent")
    if parent is None:
        return dict(value)
    below = (*below, document.path.resolve())
    files = list(finder.files(kind, str(parent)))
    found = next((file for file in files if file.resolve() not in below), None)
    if found is None:
        place = document.locate(("parent",))
        if files:
            message = f"'parent' leads back to this file by way of '{parent}'"
            if files[0].resolve() == below[-1]:
                message = f"'parent' is '{parent}', which is this file itself"
            raise InputError(Problem(message, place, "name one that does not have this file as a parent"))
        message = f"'parent' must be a known {KINDS[kind].title}, not '{parent}'"
        raise InputError(Problem(message, place, finder.suggestion(kind, str(parent))))
    inherited = read_inherited(load_yaml(found), kind, finder, below)
    return _merged(value, {key: item for key, item in inherited.items() if key not in OWN_KEYS})


def _merged(child: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        inherited = parent.get(key)
        merged[key] = _merged(value, inherited) if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
