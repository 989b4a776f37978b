"""The questions of the command line as functions: keyword arguments are the scenario's keys, answers are results.

Everything here is reached as `xe_sizer.estimate` and so on (docs/api.md). A function that its question needs is
imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Unpack, cast

import xe_sizer.report.notebook  # noqa: F401  how answers look in a notebook
from xe_sizer.errors import InputError, Location, Problem, collecting
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.convert import shorten
from xe_sizer.profiles.yaml_reader import Document
from xe_sizer.scenario.caller import PythonCall
from xe_sizer.scenario.read import BadScenarioError, flags_with, scenario_of_call
from xe_sizer.scenario.schema import NAMED_OR_GROUPS, SECTIONS

if TYPE_CHECKING:
    from xe_sizer.result.accuracy import Accuracy
    from xe_sizer.result.check import CheckResult
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.studies import Comparison, PlanResult, Sensitivity
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.keys import Keys
    from xe_sizer.scenario.scenario import Scenario as Question

# Arguments of the Python API other than scenario keys: read in every natural form, with a problem for any other.

AnyPath = str | PathLike[str]


def flat(keys: Mapping[str, object]) -> dict[str, object]:
    """Keys with groups of keys as plain values by dotted key; what is None is not given."""
    found: dict[str, object] = {}
    for key, value in keys.items():
        if key in SECTIONS | NAMED_OR_GROUPS and isinstance(value, Mapping):
            found.update({f"{key}.{name}": plain(item) for name, item in value.items() if item is not None})
        elif value is not None:
            found[str(key)] = plain(value)
    return found


def plain(value: object) -> object:
    """A value as a file holds it: paths are text, arrays and tuples are lists, numbers of numpy are Python's."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    as_list = getattr(value, "tolist", None)
    if callable(as_list):
        return as_list()
    return [plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def shown(value: object) -> str:
    """A value that is no good, as a message names it."""
    if isinstance(value, str | PathLike):
        return repr(shorten(str(value)))
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "a dictionary"
    return "a list" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"


def is_path(value: object) -> TypeGuard[AnyPath]:
    """Whether a value is a path or the text of one."""
    return isinstance(value, str | PathLike) and isinstance(plain(value), str) and plain(value) != ""


def texts(value: object, what: str, place: Location, problems: list[Problem]) -> tuple[str, ...]:
    """Names or paths: one of them, or several in any iterable. What is none is added to the problems.

    what : such as "folders"
    """
    value = plain(value)
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    items = [plain(item) for item in value] if several else [value]  # type: ignore[attr-defined]
    wrong = [item for item in items if not is_path(item)]
    problems += [Problem(f"this must name {what}, not {shown(item)}", place) for item in wrong]
    return tuple(item for item in items if isinstance(item, str) and item)


def folders(value: object, place: Location, problems: list[Problem]) -> list[Path]:
    """Existing folders. What is none is added to the problems."""
    found = [Path(text) for text in texts(value, "folders", place, problems)]
    problems += [Problem(f"'{folder}' is not a folder", place) for folder in found if not folder.is_dir()]
    return [folder for folder in found if folder.is_dir()]


def not_a_scenario(value: object, function: str) -> Problem:
    """What to say of a first argument that is no scenario."""
    place = Location(f"{function}()")
    if isinstance(value, Mapping):
        hint = f"keys are keyword arguments: {function}(**keys)"
        return Problem("the first argument must be a scenario, not a dictionary", place, hint)
    return Problem(f"the first argument must be a scenario, not {shown(value)}", place, load_hint(value))


def not_an_alternative(value: object) -> Problem:
    """What to say of an alternative of `compare` that is none."""
    several = isinstance(value, list | tuple)
    hint = "give each as an argument of its own: compare(*alternatives)" if several else load_hint(value)
    message = f"an alternative is a scenario, a result of estimate or a dictionary of keys, not {shown(value)}"
    return Problem(message, Location("compare()"), hint)


def load_hint(value: object) -> str:
    path = repr(str(value)) if is_path(value) else "path"
    return f"xe_sizer.load({path}) reads a scenario from a file"


Profiles = AnyPath | Sequence[AnyPath]
"""One folder or several with the user's own profiles; they win over the built-in ones."""
Names = AnyPath | Sequence[AnyPath]
"""One GPU or server or several, each by its name or by the path of its profile."""
Source = AnyPath | Mapping[str, object]
"""A file or folder of measurement records, or one record."""


class Scenario(Immutable):
    """A scenario file, read but not yet answered; keyword arguments of a question win over its keys."""

    document: Document

    def __post_init__(self) -> None:
        if not isinstance(self.document, Document):
            message = f"a scenario is made of a file that was read, not of {shown(self.document)}"
            raise InputError(Problem(message, Location("Scenario()"), load_hint(self.document)))

    def __repr__(self) -> str:
        said = {key: self.keys.get(key) for key in ("model", "job", "gpus")}
        named = (f"{key}={value}" for key, value in said.items() if isinstance(value, str | int))
        return f"Scenario({', '.join([str(self.path), *named])})"

    @property
    def path(self) -> Path:
        return self.document.path

    @property
    def keys(self) -> dict[str, Any]:
        """A copy of what the file says."""
        return deepcopy(cast(dict[str, Any], self.document.value))


def load(path: AnyPath) -> Scenario:
    """A scenario file or one of another tool, to be asked about and overridden by keywords.

    Its keys are checked when a question is asked.

    Raises
    ------
    InputError : the file cannot be read, or is no YAML
    """
    if not is_path(path):
        text = f"this must be the path of a file, not {shown(path)}"
        raise InputError(Problem(text, Location("load(path)")))
    from xe_sizer.interop.files import scenario_reader

    return Scenario(scenario_reader({}, lambda _: None)(Path(str(plain(path)))))


def estimate(
    scenario: Scenario | None = None, *, details: bool = False, profiles: Profiles = (), **keys: Unpack[Keys]
) -> Result:
    """Size one training job: does it fit, how long does it take, what is it made of?

    details : with what only a full report shows, which takes most of its time (docs/api.md)

    Raises
    ------
    InputError : every problem of the input, each with the keyword or the line of the file where it stands
    """
    from xe_sizer.studies.estimate import estimate as answer

    asked = Call.by(PythonCall("estimate"), profiles, details=details)
    return answer(asked.scenario(scenario, keys), asked.registry, details)


def plan(
    scenario: Scenario | None = None,
    *,
    among: Names = (),
    any_gpu: bool = False,
    explain: bool = False,
    profiles: Profiles = (),
    **keys: Unpack[Keys],
) -> PlanResult:
    """Search every layout on every number and kind of GPU; the key `objective` says what is best.

    among : GPUs and servers to choose from beside the scenario's own
    any_gpu : every GPU of the catalogue but those only announced
    explain : count what each rule removed

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.studies.hardware import all_hardware
    from xe_sizer.studies.plan import plan as answer

    asked = Call.by(PythonCall("plan"), profiles, among, any_gpu=any_gpu, explain=explain)
    question = asked.scenario(scenario, keys)
    hardware = all_hardware(question, asked.among, any_gpu, asked.registry)
    return answer(question, asked.registry, hardware, explain=explain)


def serve(
    scenario: Scenario | None = None,
    *,
    among: Names = (),
    any_gpu: bool = False,
    pareto: bool = False,
    details: bool = False,
    profiles: Profiles = (),
    **keys: Unpack[Keys],
) -> ServeResult:
    """Size inference for a load: how many replicas on how many GPUs, how fast, at what cost?

    among, any_gpu : as in `plan`
    pareto : with the Pareto-optimal ways to run a replica
    details : as in `estimate`

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.studies.hardware import all_hardware
    from xe_sizer.studies.hardware import serve_on as answer

    asked = Call.by(PythonCall("serve"), profiles, among, any_gpu=any_gpu, pareto=pareto, details=details)
    question = asked.scenario(scenario, keys, serving=True)
    hardware = all_hardware(question, asked.among, any_gpu, asked.registry)
    return answer(question, asked.registry, hardware, pareto, details=details)


def check(*paths: AnyPath, profiles: Profiles = (), details: bool = False, **keys: Unpack[Keys]) -> CheckResult:
    """Answer every scenario of files and folders and check it against its own limits, as the command `check`.

    Files of other tools count as scenarios. A bad scenario is in the result with what is wrong; it stops no other.

    keys : win over those of each scenario, such as limits={"confidence": 0.9}

    Raises
    ------
    InputError : no path; a folder with more files than a gate should read; `profiles` are no folders
    """
    from xe_sizer.interop.files import held_by, scenario_reader, services_of
    from xe_sizer.studies.check import Gate
    from xe_sizer.studies.check import check as answer

    asked = Call.by(PythonCall("check"), profiles, details=details)
    problems = list(asked.problems)
    named = texts(list(paths), "paths", Location(asked.caller.place("paths")), problems)
    if not named and not problems:
        problems.append(Problem("name a file or a folder", Location("check()"), "check('scenarios')"))
    if problems:
        raise InputError(problems)
    given = flat(keys)

    def read(path: Path, service: int | None) -> Question:
        return asked.scenario(Scenario(scenario_reader(given, lambda _: None, service)(path)), keys)

    gate = Gate(held_by, services_of, read)
    return answer(named, gate, asked.registry, details=details)


def compare(
    *alternatives: Scenario | Result | ServeResult | Mapping[str, object], profiles: Profiles = (), **keys: Unpack[Keys]
) -> Comparison:
    """Training jobs or services side by side, and the parts of a step in which they differ most.

    Jobs that leave the GPUs open get as many as the others: those that one names, else the most that one needs.

    alternatives : scenarios, results of `estimate` or `serve`, or keys to change in what the first scenario and the
    keywords describe

    Raises
    ------
    InputError : every problem of every alternative; fewer than two alternatives
    """
    from xe_sizer.studies.compare import compare as answer
    from xe_sizer.studies.compare import on_equal_gpus
    from xe_sizer.studies.estimate import answer_to

    asked = Call.by(PythonCall("compare"), profiles)
    base = next((one for one in alternatives if isinstance(one, Scenario)), None)
    read: list[tuple[str, Question | Result | ServeResult]] = []
    problems = [*asked.problems, *_wrong_alternatives(alternatives, keys)]
    for alternative in alternatives if not problems else ():
        with collecting(problems):
            read.append(asked.alternative(alternative, base, keys))
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return answer(on_equal_gpus(read, asked.registry, answer_to))


def _wrong_alternatives(alternatives: Sequence[object], keys: Mapping[str, object]) -> Iterator[Problem]:
    """Why alternatives cannot be compared, whatever their keys say."""
    from xe_sizer.result.common import Sized

    wrong = [one for one in alternatives if not isinstance(one, Scenario | Sized | Mapping)]
    yield from map(not_an_alternative, wrong)
    if len(alternatives) < 2 and not wrong:
        hint = "compare({'gpu': 'h100-sxm-80gb'}, {'gpu': 'b200'}, model='llama-2-7b', gpus=8)"
        yield Problem("name at least two alternatives", Location("compare()"), hint)
    elif all(isinstance(one, Sized) for one in alternatives):
        yield from (
            Problem("the alternatives are results: no key changes them", Location(f"compare({key})"))
            for key in flat(keys)
        )


def sensitivity(scenario: Scenario | None = None, *, profiles: Profiles = (), **keys: Unpack[Keys]) -> Sensitivity:
    """What each factor of a job or a service is worth: each is moved by a step both ways and the job estimated again.

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.studies.sensitivity import sensitivity as answer

    asked = Call.by(PythonCall("sensitivity"), profiles)
    return answer(asked.scenario(scenario, keys), asked.registry)


def validate(*sources: Source | Sequence[Source], only: str | None = None) -> Accuracy:
    """Predict measured runs and tell how far off the predictions are.

    sources : files or folders of measurement records, or records themselves, one by one or in lists; none: the records
    that ship
    only : one quantity, such as step_time

    Raises
    ------
    InputError : every record that cannot be read; an unknown quantity
    """
    from xe_sizer.evidence.predict import validate as answer
    from xe_sizer.evidence.records import SHIPPED, read_all, records_of
    from xe_sizer.result.accuracy import QUANTITIES
    from xe_sizer.scenario.provenance import collect

    place = Location("validate()")
    problems = list(_unknown_quantity(only, QUANTITIES))
    each = [one for source in sources for one in (source if isinstance(source, list | tuple) else [source])]
    wrong = [one for one in each if not isinstance(one, Mapping) and not is_path(one)]
    problems += [Problem(f"a source is a path or a record, not {shown(one)}", place) for one in wrong]
    if sources and not each:
        problems.append(Problem("the list has no records", place))
    own = collect(problems, records_of, [one for one in each if isinstance(one, Mapping)], place)
    paths = [Path(one) for one in each if is_path(one)]
    read = collect(problems, read_all, paths if sources else [SHIPPED])
    if problems or own is None or read is None:
        raise InputError(problems)
    return answer((*read.records, *own.records), QUANTITIES if only is None else (only,))


def _unknown_quantity(only: object, known: Sequence[str]) -> Iterator[Problem]:
    from xe_sizer.errors import did_you_mean

    if only is not None and only not in known:
        hint = did_you_mean(only, known) if isinstance(only, str) else None
        yield Problem(
            f"no quantity is called {shown(only)}", Location("validate(only)"), hint or f"one of {', '.join(known)}"
        )


class Call(Immutable):
    """One call: what its messages name, where it finds profiles, and what is wrong with its arguments beside keys.

    among : GPUs and servers to choose from, by name or path
    """

    caller: PythonCall
    registry: Registry
    among: tuple[str, ...]
    problems: tuple[Problem, ...]

    @staticmethod
    def by(caller: PythonCall, profiles: object = (), among: object = (), **switches: object) -> Call:
        """The call with its arguments as they were given."""
        problems: list[Problem] = []
        registry = Registry(folders(profiles, Location(caller.place("profiles")), problems))
        names = texts(among, "GPUs and servers", Location(caller.place("among")), problems)
        for name, value in switches.items():
            if not isinstance(plain(value), bool):
                text = f"this must be True or False, not {shown(value)}"
                problems.append(Problem(text, Location(caller.place(name))))
        return Call(caller, registry, names, tuple(problems))

    def scenario(self, scenario: Scenario | None, keys: Mapping[str, object], serving: bool = False) -> Question:
        """What is asked. Raises InputError with all problems of arguments, keys, names, model and hardware.

        Keys are read where the scenario is one, and names where all arguments are in order.
        """
        import xe_sizer.training.jobs  # noqa: F401  the names of jobs and adapters

        if scenario is not None and not isinstance(scenario, Scenario):
            raise InputError([not_a_scenario(scenario, self.caller.function), *self.problems])
        try:
            question = scenario_of_call(scenario.document if scenario else None, flat(keys), self.caller)
        except BadScenarioError as error:
            raise InputError([*self.problems, *self._with_further(error, serving)]) from None
        if self.problems:
            raise InputError(self.problems)
        return question

    def _with_further(self, error: BadScenarioError, serving: bool) -> Sequence[Problem]:
        """The problems of keys and, where profiles can be found, those of what they name."""
        from xe_sizer.studies.estimate import with_further_problems

        return (
            error.problems
            if self.problems
            else with_further_problems(error.problems, error.rest, self.registry, serving)
        )

    def alternative(
        self,
        one: Scenario | Result | ServeResult | Mapping[str, object],
        base: Scenario | None,
        keys: Mapping[str, object],
    ) -> tuple[str, Question | Result | ServeResult]:
        """The name of an alternative with what it asks, or its result. Raises InputError."""
        from xe_sizer.report.verdict import subject

        if isinstance(one, Mapping):
            changes = flat(one)
            name = ",".join(f"{key}={value}" for key, value in changes.items())
            return name, self.scenario(base, flags_with(flat(keys), changes))
        if isinstance(one, Scenario):
            return one.path.stem, self.scenario(one, keys)
        return subject(one), one
