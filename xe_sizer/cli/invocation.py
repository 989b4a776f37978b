"""What commands share: from options to a scenario, and from its answer to a report and an exit code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from operator import attrgetter
from pathlib import Path
from typing import Any

from xe_sizer.cli.foreign import scenario_reader
from xe_sizer.cli.options import (
    BriefOption,
    ColorOption,
    CommandKind,
    DownloadOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    PriceOption,
    ProfilesOption,
    ScenarioOption,
    declared,
    described,
    scenario_options,
    with_prices,
)
from xe_sizer.cli.output import Output, check_choice, output_from
from xe_sizer.cli.streams import one_line, write_stderr
from xe_sizer.cli.written import stamped
from xe_sizer.errors import EXIT_DOES_NOT_FIT, EXIT_OK, InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.hub import asked_hub
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.source import parse_scalar
from xe_sizer.report.document import EXPLAINABLE
from xe_sizer.report.registry import formats
from xe_sizer.result.common import Answer, Sized
from xe_sizer.scenario.options import COMMAND_LINE, OPTION_OF, variable_name
from xe_sizer.scenario.read import BadScenarioError, Given, read_scenario, serves

ALL = "all"
PRICE = "price"
SHARED = {
    "download": (DownloadOption, False),
    "profiles": (ProfilesOption, None),
    "format_": (FormatOption, None),
    "output": (FileOption, None),
    "color": (ColorOption, "auto"),
    "brief": (BriefOption, False),
    "explain": (ExplainOption, None),
    "exit_zero": (ExitZeroOption, False),
}
"""Options of commands that answer: declaration and default."""


@frozen
class Invocation:
    """How a command is asked to answer, checked before anything is computed. Raises InputError."""

    output: Output
    topics: tuple[str, ...]
    registry: Registry
    exit_zero: bool
    brief: bool

    @classmethod
    def of(
        cls,
        format_: str | None = None,
        output: Sequence[str] | None = None,
        color: str = "auto",
        profiles: Sequence[str] | None = None,
        explain: Sequence[str] | None = None,
        exit_zero: bool = False,
        brief: bool = False,
        download: bool = False,
    ) -> Invocation:
        out = output_from(format_, output, color)
        asked = [check_choice("--explain", topic, (*EXPLAINABLE, ALL)) for topic in explain or ()]
        topics = EXPLAINABLE if ALL in asked else tuple(asked)
        if brief:
            _check_brief(out, topics)
        hub = asked_hub(os.environ, download, lambda text: write_stderr(f"note: {text}"))
        return cls(out, topics, Registry(profile_folders(profiles, os.environ), hub), exit_zero, brief)

    def given(self, asking: CommandKind | None, file: str | None, flags: Mapping[str, object]) -> Given:
        """The scenario that a file (None: none) and flags describe; see `given_scenario`."""
        return given_scenario(Path(file) if file else None, flags, os.environ, self.registry, asking)

    def write(self, answer: Answer, about: str | None = None, **asked: Any) -> int:
        """Report an answer that this command line found; see `show`."""
        return self.show(stamped(answer), about, **asked)

    def show(self, answer: Answer, about: str | None = None, **asked: Any) -> int:
        """Report the answer; its exit code, 0 for a no that the caller does not mind.

        about : the file that the report is about; asked : fields of `report.options.Options`
        """
        self._say_readings()
        self.output.report(answer, explain=self.topics, brief=self.brief, file=about, **asked)
        forgiven = self.exit_zero and answer.exit_code == EXIT_DOES_NOT_FIT
        return EXIT_OK if forgiven else answer.exit_code

    def _say_readings(self) -> None:
        """Names that were read as those of profiles, to stderr."""
        for (_, written), name in self.registry.readings.items():
            if written.strip().lower() != name:
                write_stderr(f"note: {one_line(written)} is read as {name}")


def _check_brief(output: Output, topics: tuple[str, ...]) -> None:
    """Raises InputError where no report can be brief, or details are asked for too."""
    place = Location("--brief")
    if not any(target.format.prose for target in output.targets):
        names = ", ".join(target.format.name for target in output.targets)
        hint = f"it goes with {', '.join(each.name for each in formats() if each.prose)}"
        raise InputError(Problem(f"{names} always has everything", place, hint))
    if topics:
        raise InputError(Problem("--explain asks for details", place, "give only one of the two"))


def answering(asking: CommandKind | None = None, without: Sequence[str] = ("explain",)) -> Callable[..., Any]:
    """Give `command(*, flags, how, ...)` its options.

    asking : whose options `flags` gets, as text by dotted key; None: the command takes none
    without : options of SHARED that the command does not have; `how` is the Invocation that the others describe
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        options = {option.parameter: option for option in scenario_options(asking)} if asking else {}
        shared = [name for name in SHARED if name not in without]

        @wraps(command)
        def wrapped(**given: Any) -> int:
            flags = {option.key: given.pop(parameter) for parameter, option in options.items()}
            if asking:
                flags = with_prices(flags, given.pop(PRICE))
            how = Invocation.of(**{name: given.pop(name) for name in shared})
            return command(how=how, **({"flags": flags} if asking else {}), **given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        first, *rest = (parameter for parameter in own if parameter.name not in ("flags", "how"))
        last = (_parameter(name, *SHARED[name]) for name in shared)
        prices = [_parameter(PRICE, PriceOption, None)] if asking else []
        parameters = [first, *map(declared, options.values()), *prices, *rest, *last]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def given_scenario(
    path: Path | None,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    registry: Registry,
    asking: CommandKind | None,
    *,
    brief: bool | None = None,
) -> Given:
    """`read_scenario` with flags as text.

    asking : what the command asks; None: what the scenario itself does
    brief : say little of a foreign file; None: where the command asks nothing of its own

    Raises
    ------
    InputError    with all problems of flags, file and variables, and, if there are any, with those that names,
                  model and hardware add to them
    """
    if asking and path is None and not _anything(asking, flags, environment):
        raise InputError(Problem(asking.nothing, hint=asking.hint))
    values, problems = _values(flags)
    quiet = asking is None if brief is None else brief
    try:
        given = read_scenario(path, values, environment, scenario_reader(values, brief=quiet))
    except BadScenarioError as error:
        problems += error.problems
        given = error.rest
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems:
        from xe_sizer.studies.problems import with_further_problems

        rest = replace(given, unread=given.unread | (flags.keys() - values.keys()))
        serving = serves(rest) if asking is None else asking.serving
        raise InputError(with_further_problems(problems, rest, registry, serving))
    _say_read(given)
    return given


def answer_to(given: Given, registry: Registry, *, details: bool = False) -> Sized:
    """What the scenario itself asks, with details where they are shown. Raises InputError.

    Each wing is imported when it is asked: most runs need one of them.
    """
    if serves(given):
        from xe_sizer.studies.serve import serve

        return serve(given, registry, details=details)
    from xe_sizer.studies.estimate import estimate

    return estimate(given, registry, details)


def read_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Flags for scenarios that are yet to be read, by dotted key; read, refused and told of once.

    Raises InputError: with what is wrong of the flags alone.
    """
    values, problems = _values({key: text for key, text in flags.items() if text is not None})
    try:
        given = read_scenario(None, values, {})
    except BadScenarioError as error:
        given = error.rest
        places = {COMMAND_LINE.place(key) for key in values}
        problems += [each for each in error.problems if each.location and each.location.name in places]
    if problems:
        raise InputError(problems)
    _say_read(given)
    return {key: attrgetter(key)(given.values) for key in values}


def _say_read(given: Given) -> None:
    """What was written otherwise than it is read, to stderr."""
    for key, (written, value) in given.read_as.items():
        place = given.locate(tuple(key.split(".")))
        shown = f"{value:.15g}" if isinstance(value, float) else value
        write_stderr(f"note: {one_line(str(place))}: {one_line(written)} is read as {shown}")


def _anything(asking: CommandKind, flags: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Whether a flag or a variable of the command is given."""
    flagged = any(value is not None for value in flags.values())
    return flagged or any(variable_name(option) in environment for option in asking.options)


def _values(flags: Mapping[str, object]) -> tuple[dict[str, object], list[Problem]]:
    """Flags as values by dotted key, and what is wrong with the others."""
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for key, text in flags.items():
        option = described(OPTION_OF[key], key)
        try:
            values[key] = _value(option, text)
        except InputError as error:
            place = Location(f"--{option.name}")
            problems += [Problem(problem.message, place, problem.hint) for problem in error.problems]
    return values, problems


def _value(option: ScenarioOption, text: object) -> object:
    if not isinstance(text, str) or option.kind in (str, tuple):
        return text
    if not text.strip():
        raise InputError(Problem("needs a value"))
    return parse_scalar(text.strip())


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
