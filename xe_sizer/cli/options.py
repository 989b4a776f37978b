"""Options of the command line, made from the scenario's own table of options and its schema.

An option's help, unit and choices are those of the scenario key that it sets, so the two cannot drift apart.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

import xe_sizer.training.jobs  # noqa: F401  makes the methods known to scenarios
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import fields_of, names_of
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.source import parse_scalar
from xe_sizer.report.registry import format_names
from xe_sizer.scenario.read import (
    OPTION_OF,
    OPTIONS,
    SERVE_OPTIONS,
    TWO_WAY,
    BadScenarioError,
    Given,
    ScenarioFile,
    read_scenario,
    serves,
    variable_name,
)

_PANELS = {
    "serve": "Load",
    **{f"serve.{name}": "Formats" for name in ("weights", "activations", "kv_cache", "scheme")},
    **{f"serve.{name}": "Engine" for name in ("engine", "gpu_memory_utilization", "max_sequences", "max_step_tokens")},
    **{f"serve.{name}": "Speculation" for name in ("draft_tokens", "acceptance_rate", "draft_cost")},
    **{f"serve.{name}": "Limits and prices" for name in ("percentile", "spare_replicas")},
    "data": "Data",
    "train": "Training",
    "layout": "Layout",
    "lora": "Method",
    "p_tuning": "Method",
    "limits": "Limits and prices",
    "cost": "Limits and prices",
    "efficiency": "Efficiency",
}
_HARDWARE = frozenset({"gpu", "server", "gpus", "nodes"})
_LONGEST_METAVAR = 24
_METAVARS = {str: "NAME", int: "N", float: "X", tuple: "A,B,..."}
_OR_BY_ENDING = "Default: by the ending of FILE (.json, .csv, .md, .html, .xml), else table."

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help=f"{', '.join(format_names())}. {_OR_BY_ENDING}",
        rich_help_panel="Output",
    ),
]
BatchFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help=f"All formats of estimate but csv. {_OR_BY_ENDING}",
        rich_help_panel="Output",
    ),
]


def format_option(formats: tuple[str, ...]) -> Any:
    """`--format` of a command that writes these formats."""
    return typer.Option("--format", "-f", metavar="FORMAT", help=f"{', '.join(formats)}.", rich_help_panel="Output")


FileOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, all at once.", rich_help_panel="Output"),
]
ColorOption = Annotated[
    str,
    typer.Option("--color", metavar="auto|always|never", help="Colours; NO_COLOR too.", rich_help_panel="Output"),
]
ExplainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--explain",
        metavar="memory|time|data|sources",
        help="Show formulas, inputs and sources of one part; may be repeated.",
        rich_help_panel="Output",
    ),
]
ExitZeroOption = Annotated[
    bool, typer.Option("--exit-zero", help="Return 0 even if the answer is no.", rich_help_panel="Output")
]
ProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="Folder of your own profiles; may be repeated.",
        rich_help_panel="Hardware",
    ),
]


@dataclass(frozen=True, eq=False)
class CommandKind:
    """A kind of question: its options with their keys, and what to say where none of them is given."""

    options: Mapping[str, str]
    nothing: str
    hint: str


TRAINING = CommandKind(
    OPTIONS,
    "there is nothing to estimate",
    "name a scenario file, or start with --model llama-2-7b --gpu h100-sxm-80gb --gpus 8",
)
SERVING = CommandKind(
    SERVE_OPTIONS,
    "there is nothing to serve",
    "name a scenario file, or start with --model llama-3.1-8b --gpu h100-sxm-80gb --request-rate 5",
)


@dataclass(frozen=True, eq=False)
class ScenarioOption:
    """One option and the scenario key it sets. `kind` is str, int, float, bool or tuple."""

    name: str
    key: str
    kind: type
    metavar: str
    help: str
    panel: str

    @property
    def parameter(self) -> str:
        return self.name.replace("-", "_")


def scenario_options(asking: CommandKind = TRAINING) -> tuple[ScenarioOption, ...]:
    return tuple(_describe(name, key) for name, key in asking.options.items())


def option_and_value(text: str) -> tuple[str, str, str]:
    """`tp=8` as (tp, =, 8); options may be written as flags or with underscores."""
    name, equals, value = text.partition("=")
    return name.strip().removeprefix("--").replace("_", "-"), equals, value


def with_options_of(asking: CommandKind) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give `command(*, flags, ...)` the options of a kind of question; `flags` gets them as text by dotted key."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        options = {option.parameter: option for option in scenario_options(asking)}

        @wraps(command)
        def wrapped(**given: Any) -> int:
            flags = {option.key: given.pop(parameter) for parameter, option in options.items()}
            return command(flags=flags, **given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        first, *rest = (parameter for parameter in own if parameter.name != "flags")
        parameters = [first, *(_declared(option) for option in options.values()), *rest]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


with_scenario_options = with_options_of(TRAINING)


def given_scenario(
    path: Path | None,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    registry: Registry,
    asking: CommandKind | None = TRAINING,
) -> Given:
    """`read_scenario` with flags as text. asking : what the command asks; None: what the scenario itself does.

    Raises
    ------
    InputError    with all problems of flags, file and variables, and, if there are any, with those that names,
                  model and hardware add to them
    """
    asked = asking or TRAINING
    if path is None and not any(value is not None for value in flags.values()) and not _variables(asked, environment):
        raise InputError(Problem(asked.nothing, hint=asked.hint))
    problems: list[Problem] = []
    values: dict[str, object] = {}
    for key, text in flags.items():
        option = _describe(OPTION_OF[key], key)
        try:
            values[key] = _value(option, text)
        except InputError as error:
            place = Location(f"--{option.name}")
            problems += [Problem(problem.message, place, problem.hint) for problem in error.problems]
    try:
        given = read_scenario(path, values, environment)
    except BadScenarioError as error:
        problems += error.problems
        given = error.rest
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems:
        unread = given.unread | (flags.keys() - values.keys())
        raise InputError(_with_further(problems, replace(given, unread=unread), registry, asking))
    return given


def _with_further(
    problems: list[Problem], rest: Given, registry: Registry, asking: CommandKind | None
) -> Sequence[Problem]:
    """The problems, and those that the answer to the rest of the scenario would meet."""
    from xe_sizer.studies.answer import with_further_problems

    return with_further_problems(problems, rest, registry, asking is SERVING or (asking is None and serves(rest)))


def profile_folders(folders: Sequence[str] | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders of the user's own profiles: --profiles first, then XE_SIZER_PROFILES (separated as PATH is)."""
    named = [(name, "--profiles") for name in folders or ()]
    listed = environment.get("XE_SIZER_PROFILES", "").split(os.pathsep)
    named += [(name, "XE_SIZER_PROFILES") for name in listed if name]
    problems = [
        Problem(f"'{name}' is not a folder", Location(place)) for name, place in named if not Path(name).is_dir()
    ]
    if problems:
        raise InputError(problems)
    return tuple(Path(name) for name, _ in named)


def _variables(asking: CommandKind, environment: Mapping[str, str]) -> bool:
    return any(variable_name(option) in environment for option in asking.options)


def _value(option: ScenarioOption, text: object) -> object:
    if not isinstance(text, str) or option.kind in (str, tuple):
        return text
    if not text.strip():
        raise InputError(Problem("needs a value"))
    return parse_scalar(text.strip())


def _declared(option: ScenarioOption) -> inspect.Parameter:
    flag = option.kind is bool
    declared = typer.Option(
        f"--{option.name}/--no-{option.name}" if option.key in TWO_WAY else f"--{option.name}",
        help=option.help,
        metavar=None if flag else option.metavar,
        rich_help_panel=option.panel,
        show_default=False,
    )
    annotation = Annotated[bool | None if flag else str | None, declared]  # type: ignore[valid-type]
    return inspect.Parameter(option.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


@cache
def _describe(name: str, key: str) -> ScenarioOption:
    section, _, _ = key.rpartition(".")
    panel = _PANELS.get(key) or _PANELS.get(section) or ("Hardware" if key in _HARDWARE else "Job")
    kind, choices, description = _schema_of(key)
    metavar, help_ = _METAVARS.get(kind, ""), f"{description}."
    if choices:
        metavar = "|".join(str(choice) for choice in choices)
    if len(metavar) > _LONGEST_METAVAR:
        metavar, help_ = "CHOICE", f"{help_} One of {', '.join(choices)}."
    return ScenarioOption(name, key, kind, metavar, help_, panel)


def _schema_of(key: str) -> tuple[type, tuple[Any, ...], str]:
    """Base type, choices and description of a scenario key."""
    type_: Any = ScenarioFile
    description = ""
    for part in key.split("."):
        type_ = fields_of(type_)[part].type
    while True:
        origin = get_origin(type_)
        if origin is Annotated:
            type_, *metas = get_args(type_)
            description = description or next((meta.description for meta in metas if meta.description), "")
            if names := names_of(metas):
                return str, names, description
        elif origin in (Union, UnionType):
            type_ = next(option for option in get_args(type_) if option is not type(None))
        elif origin is Literal:
            return type(get_args(type_)[0]), get_args(type_), description
        else:
            return origin or type_, (), description
