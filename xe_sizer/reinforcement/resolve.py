"""A reinforcement-learning scenario resolved: settings of an iteration, both wings, and the models beside the actor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import VALUES
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import default_name
from xe_sizer.reinforcement.conflicts import RULES, AskedRollout
from xe_sizer.reinforcement.resolved import ResolvedReinforcement, settings_of
from xe_sizer.scenario.conflicts import conflicts
from xe_sizer.scenario.provenance import (
    Provenance,
    collect,
    gpu_count,
    in_reading_order,
    relative,
    with_further,
    with_values,
)
from xe_sizer.scenario.schema import (
    DataSection,
    Histogram,
    LayoutSection,
    LimitsSection,
    LoraSection,
    ServeSection,
    TrainSection,
)
from xe_sizer.serving.resolve import BENCHMARK
from xe_sizer.serving.resolve import resolve as resolve_service
from xe_sizer.software.stack import Objective
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, NONE, PRECOMPUTED, REFERENCE
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.workload import DEFAULT_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xe_sizer.errors import Location
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.reinforcement.resolved import Settings
    from xe_sizer.scenario.read import Scenario
    from xe_sizer.scenario.schema import ScenarioFile
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.software.stack import RolloutDefaults
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Rollout
    from xe_sizer.training.resolved import ResolvedTraining

# Scenarios of both wings: one of training, and one of a service.

SCALE = 1_000_000  # answers by which shares of lengths become counts
WRITTEN_AS: Mapping[tuple[str | int, ...], str] = {
    ("serve", "input_tokens"): "input_tokens",
    ("serve", "output_tokens"): "output_tokens",
    **{("serve", name): name for name in ("engine", "weights", "kv_cache", "gpu_memory_utilization", "max_sequences")},
    **{("layout", name): name for name in ("tp", "pp", "ep")},
}  # keys of a service that a scenario has in its section `rollout`
UNKNOWN_TO_SERVICES = ("data", "train", "storage", "lora", "p_tuning")


def trainer_scenario(scenario: Scenario, settings: Settings, steps: int, padding: str) -> Scenario:
    """The optimizer steps on all answers of a run: sequences of a prompt with its answer, whose lengths are known.

    Keys that the user did not give count as the stack's own.
    """
    values, asked = scenario.values, settings.asked
    lengths = [max(round(asked.inputs + tokens), 1) for tokens in asked.answers.lengths.tolist()]
    counts = [float(share) * SCALE for share in asked.answers.probabilities]
    longest = lengths[-1]
    batch = values.train.global_batch or (None if values.train.grad_accum else max(round(settings.trained), 1))
    train = replace(
        values.train,
        steps=steps,
        epochs=None,
        seq_len=values.train.seq_len or longest,
        global_batch=batch,
        padding=values.train.padding if values.train.padding not in (None, "packed") else padding,
    )
    alone = values.gpus
    if settings.colocated is False and values.gpus is not None:
        alone = None if settings.gpus is None else max(values.gpus - settings.gpus, 1)
    found = Histogram(lengths=tuple(lengths), counts=tuple(counts))
    data = DataSection(samples=max(round(settings.trained * steps), 1), histogram=found)  # the longest of all counts
    return replace(scenario, values=replace(values, train=train, data=data, gpus=alone))


def service_scenario(scenario: Scenario, settings: Settings, gpus: int | None, utilization: float | None) -> Scenario:
    """The replicas that write answers, as a service that is tested with all of them at once.

    gpus : of all replicas; None: open
    utilization : share of the card that the engine may use; None: its own
    """
    values, rollout = scenario.values, scenario.values.rollout
    serve = ServeSection(
        engine=settings.engine,
        requests=max(round(settings.asked.count), 1),
        input_tokens=settings.asked.inputs,
        output_tokens=max(settings.answers.mean, 1.0),
        max_model_len=None,
        gpu_memory_utilization=utilization,
        weights=rollout.weights,
        kv_cache=rollout.kv_cache,
        max_sequences=settings.max_sequences,
    )
    # Ranks of experts beyond the tensor ranks serve sequences of their own.
    groups = None if rollout.tp is None else max((rollout.ep or 1) // rollout.tp, 1)
    empty: dict[str, Any] = {"train": TrainSection(), "data": DataSection(), "lora": LoraSection()}
    served = replace(
        values, **empty, serve=serve, job=None, stack=None, gpus=gpus, nodes=None, limits=LimitsSection(),
        layout=LayoutSection(tp=rollout.tp, pp=rollout.pp, ep=rollout.ep, dp=groups),
    )  # fmt: skip
    return replace(scenario, values=served, origin=_kept(scenario.origin), locate=_located(scenario))


def companion_scenario(scenario: Scenario, model: str | None, name: str) -> Scenario:
    """The same training of another model, as a critic is: all of its weights learn."""
    values = scenario.values if model is None else replace(scenario.values, model=model)
    where = scenario.locate

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        named = key_path[:1] == ("model",) and model is not None
        return where(("train", name) if named else key_path, key=key)

    origin = {key: how for key, how in scenario.origin.items() if not key.startswith("model.")}
    return replace(scenario, values=values, origin=origin, locate=locate)


def _kept(origin: Mapping[str, str]) -> dict[str, str]:
    """Where keys came from that a service reads as they are."""
    unknown = (*UNKNOWN_TO_SERVICES, "layout", "limits", "serve", "rollout", "gpus", "nodes")
    return {key: how for key, how in origin.items() if key.partition(".")[0] not in unknown}


def _located(scenario: Scenario) -> Any:
    """Places of the keys of a service where the scenario has them."""

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        name = WRITTEN_AS.get(key_path)
        return scenario.locate(("rollout", name) if name else key_path, key=key)

    return locate


# The engine as a library of the trainer.

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
        host = msgspec.structs.replace(host, graphs=False, launch_us=max(host.launch_us, EAGER_LAUNCH_US))
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
    if stack is None:
        raise InputError(_with_training(problems, scenario, registry))
    settings = settings_of(provenance, method, stack.rollout)
    problems += conflicts(AskedRollout(scenario, method, settings, stack), RULES)
    iterations = _iterations(scenario, settings)
    padding = stack.rollout.padding
    trained = trainer_scenario(scenario, settings, iterations, padding)
    trainer = collect(problems, resolve_training, trained, registry)
    service = collect(
        problems, resolve_service, service_scenario(scenario, settings, None, settings.asked_share), registry, BENCHMARK
    )
    reference = collect(problems, _reference, scenario, trainer, settings, method) if trainer else None
    critic = collect(problems, _critic, trained, registry) if method.critic and trainer else None
    reward = collect(problems, _reward, scenario, registry, method, trainer.job.model) if trainer else None
    if problems or trainer is None or service is None:
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    steps = max(math.ceil(settings.trained / trainer.job.global_batch - 1e-9), 1) * settings.updates
    service = replace(service, job=beside_a_trainer(service.job, stack.rollout))
    beside = [one for one in (reference, reward) if one is not None]
    if service.job.engine.memory.grows:  # the trainer's own weights write, beside all that it has on the card
        provenance.drop("rollout.gpu_memory_utilization")
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


def with_further_problems(problems: Iterable[Problem], rest: Scenario, registry: Registry) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and stack have against the rest of it."""
    return with_further(problems, rest, resolve, registry)


def _with_training(problems: list[Problem], scenario: Scenario, registry: Registry) -> list[Problem]:
    """The problems of names, with what else the training has against the scenario."""
    collect(problems, resolve_training, scenario, registry)
    return in_reading_order(dict.fromkeys(problems), scenario)


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
    """The training of the critic: the same sequences, and a head of one value."""
    asked = trained.values.train.critic_model
    job = resolve_training(companion_scenario(trained, asked, "critic_model"), registry).job
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
