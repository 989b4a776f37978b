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
from xe_sizer.reinforcement.resolved import ResolvedReinforcement, settings_of
from xe_sizer.scenario.provenance import (
    Provenance,
    collect,
    gpu_count,
    in_reading_order,
    problem_at,
    relative,
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
    from xe_sizer.scenario.read import Given
    from xe_sizer.scenario.schema import ScenarioFile
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.software.stack import RolloutDefaults, Stack
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


def trainer_scenario(given: Given, settings: Settings, steps: int, padding: str) -> Given:
    """The optimizer steps on all answers of a run: sequences of a prompt with its answer, whose lengths are known.

    Keys that the user did not give count as the stack's own.
    """
    values, asked = given.values, settings.asked
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
    return replace(given, values=replace(values, train=train, data=data, gpus=alone))


def service_scenario(given: Given, settings: Settings, gpus: int | None, utilization: float | None) -> Given:
    """The replicas that write answers, as a service that is tested with all of them at once.

    gpus : of all replicas; None: open
    utilization : share of the card that the engine may use; None: its own
    """
    values, rollout = given.values, given.values.rollout
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
    return replace(given, values=served, origin=_kept(given.origin), locate=_located(given))


def companion_scenario(given: Given, model: str | None, name: str) -> Given:
    """The same training of another model, as a critic is: all of its weights learn."""
    values = given.values if model is None else replace(given.values, model=model)
    where = given.locate

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        named = key_path[:1] == ("model",) and model is not None
        return where(("train", name) if named else key_path, key=key)

    origin = {key: how for key, how in given.origin.items() if not key.startswith("model.")}
    return replace(given, values=values, origin=origin, locate=locate)


def _kept(origin: Mapping[str, str]) -> dict[str, str]:
    """Where keys came from that a service reads as they are."""
    unknown = (*UNKNOWN_TO_SERVICES, "layout", "limits", "serve", "rollout", "gpus", "nodes")
    return {key: how for key, how in origin.items() if key.partition(".")[0] not in unknown}


def _located(given: Given) -> Any:
    """Places of the keys of a service where the scenario has them."""

    def locate(key_path: KeyPath, *, key: bool = False) -> Location:
        name = WRITTEN_AS.get(key_path)
        return given.locate(("rollout", name) if name else key_path, key=key)

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


# Conflicts: what the method or the stack cannot do.


def conflicts(given: Given, method: Rollout, settings: Settings, stack: Stack) -> Iterator[Problem]:
    """Every conflict, each with the place of the key and what to write instead."""
    yield from _answers(given, method, settings)
    yield from _pools(given, stack)
    yield from _batches(given, settings)


def _answers(given: Given, method: Rollout, settings: Settings) -> Iterator[Problem]:
    """Groups that cannot be compared, and answers that are longer than they may be."""
    rollout, job = given.values.rollout, given.values.job
    if settings.asked.group < method.least_group:
        message = f"{job} compares the answers to a prompt, and there is {settings.asked.group}"
        yield problem_at(given, "rollout.group", message, f"give at least {method.least_group}, as {method.group}")
    most = rollout.max_output_tokens
    if most is not None and (rollout.output_tokens or 0) > most:
        message = f"'output_tokens' ({rollout.output_tokens:,.0f}) is above 'max_output_tokens' ({most:,})"
        yield problem_at(given, "rollout.output_tokens", message, "answers are cut there: the mean is after the cut")
    if rollout.verifier_workers is not None and not rollout.verifier_s:
        message = "'verifier_workers' needs 'verifier_s'"
        yield problem_at(given, "rollout.verifier_workers", message, "say how long rating one answer takes")
    seq_len, needed = given.values.train.seq_len, settings.asked.inputs + settings.answers.longest
    if seq_len is not None and seq_len < needed:
        message = f"'seq_len' ({seq_len:,}) cuts prompts with their answers, of up to {needed:,.0f} tokens"
        yield problem_at(given, "train.seq_len", message, "leave it out, or lower rollout.max_output_tokens")


def _pools(given: Given, stack: Stack) -> Iterator[Problem]:
    """GPUs of the pools that contradict each other, and ways to share them that the stack does not have."""
    rollout, gpus = given.values.rollout, given.values.gpus
    if rollout.colocated and rollout.gpus is not None:
        message = "'colocated' answers are written on the GPUs that train, but 'gpus' names others"
        yield problem_at(given, "rollout.gpus", message, "remove one of them")
    if rollout.colocated and rollout.asynchronous:
        message = "colocated answers are written in turn with the training, never 'asynchronous'"
        yield problem_at(given, "rollout.asynchronous", message, "remove one of them")
    if rollout.max_staleness is not None and not rollout.asynchronous:
        message = "'max_staleness' needs 'asynchronous'"
        both = given.caller.setting("rollout.asynchronous", True)
        hint = f"without it training waits for answers of the newest weights: write {both} too, or leave it out"
        yield problem_at(given, "rollout.max_staleness", message, hint)
    if rollout.gpus is not None and gpus is not None and rollout.gpus >= gpus:
        message = f"'gpus' of the rollout ({rollout.gpus}) leave none of the {gpus} to train"
        yield problem_at(
            given, "rollout.gpus", message, "'gpus' counts those of both; give fewer that only write answers"
        )
    if rollout.asynchronous and not stack.rollout.asynchronous:
        message = f"the stack {stack.name} does not write answers while it trains"
        yield problem_at(given, "rollout.asynchronous", message, "leave it out, or choose a stack that does")
    if (rollout.gpus is not None or rollout.colocated is False) and not stack.rollout.apart:
        key = "rollout.gpus" if rollout.gpus is not None else "rollout.colocated"
        yield problem_at(given, key, f"the stack {stack.name} writes answers on the GPUs that train", "leave it out")
    for size in ("tp", "pp"):
        degree = getattr(rollout, size)
        if degree and rollout.gpus and rollout.gpus % degree:
            message = f"{rollout.gpus} GPUs hold no whole replicas of {size} {degree}"
            yield problem_at(given, f"rollout.{size}", message)


def _batches(given: Given, settings: Settings) -> Iterator[Problem]:
    """An optimizer step of more answers than an iteration has."""
    batch, answers = given.values.train.global_batch, settings.trained
    if batch is not None and batch > answers:
        message = f"'global_batch' ({batch:,}) is more than the {answers:,.0f} answers of an iteration"
        yield problem_at(given, "train.global_batch", message, "prompts x group answers are trained on in whole steps")


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
    name = given.values.stack or default_name("stack")
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
    values, origins = _shown(trainer, provenance, iterations)
    told = () if given.values.train.steps or given.values.data.samples else (_assumed(iterations),)
    return replace(
        trainer,
        job=job,
        given=given,
        gpus=gpu_count(provenance, job.server),
        values=values,
        origins=origins,
        warnings=(*told, *_without_effect(given), *trainer.warnings),
        known_samples=given.values.data.samples,
        data_source=_source(settings),
    )


def _shown(trainer: ResolvedTraining, provenance: Provenance, iterations: int) -> tuple[ScenarioFile, dict[str, str]]:
    """The scenario's keys, and where each that counts came from; what was made up for the trainer does not count."""
    given, job = provenance.given, trainer.job
    own = {"train.global_batch": job.global_batch, "train.seq_len": job.seq_len, "train.padding": job.padding}
    own |= _length_of_the_run(given, iterations)
    known = [key for key in trainer.origins if key not in MADE_UP or key in given.origin]
    origins = {key: given.origin.get(key) or trainer.origins.get(key, "default") for key in (*known, *own)}
    origins |= {key: given.origin.get(key, "default") for key in origins if key in OWN}
    origins["train.padding"] = given.origin.get("train.padding", "stack")
    origins |= {key: origin for key, origin in provenance.origins.items() if key.startswith("rollout.")}
    return replace(with_values(trainer.values, own), rollout=provenance.values.rollout), origins


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
