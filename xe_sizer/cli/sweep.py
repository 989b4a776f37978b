"""Several scenarios or a grid under `plan`: the sweep behind `--grid`, `--jobs`, `--dask-scheduler` and `--resume`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.cli.options import TRAINING, option_and_value
from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.frozen import frozen
from xe_sizer.profiles.registry import Registry
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import flags_with
from xe_sizer.studies.cells import Cell, cell_of, combinations

if TYPE_CHECKING:
    from xe_sizer.cli.invocation import Invocation


@frozen
class Many:
    """What the options of a sweep say."""

    files: Sequence[str]
    grid: Sequence[str]
    jobs: str | None
    scheduler: str | None
    resume: str | None

    @property
    def processes(self) -> int:
        """Where nobody asked all cores, or one without joblib. Raises InputError."""
        text = self.jobs
        if text is None and find_spec("joblib") is None:
            return 1
        if text is None:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not text.strip().isdecimal() or int(text) < 1:
            what = f"'{text}' is not a number of processes"
            raise InputError(Problem(what, Location("--jobs"), "for example --jobs 4"))
        return int(text)

    @property
    def answers(self) -> Path | None:
        """The file that keeps answers."""
        return Path(self.resume) if self.resume else None

    def cells(self, flags: Mapping[str, object], objective: str | None, how: Invocation) -> list[Cell]:
        """Every file with every combination of the grid. Raises InputError with the problems of all of them."""
        from xe_sizer.studies.ranking import objective_of as usual

        grid = grid_of(self.grid)
        _known(grid, how.registry)
        cells: list[Cell] = []
        problems: list[Problem] = []
        for file in self.files or ("",):
            for values in combinations(grid):
                changed = flags_with(flags, {OPTIONS[name]: value for name, value in values})
                try:
                    given = how.given(TRAINING, file or None, changed)
                except InputError as error:
                    problems += error.problems
                    continue
                cells.append(cell_of(given, values, how.registry.user_folders, objective or usual(given)))
        if problems:
            raise InputError(list(dict.fromkeys(problems)))
        return cells


def grid_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Option -> values of `gpus=8,16`. Raises InputError: no such option, no values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = option_and_value(text)
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if name not in OPTIONS or not listed:
            hint = did_you_mean(name, OPTIONS) if name not in OPTIONS else None
            raise InputError(
                Problem(f"'{text}' is no grid", Location("--grid"), hint or "for example --grid gpus=8,16")
            )
        found[name] = list(dict.fromkeys([*found.get(name, []), *listed]))
    return found


def _known(grid: Mapping[str, Sequence[str]], registry: Registry) -> None:
    """Raises InputError with every name of the grid that nothing here has."""
    from xe_sizer.software.stack import load_stack

    place = Location("--grid")
    look_up: dict[str, Callable[[str], object]] = {
        "model": lambda name: registry.model(name, place),
        "gpu": lambda name: registry.accelerator(name, place),
        "server": lambda name: registry.server(name, place),
        "stack": lambda name: load_stack(name, place, registry),
    }
    problems: list[Problem] = []
    for option, find in look_up.items():
        for name in grid.get(option, ()):
            with collecting(problems):
                find(name)
    if problems:
        raise InputError(problems)
