"""A reinforcement-learning scenario resolved: settings of an iteration, both wings, and the models beside the actor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import VALUES
from xe_sizer.laws.device import sixteen_bit
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import default_name
from xe_sizer.reinforcement.conflicts import ENGINE_RULES, RULES, AskedIterations
from xe_sizer.reinforcement.resolved import ResolvedReinforcement, resolve_settings
from xe_sizer.scenario.conflicts import conflicts
from xe_sizer.scenario.provenance import (
    Provenance,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    model_and_server,
    relative,
    with_values,
)
from xe_sizer.scenario.schema import DataSection, Histogram
from xe_sizer.serving.resolve import build_job, engine_on, format_names, published_format, scheme_of
from xe_sizer.software.stack import Objective
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, NONE, PRECOMPUTED, REFERENCE
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.workload import DEFAULT_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.reinforcement.resolved import Settings
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import RolloutSection, ScenarioFile
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme
    from xe_sizer.software.stack import RolloutDefaults
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Rollout
    from xe_sizer.training.resolved import ResolvedTraining

# What both wings are asked: the trainer keys of the scenario, of which an iteration sets some; the engine a job.

SCALE = 1_000_000  # answers by which shares of lengths become counts


def trained_values(values: ScenarioFile, settings: Settings, steps: int, padding: str) -> ScenarioFile:
    """The optimizer steps on all answers of a run: sequences of a prompt with its answer, whose lengths are known."""
    asked, train = settings.asked, values.train
    lengths = [max(round(asked.inputs + tokens), 1) for tokens in asked.answers.lengths.tolist()]
    counts = [float(share) * SCALE for share in asked.answers.probabilities]
    alone = values.gpus
    if settings.colocated is False and values.gpus is not None:
        alone = None if settings.gpus is None else max(values.gpus - settings.gpus, 1)
    return replace(
        values,
        gpus=alone,
        train=replace(
            train,
            steps=steps,
            epochs=None,
            seq_len=train.seq_len or lengths[-1],
            global_batch=train.global_batch or (None if train.grad_accum else max(round(settings.trained), 1)),
            padding=train.padding if train.padding not in (None, "packed") else padding,
        ),
        data=DataSection(
            samples=max(round(settings.trained * steps), 1),  # the longest of all counts
            histogram=Histogram(lengths=tuple(lengths), counts=tuple(counts)),
        ),
    )


def engine_job(
    scenario: Scenario, settings: Settings, model: ModelShape, server: Server, engine: Engine, formats: Scheme
) -> ServingJob:
    """The engine that writes the answers, with the model that learns.

    It runs as a library of the trainer, see `beside_a_trainer`.
    """
    mean = settings.asked.inputs + max(settings.answers.mean, 1.0)
    return beside_a_trainer(
        build_job(
            model, server, engine, formats, efficiency_of(scenario), max(model.max_positions or 0, mean),
            settings.asked_share, max_sequences=settings.max_sequences,
        ),
        settings.defaults,
    )  # fmt: skip


def replica_sizes(rollout: RolloutSection) -> dict[str, int]:
    """Sizes of a replica that the user chose; ranks of experts beyond the tensor ranks serve sequences of their own."""
    groups = None if rollout.tp is None else max((rollout.ep or 1) // rollout.tp, 1)
    sizes = {"tp": rollout.tp, "pp": rollout.pp, "ep": rollout.ep, "dp": groups}
    return {name: size for name, size in sizes.items() if size is not None}


def _formats(scenario: Scenario, engine: Engine, model: ModelShape | None, server: Server) -> Scheme:
    """Formats in which the answers are written."""
    rollout, precision = scenario.values.rollout, scenario.values.precision
    peaks = server.accelerator.peak_flops_per_s
    published = published_format(scenario, model, "rollout.weights") if model and precision is None else None
    wide = precision or sixteen_bit(peaks)
    names = format_names(engine, peaks, wide, published, weights=rollout.weights, cache=rollout.kv_cache)
    return scheme_of(engine, peaks, **names)


EAGER_LAUNCH_US = 19.1  # of a kernel that Python starts; fitted: Hugging Face generate, vLLM before 0.3


def beside_a_trainer(job: ServingJob, defaults: RolloutDefaults) -> ServingJob:
    """The engine as a library of a trainer, whose host does more in each step than that of a service.

        step = step of a service + step_ms + sequence_us x running answers

    Decode steps that no graph replays start each kernel from Python. The trainer's own weights are
    written with as they are.

    Source: vLLM in the process of its caller (VLLM_ENABLE_V1_MULTIPROCESSING=0): tokens become words, and
    log-probabilities Python objects, between the steps; ranks of one replica are called through Ray (NeMo RL
    vllm_worker.py, verl).
    """
    if job.engine.memory.grows:
        return job
    host, memory = job.engine.host, job.engine.memory
    host = msgspec.structs.replace(
        host, step_ms=host.step_ms + defaults.step_ms, sequence_us=host.sequence_us + defaults.sequence_us
    )
    if host.graphs and not defaults.graphs:
        host = msgspec.structs.replace(host, graphs=(), launch_us=max(host.launch_us, EAGER_LAUNCH_US))
        memory = msgspec.structs.replace(memory, graphs_gib=0.0)
    return replace(job, engine=msgspec.structs.replace(job.engine, host=host, memory=memory))


MADE_UP = {"data.histogram", "data.samples", "train.steps", "train.padding", "train.seq_len", "train.global_batch"}
"""Keys that the trainer is told of an iteration, whatever the scenario says."""
OWN = ("train.steps", "train.epochs", "train.global_batch", "train.seq_len")
"""Keys of the scenario that nobody but the user sets."""
NO_MODEL = "none"
"""Word for a reward model where a verifier rates answers."""


def resolve(scenario: Scenario, registry: Registry) -> ResolvedReinforcement:
    """Everything that sizing an iteration needs.

    Raises
    ------
    InputError : every unknown name, and every contradiction with model, hardware, stack or engine
    """
    method = METHODS[scenario.values.job or ""].rollout
    assert method is not None
    problems: list[Problem] = []
    provenance = Provenance(scenario, registry)
    name = scenario.values.stack or default_name("stack")
    stack = collect(
        problems, load_stack, relative(scenario, "stack", name), partial(scenario.locate, ("stack",)), registry
    )
    if stack is None:  # what else the training has against the scenario is said too
        collect(problems, resolve_training, scenario, registry)
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    settings = resolve_settings(provenance, method, stack.rollout)
    problems += conflicts(AskedIterations(scenario, None, None, method, settings, stack, None), RULES)
    iterations = _iterations(scenario, settings)
    trained = replace(scenario, values=trained_values(scenario.values, settings, iterations, stack.rollout.padding))
    trainer = collect(problems, resolve_training, trained, registry)
    model, server = model_and_server(problems, scenario, registry, provenance)
    name, where = relative(scenario, "rollout.engine", settings.engine), partial(scenario.locate, ("rollout", "engine"))
    engine = collect(problems, engine_on, server, name, where, registry)
    formats = collect(problems, _formats, scenario, engine, model, server) if engine and server else None
    problems += conflicts(AskedIterations(scenario, model, server, method, settings, stack, formats), ENGINE_RULES)
    reference = collect(problems, _reference, scenario, trainer, settings, method) if trainer else None
    critic = collect(problems, _critic, trained, registry) if method.critic and trainer else None
    reward = collect(problems, _reward, scenario, registry, method, trainer.job.model) if trainer else None
    if problems or not (trainer and model and server and engine and formats):
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    writer = engine_job(scenario, settings, model, server, engine, formats)
    steps = max(math.ceil(settings.trained / trainer.job.global_batch - 1e-9), 1) * settings.updates
    beside = [one for one in (reference, reward) if one is not None]
    if engine.memory.grows:  # the trainer's own weights write, beside all that it has on the card
        provenance.drop("rollout.gpu_memory_utilization")
    return ResolvedReinforcement(
        trainer=_run(trainer, settings, provenance, iterations, steps, beside),
        writer=writer,
        replica_sizes=replica_sizes(scenario.values.rollout),
        settings=settings,
        critic=critic,
        reference=reference,
        reward=reward,
        iterations=iterations,
        steps=steps,
        ways=_ways(settings),
    )


def _iterations(scenario: Scenario, settings: Settings) -> int:
    """Iterations of the run: as given, or as passes over the prompts make them."""
    values = scenario.values
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
    scenario = provenance.scenario
    values, origins = _shown(trainer, provenance, iterations)
    told = () if scenario.values.train.steps or scenario.values.data.samples else (_assumed(iterations),)
    return replace(
        trainer,
        job=job,
        scenario=scenario,
        gpus=gpu_count(provenance, job.server),
        values=values,
        origins=origins,
        warnings=(*told, *_without_effect(scenario), *trainer.warnings),
        known_samples=scenario.values.data.samples,
        data_source=_source(settings),
    )


def _shown(trainer: ResolvedTraining, provenance: Provenance, iterations: int) -> tuple[ScenarioFile, dict[str, str]]:
    """The scenario's keys, and where each that counts came from; what was made up for the trainer does not count."""
    scenario, job = provenance.scenario, trainer.job
    own = {"train.global_batch": job.global_batch, "train.seq_len": job.seq_len, "train.padding": job.padding}
    own |= _length_of_the_run(scenario, iterations)
    known = [key for key in trainer.origins if key not in MADE_UP or key in scenario.origin]
    origins = {key: scenario.origin.get(key) or trainer.origins.get(key, "default") for key in (*known, *own)}
    origins |= {key: scenario.origin.get(key, "default") for key in origins if key in OWN}
    origins["train.padding"] = scenario.origin.get("train.padding", "stack")
    origins |= {key: origin for key, origin in provenance.origins.items() if key.startswith("rollout.")}
    return replace(with_values(trainer.values, own), rollout=provenance.values.rollout), origins


def _length_of_the_run(scenario: Scenario, iterations: int) -> dict[str, object]:
    """Keys that say how long the run is: passes over the prompts where their number is known, else iterations."""
    prompts = scenario.values.data.samples
    known: dict[str, object] = {} if prompts is None else {"data.samples": prompts}
    if prompts is None or scenario.values.train.steps is not None:
        return {**known, "train.steps": iterations}
    return {**known, "train.epochs": scenario.values.train.epochs or 1.0}


def _without_effect(scenario: Scenario) -> Iterator[str]:
    """Lengths of a data set, where the rollout says how long prompts and answers are."""
    keys = sorted(key for key in scenario.origin if key.startswith("data.") and key != "data.samples")
    if keys:
        named = ", ".join(scenario.caller.setting(key) for key in keys)
        own = [scenario.caller.setting(f"rollout.{name}") for name in ("input_tokens", "output_tokens")]
        yield f"without effect here: {named}; {own[0]} and {own[1]} say how long prompts and answers are"


def _assumed(iterations: int) -> str:
    return f"neither the iterations nor the number of prompts is given: {iterations:,} iterations assumed"


def _source(settings: Settings) -> str:
    """How lengths came about, in words."""
    asked = settings.asked
    return f"prompts of {asked.inputs:,.0f} tokens, answers log-normal, cut at {settings.max_output_tokens:,.0f} tokens"


def _reference(scenario: Scenario, trainer: ResolvedTraining, settings: Settings, method: Rollout) -> Frozen | None:
    """The model that answers may not stray from: a copy, or the model's own weights without its adapters.

    Methods with a critic have one; others as the stack does, since recipes after DAPO have none.
    """
    asked = scenario.values.train.reference
    adapted = trainer.job.method.adapter is not None
    if not method.ratios:
        return None
    usual = COPY if method.critic else settings.defaults.reference
    chosen = asked or (ADAPTERS_OFF if adapted and usual == COPY else usual)
    if chosen == NONE:
        return None
    if chosen == PRECOMPUTED or (chosen == ADAPTERS_OFF and not adapted):
        message = "answers are new in every iteration" if chosen == PRECOMPUTED else "there are no adapters to be off"
        where = scenario.locate(("train", "reference"))
        raise InputError(Problem(f"{message}: the reference cannot be '{chosen}'", where, f"'{COPY}' is another way"))
    return Frozen(REFERENCE, copies=int(chosen == COPY))


def _critic(trained: Scenario, registry: Registry) -> Job:
    """The training of the critic: the same sequences, and a head of one value. Raises InputError."""
    asked = trained.values.train.critic_model
    if asked is not None:
        path = relative(trained, "train.critic_model", asked)
        registry.model(path, partial(trained.locate, ("train", "critic_model")))  # one that nobody knows is said there
        origin = {**trained.origin, "model": "flag"}  # its path starts where that of the critic does
        trained = replace(trained, values=replace(trained.values, model=path), origin=origin)
    job = resolve_training(trained, registry).job
    return replace(job, model=job.model.headed(VALUES))


def _reward(scenario: Scenario, registry: Registry, method: Rollout, own: ModelShape) -> Frozen | None:
    """The model that rates answers: as given, else the model's own shape for methods that need one."""
    asked = scenario.values.train.reward_model
    if asked == NO_MODEL or (asked is None and (not method.rated or scenario.values.rollout.verifier_s is not None)):
        return None
    if asked is None:
        return Frozen("reward model", model=own.headed(VALUES), reads=Objective.NEXT_TOKEN)
    path, where = relative(scenario, "train.reward_model", asked), partial(scenario.locate, ("train", "reward_model"))
    shape = registry.model(path, where).headed(VALUES)
    return Frozen("reward model", model=shape, reads=Objective.NEXT_TOKEN)
