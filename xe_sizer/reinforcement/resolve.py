"""A reinforcement-learning scenario resolved: settings of an iteration, both wings, and the models beside the actor."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import VALUES
from xe_sizer.reinforcement.conflicts import conflicts
from xe_sizer.reinforcement.resolved import ResolvedReinforcement
from xe_sizer.reinforcement.rollout import beside_a_trainer
from xe_sizer.reinforcement.scenarios import companion_scenario, service_scenario, trainer_scenario
from xe_sizer.reinforcement.settings import settings_of
from xe_sizer.scenario.provenance import Provenance, collect, gpu_count, in_reading_order, relative, with_further
from xe_sizer.serving.resolve import BENCHMARK
from xe_sizer.serving.resolve import resolve as resolve_service
from xe_sizer.software.stack import Objective, default_stack, load_stack
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, NONE, PRECOMPUTED, REFERENCE
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.workload import DEFAULT_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.reinforcement.settings import Settings
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Rollout
    from xe_sizer.training.resolved import ResolvedTraining

MADE_UP = {"data.histogram", "data.samples", "train.steps", "train.padding", "train.seq_len", "train.global_batch"}
"""Keys that the trainer is told of an iteration, whatever the scenario says."""
OWN = ("train.steps", "train.epochs", "train.global_batch", "train.seq_len")
"""Keys of the scenario that nobody but the user sets."""
NO_MODEL = "none"
"""Word for a reward model where a verifier rates answers."""


def resolve(given: Given, registry: Registry) -> ResolvedReinforcement:
    """Everything that sizing an iteration needs.

    Raises
    ------
    InputError : every unknown name, and every contradiction with model, hardware, stack or engine
    """
    method = METHODS[given.values.job or ""].rollout
    assert method is not None
    problems: list[Problem] = []
    provenance = Provenance(given, registry)
    name = given.values.stack or default_stack()
    stack = collect(problems, load_stack, relative(given, "stack", name), partial(given.locate, ("stack",)), registry)
    if stack is None:
        raise InputError(_with_training(problems, given, registry))
    settings = settings_of(provenance, method, stack.rollout)
    problems += conflicts(given, method, settings, stack)
    iterations = _iterations(given, settings)
    padding = stack.rollout.padding
    trained = trainer_scenario(given, settings, iterations, padding)
    trainer = collect(problems, resolve_training, trained, registry)
    service = collect(
        problems, resolve_service, service_scenario(given, settings, None, settings.asked_share), registry, BENCHMARK
    )
    reference = collect(problems, _reference, given, trainer, settings, method) if trainer else None
    critic = collect(problems, _critic, trained, registry) if method.critic and trainer else None
    reward = collect(problems, _reward, given, registry, method, trainer.job.model) if trainer else None
    if problems or trainer is None or service is None:
        raise InputError(in_reading_order(dict.fromkeys(problems), given))
    steps = max(math.ceil(settings.trained / trainer.job.global_batch - 1e-9), 1) * settings.updates
    service = replace(service, job=beside_a_trainer(service.job, stack.rollout))
    beside = [one for one in (reference, reward) if one is not None]
    if service.job.engine.memory.grows:  # the trainer's own weights write, beside all that it has on the card
        provenance.values.pop("rollout.gpu_memory_utilization", None)
    return ResolvedReinforcement(
        trainer=_run(trainer, settings, provenance, iterations, steps, beside),
        service=service,
        settings=settings,
        critic=critic,
        reference=reference,
        reward=reward,
        iterations=iterations,
        steps=steps,
        ways=_ways(settings),
    )


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and stack have against the rest of it."""
    return with_further(problems, rest, resolve, registry)


def _with_training(problems: list[Problem], given: Given, registry: Registry) -> list[Problem]:
    """The problems of names, with what else the training has against the scenario."""
    collect(problems, resolve_training, given, registry)
    return in_reading_order(dict.fromkeys(problems), given)


def _iterations(given: Given, settings: Settings) -> int:
    """Iterations of the run: as given, or as passes over the prompts make them."""
    values = given.values
    if values.train.steps is not None:
        return int(values.train.steps)
    prompts = values.data.samples
    if prompts is None:
        return DEFAULT_STEPS
    each = settings.asked.prompts * settings.kept
    return max(math.ceil((values.train.epochs or 1.0) * prompts / each), 1)


def _ways(settings: Settings) -> tuple[bool, ...]:
    """Ways to share the GPUs: as asked for, else what the stack does, its usual way first."""
    if settings.colocated is not None:
        return (settings.colocated,)
    defaults = settings.defaults
    others = (False,) if defaults.colocated and defaults.apart else (True,) if not defaults.colocated else ()
    return (defaults.colocated, *others)


def _run(
    trainer: ResolvedTraining, settings: Settings, provenance: Provenance, iterations: int, steps: int,
    beside: Iterable[Frozen],
) -> ResolvedTraining:  # fmt: skip
    """The trainer with the steps of all iterations, the models beside the actor, and the scenario's own keys."""
    held = 0 if settings.frozen_offload else 1
    copies = tuple(replace(one, copies=one.copies * held, forwards=0) for one in beside)
    own = trainer.job.method
    job = replace(trainer.job, method=replace(own, frozen=(*own.frozen, *copies)), steps=iterations * steps)
    given = provenance.given
    values, origin = _shown(trainer, provenance, iterations)
    told = () if given.values.train.steps or given.values.data.samples else (_assumed(iterations),)
    return replace(
        trainer,
        job=job,
        given=given,
        gpus=gpu_count(provenance, job.server),
        values=values,
        origin=origin,
        warnings=(*told, *_without_effect(given), *trainer.warnings),
        known_samples=given.values.data.samples,
        data_source=_source(settings),
    )


def _shown(
    trainer: ResolvedTraining, provenance: Provenance, iterations: int
) -> tuple[dict[str, object], dict[str, str]]:
    """Values of the scenario's keys, and where each came from; what was made up for the trainer is none of them."""
    given, job = provenance.given, trainer.job
    values = {key: value for key, value in trainer.values.items() if key not in MADE_UP or key in given.origin}
    values |= {"train.global_batch": job.global_batch, "train.seq_len": job.seq_len, "train.padding": job.padding}
    values |= _length_of_the_run(given, iterations)
    rollout = {key: value for key, value in provenance.values.items() if key.startswith("rollout.")}
    origin = {key: given.origin.get(key) or trainer.origin.get(key, "default") for key in values}
    own = {key: given.origin.get(key, "default") for key in values if key in OWN}
    padding = given.origin.get("train.padding", "stack")
    origin |= {**own, "train.padding": padding, **{key: provenance.origin[key] for key in rollout}}
    return values | rollout, origin


def _length_of_the_run(given: Given, iterations: int) -> dict[str, object]:
    """Keys that say how long the run is: passes over the prompts where their number is known, else iterations."""
    prompts = given.values.data.samples
    known: dict[str, object] = {} if prompts is None else {"data.samples": prompts}
    if prompts is None or given.values.train.steps is not None:
        return {**known, "train.steps": iterations}
    return {**known, "train.epochs": given.values.train.epochs or 1.0}


def _without_effect(given: Given) -> Iterator[str]:
    """Lengths of a data set, where the rollout says how long prompts and answers are."""
    keys = sorted(key for key in given.origin if key.startswith("data.") and key != "data.samples")
    if keys:
        named = ", ".join(given.caller.setting(key) for key in keys)
        own = [given.caller.setting(f"rollout.{name}") for name in ("input_tokens", "output_tokens")]
        yield f"without effect here: {named}; {own[0]} and {own[1]} say how long prompts and answers are"


def _assumed(iterations: int) -> str:
    return f"neither the iterations nor the number of prompts is given: {iterations:,} iterations assumed"


def _source(settings: Settings) -> str:
    """How lengths came about, in words."""
    asked = settings.asked
    return f"prompts of {asked.inputs:,.0f} tokens, answers log-normal, cut at {settings.max_output_tokens:,.0f} tokens"


def _reference(given: Given, trainer: ResolvedTraining, settings: Settings, method: Rollout) -> Frozen | None:
    """The model that answers may not stray from: a copy, or the model's own weights without its adapters.

    Methods with a critic have one; others as the stack does, since recipes after DAPO have none.
    """
    asked = given.values.train.reference
    adapted = trainer.job.method.adapter is not None
    if not method.ratios:
        return None
    usual = COPY if method.critic else settings.defaults.reference
    chosen = asked or (ADAPTERS_OFF if adapted and usual == COPY else usual)
    if chosen == NONE:
        return None
    if chosen == PRECOMPUTED or (chosen == ADAPTERS_OFF and not adapted):
        message = "answers are new in every iteration" if chosen == PRECOMPUTED else "there are no adapters to be off"
        where = given.locate(("train", "reference"))
        raise InputError(Problem(f"{message}: the reference cannot be '{chosen}'", where, f"'{COPY}' is another way"))
    return Frozen(REFERENCE, copies=int(chosen == COPY))


def _critic(trained: Given, registry: Registry) -> Job:
    """The training of the critic: the same sequences, and a head of one value."""
    asked = trained.values.train.critic_model
    job = resolve_training(companion_scenario(trained, asked, "critic_model"), registry).job
    return replace(job, model=job.model.headed(VALUES))


def _reward(given: Given, registry: Registry, method: Rollout, own: ModelShape) -> Frozen | None:
    """The model that rates answers: as given, else the model's own shape for methods that need one."""
    asked = given.values.train.reward_model
    if asked == NO_MODEL or (asked is None and (not method.rated or given.values.rollout.verifier_s is not None)):
        return None
    if asked is None:
        return Frozen("reward model", model=own.headed(VALUES), reads=Objective.NEXT_TOKEN)
    path, where = relative(given, "train.reward_model", asked), partial(given.locate, ("train", "reward_model"))
    shape = registry.model(path, where).headed(VALUES)
    return Frozen("reward model", model=shape, reads=Objective.NEXT_TOKEN)
