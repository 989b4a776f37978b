"""Scenario files below folders: which there are, and what lies beside them and is none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.fields import fields_of
from xe_sizer.profiles.source import load_yaml
from xe_sizer.profiles.text_file import MAX_JOB_BYTES, YAML_ENDINGS, read_text, start_of
from xe_sizer.scenario.schema import ScenarioFile

ENDINGS = (*YAML_ENDINGS, ".sh", ".slurm", ".sbatch", ".toml", ".json", ".py")
"""Endings of files that are looked at below a folder."""
MOST_FILES = 10_000
MOST_FOLDERS = 20_000
NOT_A_SCENARIO = "not a scenario (no 'model')"
_KEY = "model"
_ALIKE = 0.75  # 'modle' is a typing error, 'module' is a word
_TOP_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:", re.MULTILINE)


def named_or_below(names: Iterable[str]) -> Iterator[tuple[Path, bool]]:
    """The files named, and those below the folders named, each once, and whether it was named itself.

    Raises InputError: a folder holds more than a gate should read.
    """
    seen: set[Path] = set()
    for name in names:
        path = Path(name)
        below = scenario_files(path) if path.is_dir() else []
        for file in below or [path]:
            if file not in seen:
                seen.add(file)
                yield file, not below


def scenario_files(folder: Path) -> list[Path]:
    """All files below a folder that may hold a scenario, or a file of another tool, sorted.

    What is hidden, cannot be read or vanishes meanwhile is left out. Links to folders are followed, each folder once,
    so that links in a circle end.

    Raises InputError: more than MOST_FILES files or MOST_FOLDERS folders.
    """
    found: list[Path] = []
    for count, (inside, names) in enumerate(_folders(folder)):
        found += [inside / name for name in names if _ending(name) in ENDINGS and not name.startswith(".")]
        if len(found) > MOST_FILES or count >= MOST_FOLDERS:
            what = f"more than {MOST_FILES:,} configuration files or {MOST_FOLDERS:,} folders below"
            raise InputError(Problem(what, Location(str(folder)), "name the folders that hold scenarios"))
    return sorted(file for file in found if file.is_file())


def _ending(name: str) -> str:
    return Path(name).suffix.lower()


def _folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    seen: set[tuple[int, int]] = set()
    for inside, below, names in os.walk(folder, followlinks=True):
        try:
            identity = Path(inside).stat()
        except OSError:  # it has vanished
            below.clear()
            continue
        if (identity.st_dev, identity.st_ino) in seen:
            below.clear()
            continue
        seen.add((identity.st_dev, identity.st_ino))
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield Path(inside), names


def may_be_scenario(file: Path) -> bool:
    """Whether somebody may have meant a YAML file as a scenario: it has `model`, nearly that, or mostly our keys."""
    keys = _top_keys(file)
    if keys is None:
        return True
    from difflib import get_close_matches

    short = [key for key in keys if len(key) < 2 * len(_KEY)]
    if get_close_matches(_KEY, short, n=1, cutoff=_ALIKE):
        return True
    return bool(keys) and 2 * len(fields_of(ScenarioFile).keys() & keys) >= len(keys)


def _top_keys(file: Path) -> set[str] | None:
    """Its outermost keys, none for a list; None where the file does not say.

    Of a file that is too large for a scenario the first lines tell.
    """
    try:
        if file.stat().st_size > MAX_JOB_BYTES:
            return set(_TOP_KEY.findall(start_of(file, MAX_JOB_BYTES).decode(errors="replace")))
        value = load_yaml(file, object).value
        if value is None:  # YAML of a kind that scenarios are not written in, or broken
            return set(_TOP_KEY.findall(read_text(file))) or None
    except (InputError, OSError):
        return None
    return {str(key) for key in value} if isinstance(value, dict) else set()
