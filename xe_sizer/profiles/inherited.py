"""YAML profiles that name a `parent` of their kind, and override what differs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.finder import KINDS
from xe_sizer.profiles.source import load_yaml

if TYPE_CHECKING:
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.profiles.source import Document

OWN_KEYS = ("default",)  # say something of the file itself, and not of those that inherit from it


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
    files = (file for file in finder.files(kind, str(parent)) if file.resolve() not in below)
    found = next(files, None)
    if found is None:
        title, place = KINDS[kind].title, document.locate(("parent",))
        message = f"'parent' must be a known {title}, not '{parent}'"
        raise InputError(Problem(message, place, finder.suggestion(kind, str(parent))))
    inherited = read_inherited(load_yaml(found), kind, finder, below)
    return _merged(value, {key: item for key, item in inherited.items() if key not in OWN_KEYS})


def _merged(child: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        inherited = parent.get(key)
        merged[key] = _merged(value, inherited) if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
