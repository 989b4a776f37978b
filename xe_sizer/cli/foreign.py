"""Files of other tools where a scenario is expected: what was passed for them, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from xe_sizer.cli.streams import one_line, write_stderr
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.importers.asked import Asked
from xe_sizer.profiles.fields import fields_of
from xe_sizer.profiles.text_file import STDIN, YAML_ENDINGS
from xe_sizer.scenario.read import load_scenario
from xe_sizer.scenario.schema import ScenarioFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from xe_sizer.importers.imported import Imported
    from xe_sizer.importers.source import Source
    from xe_sizer.profiles.source import Document

HARDWARE = ("model", "gpus", "nodes", "gpu", "server")
"""Keys that are passed where foreign files do not say them, or say something else."""
ASSUMED, MODEL = "assumed", "model"
_FEW = 12  # lost keys that are named one by one on stderr


def asked_of(tool: str | None, hardware: Mapping[str, object], variables: Sequence[str] | None) -> Asked:
    """The flags of an import. Raises InputError: a variable without a value."""
    name, _, version = (tool or "").partition("@")
    return Asked(name or None, version or None, hardware, _variables(variables or ()))


def _variables(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(Problem(f"'{text}' sets no variable", Location("--set"), "as in --set NNODES=4"))
        found[name.strip()] = value
    return found


def problems_of(imported: Imported) -> list[Problem]:
    """What is missing, as problems."""
    place = Location(str(imported.path))
    return [Problem(f"'{each.key}' is missing: {each.why}", place, f"pass {each.hint}") for each in imported.missing]


def say_what_is_lost(imported: Imported) -> None:
    """Keys that change memory or time and that no scenario can say, to stderr; and how many are not known."""
    for each in imported.lost[:_FEW]:
        write_stderr(f"note: {one_line(str(each.where))}: {one_line(each.key)}: {one_line(each.why)}")
    if len(imported.lost) > _FEW:
        write_stderr(f"note: {len(imported.lost) - _FEW} more keys change memory or time and are not in the scenario")
    if imported.unknown:
        names = ", ".join(one_line(each.key) for each in imported.unknown[:_FEW])
        write_stderr(f"note: not known and not read: {names}{', ...' if len(imported.unknown) > _FEW else ''}")


def scenario_reader(flags: Mapping[str, object], *, brief: bool = False) -> Callable[[Path], Document]:
    """What reads a scenario file, or a file of another tool as a scenario.

    flags : typed values by dotted key; hardware that is passed takes the place of what a foreign file says
    brief : one line on stderr for each foreign file, not all that is assumed and lost
    """
    hardware = {key: flags.get(key) for key in HARDWARE if flags.get(key) is not None}

    def read(path: Path) -> Document:
        own = _own(path)
        return own if own is not None else _foreign(path, Asked(hardware=hardware), brief) or load_scenario(path)

    return read


def _own(path: Path) -> Document | None:
    """A scenario of ours: YAML whose keys a scenario has; None of any other file."""
    if path != STDIN and path.suffix.lower() not in YAML_ENDINGS:
        return None
    try:
        document = load_scenario(path)
    except InputError:
        return None
    known = fields_of(ScenarioFile).keys()
    return document if cast(dict[str, object], document.value).keys() <= known else None


def _foreign(path: Path, asked: Asked, brief: bool) -> Document | None:
    """The scenario in a file of another tool; None where no tool knows it."""
    sources = _job_in(path)
    if not sources:
        return None
    from xe_sizer.importers.read import import_together

    imported = import_together(sources, asked)
    _say_briefly(imported) if brief else _say_all(imported)
    return imported.document()


def _job_in(path: Path) -> list[Source]:
    """A file of another tool, with the script that it starts; none where no tool knows it."""
    from xe_sizer.importers.read import with_started
    from xe_sizer.importers.registry import tool_of
    from xe_sizer.importers.source import source_of

    try:
        sources = with_started([source_of(path)])
        return sources if any(tool_of(each) is not None for each in sources) else []
    except InputError:
        return []


def is_foreign(path: Path) -> bool:
    """Whether a file is one of another tool, and no saved answer of ours."""
    sources = _job_in(path) if path.is_file() else []
    return bool(sources) and "schema_version" not in sources[0].keys


def _say_briefly(imported: Imported) -> None:
    assumed = sum(fact.origin == ASSUMED for fact in imported.facts.values())
    counts = f"{assumed} values assumed, {len(imported.lost)} keys not in the scenario"
    place = one_line(str(imported.path))
    write_stderr(f"note: {place} is read as a file of {imported.tool.title}: {counts} ('xe-sizer import' lists them)")


def _say_all(imported: Imported) -> None:
    """The tool, and all that is missing, assumed and lost, to stderr."""
    place = one_line(str(imported.path))
    write_stderr(f"note: {place} is read as a file of {imported.tool.title}")
    for each in imported.missing:
        write_stderr(f"note: {place}: {one_line(each.why)}; pass {one_line(each.hint)}")
    _say_assumed(imported)
    say_what_is_lost(imported)


def held_by(path: Path) -> Literal["scenario", "job", "perhaps", "nothing"]:
    """What a file below a folder holds: a scenario of ours, a job of another tool, YAML that may be meant as either.

    Settings that a job names, such as those of DeepSpeed, are no job; nor is code that no tool reads.
    """
    from xe_sizer.importers.read import ImpossibleJobError, import_together

    yaml = path.suffix.lower() in YAML_ENDINGS
    if yaml and _own(path) is not None:
        return "scenario"
    try:
        sources = _job_in(path)
        if sources:
            stated = import_together(sources, Asked()).facts
            return "job" if any(key.partition(".")[0] == MODEL for key in stated) else "nothing"
    except ImpossibleJobError:
        return "job"
    except InputError:
        pass
    return "perhaps" if yaml else "nothing"


def _say_assumed(imported: Imported) -> None:
    """Values that neither the file nor the tool states, to stderr."""
    for key, fact in imported.facts.items():
        if fact.origin == ASSUMED:
            write_stderr(f"note: assumed {key}: {one_line(str(fact.value))} ({one_line(fact.note)})")
