"""The largest of something that fits: a context, a micro-batch, a rank of adapters, a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.weights import count_parameters
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.result.training import Fit
from xe_sizer.scenario.read import changed
from xe_sizer.studies.estimate import job_wing, size_changed

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.training import FitQuestion, Result
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.training.estimate import TrainingEstimate

TOKENS = 256  # contexts are multiples of it
RANKS = 4  # ranks are


class Sought(Immutable):
    """What is looked for: keys that a value of it sets, the values that there are, ascending, and what ends them."""

    keys: Callable[[Any], Mapping[str, object]]
    values: Sequence[Any]
    bound: str


def fit(
    scenario: Scenario, question: FitQuestion, registry: Registry, details: bool = True, operators: bool = False
) -> Result:
    """Size the job with the largest of what is asked that fits as likely as is asked, three in four unless it says so.

    Without a number of GPUs it is one card, or one server where a server is named. A context is that of sequences
    without padding. Values are halved, as memory grows with each of them; models are tried one by one.

    Raises
    ------
    InputError : as `estimate`; not even the smallest fits; a rank is asked for of a job without one
    """
    wing = job_wing(scenario)
    resolved = wing.resolve(scenario, registry)
    if resolved.gpus is None:
        whole = resolved.job.server.accelerators if scenario.values.server else 1
        scenario = changed(scenario, {"gpus": whole})
        resolved = wing.resolve(scenario, registry)
    sought = _sought(question, scenario, resolved, registry)
    tried: dict[int, TrainingEstimate | InputError] = {}

    def size(place: int) -> TrainingEstimate | InputError:
        if place not in tried:
            tried[place] = size_changed(wing, scenario, sought.keys(sought.values[place]), registry)
        return tried[place]

    def suffices(place: int) -> bool:
        return is_likely(size(place))

    places = range(len(sought.values))
    found = last_place(suffices, len(places)) if question != "model" else next(filter(suffices, reversed(places)), None)
    if found is None:
        raise InputError(_none_fits(question, sought.values, size(0), scenario))
    largest, more = size(found), size(found + 1) if found + 1 < len(places) else None
    assert not isinstance(largest, InputError)
    result = wing.conclude(largest, registry, details, operators)
    over = more if not isinstance(more, InputError) else None
    told = Fit(
        question=question,
        value=sought.values[found],
        probability=largest.card_chance,
        next_value=None if more is None else sought.values[found + 1],
        next_peak_bytes=None if over is None else float(round(over.peak_bytes)),
        next_probability=None if over is None else over.card_chance,
        bound=sought.bound if more is None else "memory" if over is not None else "layout",
    )
    return replace(result, fit=told)


def is_likely(sized: TrainingEstimate | InputError) -> bool:
    """Whether a job fits as likely as is asked, at least three times in four.

    A host of which nobody knows how much it has does not stand in its way.
    """
    return not isinstance(sized, InputError) and sized.roomy and sized.card_chance >= (sized.confidence or 0.0)


def last_place(holds: Callable[[int], bool], count: int) -> int | None:
    """The last place at which something holds that holds up to some place, by doubling and halving; None: nowhere."""
    if not count or not holds(0):
        return None
    good, step = 0, 1
    while good + step < count and holds(good + step):
        good, step = good + step, 2 * step
    bad = min(good + step, count)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _sought(question: FitQuestion, scenario: Scenario, resolved: Any, registry: Registry) -> Sought:
    job = resolved.job
    if question == "context":
        most = job.model.learned_positions or FARTHEST_TOKENS  # others go on beyond what they were trained for
        tokens = range(TOKENS, most + 1, TOKENS) or [most]
        return Sought(lambda value: {"train.seq_len": value, "train.padding": "packed"}, tokens, "positions")
    if question == "micro-batch":
        return Sought(lambda value: {"train.micro_batch": value}, _micro_batches(scenario), "batch")
    if question == "rank":
        if not job.method.adapter or "lora" not in job.method.settings:
            hint = "for example --job lora"
            raise InputError(Problem("only adapters with a rank have one to look for", scenario.locate(("job",)), hint))
        ranks = [1, 2, *range(RANKS, job.model.hidden + 1, RANKS)]
        return Sought(lambda value: {"lora.rank": value}, ranks, "width")
    return Sought(lambda value: {"model": value}, models_by_size(registry), "catalogue")


FARTHEST_TOKENS = 2**24
MOST_MICRO_BATCHES = 4096


def _micro_batches(scenario: Scenario) -> list[int]:
    """Sequences of a micro-batch, of which a stated global batch is a multiple."""
    whole = scenario.values.train.global_batch
    return [one for one in range(1, (whole or MOST_MICRO_BATCHES) + 1) if whole is None or whole % one == 0]


def models_by_size(registry: Registry) -> list[str]:
    """Models of the catalogue, those of fewer parameters first."""
    sizes = {name: count_parameters(registry.model(name)).total for name in BUILT_IN.names("model")}
    return sorted(sizes, key=lambda name: (sizes[name], name))


def _none_fits(
    question: FitQuestion, values: Sequence[Any], sized: TrainingEstimate | InputError, scenario: Scenario
) -> list[Problem]:
    if isinstance(sized, InputError):
        return list(sized.problems)
    what = f"not even the smallest fits: {question} {values[0]}"
    return [Problem(what, scenario.locate(()), "ask for more GPUs, a smaller model, or another method")]
