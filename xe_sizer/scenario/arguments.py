"""Arguments of the Python API other than scenario keys: read in every natural form, with a problem for any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TypeGuard

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import shorten
from xe_sizer.scenario.keys import NAMED_OR_GROUPS, SECTIONS

AnyPath = str | PathLike[str]


def flat(keys: Mapping[str, object]) -> dict[str, object]:
    """Keys with groups of keys as plain values by dotted key; what is None is not given."""
    found: dict[str, object] = {}
    for key, value in keys.items():
        if key in SECTIONS | NAMED_OR_GROUPS and isinstance(value, Mapping):
            found.update({f"{key}.{name}": plain(item) for name, item in value.items() if item is not None})
        elif value is not None:
            found[str(key)] = plain(value)
    return found


def plain(value: object) -> object:
    """A value as a file holds it: paths are text, arrays and tuples are lists, numbers of numpy are Python's."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    as_list = getattr(value, "tolist", None)
    if callable(as_list):
        return as_list()
    return [plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def shown(value: object) -> str:
    """A value that is no good, as a message names it."""
    if isinstance(value, str | PathLike):
        return repr(shorten(str(value)))
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "a dictionary"
    return "a list" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"


def is_path(value: object) -> TypeGuard[AnyPath]:
    """Whether a value is a path or the text of one."""
    return isinstance(value, str | PathLike) and isinstance(plain(value), str) and plain(value) != ""


def file_at(value: object, place: Location) -> Path:
    """The path of a file. Raises InputError."""
    if not is_path(value):
        raise InputError(Problem(f"this must be the path of a file, not {shown(value)}", place))
    return Path(str(plain(value)))


def texts(value: object, what: str, place: Location, problems: list[Problem]) -> tuple[str, ...]:
    """Names or paths: one of them, or several in any iterable. What is none is added to the problems.

    what : such as "folders"
    """
    value = plain(value)
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    items = [plain(item) for item in value] if several else [value]  # type: ignore[attr-defined]
    wrong = [item for item in items if not is_path(item)]
    problems += [Problem(f"this must name {what}, not {shown(item)}", place) for item in wrong]
    return tuple(item for item in items if isinstance(item, str) and item)


def folders(value: object, place: Location, problems: list[Problem]) -> list[Path]:
    """Existing folders. What is none is added to the problems."""
    found = [Path(text) for text in texts(value, "folders", place, problems)]
    problems += [Problem(f"'{folder}' is not a folder", place) for folder in found if not folder.is_dir()]
    return [folder for folder in found if folder.is_dir()]


def not_a_switch(value: object, place: Location) -> list[Problem]:
    """The problem of a switch that is neither on nor off."""
    if isinstance(plain(value), bool):
        return []
    return [Problem(f"this must be True or False, not {shown(value)}", place)]


def not_a_scenario(value: object, function: str) -> Problem:
    """What to say of a first argument that is no scenario."""
    place = Location(f"{function}()")
    if isinstance(value, Mapping):
        hint = f"keys are keyword arguments: {function}(**keys)"
        return Problem("the first argument must be a scenario, not a dictionary", place, hint)
    return Problem(f"the first argument must be a scenario, not {shown(value)}", place, load_hint(value))


def not_an_alternative(value: object) -> Problem:
    """What to say of an alternative of `compare` that is none."""
    several = isinstance(value, list | tuple)
    hint = "give each as an argument of its own: compare(*alternatives)" if several else load_hint(value)
    message = f"an alternative is a scenario, a result of estimate or a dictionary of keys, not {shown(value)}"
    return Problem(message, Location("compare()"), hint)


def load_hint(value: object) -> str:
    path = repr(str(value)) if is_path(value) else "path"
    return f"xe_sizer.load({path}) reads a scenario from a file"
