"""The questions of a sweep: each has all that another process needs to ask it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.frozen import frozen
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given

ENDINGS = (".yaml", ".json")


@frozen(eq=True)
class Cell:
    """One question of a sweep, with all that another process needs to ask it."""

    scenario: str
    values: tuple[tuple[str, str], ...]
    flags: Mapping[str, Any]
    environment: Mapping[str, str]
    folders: tuple[str, ...]
    objective: str

    @property
    def key(self) -> str:
        """Tells cells apart, also those of another version or of edited files."""
        scenario = str(Path(self.scenario).resolve()) if self.scenario else ""
        given = (sorted(self.flags.items()), sorted(self.environment.items()), self.folders, self.objective)
        digest = hashlib.sha256(repr((__version__, scenario, given)).encode())
        for file in self.files:
            digest.update(repr(file).encode() + file.read_bytes())
        return digest.hexdigest()[:24]

    @property
    def files(self) -> list[Path]:
        """The scenario, what is named by path in it or in a flag, and the user's profiles."""
        scenario = Path(self.scenario) if self.scenario else None
        named = [Path(value) for value in self.flags.values() if isinstance(value, str)]
        if scenario is not None:
            words = scenario.read_text(encoding="utf-8").replace("}", " ").replace(",", " ").split()
            named += [
                scenario,
                *(scenario.parent / word.strip("\"'") for word in words if word.strip("\"'")[-5:] in ENDINGS),
            ]
        profiles = [file for folder in self.folders for file in sorted(Path(folder).rglob("*.yaml"))]
        return [path for path in (*named, *profiles) if path.suffix in ENDINGS and path.is_file()]


def combinations(grid: Mapping[str, Sequence[str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination of one value a key, the last key varying fastest; one empty combination without keys."""
    for values in itertools.product(*grid.values()):
        yield tuple(zip(grid, values, strict=True))


def cell_of(given: Given, values: tuple[tuple[str, str], ...], folders: Iterable[Path], objective: str) -> Cell:
    flags = {key: value for key, value in given.flags.items() if value is not None}
    environment = {name: text for name, text in given.environment.items() if name.startswith("XE_SIZER_")}
    return Cell(str(given.path or ""), values, flags, environment, tuple(map(str, folders)), objective)
