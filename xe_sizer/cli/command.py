"""What the commands share: how they are called, files of other tools as scenarios, and the question of hardware."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from xe_sizer.cli.main import stamped
from xe_sizer.cli.options import (
    BriefOption,
    ColorOption,
    CommandKind,
    DownloadOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    HelpAllOption,
    PriceOption,
    ProfilesOption,
    ScenarioOption,
    declared,
    described,
    scenario_options,
    with_names,
)
from xe_sizer.cli.output import Output, check_choice, one_line, output_from, write_stderr, write_texts
from xe_sizer.errors import EXIT_DOES_NOT_FIT, EXIT_OK, InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.hub import asked_hub
from xe_sizer.profiles.text import name_of, parse_scalar, pasted, told
from xe_sizer.report.document import EXPLAINABLE
from xe_sizer.report.registry import formats
from xe_sizer.result.common import Answer, Sized
from xe_sizer.scenario.options import COMMAND_LINE, variable_name
from xe_sizer.scenario.read import BadScenarioError, read_scenario
from xe_sizer.scenario.scenario import Scenario, serves

if TYPE_CHECKING:
    from xe_sizer.interop.read import Imported
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.result.training import Result

# Files of other tools where a scenario is expected: what is said of them.

ASSUMED = "assumed"
_FEW = 12  # lost keys that are named one by one on stderr


def say_what_is_lost(imported: Imported) -> None:
    """Keys that change memory or time and that no scenario can say, to stderr; and how many are not known."""
    for each in imported.lost[:_FEW]:
        write_stderr(f"note: {one_line(str(each.where))}: {one_line(each.key)}: {one_line(each.why)}")
    if len(imported.lost) > _FEW:
        write_stderr(f"note: {len(imported.lost) - _FEW} more keys change memory or time and are not in the scenario")
    if imported.unknown:
        names = ", ".join(
            one_line(f"{each.key} ({each.near}?)" if each.near else each.key) for each in imported.unknown[:_FEW]
        )
        write_stderr(f"note: not known and not read: {names}{', ...' if len(imported.unknown) > _FEW else ''}")


def say_briefly(imported: Imported) -> None:
    assumed = sum(fact.origin == ASSUMED for fact in imported.facts.values())
    counts = [(assumed, "value", "assumed"), (len(imported.lost), "key", "not in the scenario")]
    said = ", ".join(f"{n} {noun}{'s' if n > 1 else ''} {what}" for n, noun, what in counts if n)
    more = f": {said} ('xe-sizer import' lists them)" if said else ""
    write_stderr(f"note: {_read_as(imported)}{more}")


def _read_as(imported: Imported) -> str:
    """What is read as what: `job.sh is read as a file of vLLM`."""
    kind = "file" if pasted(imported.path) is None else "command"
    return f"{one_line(name_of(imported.path))} is read as a {kind} of {imported.tool.title}"


def _say_all(imported: Imported) -> None:
    """The tool, and all that is missing, assumed and lost, to stderr."""
    place = one_line(name_of(imported.path))
    write_stderr(f"note: {_read_as(imported)}")
    for each in imported.missing:
        write_stderr(f"note: {place}: {one_line(each.why)}; pass {one_line(each.hint)}")
    for key, fact in imported.facts.items():
        if fact.origin == ASSUMED:  # neither the file nor the tool states it
            why = f" ({one_line(fact.note)})" if fact.note else ""
            write_stderr(f"note: assumed {key}: {one_line(told(fact.value))}{why}")
    say_what_is_lost(imported)


# Options that name several kinds of hardware, for the commands that choose among them.

SEARCH = "Search"
AmongOption = Annotated[
    list[str] | None,
    typer.Option("--among", metavar="NAME", help="Also this GPU or server; may be repeated.", rich_help_panel=SEARCH),
]
AnyGpuOption = Annotated[
    bool, typer.Option("--any-gpu", help="Every GPU of the catalogue but those only announced.", rich_help_panel=SEARCH)
]


def read_jobs(text: str) -> int:
    """A number of processes. Raises InputError: it is none."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(Problem(f"'{text}' is not a number of processes", Location("--jobs"), "for example --jobs 4"))
    return int(text)


# The step of a training job as a trace beside the answer.

TimelineOption = Annotated[
    str | None,
    typer.Option("--timeline", metavar="FILE.json", help="Also write the step as a trace, which Perfetto opens."),
]


def write_timeline(result: Result | None, name: str) -> None:
    """The step as a trace; nothing where no job fits. Raises InputError: it cannot be written."""
    if result is None or not result.verdict.fits:
        write_stderr("note: --timeline: the job does not fit, so there is no step to draw")
        return
    from xe_sizer.report.trace import step_trace

    write_texts([(Path(name), step_trace(result))])


# What commands share: from options to a scenario, and from its answer to a report and an exit code.

ALL = "all"
PRICE = "price"
HELP_ALL = "help_all"
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


class Invocation(Immutable):
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

    def scenario(
        self, asking: CommandKind | None, file: str | None, flags: Mapping[str, object], service: int | None = None
    ) -> Scenario:
        """The scenario that a file (None: none) and flags describe; see `given_scenario`."""
        path = Path(file) if file else None
        return given_scenario(path, flags, os.environ, self.registry, asking, service=service)

    def write(self, answer: Answer, about: str | None = None, **asked: Any) -> int:
        """Report an answer that this command line found; see `show`."""
        return self.show(stamped(answer), about, **asked)

    def show(self, answer: Answer, about: str | None = None, **asked: Any) -> int:
        """Report the answer; its exit code, 0 for a no that the caller does not mind.

        about : the file that the report is about; asked : fields of `report.document.Options`
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

    asking : whose options `flags` gets, as text by dotted key, but for those that the command has of its own; None:
    the command takes none
    without : options of SHARED that the command does not have; `how` is the Invocation that the others describe
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(command, eval_str=True).parameters
        asked = scenario_options(asking) if asking else ()
        options = {option.parameter: option for option in asked if option.parameter not in own}
        shared = [name for name in SHARED if name not in without]

        @wraps(command)
        def wrapped(**given: Any) -> int:
            flags = {option.key.name: given.pop(parameter) for parameter, option in options.items()}
            if asking:
                flags = with_names(flags, given.pop(PRICE))
                del given[HELP_ALL]  # has been answered
            how = Invocation.of(**{name: given.pop(name) for name in shared})
            return command(how=how, **({"flags": flags} if asking else {}), **given)

        first, *rest = (parameter for name, parameter in own.items() if name not in ("flags", "how"))
        last = (_parameter(name, *SHARED[name]) for name in shared)
        prices = [_parameter(PRICE, PriceOption, None)] if asking else []
        own_options = [declared(option, asking) for option in options.values()] if asking else []
        help_all = [_parameter(HELP_ALL, HelpAllOption, False)] if asking else []
        parameters = [first, *own_options, *prices, *rest, *last, *help_all]
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
    read: Callable[[Path], Document] | None = None,
    service: int | None = None,
) -> Scenario:
    """`read_scenario` with flags as text.

    asking : what the command asks; None: what the scenario itself does
    brief : say little of a foreign file; None: where the command asks nothing of its own
    read : what reads the file; None: whatever reads a scenario or a file of another tool
    service : which of the model servers of a file of another tool; None: its first

    Raises
    ------
    InputError    with all problems of flags, file and variables, and, if there are any, with those that names,
                  model and hardware add to them
    """
    flagged = any(value is not None for value in flags.values())
    if asking and path is None and not flagged and not any(variable_name(key) in environment for key in asking.options):
        raise InputError(Problem(asking.nothing, hint=asking.hint))
    values, problems = _values(flags)
    try:
        reader = read or _reader(values, asking is None if brief is None else brief, service)
        scenario = read_scenario(path, values, environment, reader)
    except BadScenarioError as error:
        problems += error.problems
        scenario = error.rest
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems:
        from xe_sizer.studies.estimate import with_further_problems

        rest = replace(scenario, invalid_keys=scenario.invalid_keys | (flags.keys() - values.keys()))
        serving = serves(rest) if asking is None or asking.serving is None else asking.serving
        raise InputError(with_further_problems(problems, rest, registry, serving))
    _say_read(scenario)
    return scenario


def _reader(values: Mapping[str, object], brief: bool, service: int | None) -> Callable[[Path], Document]:
    """What reads a scenario file or one of another tool; the part for these is imported where there is a file."""

    def read(path: Path) -> Document:
        from xe_sizer.interop.files import scenario_reader

        return scenario_reader(values, say_briefly if brief else _say_all, service)(path)

    return read


def answer_to(scenario: Scenario, registry: Registry, *, details: bool = False) -> Sized:
    """What the scenario itself asks, with details where they are shown. Raises InputError.

    Each wing is imported when it is asked: most runs need one of them.
    """
    from xe_sizer.studies.estimate import answer_to as answered

    return answered(scenario, registry, details)


def read_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Flags for scenarios that are yet to be read, by dotted key; read, refused and told of once.

    Raises InputError: with what is wrong of the flags alone.
    """
    values, problems = _values({key: text for key, text in flags.items() if text is not None})
    try:
        scenario = read_scenario(None, values, {})
    except BadScenarioError as error:
        scenario = error.rest
        places = {COMMAND_LINE.place(key) for key in values}
        problems += [each for each in error.problems if each.location and each.location.name in places]
    if problems:
        raise InputError(problems)
    _say_read(scenario)
    return {key: attrgetter(key)(scenario.values) for key in values}


def _say_read(scenario: Scenario) -> None:
    """What was written otherwise than it is read, to stderr."""
    for key, (written, value) in scenario.read_as.items():
        place = scenario.locate(tuple(key.split(".")))
        shown = f"{value:.15g}" if isinstance(value, float) else value
        write_stderr(f"note: {one_line(str(place))}: {one_line(written)} is read as {shown}")


def _values(flags: Mapping[str, object]) -> tuple[dict[str, object], list[Problem]]:
    """Flags as values by dotted key, and what is wrong with the others."""
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for key, text in flags.items():
        option = described(key)
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
