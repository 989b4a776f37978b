"""What an exporter provides, and how a plan becomes the files of its tool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.plan import DECIDES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from xe_sizer.exporters.plan import Plan


LEARNING_RATE = "LEARNING_RATE"
"""What stands in files for a number that no scenario has."""


@dataclass(frozen=True)
class Written:
    """What a tool runs.

    text : its configuration or command
    beside : further files that the text names, by name
    run : the command that starts it, where the text is a configuration
    yours : what the user has to add to this one, beside what all files of the tool lack
    """

    text: str
    beside: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    yours: tuple[str, ...] = ()


@dataclass(frozen=True)
class Added:
    """What a tool calls settings that the user has to add.

    schedule : the learning rate and its schedule, which no scenario says
    length : how long to train, where the scenario does not say it
    alpha : the scale of adapters, likewise
    """

    schedule: str = ""
    length: str = ""
    alpha: str = ""


@dataclass(frozen=True)
class Exporter:
    """A tool that plans are written for.

    name : what `--to` calls it
    title : what users call it
    ending : of the file's name
    write : the files of a plan; what it takes of the plan is said. Raises InputError: the tool cannot run the plan
    says : scenario keys that the files state, which an import of them reads back
    added : what the tool calls that which the user has to add; empty for tools that do not train
    serving : whether the tool serves models
    training : whether it trains them
    aliases : what else `--to` calls it
    """

    name: str
    title: str
    ending: str
    write: Callable[[Plan], Written]
    says: tuple[str, ...]
    added: Added = Added()
    serving: bool = False
    training: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    """The files of a plan, what of it they do not say, and what is the user's to add."""

    written: Written
    unsaid: tuple[tuple[str, Any], ...]
    yours: tuple[str, ...]


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
    yours = (*_left_to_the_user(plan, exporter), *written.yours)
    comments = [f"yours to add: {each}" for each in yours]
    comments += [f"{exporter.title} has no setting for {key}: {value}" for key, value in left]
    return Exported(replace(written, text=_with_comments(written.text, comments)), left, yours)


def _left_to_the_user(plan: Plan, exporter: Exporter) -> Iterator[str]:
    """What the tool is to be told and the scenario does not say."""
    names = exporter.added
    if names.schedule:
        yield f"the learning rate and its schedule ({names.schedule})"
    if names.length and plan.peek("train.steps") is None and plan.peek("train.epochs") is None:
        yield f"how long to train ({names.length})"
    if names.alpha and plan.peek("lora.rank") and plan.peek("lora.alpha") is None:
        yield f"the scale of the adapters ({names.alpha})"


def _with_comments(text: str, comments: Iterable[str]) -> str:
    """YAML, TOML or a script with comments at its beginning, below the lines that say what runs it."""
    lines = text.splitlines(keepends=True)
    start = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    added = [f"# {' '.join(each.split())}\n" for each in comments]
    return "".join([*lines[:start], *added, *lines[start:]])
