"""From files of other tools to a scenario: which tool they are of, what they say, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, collecting
from xe_sizer.importers.draft import Draft
from xe_sizer.importers.finishing import finish
from xe_sizer.importers.imported import Imported
from xe_sizer.importers.parts.deepspeed import read_deepspeed
from xe_sizer.importers.parts.hf_scripts import keys_started, script_started, starts_script, state_launch
from xe_sizer.importers.registry import all_tools, tool_named, tool_of
from xe_sizer.importers.settling import settle
from xe_sizer.importers.source import PYTHON, source_of
from xe_sizer.importers.values import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from xe_sizer.importers.asked import Asked
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Tool


class ImpossibleJobError(InputError):
    """Files of a tool that it could not run, or whose job would be estimated as another one."""


def read_foreign(paths: Sequence[Path], asked: Asked) -> Imported:
    """Read the files of one job: its configuration, and where they are named too its launch script and the like.

    Raises
    ------
    InputError : a file cannot be read, or no tool knows any of them
    """
    problems: list[Problem] = []
    sources: list[Source] = []
    for path in paths:
        with collecting(problems):
            sources.append(source_of(path, asked.given))
    if problems:
        raise InputError(problems)
    return import_together(with_started(sources), asked)


def import_together(sources: Sequence[Source], asked: Asked) -> Imported:
    """The job that files say together. Raises InputError: broken text, or no tool knows any of them."""
    tool, source = _main(sources, asked)
    return import_of(tool, source, [each for each in sources if each is not source], asked)


def with_started(sources: Sequence[Source]) -> list[Source]:
    """The files with the Python files that launch scripts among them start, where those say what is trained.

    A script whose command says that itself is read by its tool.
    """
    files = {each.path.resolve() for each in sources}
    found = list(sources)
    for each in sources:
        word = script_started(each) if each.script is not None and tool_of(each) is None else None
        started = each.companion(word.text, (PYTHON,)) if word is not None else None
        if started is not None and started.path.resolve() not in files and tool_of(started) is not None:
            found.append(started)
    return found


def import_of(tool: Tool, source: Source, beside: Iterable[Source], asked: Asked) -> Imported:
    """One file as a tool reads it, with the files that were named beside it. Raises InputError: broken text."""
    try:
        draft = Draft(tool.name, tool.keys(source), asked.version)
        tool.read(draft, source)
        for other in beside:
            _read_beside(draft, other)
        draft.apply(tool.table)
        finish(draft, asked.hardware)
        settle(draft)
        draft.finish(tool.table)
        hint = "take it out to be told of the job without it"
        refused = [
            Problem(f"{each.key}: {each.why}", each.where, hint) for each in draft.ignored if each.effect == "refused"
        ]
        if draft.impossible or refused:
            raise ImpossibleJobError([*sorted(draft.impossible, key=_place), *refused])
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", Location(source.name))) from None
    except UnreadableError as error:
        raise InputError(Problem(str(error), Location(source.name))) from None
    return Imported(tool, source.path, draft.facts, draft.ignored, draft.missing)


def _place(problem: Problem) -> tuple[str, int, int]:
    where = problem.location
    return ("", 0, 0) if where is None else (where.name, where.line or 0, where.column or 0)


def _main(sources: Sequence[Source], asked: Asked) -> tuple[Tool, Source]:
    """The file that says most, and its tool."""
    if asked.tool is not None:
        tool = tool_named(asked.tool)
        return tool, max(sources, key=tool.recognises)
    found = [(tool_of(source), source) for source in sources]
    known = [(tool.recognises(source), tool, source) for tool, source in found if tool is not None]
    if not known:
        titles = ", ".join(tool.title for tool in all_tools().values())
        hint = f"files of {titles} are read; --from TOOL says which one it is"
        word = next(filter(None, map(script_started, sources)), None)
        if word is not None:
            hint = f"{word.text}, which it starts, says what is trained: name that file too, or put it beside this one"
        raise InputError(Problem("no tool that is known here reads such a file", sources[0].start, hint))
    _, tool, source = max(known, key=lambda each: each[0])
    return tool, source


def _read_beside(draft: Draft, other: Source) -> None:
    """What a further file says of the same job: a launch command, a DeepSpeed or accelerate configuration."""
    tool = tool_of(other)
    if tool is None and script_started(other) is not None:
        launch = Draft(draft.tool, keys_started(other, starts_script), draft.version)
        named = launch.on("deepspeed")  # which scripts are given whatever else they say themselves
        if named is not None:
            read_deepspeed(launch, named, other)
        state_launch(launch, other, starts_script)
        draft.merge(launch)
        return
    if tool is None:
        raise InputError(Problem("no tool that is known here reads such a file", other.start))
    part = Draft(tool.name, tool.keys(other), draft.version)
    tool.read(part, other)
    part.finish(tool.table)
    draft.merge(part, without=("model", "job", "stack"))
