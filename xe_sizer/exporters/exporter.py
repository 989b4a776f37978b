"""What an exporter provides, and how a plan becomes the files of its tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.plan import DECIDES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xe_sizer.exporters.plan import Plan


@dataclass(frozen=True)
class Written:
    """What a tool runs.

    text : its configuration or command
    beside : further files that the text names, by name
    run : the command that starts it, where the text is a configuration
    """

    text: str
    beside: Mapping[str, str] = field(default_factory=dict)
    run: str = ""


@dataclass(frozen=True)
class Exporter:
    """A tool that plans are written for.

    name : what `--to` calls it
    title : what users call it
    ending : of the file's name
    write : the files of a plan; what it takes of the plan is said. Raises InputError: the tool cannot run the plan
    says : scenario keys that the files state, which an import of them reads back
    serving : whether the tool serves models
    training : whether it trains them
    aliases : what else `--to` calls it
    """

    name: str
    title: str
    ending: str
    write: Callable[[Plan], Written]
    says: tuple[str, ...]
    serving: bool = False
    training: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    """The files of a plan, and what of it they do not say."""

    written: Written
    unsaid: tuple[tuple[str, Any], ...]


def export(plan: Plan, exporter: Exporter) -> Exported:
    """A plan as a tool's files.

    Raises
    ------
    InputError : the tool would run another plan, since it has no word for a part of this one
    """
    written = exporter.write(plan)
    left = tuple(plan.left())
    problems = [
        Problem(f"{exporter.title} has no setting for {key}: {value}", Location("--to"), "fix the key to another value")
        for key, value in left
        if key in DECIDES
    ]
    if problems:
        raise InputError(problems)
    return Exported(written, left)
