"""Modules that a Python file imports, where their files lie near it: in its folder, below it, or in its checkout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from xe_sizer.errors import InputError
from xe_sizer.profiles.text import STDIN, name_of, read_text

_LEVELS_UP = 8  # folders above the file, of which one may be the root of its packages
_LEVELS_DOWN = 4
_MOST_FOLDERS = 100  # below the file
_SOURCES = "src"


def modules_near(path: Path) -> Callable[[str], tuple[str, str] | None]:
    """What finds the text and name of a module's file by its dotted name, relative names as seen from the file."""
    roots: list[Path] = []

    def find(module: str) -> tuple[str, str] | None:
        if path == STDIN:
            return None
        if module.startswith("."):
            level = len(module) - len(module.lstrip("."))
            folders = [path.parent, *path.resolve().parents[1:]][level - 1 : level]
            return _first(folders, module[level:])
        if not roots:
            roots.extend(_roots(path))
        return _first(roots, module)

    return find


def _first(roots: list[Path], module: str) -> tuple[str, str] | None:
    parts = [part for part in module.split(".") if part]
    if not all(part.isidentifier() for part in parts):
        return None
    for root in roots:
        package = root.joinpath(*parts, "__init__.py")
        for file in (root.joinpath(*parts).with_suffix(".py"), package) if parts else (package,):
            try:
                if file.is_file():
                    return read_text(file), name_of(file)
            except (OSError, ValueError, InputError):
                continue
    return None


def _roots(path: Path) -> list[Path]:
    """Folders in which a package may begin."""
    above = [path.parent, *path.resolve().parents[1:_LEVELS_UP]]
    sources = [folder / _SOURCES for folder in above]
    return [*above, *(each for each in sources if each.is_dir()), *islice(_below(path.parent), _MOST_FOLDERS)]


def _below(folder: Path) -> Iterator[Path]:
    """Folders below a folder that are no packages, nearest first."""
    level = [folder]
    for _ in range(_LEVELS_DOWN):
        level = [each for parent in level for each in _folders_in(parent)]
        yield from level


def _folders_in(folder: Path) -> list[Path]:
    try:
        found = sorted(each for each in islice(folder.iterdir(), 1000) if each.is_dir())
    except OSError:
        return []
    return [each for each in found if each.name.isidentifier() and not (each / "__init__.py").exists()][:_MOST_FOLDERS]
