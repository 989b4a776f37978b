"""A reinforcement-learning scenario resolved: settings of an iteration, both wings, and the models beside the actor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import VALUES
from xe_sizer.laws.device import sixteen_bit
from xe_sizer.profiles.catalogue import default_engine
from xe_sizer.reinforcement.answers import Asked, constant_answers, cut_answers
from xe_sizer.reinforcement.conflicts import ENGINE_RULES, MODEL_RULES, RULES, AskedIterations, AskedModels
from xe_sizer.reinforcement.iteration import TEACHER_PASS, critic_pass, reference_pass, reward_pass
from xe_sizer.reinforcement.resolved import (
    CUT_AT,
    DEFAULT_SPREAD,
    Apart,
    ResolvedReinforcement,
    resolve_settings,
)
from xe_sizer.scenario.conflicts import conflicts
from xe_sizer.scenario.provenance import (
    Provenance,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    model_and_server,
    relative,
)
from xe_sizer.serving.resolve import build_job, engine_on, format_names, published_format, scheme_of
from xe_sizer.software.host import host_slowdown
from xe_sizer.software.stack import POOLS, Objective
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, NONE, PRECOMPUTED, REFERENCE, TEACHER
from xe_sizer.training.padding import PACKED
from xe_sizer.training.resolve import find_optimizer, find_setup, find_stack, resolve_batch, resolve_setup
from xe_sizer.training.token_lengths import histogram_lengths
from xe_sizer.training.workload import DEFAULT_STEPS, Workload, assumes_batch, cut_samples, known_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.reinforcement.resolved import Settings
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import (
        CriticSection,
        ReferenceSection,
        RewardSection,
        RolloutSection,
        TeacherSection,
    )
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.stack import RolloutDefaults
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Method, Rollout
    from xe_sizer.training.resolve import Setup
    from xe_sizer.training.resolved import ResolvedTraining

# What both wings are asked: a training whose data are the answers, and an engine.


def iteration_work(
    provenance: Provenance, setup: Setup, settings: Settings, iterations: int, batch: int, prompts: int | None
) -> Workload:
    """The optimizer steps on all answers of a run: sequences of a prompt with its answer, whose lengths are known."""
    scenario, asked = provenance.scenario, settings.asked
    lengths = histogram_lengths(
        np.maximum(np.round(asked.read + asked.answers.lengths), 1.0), asked.answers.probabilities
    )
    seq_len = int(provenance.resolve_default("train.seq_len", int(lengths.longest)))
    padding = scenario.values.train.padding
    if padding in (None, PACKED):
        padding = setup.stack.rollout.padding
    provenance.note("train.padding", padding, scenario.origin.get("train.padding", "stack"))
    _note_length_of_the_run(provenance, iterations, prompts)
    return Workload(
        lengths=lengths,
        samples=float(max(round(settings.trained * iterations), 1)),
        known_samples=prompts,
        seq_len=seq_len,
        padding=padding,
        global_batch=batch,
        steps=iterations * int(settings.steps(batch)),
        defaults={},
        warnings=(
            *_assumed(scenario, iterations, prompts),
            *_without_effect(scenario),
            *cut_samples(lengths, seq_len, padding),
        ),
        source=_source(settings),
    )


def _note_length_of_the_run(provenance: Provenance, iterations: int, prompts: int | None) -> None:
    """Note how long the run is: passes over the prompts where their number is known, else iterations."""
    values = provenance.scenario.values
    if prompts is not None:
        provenance.resolve_default("data.samples", prompts, "data set")
    if prompts is None or values.train.steps is not None:
        provenance.resolve_default("train.steps", iterations)
    else:
        provenance.resolve_default("train.epochs", 1.0)


def engine_job(
    scenario: Scenario, settings: Settings, model: ModelShape, server: Server, engine: Engine, formats: Scheme
) -> ServingJob:
    """The engine that writes the answers, with the model that learns.

    It runs as a library of the trainer, see `beside_a_trainer`.
    """
    mean = settings.asked.read + max(settings.answers.mean, 1.0)
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
    generation = server.accelerator.generation
    names = format_names(engine, generation, peaks, wide, published, weights=rollout.weights, cache=rollout.kv_cache)
    return scheme_of(engine, peaks, **names)


EAGER_LAUNCH_US = 19.1  # of a kernel that Python starts; fitted: Hugging Face generate, vLLM before 0.3


def beside_a_trainer(job: ServingJob, defaults: RolloutDefaults) -> ServingJob:
    """The engine as a library of a trainer, whose host does more in each step than that of a service.

        step = step of a service + (step_ms + sequence_us x running answers) x slowdown of the host

    Decode steps that no graph replays start each kernel from Python. Steps overlap where the engine's do beside a
    trainer. The trainer's own weights are written with as they are.

    Source: vLLM in the process of its caller (VLLM_ENABLE_V1_MULTIPROCESSING=0): tokens become words, and
    log-probabilities Python objects, between the steps; ranks of one replica are called through Ray (NeMo RL
    vllm_worker.py, verl).
    """
    if job.engine.memory.grows:
        return job
    host, memory = job.engine.host, job.engine.memory
    slower = host_slowdown(job.server.accelerator)  # the engine's own times are those of the host at hand already
    host = msgspec.structs.replace(
        host,
        step_ms=host.step_ms + defaults.step_ms * slower,
        sequence_us=host.sequence_us + defaults.sequence_us * slower,
    )
    if host.graphs and not defaults.graphs:
        host = msgspec.structs.replace(host, graphs=(), launch_us=max(host.launch_us, EAGER_LAUNCH_US * slower))
        memory = msgspec.structs.replace(memory, graphs_gib=0.0)
    batching = job.engine.batching
    overlaps = batching.overlaps and batching.overlaps_beside_trainers
    batching = msgspec.structs.replace(batching, overlaps=overlaps)
    return replace(job, engine=msgspec.structs.replace(job.engine, host=host, memory=memory, batching=batching))


NO_MODEL = "none"
"""Word for a reward model where a verifier rates answers."""


def resolve(scenario: Scenario, registry: Registry, replicas: int | None = None) -> ResolvedReinforcement:
    """Everything that sizing an iteration needs.

    replicas : those that make the global batch, where it follows the layout

    Raises
    ------
    InputError : every unknown name, and every contradiction with model, hardware, stack or engine
    """
    method = METHODS[scenario.values.job or ""].rollout
    assert method is not None
    problems: list[Problem] = []
    provenance = Provenance(scenario, registry)
    model, server = model_and_server(problems, scenario, registry, provenance)
    stack = collect(problems, find_stack, scenario, registry, provenance)
    own = list[Problem]()
    if stack is None:  # what else the training has against the scenario is said too
        find_setup(provenance, registry, problems, model, server, stack)
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    settings = resolve_settings(provenance, method, stack.rollout).beside(server)
    problems += conflicts(AskedIterations(scenario, None, None, method, settings, stack), RULES)
    roles = {name: getattr(scenario.values, name) for name in POOLS if has_own_gpus(scenario, name)}
    others = [settings.gpus if settings.colocated is False else 0, *(_own_gpus(one) for one in roles.values())]
    beside = None if None in others else sum(one for one in others if one is not None)
    setup = find_setup(provenance, registry, own, model, server, stack, beside)
    problems += own
    name, where = relative(scenario, "rollout.engine", settings.engine), partial(scenario.locate, ("rollout", "engine"))
    engine = collect(problems, engine_on, server, name, where, registry)
    formats = collect(problems, _formats, scenario, engine, model, server) if engine and server else None
    asked = AskedIterations(scenario, model, server, method, settings, stack, engine, formats)
    problems += conflicts(asked, ENGINE_RULES)
    optimizer = collect(problems, find_optimizer, scenario, registry, setup.stack) if setup else None
    if setup is None or optimizer is None:
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    batch, at_replicas = _batch(provenance, setup, settings, registry, replicas)
    prompts = collect(problems, _known_prompts, scenario, registry)
    iterations = _iterations(scenario, settings, prompts)
    work = iteration_work(provenance, setup, settings, iterations, batch, prompts)
    trainer = collect(problems, resolve_setup, provenance, setup, optimizer, work)
    reference = collect(problems, _reference, scenario, setup.method, settings, method)
    critic = collect(problems, _critic, scenario, registry, setup, beside, optimizer, work) if method.critic else None
    reward = collect(problems, _reward, scenario, registry, method, setup.model)
    beside_actor = {"critic": critic, "reward": reward, "reference": reference, "teacher": _teacher_of(trainer)}
    problems += conflicts(AskedModels(scenario, **beside_actor), MODEL_RULES)
    services = collect(problems, _services, scenario, registry, settings, setup) or {}
    if problems or not (trainer and model and server and engine and formats):
        raise InputError(in_reading_order(dict.fromkeys(problems), scenario))
    _forget_without_effect(provenance, engine)
    sections = tuple(f"{name}." for name in ("rollout", "environment", *POOLS))
    apart = tuple(_apart(scenario, settings, trainer, critic, reference, reward, services))
    away = {one.section for one in apart} | ({"reward"} if scenario.values.reward.with_critic else set())
    reference, reward = None if "reference" in away else reference, None if "reward" in away else reward
    trainer = _without_teacher(trainer) if "teacher" in away else trainer
    trainer = replace(
        trainer,
        job=_with_copies(trainer.job, settings, [one for one in (reference, reward) if one is not None]),
        gpus=gpu_count(provenance, server),
        values=provenance.values,
        origins=dict(sorted(provenance.origins.items(), key=lambda item: item[0].startswith(sections))),
        at_replicas=at_replicas,
    )
    return ResolvedReinforcement(
        trainer=trainer,
        writer=engine_job(scenario, settings, model, server, engine, formats),
        replica_sizes=replica_sizes(scenario.values.rollout),
        settings=settings,
        critic=None if critic is None or "critic" in away else critic.job,
        reference=reference,
        reward=reward,
        iterations=iterations,
        ways=_ways(settings),
        apart=apart,
    )


def _batch(
    provenance: Provenance, setup: Setup, settings: Settings, registry: Registry, replicas: int | None
) -> tuple[int, Callable[[int], ResolvedTraining] | None]:
    """The batch of an optimizer step: as given, as micro-batches make it, or all answers of an iteration."""
    scenario = provenance.scenario
    answers = max(round(settings.trained), 1) if assumes_batch(scenario) else None

    def again(count: int) -> ResolvedTraining:
        return resolve(scenario, registry, count).trainer

    return resolve_batch(provenance, setup, again, replicas, answers)


def _forget_without_effect(provenance: Provenance, engine: Engine) -> None:
    """Drop keys that have no part in the answer: passes over prompts whose number nobody knows, a share of the card."""
    if "train.steps" in provenance.origins:
        provenance.drop("train.epochs")
    if engine.memory.grows:  # the trainer's own weights write, beside all that it has on the card
        provenance.drop("rollout.gpu_memory_utilization")


def _known_prompts(scenario: Scenario, registry: Registry) -> int | None:
    """Prompts of the run, as given or as the data set has samples; None where nobody says. Raises InputError."""
    if scenario.values.data.samples is not None:
        return int(scenario.values.data.samples)
    known = known_data(scenario, registry)
    return None if known is None else known.profile.samples


def _iterations(scenario: Scenario, settings: Settings, prompts: int | None) -> int:
    """Iterations of the run: as given, or as passes over the prompts make them, whose last prompts fill no iteration.

    Source: drop_last=True of verl's and OpenRLHF's loaders; RepeatSampler of TRL.
    """
    values = scenario.values
    if values.train.steps is not None:
        return int(values.train.steps)
    if prompts is None:
        return DEFAULT_STEPS
    each = settings.asked.prompts * settings.kept
    return max(math.floor((values.train.epochs or 1.0) * math.floor(prompts / each)), 1)


def _ways(settings: Settings) -> tuple[bool, ...]:
    """Ways to share the GPUs: as asked for, else what the stack does, its usual way first."""
    if settings.colocated is not None:
        return (settings.colocated,)
    defaults = settings.defaults
    others = (False,) if defaults.colocated and defaults.apart else (True,) if not defaults.colocated else ()
    return (defaults.colocated, *others)


def _with_copies(job: Job, settings: Settings, beside: Iterable[Frozen]) -> Job:
    """The trainer's job with the models beside the actor, which are on the card but where they wait in host memory."""
    held = 0 if settings.frozen_offload else 1
    copies = tuple(replace(one, copies=one.copies * held, forwards=0) for one in beside)
    return replace(job, method=replace(job.method, frozen=(*job.method.frozen, *copies)))


def _without_effect(scenario: Scenario) -> Iterator[str]:
    """Lengths of a data set, where the rollout says how long prompts and answers are."""
    keys = sorted(key for key in scenario.origin if key.startswith("data.") and key != "data.samples")
    sets = {"data.profile", "data.file"} if scenario.values.data.samples is None else set()
    without = [scenario.caller.setting(key) for key in keys if key not in sets]
    own = [scenario.caller.setting(f"rollout.{name}") for name in ("input_tokens", "output_tokens")]
    if without:
        yield f"without effect here: {', '.join(without)}; {own[0]} and {own[1]} say how long prompts and responses are"
    elif keys:
        named = scenario.caller.setting(keys[0])
        yield f"of {named} the number of prompts counts; {own[0]} and {own[1]} say how long prompts and responses are"


def _assumed(scenario: Scenario, iterations: int, prompts: int | None) -> Iterator[str]:
    if not (scenario.values.train.steps or prompts):
        yield f"neither the iterations nor the number of prompts is given: {iterations:,} iterations assumed"


def _source(settings: Settings) -> str:
    """How lengths came about, in words."""
    asked = settings.asked
    most = f"{settings.max_output_tokens:,.0f} tokens"
    shape = "log-normal" if settings.logged is None else f"as in {settings.logged}"
    return f"prompts of {asked.inputs:,.0f} tokens, responses {shape}, truncated at {most}"


def _reference(scenario: Scenario, trained: Method, settings: Settings, method: Rollout) -> Frozen | None:
    """The model that answers may not stray from: a copy, or the model's own weights without its adapters.

    Methods with a critic have one; others as the stack does, since recipes after DAPO have none.
    """
    asked = scenario.values.train.reference
    adapted = trained.adapter is not None
    if not method.ratios:
        return None
    usual = COPY if method.critic else settings.defaults.reference
    chosen = asked or (ADAPTERS_OFF if adapted and usual == COPY else usual)
    if chosen == NONE:
        return None
    if chosen == PRECOMPUTED or (chosen == ADAPTERS_OFF and not adapted):
        message = "responses are new in every iteration" if chosen == PRECOMPUTED else "there are no adapters to be off"
        where = scenario.locate(("train", "reference"))
        raise InputError(Problem(f"{message}: the reference cannot be '{chosen}'", where, f"'{COPY}' is another way"))
    return Frozen(REFERENCE, copies=int(chosen == COPY))


SIZES_OF_ACTOR = (
    "tp", "pp", "vpp", "cp", "ep", "dp", "expert_tp", "zero_group", "stages", "first_stage_layers", "last_stage_layers",
    "offload_layers", "recompute_layers", "schedule",
)  # fmt: skip
ACTORS_ALONE = frozenset({"nodes", "train.grad_accum", *(f"layout.{name}" for name in SIZES_OF_ACTOR)})
"""Keys that are of the actor's GPUs; what else a layout has, its stack does to a critic on GPUs of its own too."""


def _critic(
    scenario: Scenario, registry: Registry, setup: Setup, beside: int | None, optimizer: Optimizer, work: Workload
) -> ResolvedTraining:
    """The training of the critic: the same sequences, and a head of one value; `beside` as of `find_setup`.

    Raises
    ------
    InputError : a model that nobody knows, or that the layout or the stack cannot train
    """
    asked = scenario.values.train.critic_model
    if has_own_gpus(scenario, "critic"):  # and a layout of its own
        sizes = scenario.values.critic
        scenario, beside = (
            replace(
                scenario,
                values=msgspec.structs.replace(
                    scenario.values,
                    layout=msgspec.structs.replace(
                        scenario.values.layout, **{**dict.fromkeys(SIZES_OF_ACTOR), "tp": sizes.tp, "pp": sizes.pp}
                    ),
                    train=msgspec.structs.replace(scenario.values.train, grad_accum=None),
                    gpus=sizes.gpus,
                    nodes=None,
                ),
                origin={key: how for key, how in scenario.origin.items() if key not in ACTORS_ALONE},
            ),
            0,
        )
    provenance = Provenance(scenario, registry)
    if asked is not None:
        path, problems = relative(scenario, "train.critic_model", asked), list[Problem]()
        model = registry.model(path, partial(scenario.locate, ("train", "critic_model")))
        found = find_setup(provenance, registry, problems, model, setup.server, setup.stack, beside)
        if found is None:
            raise InputError(problems)
        setup = found
    training = resolve_setup(provenance, setup, optimizer, work)
    return replace(training, job=replace(training.job, model=training.job.model.headed(VALUES)))


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


# Models beside the actor that have GPUs of their own.


def has_own_gpus(scenario: Scenario, section: str) -> bool:
    """Whether a model beside the actor is to have GPUs of its own: they are counted, sized, or what is served there."""
    asked = getattr(scenario.values, section)
    if asked.colocated is not None:
        return not asked.colocated
    said = [asked.gpus, asked.tp, asked.pp]
    if section in ("reward", "teacher"):
        said.append(asked.engine)
    if section == "reward":
        said.append(asked.output_tokens)
    return any(one is not None for one in said)


def _own_gpus(asked: CriticSection | RewardSection | ReferenceSection | TeacherSection) -> int | None:
    return asked.gpus


def _apart(
    scenario: Scenario, settings: Settings, trainer: ResolvedTraining, critic: ResolvedTraining | None,
    reference: Frozen | None, reward: Frozen | None, services: Mapping[str, ServingJob],
) -> Iterator[Apart]:  # fmt: skip
    """The models that are asked to have GPUs of their own, with what passes through them."""
    values, actor = scenario.values, trainer.job
    rated, trained = settings.asked.count * bool(settings.answers.mean), settings.trained * bool(settings.answers.mean)
    scored = None if reward is None else (actor.beside(reward), rated)
    if critic is not None and has_own_gpus(scenario, "critic"):
        shared = values.reward.with_critic and reward is not None and scored is not None
        learner = _holding(critic.job, [reward]) if shared and reward else critic.job
        yield Apart(
            name="critic and reward model" if shared else "critic",
            section="critic",
            gpus=values.critic.gpus,
            sizes={},
            rules=critic.rules,
            passes={
                critic_pass.name: (critic.job, trained),
                **({reward_pass.name: scored} if shared and scored else {}),
            },
            learner=learner,
            streams=bool(shared) and settings.reward_streams,
        )
    if scored is not None and has_own_gpus(scenario, "reward"):
        yield replace(
            _frozen(scenario, settings, trainer, "reward", reward_pass.name, scored),
            service=services.get("reward"),
            judged=_judged(scenario, settings) if "reward" in services else None,
            streams=settings.reward_streams,
        )
    if reference is not None and has_own_gpus(scenario, "reference"):
        copy = actor.beside(replace(reference, copies=1))
        yield _frozen(scenario, settings, trainer, "reference", reference_pass.name, (copy, trained))
    teacher = _teacher_of(trainer)
    if teacher is not None and has_own_gpus(scenario, "teacher"):
        yield replace(
            _frozen(scenario, settings, trainer, "teacher", TEACHER_PASS, (actor.beside(teacher), trained)),
            service=services.get("teacher"),
            judged=Asked(trained, 1, settings.asked.read + settings.answers.mean, constant_answers(1.0)),
        )


def _frozen(
    scenario: Scenario, settings: Settings, trainer: ResolvedTraining, section: str, name: str,
    through: tuple[Job, float],
) -> Apart:  # fmt: skip
    """A model that learns nothing on GPUs of its own, in a layout of its own: all answers pass through it."""
    asked = getattr(scenario.values, section)
    sizes = {size: getattr(asked, size) for size in ("tp", "pp") if getattr(asked, size) is not None}
    plain = {"recompute": 0, "offload": 0, "vpp": 1, "cp": 1}
    batch = max(round(settings.trained), 1)
    rules = replace(trainer.rules, model=through[0].model, fixed=plain, global_batch=batch, first_batches=(), ends=0)
    return Apart(POOL_NAMES[section], section, asked.gpus, sizes, rules, {name: through})


POOL_NAMES = {"reward": "reward model", "reference": REFERENCE, "teacher": TEACHER}


def _teacher_of(trainer: ResolvedTraining | None) -> Frozen | None:
    """The teacher of a distillation; None of other jobs."""
    frozen = () if trainer is None else trainer.job.method.frozen
    return next((one for one in frozen if one.words == TEACHER), None)


def _without_teacher(trainer: ResolvedTraining) -> ResolvedTraining:
    """The student alone, whose teacher has GPUs of its own."""
    method = trainer.job.method
    others = tuple(one for one in method.frozen if one.words != TEACHER)
    return replace(trainer, job=replace(trainer.job, method=replace(method, frozen=others)))


def _services(scenario: Scenario, registry: Registry, settings: Settings, setup: Setup) -> dict[str, ServingJob]:
    """The engines that serve reward model and teacher, where these are asked for. Raises InputError."""
    found: dict[str, ServingJob] = {}
    values, reward, judged = scenario.values, scenario.values.reward, _judged(scenario, settings)
    if reward.engine is not None or reward.output_tokens is not None:
        longest = judged.inputs + judged.answers.longest
        found["reward"] = _served(scenario, registry, setup, "reward", reward.engine, longest)
    if values.teacher.engine is not None:
        longest = settings.asked.read + settings.answers.longest
        found["teacher"] = _served(scenario, registry, setup, "teacher", values.teacher.engine, longest)
    return found


def _served(
    scenario: Scenario, registry: Registry, setup: Setup, section: str, engine_name: str | None, longest: float
) -> ServingJob:
    """A model beside the actor in an engine of its own, as a service; the actor's shape where nobody names it."""
    key, named, server = f"{section}.engine", f"train.{section}_model", setup.server
    name = relative(scenario, key, engine_name or default_engine())
    engine = engine_on(server, name, partial(scenario.locate, (section, "engine")), registry)
    given, model = getattr(scenario.values.train, f"{section}_model"), setup.model
    if given is not None:
        where = partial(scenario.locate, ("train", f"{section}_model"))
        model = registry.model(relative(scenario, named, given), where)
    gpu, peaks = server.accelerator, server.accelerator.peak_flops_per_s
    published = published_format(scenario, model, named)
    names = format_names(engine, gpu.generation, peaks, sixteen_bit(peaks), published)
    longest = max(model.max_positions or 0, longest)
    return build_job(model, server, engine, scheme_of(engine, peaks, **names), efficiency_of(scenario), longest)


def _judged(scenario: Scenario, settings: Settings) -> Asked:
    """What is asked of a judge: one request for each answer, with its prompt, and a score or words about it."""
    asked, own = scenario.values.reward, settings.asked
    written = asked.output_tokens or 1.0
    answers = constant_answers(written)
    if written > 1:
        answers = cut_answers(written, DEFAULT_SPREAD, max(round(written * CUT_AT), 1))
    read = own.read + own.answers.mean + (asked.input_tokens or 0.0)
    return Asked(own.count * bool(own.answers.mean), 1, read, answers)


def _holding(job: Job, beside: Iterable[Frozen]) -> Job:
    """The job with frozen models on its cards, which have no passes in its steps."""
    copies = tuple(replace(one, forwards=0) for one in beside)
    return replace(job, method=replace(job.method, frozen=(*job.method.frozen, *copies)))
