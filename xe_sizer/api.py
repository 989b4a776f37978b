"""The questions of the command line as functions: keyword arguments are the scenario's keys, answers are results.

Everything here is reached as `xe_sizer.estimate` and so on (docs/api.md). A function that its question needs is
imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.source import load_yaml
from xe_sizer.scenario.caller import PythonCall
from xe_sizer.scenario.change import flags_with
from xe_sizer.scenario.keys import SECTIONS
from xe_sizer.scenario.read import BadScenarioError, scenario_of_call

if TYPE_CHECKING:
    from xe_sizer.profiles.source import Document
    from xe_sizer.result.accuracy import Accuracy
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.studies import Comparison, PlanResult, Sensitivity
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.keys import Keys
    from xe_sizer.scenario.read import Given

AnyPath = str | PathLike[str]
Profiles = Sequence[AnyPath]
"""Folders of the user's own profiles; they win over the built-in ones."""


@frozen
class Scenario:
    """A scenario file, read but not yet answered; keyword arguments of a question win over its keys."""

    document: Document

    @property
    def path(self) -> Path:
        return self.document.path

    @property
    def keys(self) -> dict[str, Any]:
        """A copy of what the file says."""
        return deepcopy(cast(dict[str, Any], self.document.value))


def load(path: AnyPath) -> Scenario:
    """A scenario file, to be asked about and overridden by keywords; its keys are checked when a question is asked.

    Raises
    ------
    InputError : the file cannot be read, or is no YAML
    """
    return Scenario(load_yaml(Path(path)))


def estimate(scenario: Scenario | None = None, /, *, profiles: Profiles = (), **keys: Unpack[Keys]) -> Result:
    """Size one training job: does it fit, how long does it take, what is it made of?

    Raises
    ------
    InputError : every problem of the input, each with the keyword or the line of the file where it stands
    """
    from xe_sizer.studies.estimate import estimate as answer

    asked = _Asked.by("estimate", profiles)
    return answer(asked.given(scenario, keys), asked.registry)


def plan(
    scenario: Scenario | None = None,
    /,
    *,
    among: Sequence[str] = (),
    any_gpu: bool = False,
    explain: bool = False,
    profiles: Profiles = (),
    **keys: Unpack[Keys],
) -> PlanResult:
    """Search every layout on every number and kind of GPU; the key `objective` says what is best.

    among : GPUs and servers to choose from beside the scenario's own; any_gpu : every GPU of the catalogue
    explain : count what each rule removed

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.result.studies import OBJECTIVES
    from xe_sizer.studies.hardware import all_hardware
    from xe_sizer.studies.plan import plan as answer

    asked = _Asked.by("plan", profiles)
    given = asked.given(scenario, keys)
    hardware = all_hardware(given, among, any_gpu, asked.registry)
    return answer(given, asked.registry, hardware, given.values.objective or OBJECTIVES[0], explain)


def serve(
    scenario: Scenario | None = None,
    /,
    *,
    among: Sequence[str] = (),
    any_gpu: bool = False,
    pareto: bool = False,
    profiles: Profiles = (),
    **keys: Unpack[Keys],
) -> ServeResult:
    """Size inference for a load: how many replicas on how many GPUs, how fast, at what cost?

    among, any_gpu : as in `plan`; pareto : with the ways to run a replica that nothing beats

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.studies.fleet import serve_on as answer
    from xe_sizer.studies.hardware import all_hardware

    asked = _Asked.by("serve", profiles)
    given = asked.given(scenario, keys, serving=True)
    return answer(given, asked.registry, all_hardware(given, among, any_gpu, asked.registry), pareto)


def compare(
    *alternatives: Scenario | Result | Mapping[str, object], profiles: Profiles = (), **keys: Unpack[Keys]
) -> Comparison:
    """Training jobs side by side, and the parts of a step in which they differ most.

    alternatives : scenarios, results of `estimate`, or keys to change in the job that the first scenario and the
    keywords describe

    Raises
    ------
    InputError : every problem of every alternative; fewer than two alternatives
    """
    from xe_sizer.studies.compare import compare as answer

    asked = _Asked.by("compare", profiles)
    if len(alternatives) < 2:
        hint = "compare({'gpu': 'h100-sxm-80gb'}, {'gpu': 'b200'}, model='llama-2-7b', gpus=8)"
        raise InputError(Problem("name at least two alternatives", Location("compare()"), hint))
    base = next((one for one in alternatives if isinstance(one, Scenario)), None)
    results: list[tuple[str, Result]] = []
    problems: list[Problem] = []
    for alternative in alternatives:
        try:
            results.append(asked.alternative(alternative, base, keys))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return answer(results)


def sensitivity(scenario: Scenario | None = None, /, *, profiles: Profiles = (), **keys: Unpack[Keys]) -> Sensitivity:
    """What each factor of a training job is worth: each is moved by a step both ways and the job estimated again.

    Raises
    ------
    InputError : as `estimate`
    """
    from xe_sizer.studies.sensitivity import sensitivity as answer

    asked = _Asked.by("sensitivity", profiles)
    return answer(asked.given(scenario, keys), asked.registry)


def validate(*sources: AnyPath | Mapping[str, object], only: str | None = None) -> Accuracy:
    """Predict measured runs and tell how far off the predictions are.

    sources : files or folders of measurement records, or records themselves; none: the records that ship
    only : one quantity, such as step_time

    Raises
    ------
    InputError : every record that cannot be read; an unknown quantity
    """
    from xe_sizer.errors import did_you_mean
    from xe_sizer.evidence.records import SHIPPED, read_all, records_of
    from xe_sizer.evidence.validate import validate as answer
    from xe_sizer.result.accuracy import QUANTITIES

    if only is not None and only not in QUANTITIES:
        hint = did_you_mean(only, QUANTITIES) or f"one of {', '.join(QUANTITIES)}"
        raise InputError(Problem(f"no quantity is called '{only}'", Location("validate(only)"), hint))
    paths = [Path(source) for source in sources if not isinstance(source, Mapping)]
    own = records_of([source for source in sources if isinstance(source, Mapping)], Location("validate()"))
    read = read_all(paths if sources else [SHIPPED])
    return answer((*read.records, *own.records), QUANTITIES if only is None else (only,))


@frozen
class _Asked:
    """One call: what its messages name, and where it finds profiles."""

    caller: PythonCall
    registry: Registry

    @staticmethod
    def by(function: str, profiles: Profiles) -> _Asked:
        """The call of a function. Raises InputError: a folder of profiles is none."""
        folders = [Path(folder) for folder in profiles]
        place = Location(f"{function}(profiles)")
        problems = [Problem(f"'{folder}' is not a folder", place) for folder in folders if not folder.is_dir()]
        if problems:
            raise InputError(problems)
        return _Asked(PythonCall(function), Registry(folders))

    def given(self, scenario: Scenario | None, keys: Mapping[str, object], serving: bool = False) -> Given:
        """What is asked. Raises InputError with all problems of keys, names, model and hardware."""
        try:
            return scenario_of_call(scenario.document if scenario else None, flat(keys), self.caller)
        except BadScenarioError as error:
            from xe_sizer.studies.problems import with_further_problems

            raise InputError(with_further_problems(error.problems, error.rest, self.registry, serving)) from None

    def alternative(
        self, one: Scenario | Result | Mapping[str, object], base: Scenario | None, keys: Mapping[str, object]
    ) -> tuple[str, Result]:
        """The name and the result of an alternative. Raises InputError."""
        from xe_sizer.report.verdict import subject
        from xe_sizer.studies.estimate import estimate as answer

        if isinstance(one, Mapping):
            changes = flat(one)
            name = ",".join(f"{key}={value}" for key, value in changes.items())
            return name, answer(self.given(base, flags_with(flat(keys), changes)), self.registry)
        if isinstance(one, Scenario):
            return one.path.stem, answer(self.given(one, keys), self.registry)
        return subject(one), one


def flat(keys: Mapping[str, object]) -> dict[str, object]:
    """Keys with groups of keys as plain values by dotted key; what is None is not given."""
    found: dict[str, object] = {}
    for key, value in keys.items():
        if key in SECTIONS and isinstance(value, Mapping):
            found.update({f"{key}.{name}": _plain(item) for name, item in value.items() if item is not None})
        elif value is not None:
            found[key] = _plain(value)
    return found


def _plain(value: object) -> object:
    """A value as a file holds it: paths are text, arrays and tuples are lists, numbers of numpy are Python's."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    as_list = getattr(value, "tolist", None)
    if callable(as_list):
        return as_list()
    return [_plain(item) for item in value] if isinstance(value, list | tuple | range) else value
