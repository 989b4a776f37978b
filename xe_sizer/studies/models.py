"""What fits a card: every model of the catalogue, with how fast it runs and how long a context it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, attempt
from xe_sizer.graph.weights import count_parameters
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import ModelRow, ModelTable
from xe_sizer.scenario.read import changed
from xe_sizer.scenario.schema import INFERENCE
from xe_sizer.studies.estimate import job_wing, serving_wing, size_changed
from xe_sizer.studies.fit import is_likely, last_place, models_by_size
from xe_sizer.training.methods import METHODS
from xe_sizer.training.summary import build_layout

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.training.estimate import TrainingEstimate

ANSWER_TOKENS = 256  # chosen: of a request, the rest of its context is the prompt
SHORTEST = 512
GLOBAL_BATCH = 16  # chosen, where nobody gives one


def lightest_job() -> str:
    """The method that may do with least in the place of what a scenario without a job means."""
    method = next(kind for kind in METHODS.values() if kind.default)
    while method.lighter:
        method = METHODS[method.lighter]
    return method.name


def models(scenario: Scenario, registry: Registry, context: int, serving: bool = False, part: str = "") -> ModelTable:
    """Every model that likely fits, the largest first, and how many do not.

    scenario : of any model, on a number of GPUs
    context : tokens of a sequence, or of a prompt with its answer
    serving : one request at a time, in the widest format that its engine offers and that fits unless one is given
    part : of the names of models

    Raises
    ------
    InputError : what is wrong with the first of them, where none can be sized; no model has that name
    """
    rows: list[ModelRow] = []
    first_over, over, refused = "", 0, list[InputError]()
    for name in models_by_size(registry):
        if part not in name:
            continue
        model = registry.model(name)
        tokens = min(context, model.max_positions or context)
        make = _served if serving else _trained
        row = make(scenario, registry, name, model, tokens)
        if isinstance(row, ModelRow):
            rows.append(row)
        elif row is None:
            first_over, over = first_over or name, over + 1
        else:
            refused.append(row)
    if not rows and not over:
        raise refused[0] if refused else InputError(Problem(f"no model has '{part}' in its name", Location("--part")))
    return ModelTable(
        schema_version=SCHEMA_VERSION,
        serving=serving,
        gpu=scenario.values.gpu or scenario.values.server or "",
        gpus=scenario.values.gpus or 1,
        job=INFERENCE if serving else METHODS[scenario.values.job or lightest_job()].label,
        context=context,
        rows=tuple(reversed(rows)),
        too_large=over,
        smallest_too_large=first_over,
        not_possible=len(refused),
        software=_software(scenario, registry, rows[-1].name, serving) if rows else "",
    )


def _software(scenario: Scenario, registry: Registry, name: str, serving: bool) -> str:
    """The stack of a job, or the engine of a service, as it is chosen for a model."""
    wing = serving_wing() if serving else job_wing(scenario)
    values = wing.resolve(changed(scenario, {"model": name}), registry).values
    return str((values.serve.engine if serving else values.stack) or "")


def _trained(
    scenario: Scenario, registry: Registry, name: str, model: ModelShape, tokens: int
) -> ModelRow | InputError | None:
    """The row of a job; None where it does not fit."""
    usual = {"train.global_batch": GLOBAL_BATCH, "train.steps": 1}
    given, wing = {key: value for key, value in usual.items() if key not in scenario.origin}, job_wing(scenario)

    def size(context: int) -> TrainingEstimate | InputError:
        keys = {**given, "model": name, "train.seq_len": context, "train.padding": "packed"}
        return size_changed(wing, scenario, keys, registry)

    sized = size(tokens)
    if isinstance(sized, InputError):
        return sized
    if not is_likely(sized):
        return None
    longer = [one for one in _contexts(model.max_positions or tokens) if one > tokens]
    last = last_place(lambda place: is_likely(size(longer[place])), len(longer))
    return ModelRow(
        name=name,
        parameters=float(count_parameters(model).total),
        context=tokens if last is None else longer[last],
        peak_bytes=float(round(sized.peak_bytes)),
        usable_bytes=float(round(sized.usable_bytes)),
        fit_probability=round(sized.card_chance, 4),
        tokens_per_s=sized.tokens_per_s,
        layout=build_layout(sized.layouts),
    )


def _served(
    scenario: Scenario, registry: Registry, name: str, model: ModelShape, tokens: int
) -> ModelRow | InputError | None:
    """The row of a service of one request at a time; None where it does not fit."""
    wing = serving_wing()
    load = {"serve.concurrency": 1, "serve.input_tokens": max(tokens - ANSWER_TOKENS, 1)}
    load |= {"serve.output_tokens": min(ANSWER_TOKENS, tokens)}
    stated = scenario.values.serve.weights

    def size(**more: object) -> ServingEstimate | InputError:
        keys = {"model": name, **load, **{f"serve.{key}": value for key, value in more.items()}}
        return size_changed(wing, scenario, keys, registry)

    refused: list[InputError] = []
    resolved = attempt(lambda: wing.resolve(changed(scenario, {"model": name, **load}), registry))
    if isinstance(resolved, InputError):
        return resolved
    formats = (stated,) if stated else resolved.job.engine.offers
    for weights in formats:
        sized = size(weights=weights)
        if isinstance(sized, InputError):
            refused.append(sized)
            continue
        if not sized.roomy:
            continue
        needed_bytes = sized.usable_bytes - sized.headroom_bytes
        if not sized.grows:  # an engine takes all that is left for its pool
            needed_bytes -= sized.pool_bytes - sized.request_bytes
        longest = size(weights=weights, fit="context", input_tokens=None)
        most = tokens
        if not isinstance(longest, InputError):
            found = wing.summarise(longest, False).fit
            most = max(tokens, found.tokens) if found else tokens
        return ModelRow(
            name=name,
            parameters=float(count_parameters(model).total),
            context=most,
            peak_bytes=float(round(needed_bytes)),
            usable_bytes=float(round(sized.usable_bytes)),
            fit_probability=round(sized.fit_probability, 4),
            tokens_per_s=1.0 / sized.tpot_s,
            weights=weights,
        )
    return refused[-1] if len(refused) == len(formats) else None


def _contexts(most: int) -> Iterator[int]:
    """Contexts that are asked about beyond a given one: powers of two, and half-way between them."""
    size = SHORTEST
    while size <= most:
        yield size
        if size * 3 // 2 <= most:
            yield size * 3 // 2
        size *= 2
