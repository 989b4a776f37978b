"""YAML profiles that name a `parent` among the shipped ones of their folder, and override what differs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.profiles.source import PATH_HINT, Document, load_yaml


@cache
def shipped_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def find(name: str, folder: Path, what: str, where: Location | None = None) -> Path:
    """The file of a shipped profile, or of a user's own path. Raises InputError."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError(Problem(f"no such file: {path}", where, PATH_HINT))
        return path
    if name not in shipped_names(folder):
        raise InputError(Problem(f"no {what} is called '{name}'", where, _hint(name, folder, what)))
    return folder / f"{name}.yaml"


def read_inherited(document: Document, folder: Path, what: str) -> dict[str, Any]:
    """A file's own keys over those of its parent. Raises InputError for a parent that is not shipped."""
    value: Any = document.value
    parent = value.get("parent")
    if parent is None:
        return dict(value)
    if parent not in shipped_names(folder):
        place = document.locate(("parent",))
        message = f"'parent' must be a shipped {what}, not '{parent}'"
        raise InputError(Problem(message, place, _hint(str(parent), folder, what)))
    return _merged(value, read_inherited(load_yaml(folder / f"{parent}.yaml"), folder, what))


def _hint(name: str, folder: Path, what: str) -> str:
    names = shipped_names(folder)
    return did_you_mean(name, names) or f"known {what}s: " + ", ".join(names)


def _merged(child: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        inherited = parent.get(key)
        merged[key] = _merged(value, inherited) if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
