"""Many plans: every scenario with every combination of a grid, on one core, all cores or a Dask cluster."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import INTERRUPTED, SweepResult, SweepRow
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.plan import plan
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.scenario.scenario import Scenario

A = TypeVar("A")
B = TypeVar("B")

# The questions of a sweep: each has all that another process needs to ask it.

ENDINGS = (".yaml", ".json")


class Cell(Immutable, eq=True):
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


def build_cell(
    scenario: Scenario, values: tuple[tuple[str, str], ...], folders: Iterable[Path], objective: str
) -> Cell:
    flags = {key: value for key, value in scenario.flags.items() if value is not None}
    environment = {name: text for name, text in scenario.environment.items() if name.startswith("XE_SIZER_")}
    return Cell(str(scenario.path or ""), values, flags, environment, tuple(map(str, folders)), objective)


Told = Callable[[int, int], None]


def answer(cell: Cell) -> SweepRow:
    """The chosen plan of one cell; what cannot be planned says why."""
    registry = Registry(tuple(map(Path, cell.folders)))
    try:
        scenario = read_scenario(Path(cell.scenario) if cell.scenario else None, cell.flags, cell.environment)
        result = plan(scenario, registry, objective=cell.objective, details=False)
    except InputError as error:
        reason = "; ".join(problem.message for problem in error.problems)
        return SweepRow(scenario=cell.scenario, values=dict(cell.values), ok=False, reason=reason)
    if not result.search.complete:
        raise KeyboardInterrupt
    chosen = None if result.answers.chosen is None else result.candidates[result.answers.chosen]
    reason = "; ".join(found.message for found in result.verdict.reasons)
    train, origin = result.scenario["train"], result.scenario["origin"]
    lengths = {key: train[key] for key in ("steps", "epochs") if key in train}  # of the run: what a time means
    return SweepRow(
        scenario=cell.scenario,
        values=dict(cell.values),
        ok=result.verdict.ok,
        reason=reason,
        candidate=chosen,
        verdict=result.verdict,
        supposed={"train": lengths, "origin": {f"train.{key}": origin.get(f"train.{key}", "") for key in lengths}},
    )


def sweep(
    cells: Sequence[Cell],
    jobs: int = 1,
    scheduler: str | None = None,
    resume: Path | None = None,
    told: Told | None = None,
) -> SweepResult:
    """Answer every cell, in their order; the same rows in any mode. An interrupt leaves the rest unanswered.

    jobs : processes of this machine (joblib); scheduler : address of a Dask scheduler that takes their place
    resume : JSON Lines file of answers; those that it has are not asked again, new ones are added as they come

    Raises
    ------
    InputError : joblib or dask is not installed, the scheduler cannot be reached, the file cannot be written
    """
    keys = [cell.key for cell in cells]
    done = _read(resume) if resume else {}
    missing = {key: cell for key, cell in zip(keys, cells, strict=True) if key not in done}
    try:
        for key, row in _answers(missing, jobs, scheduler):
            done[key] = row
            if resume:
                _append(resume, key, row)
            if told:
                told(sum(known in done for known in keys), len(cells))
    except KeyboardInterrupt:
        pass
    rows = (done.get(key, SweepRow(scenario="", values={}, ok=False, reason=INTERRUPTED)) for key in keys)
    named = (
        replace(row, scenario=cell.scenario, values=dict(cell.values)) for cell, row in zip(cells, rows, strict=True)
    )
    objectives = ", ".join(dict.fromkeys(cell.objective for cell in cells))
    return SweepResult(schema_version=SCHEMA_VERSION, tool_version=__version__, objective=objectives, rows=tuple(named))


def _answers(missing: Mapping[str, Cell], jobs: int, scheduler: str | None) -> Iterator[tuple[str, SweepRow]]:
    if scheduler and missing:
        yield from _on_dask(missing, scheduler)
    elif jobs > 1 and len(missing) > 1:
        yield from zip(missing, on_cores(answer, missing.values(), jobs), strict=True)
    else:
        for key, cell in missing.items():
            yield key, answer(cell)


def on_cores(function: Callable[[A], B], arguments: Iterable[A], jobs: int) -> Iterator[B]:
    """What a function gives for each argument, in their order, in processes of this machine (joblib).

    Raises InputError: joblib is not installed
    """
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise InputError(_not_installed("joblib", "--jobs", "sweep")) from error
    yield from Parallel(n_jobs=jobs, return_as="generator")(delayed(function)(one) for one in arguments)


def _on_dask(missing: Mapping[str, Cell], scheduler: str) -> Iterator[tuple[str, SweepRow]]:
    try:
        from dask.distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
    except ImportError as error:
        raise InputError(_not_installed("dask.distributed", "--dask-scheduler", "dask")) from error
    try:
        transport, place = parse_address(scheduler)
        if transport in ("tcp", "tls"):  # a client that finds nobody cannot be closed without a traceback
            socket.create_connection(parse_host_port(place), timeout=10.0).close()
        client = Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        text = f"no Dask scheduler answers at '{scheduler}'"
        raise InputError(Problem(text, Location("--dask-scheduler"), "for example tcp://10.0.0.1:8786")) from error
    with client:
        futures = {key: client.submit(answer, cell, pure=False) for key, cell in missing.items()}
        for key, future in futures.items():
            yield key, future.result()


def _not_installed(module: str, option: str, extra: str) -> Problem:
    return Problem(
        f"{option} needs {module}, which is not installed", Location(option), f"pip install 'xe-sizer[{extra}]'"
    )


def _read(file: Path) -> dict[str, SweepRow]:
    """Answers that are there already; a line that an interrupt cut short is asked again."""
    try:
        lines = file.read_bytes().splitlines() if file.exists() else []
    except OSError as error:
        raise InputError(Problem(f"cannot read: {error.strerror}", Location(str(file)))) from error
    found = {}
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue
        found[entry.key] = entry.row
    return found


class _Line(msgspec.Struct):
    key: str
    row: SweepRow


def _append(file: Path, key: str, row: SweepRow) -> None:
    try:
        with file.open("a+b") as out:
            cut = False
            if out.tell() > 0:
                out.seek(-1, os.SEEK_END)
                cut = out.read(1) != b"\n"
            out.write((b"\n" if cut else b"") + msgspec.json.encode(_Line(key, row)) + b"\n")
    except OSError as error:
        raise InputError(Problem(f"cannot write: {error.strerror}", Location(str(file)))) from error
