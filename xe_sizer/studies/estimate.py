"""From a scenario to its result, whatever it asks: each wing answers with functions of the same names.

A wing is imported when it is asked: most questions have no part of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from xe_sizer.errors import InputError, attempt
from xe_sizer.immutable import Immutable
from xe_sizer.result.common import TIGHT, with_advice
from xe_sizer.scenario.limits import Estimate
from xe_sizer.scenario.provenance import with_further
from xe_sizer.scenario.read import changed
from xe_sizer.scenario.scenario import serves
from xe_sizer.scenario.trials import wanted

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Advice, Verdict
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import Change
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.search import Candidates, Progress

E = TypeVar("E", bound=Estimate)
R = TypeVar("R", "Result", "ServeResult")


class Search(Protocol):
    """The best on every number of GPUs, estimated; `every_way` as in `Rules`."""

    def __call__(self, resolved: Any, progress: Progress | None = None, every_way: bool = True) -> Candidates: ...


class Wing(Immutable, Generic[E, R]):
    """What answers one kind of job.

    name : of the package
    evens : whether alternatives that leave the GPUs open are compared on as many as the others; a load has its own
    resolve : all that sizing needs. Raises InputError
    check : the same, of a scenario that other problems were found in
    size : the best answer to what was resolved. Raises InputError
    size_all : the same to several, or what is wrong with each; those that share a job at once
    summarise : the result, with details or without, but for its operators and advice
    advise : so many pieces of advice at most
    settle : what would settle a memory that may or may not suffice
    """

    name: str
    resolve: Callable[[Scenario, Registry], Any]
    check: Callable[[Scenario, Registry], Any]
    size: Callable[[Any], E]
    size_all: Callable[[Sequence[Any]], list[E | InputError]]
    summarise: Callable[[E, bool], R]
    with_operators: Callable[[R, E], R]
    advise: Callable[[E, Registry, int], tuple[Advice, ...]]
    settle: Callable[[E, Registry], tuple[str, ...]]
    evens: bool

    def conclude(self, estimate: E, registry: Registry, details: bool = True, operators: bool = False) -> R:
        """The result of an estimate, with its advice.

        details : False for its verdict alone, with the one change that mends a no
        operators : with its steps operator by operator
        """
        result = self.summarise(estimate, details)
        if operators:
            result = self.with_operators(result, estimate)
        verdict = self.settled(result.verdict, estimate, registry)
        return with_advice(result, verdict, self.advise(estimate, registry, wanted(estimate, details)))

    def settled(self, verdict: Verdict, estimate: E, registry: Registry) -> Verdict:
        """The verdict on an estimate, with what would settle it where its memory is tight."""
        return replace(verdict, settled_by=self.settle(estimate, registry)) if verdict.memory == TIGHT else verdict


class JobWing(Wing[Any, "Result"]):
    """What answers jobs that train.

    candidates : the best on every number of GPUs, what `plan` chooses from
    ways : changes of how the job is run that advice proposes beside the layout
    """

    size: Callable[[Any], TrainingEstimate]
    candidates: Search
    ways: Callable[[Any, Registry], Iterable[Change]]


def job_wing(scenario: Scenario) -> JobWing:
    """What answers a scenario that trains, by what its job learns from: data, or answers of its own."""
    training = _training()  # whose import registers the methods
    from xe_sizer.training.methods import METHODS

    kind = METHODS.get(scenario.values.job or "")
    return training if kind is None or kind.rollout is None else _reinforcement()


@cache
def _training() -> JobWing:
    from xe_sizer.training.advice import advise, settle, ways
    from xe_sizer.training.resolve import resolve, resolve_without_serving
    from xe_sizer.training.search import candidates, size, size_all
    from xe_sizer.training.summary import summarise, with_operators

    return JobWing(
        name="training",
        resolve=resolve,
        check=resolve_without_serving,
        size=size,
        size_all=size_all,
        candidates=candidates,
        ways=ways,
        summarise=summarise,
        with_operators=with_operators,
        advise=advise,
        settle=settle,
        evens=True,
    )


@cache
def _reinforcement() -> JobWing:
    from xe_sizer.reinforcement.advice import advise, settle, ways
    from xe_sizer.reinforcement.resolve import resolve
    from xe_sizer.reinforcement.search import candidates, size
    from xe_sizer.reinforcement.summary import summarise
    from xe_sizer.training.summary import with_operators

    return JobWing(
        name="reinforcement",
        resolve=resolve,
        check=resolve,
        size=size,
        size_all=_one_by_one(size),
        candidates=candidates,
        ways=ways,
        summarise=summarise,
        with_operators=with_operators,
        advise=advise,
        settle=settle,
        evens=True,
    )


@cache
def serving_wing() -> Wing[ServingEstimate, ServeResult]:
    """What answers scenarios of inference."""
    from xe_sizer.serving.advice import advise, settle
    from xe_sizer.serving.resolve import resolve
    from xe_sizer.serving.search import size
    from xe_sizer.serving.summary import summarise, with_operators

    return Wing(
        name="serving",
        resolve=resolve,
        check=resolve,
        size=size,
        size_all=_one_by_one(size),
        summarise=summarise,
        with_operators=with_operators,
        advise=advise,
        settle=settle,
        evens=False,
    )


def wing_of(scenario: Scenario) -> Wing[Any, Any]:
    """What answers a scenario, whatever it asks."""
    return serving_wing() if serves(scenario) else job_wing(scenario)


def answer_to(scenario: Scenario, registry: Registry, details: bool = True) -> Result | ServeResult:
    """Answer what the scenario itself asks. Raises InputError."""
    return (serve if serves(scenario) else estimate)(scenario, registry, details)


def estimate(scenario: Scenario, registry: Registry, details: bool = True, operators: bool = False) -> Result:
    """Size one job; `details` and `operators` as of `Wing.conclude`.

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    wing = job_wing(scenario)
    return wing.conclude(wing.size(wing.resolve(scenario, registry)), registry, details, operators)


def size_changed(
    wing: Wing[E, Any], scenario: Scenario, values: Mapping[str, object], registry: Registry
) -> E | InputError:
    """The estimate of a scenario with some keys set, or what is wrong with it."""
    return attempt(lambda: wing.size(wing.resolve(changed(scenario, values), registry)))


def answer_all(
    scenarios: Sequence[Scenario], registry: Registry, details: bool = True
) -> list[Result | ServeResult | InputError]:
    """Answer each of several scenarios, or say what is wrong with it; `details` as of `Wing.conclude`."""
    answers: list[Result | ServeResult | InputError | None] = [None] * len(scenarios)
    resolved: dict[str, tuple[Wing[Any, Any], dict[int, Any]]] = {}
    for place, scenario in enumerate(scenarios):
        wing = wing_of(scenario)
        found = attempt(wing.resolve, scenario, registry)
        if isinstance(found, InputError):
            answers[place] = found
        else:
            resolved.setdefault(wing.name, (wing, {}))[1][place] = found
    for wing, asked in resolved.values():
        for place, estimate in zip(asked, wing.size_all(list(asked.values())), strict=True):
            if isinstance(estimate, InputError):
                answers[place] = estimate
            else:
                answers[place] = attempt(wing.conclude, estimate, registry, details)
    return [answer for answer in answers if answer is not None]


def _one_by_one(size: Callable[[Any], E]) -> Callable[[Sequence[Any]], list[E | InputError]]:
    """Sizing of several, each by itself."""
    return lambda resolved: [attempt(size, one) for one in resolved]


def serve(scenario: Scenario, registry: Registry, details: bool = True) -> ServeResult:
    """Size one service on its own hardware; `details` as of `Wing.conclude`.

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    wing = serving_wing()
    return wing.conclude(wing.size(wing.resolve(scenario, registry)), registry, details)


def length_to_start_with(scenario: Scenario, registry: Registry) -> int | None:
    """The longest sequence that the engine of a service starts with; None: the one that its answer has [tokens].

    Raises InputError.
    """
    wing = serving_wing()
    return wing.size(wing.resolve(scenario, registry)).starts_with


def with_further_problems(
    problems: Iterable[Problem], rest: Scenario, registry: Registry, serving: bool
) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and software have against the rest of it."""
    wing: Wing[Any, Any] = serving_wing() if serving else job_wing(rest)
    return with_further(problems, rest, wing.check, registry)
