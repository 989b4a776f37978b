"""What a file holds: a scenario of ours, a job of another tool that is read as one, or neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.fields import fields_of
from xe_sizer.profiles.text import STDIN, YAML_ENDINGS, pasted
from xe_sizer.scenario.read import load_scenario
from xe_sizer.scenario.schema import ScenarioFile

if TYPE_CHECKING:
    from xe_sizer.interop.read import Imported
    from xe_sizer.interop.source import Source
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.result.check import Held

HARDWARE = ("model", "gpus", "nodes", "gpu", "server")
"""Keys that are passed where foreign files do not say them, or say something else."""
MODEL = "model"


def scenario_reader(
    flags: Mapping[str, object], told: Callable[[Imported], None], service: int | None = None
) -> Callable[[Path], Document]:
    """What reads a scenario file, or a file of another tool as a scenario.

    flags : typed values by dotted key; hardware that is passed takes the place of what a foreign file says
    told : is told of each foreign file what was assumed and lost
    service : which of `services_of` a foreign file; None: its first
    """
    hardware = {key: flags.get(key) for key in HARDWARE if flags.get(key) is not None}

    def read(path: Path) -> Document:
        own = _own(path)
        return own if own is not None else _foreign(path, hardware, told, service) or load_scenario(path)

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


def _foreign(
    path: Path, hardware: Mapping[str, object], told: Callable[[Imported], None], service: int | None
) -> Document | None:
    """The scenario in a file of another tool; None where no tool knows it."""
    sources = _job_in(path)
    if not sources:
        return None
    sources[0] = replace(sources[0], service=service)
    from xe_sizer.interop.read import import_together
    from xe_sizer.interop.source import Asked

    imported = import_together(sources, Asked(hardware=hardware))
    told(imported)
    return replace(
        imported.document(), path=path
    )  # the file that was asked about, which may start the one that is read


def _job_in(path: Path) -> list[Source]:
    """A file of another tool, with the script that it starts; none where no tool knows it."""
    from xe_sizer.interop.read import recognise_tool, with_started
    from xe_sizer.interop.source import open_source

    try:
        sources = with_started([open_source(path)])
        return sources if any(recognise_tool(each) is not None for each in sources) else []
    except InputError:
        return []


def services_of(path: Path) -> tuple[str, ...]:
    """What the model servers are called that a file of another tool starts; none where it holds one job alone."""
    if path.suffix.lower() in YAML_ENDINGS and _own(path) is not None:
        return ()
    sources = _job_in(path)
    if not sources:
        return ()
    from xe_sizer.interop.read import recognise_tool
    from xe_sizer.interop.serving import names_of_services

    tool = recognise_tool(sources[0])
    names = names_of_services(sources[0]) if tool is not None and tool.serving else ()
    return names if len(names) > 1 else ()


def is_foreign(path: Path) -> bool:
    """Whether a file, or a pasted command, is one of another tool, and no saved answer of ours."""
    sources = _job_in(path) if pasted(path) is not None or path.is_file() else []
    return bool(sources) and "schema_version" not in sources[0].keys


def held_by(path: Path) -> Held:
    """What a file below a folder holds: a scenario of ours, a job of another tool, YAML that may be meant as either.

    Settings that a job names, such as those of DeepSpeed, are no job; nor is code that no tool reads.
    """
    yaml = path.suffix.lower() in YAML_ENDINGS
    if yaml and _own(path) is not None:
        return "scenario"
    from xe_sizer.interop.read import ImpossibleJobError, import_together
    from xe_sizer.interop.source import Asked

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
