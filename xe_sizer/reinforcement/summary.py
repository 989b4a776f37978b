"""The result of an estimate of reinforcement learning: a result of training whose step is an iteration, by phases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.reinforcement.iteration import (
    ALL_PARTS,
    ROLLOUT,
    SYNCHRONISATION,
    TEACHER_PASS,
    TRAINING,
    learning_of,
    rating_of,
    reference_pass,
    reward_pass,
)
from xe_sizer.reinforcement.memory import around_bytes
from xe_sizer.reinforcement.resolved import ABORT, DRAIN, GO_ON
from xe_sizer.result.common import Factor, Gpus, MemoryComponent, Reason, Source, TimeComponent
from xe_sizer.result.training import Iteration as IterationResult
from xe_sizer.result.training import Phase, Tools
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.serving.memory import HOLDING_PARTS, largest_step
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory_parts import MEMORY_PARTS
from xe_sizer.training.methods.preferences import REFERENCE
from xe_sizer.training.summary import (
    build_checkpoint,
    build_cost,
    holdings,
    memory_reasons,
    run_components,
    tell_many_epochs,
    terms_at,
)
from xe_sizer.training.summary import summarise as summarise_training
from xe_sizer.units import whole_parts

if TYPE_CHECKING:
    from xe_sizer.laws.parts import Part
    from xe_sizer.reinforcement.environment import Environment
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.reinforcement.iteration import Iteration
    from xe_sizer.reinforcement.pools import ModelPool
    from xe_sizer.reinforcement.rollout import Rollout
    from xe_sizer.result.training import Beside, Data, Holding, Memory, Result, Time
    from xe_sizer.serving.memory import Holding as Held
    from xe_sizer.training.memory import Ledger

Terms = tuple[tuple[Factor, ...], ...]

# Memory of the fullest GPU in each phase; the phase in which it holds most decides.

STATES = "weights + optimizer states of actor and critic that stay on the card + context, communicators, workspaces"
STATES_OF_A_POOL = "weights of its models + optimizer states of a critic + context, communicators, workspaces"
TRAINER, ENGINE = "trainer between its steps", "engine: "
ENGINE_WEIGHTS, CACHE = f"{ENGINE}weights", f"{ENGINE}KV cache"


def memory_components(sized: ReinforcementEstimate, phase: str) -> list[MemoryComponent]:
    """Parts of a phase, which sum to its peak [bytes]."""
    if phase == TRAINING:
        return [one for one in _of_training(sized) if one.bytes > 0]
    one = sized.iteration
    for other in one.others:
        if phase in (rating_of(other), learning_of(other)):
            return [part for part in _of_other(other, learning=phase == learning_of(other)) if part.bytes > 0]
    awake = phase == ROLLOUT or (one.colocated and phase == SYNCHRONISATION)
    kept = one.kept_bytes if one.colocated or not awake else 0.0
    found = [_part(TRAINER, kept, STATES, "as in a training step")]
    if awake:
        found += _of_replica(sized, one.peaks[phase] - kept)
    else:
        formulas = {part.name: part.formula for part in MEMORY_PARTS}
        passing = one.passing_bytes.get(phase, {})
        found += [_part(name, size, formulas[name], "forward pass") for name, size in passing.items()]
        found.append(_asleep(sized))
    return [part for part in found if part.bytes > 0]


def _of_other(other: ModelPool, *, learning: bool) -> Iterator[MemoryComponent]:
    """A model on GPUs of its own while it learns, or while answers pass through it."""
    if other.served is not None:
        assert other.asked.judged is not None
        yield from _of_engine(other.served, other.asked.judged.inputs, other.peak_bytes)
    elif learning and other.ledger is not None and other.asked.learner is not None and other.layouts is not None:
        yield from _of_ledger(other.ledger, Evaluation(other.asked.learner, other.layouts).at_fuller_stage)
    else:
        formulas = {part.name: part.formula for part in MEMORY_PARTS}
        yield _part("states of the pool", other.states_bytes, STATES_OF_A_POOL, "as in a training step")
        for name, size in other.passing.items():
            yield _part(name, size, formulas[name], "forward pass")


def _asleep(sized: ReinforcementEstimate) -> MemoryComponent:
    formula = "what the engine keeps while the trainer works"
    return _part("engine asleep", sized.iteration.asleep_bytes, formula, "sleep mode of the engine")


def _holdings(parts: Iterable[MemoryComponent]) -> tuple[Holding, ...]:
    """Parts of a phase by their kinds; of an engine its weights, its cache and the rest."""
    held: dict[str, float] = {}
    for part in parts:
        rest = part.name.startswith(ENGINE) and part.name not in (ENGINE_WEIGHTS, CACHE)
        name = f"{ENGINE}buffers and context" if rest else part.name
        held[name] = held.get(name, 0.0) + part.bytes
    return holdings(held)


def _part(name: str, size: float, formula: str, source: str, terms: Terms = ()) -> MemoryComponent:
    return MemoryComponent(name=name, bytes=size, formula=formula, source=source, terms=terms)


def _of_training(sized: ReinforcementEstimate) -> Iterator[MemoryComponent]:
    """The optimizer step of the actor or of the critic, with what is beside it."""
    one = sized.iteration
    (actor, critic), (at_actor, at_critic) = one.ledgers, one.beside_bytes
    of_critic = critic is not None and critic.peak_bytes[0] + at_critic > actor.peak_bytes[0] + at_actor
    learner = sized.reinforcement.critic if of_critic else sized.reinforcement.actor
    assert learner is not None
    ledger = critic if of_critic and critic is not None else actor
    yield from _of_ledger(ledger, Evaluation(learner, one.layouts).at_fuller_stage)
    engine = one.asleep_bytes
    other = (at_critic if of_critic else at_actor) - engine
    name = "states of the actor" if of_critic else "states of the critic"
    yield _part(name, other, "weights + optimizer states, while the other one steps", "as in a training step")
    yield _asleep(sized)


def _of_ledger(ledger: Ledger, evaluation: Evaluation) -> Iterator[MemoryComponent]:
    held, terms = ledger.at_peak(), terms_at(evaluation, ledger, *ledger.worst())
    for part in MEMORY_PARTS:
        if part.name in held:
            yield _part(part.name, held[part.name], part.formula, part.source, terms[part.name])


def _of_replica(sized: ReinforcementEstimate, used: float) -> list[MemoryComponent]:
    """The engine awake: its weights, what a step needs and software takes, and its cache, which is the rest."""
    return _of_engine(sized.iteration.rollout, sized.reinforcement.settings.asked.inputs, used)


def _of_engine(rollout: Rollout, inputs: float, used: float) -> list[MemoryComponent]:
    """The same of any engine; inputs : tokens of a request [tokens]; used : of a card [bytes]."""
    held = largest_step(rollout.job, rollout.placement, inputs)
    sizes = {name: float(size.max()) for name, size in rollout.memory.fixed.items()}
    parts = [
        _part(f"{ENGINE}{part.name}", sizes[part.name], part.formula, part.source, _terms(part, held))
        for part in HOLDING_PARTS
        if part.name in sizes
    ]
    cache = max(used - sum(part.bytes for part in parts), 0.0)
    card = rollout.memory.usable_bytes
    taken = ((Factor(-part.bytes, f"B of {part.name.removeprefix(ENGINE)}"),) for part in parts if part.bytes)
    terms = ((Factor(used / card, ""), Factor(card, "B of the card")), *taken)
    parts.append(_part(CACHE, cache, "share of the engine x card - all other parts", "gpu_memory_utilization", terms))
    beyond = sum(part.bytes for part in parts) - used
    return parts if beyond <= 0 else [_part("engine", used, "share of the engine x card", "gpu_memory_utilization")]


def _terms(part: Part[Held], held: Held) -> Terms:
    """A part of the engine as a sum of products, with its numbers."""
    return tuple(tuple(Factor(*one) for one in term) for term in part.terms(held, 0))


# The result.

FORMULAS = {
    "rollout: prompts": (
        "prompts of a replica / steps x time of one, each prompt once for its group",
        "as in a service",
    ),
    "rollout: answers": (
        "tokens while every place is taken x time of a step",
        "as in a service; renewal theory",
    ),
    "rollout: last answers": ("integral of t(answers that still run) until the longest ends", "order statistics"),
    TEACHER_PASS: ("forward of the teacher for every answer", "forward_pass_s; of an engine its prefill"),
    "rollout: contexts read again": (
        "prefill of prompts and of what responses have that go on under new weights",
        "the stack's update of weights",
    ),
    "rollout: tools": (
        "wait of the last answers for their environments, or calls / environments at once, beyond writing",
        "bounds of closed queueing networks",
    ),
    SYNCHRONISATION: ("all-gather of the trainer's shards, broadcast to the replicas, loading", "collective laws"),
    "training: between the phases": ("the stack's own", "stack"),
}
"""What the parts are made of that no registered part says itself."""


def summarise(sized: ReinforcementEstimate, details: bool = True) -> Result:
    """Everything about an estimate but the advice; `details` as of the training wing's."""
    base = summarise_training(sized.trainer, details)
    memory, time, data = _memory(sized, base.memory), _time(sized, base.time), _data(sized, base.data)
    confidence, caller = sized.confidence, sized.resolved.scenario.caller
    reasons = (
        *_rollout_reasons(sized),
        *memory_reasons(memory, sized.counted),
        *memory_doubt(sized, confidence),
        *missed(sized.limits, caller, confidence=confidence),
    )
    node = sized.resolved.job.server.accelerators
    return replace(
        base,
        verdict=verdict_of(sized, confidence, sized.keeps_limits, reasons),
        gpus=Gpus(
            count=sized.gpus,
            nodes=math.ceil(sized.gpus / node),
            gpus_per_node=min(sized.gpus, node),
            minimum_that_fits=sized.minimum if details else None,
        ),
        memory=memory,
        time=time,
        data=data,
        cost=build_cost(sized, time),
        checkpoint=build_checkpoint(sized),
        phases=tuple(_phases(sized)),
        pools=sized.pools,
        beside=tuple(_beside(sized, base.beside)),
        iteration=_iteration(sized),
        warnings=(*base.warnings, *_warnings(sized, data)),
        sources=(*base.sources, *_sources(sized)) if details else (),
    )


def _data(sized: ReinforcementEstimate, base: Data) -> Data:
    """What the run reads: samples are prompts, each with its answers."""
    asked, kept = sized.reinforcement.settings.asked, sized.reinforcement.settings.kept
    read = sized.reinforcement.iterations * asked.prompts * kept
    known = sized.resolved.known_samples
    samples = round(read if known is None else known)
    return replace(base, samples=samples, samples_read=read, epochs=None if known is None else read / known)


def _component(name: str, seconds: float, whole_s: float) -> TimeComponent:
    formula, source = FORMULAS.get(name) or ALL_PARTS[name]
    return TimeComponent(name=name, seconds=seconds, share=seconds / whole_s, formula=formula, source=source)


def _time(sized: ReinforcementEstimate, base: Time) -> Time:
    """The times of the run, whose step is an iteration."""
    span, step_s = sized.uncertainty, sized.step_s
    useful = sized.reinforcement.steps * float(sized.timeline.flops[0]) * sized.iteration.trainer_gpus
    mfu = useful / (step_s * sized.gpus * sized.resolved.job.device.peak_flops_per_s)
    return replace(
        base,
        step_s=span.around(step_s),
        components=tuple(_component(n, s, step_s) for n, s in sized.component_s.items() if s > 0),
        steps=sized.reinforcement.iterations,
        total_s=span.around(sized.total_s),
        tokens_per_s_per_gpu=sized.tokens_per_s / sized.gpus,
        samples_per_s=sized.samples_per_s,
        mfu=mfu,
        hfu=max(mfu, base.hfu * mfu / base.mfu if base.mfu else mfu),
        bound=_bound(sized.iteration),
        ideal_step_s=None,
        losses=(),
        run=run_components(sized),
        goodput=sized.reinforcement.iterations * step_s / sized.total_s if sized.resolved.job.interrupted else None,
    )


def _bound(one: Iteration) -> str:
    """The phase that takes most of the iteration."""
    seconds = {name: s for name, s in one.phase_s.items() if name not in one.hidden}
    return max(seconds, key=lambda name: seconds[name])


def _memory(sized: ReinforcementEstimate, base: Memory) -> Memory:
    """The fullest GPU in the phase in which it holds most."""
    phase = sized.worst_phase
    parts = memory_components(sized, phase)
    sizes = whole_parts(part.bytes for part in parts)
    components = tuple(replace(part, bytes=size) for part, size in zip(parts, sizes, strict=True))
    peak, usable = float(sum(part.bytes for part in components)), base.usable_bytes
    moment = f"training, {base.phase}" if phase == TRAINING else phase
    shown = _shown_in_training(base, peak) if phase == TRAINING else _shown_beside_engine(sized, peak)
    gpu = base.gpu if phase == TRAINING or sized.iteration.colocated else "rollout replica"
    pool = next((one for one in sized.iteration.others if phase in (rating_of(one), learning_of(one))), None)
    if pool is not None:
        gpu, shown, moment = f"GPU of the {pool.asked.name}", _shown_of_pool(pool, peak), phase.partition(" (")[0]
    return replace(
        base, peak_bytes=peak, headroom_bytes=usable - peak, phase=moment, gpu=gpu, components=components, **shown
    )


def _shown_in_training(base: Memory, peak: float) -> dict[str, float]:
    """What instruments show while the trainer steps, with the engine and other states beside it [bytes]."""
    more = peak - base.peak_bytes
    given_back = min(max(base.device_bytes + more - base.usable_bytes, 0.0), base.cached_bytes)  # no room to keep it
    return {
        "allocated_bytes": base.allocated_bytes + more,
        "reserved_bytes": base.reserved_bytes + more - given_back,
        "device_bytes": base.device_bytes + more - given_back,
        "cached_bytes": base.cached_bytes - given_back,
    }


def _shown_beside_engine(sized: ReinforcementEstimate, peak: float) -> dict[str, float]:
    """What instruments show while answers are written: the engine allocates its share of the card at once [bytes]."""
    one = sized.iteration
    software = float(one.rollout.memory.beside_tensors.max())
    if one.colocated:
        software += float(around_bytes(one.resolved.actor, sized.layouts)[0])
    tensors = max(peak - software, 0.0)
    return {"allocated_bytes": tensors, "reserved_bytes": tensors, "device_bytes": peak, "cached_bytes": 0.0}


def _shown_of_pool(pool: ModelPool, peak: float) -> dict[str, float]:
    """What instruments show of a model on GPUs of its own [bytes]."""
    around = float(pool.served.memory.beside_tensors.max()) if pool.served else pool.around_bytes
    tensors = max(peak - around, 0.0)
    return {"allocated_bytes": tensors, "reserved_bytes": tensors, "device_bytes": peak, "cached_bytes": 0.0}


def _rollout_reasons(sized: ReinforcementEstimate) -> Iterator[Reason]:
    """Where the engine starts and holds not even one answer."""
    rollout = sized.iteration.rollout
    if rollout.room >= 1.0 or sized.peak_bytes > sized.usable_bytes:
        return
    asked = sized.reinforcement.settings.asked
    tokens = asked.read + asked.answers.longest
    message = (
        f"the engine may use {100 * rollout.share:.0f} % of a GPU for responses: "
        f"too little for its weights and one response of {tokens:,.0f} tokens"
    )
    yield Reason(code="rollout-out-of-memory", message=message)


def _phases(sized: ReinforcementEstimate) -> Iterator[Phase]:
    one, usable = sized.iteration, float(round(sized.usable_bytes))
    others = {name: other for other in one.others for name in (rating_of(other), learning_of(other))}
    trains, writes = sized.pools[0], next(pool for pool in sized.pools if pool.replicas and not pool.model)
    for name, parts in one.parts_s.items():
        seconds = one.phase_s[name]
        if seconds <= 0:
            continue
        hidden, other = name in one.hidden, others.get(name)
        gpus = one.rollout.gpus if name == ROLLOUT else one.trainer_gpus
        pool = writes.name if name == ROLLOUT else trains.name
        if other is not None:
            gpus, pool = other.gpus, other.asked.name
        elif name == SYNCHRONISATION:
            gpus, pool = one.trainer_gpus if one.colocated else one.trainer_gpus + one.rollout.gpus, ""
        yield Phase(
            name=name,
            seconds=seconds,
            share=0.0 if hidden else seconds / sized.step_s,
            gpus=gpus,
            peak_bytes=float(round(one.peaks[name])),
            usable_bytes=usable,
            bound=max(parts, key=lambda part: parts[part]),
            hidden=hidden,
            components=tuple(_component(n, s, seconds) for n, s in parts.items() if s > 0),
            holds=_holdings(memory_components(sized, name)),
            pool=pool,
            start_s=one.starts_s[name],
        )


def _iteration(sized: ReinforcementEstimate) -> IterationResult:
    one, resolved = sized.iteration, sized.reinforcement
    settings, rollout = resolved.settings, one.rollout
    asked, answers = settings.asked, settings.answers
    written = asked.count * answers.mean
    rollout_s = one.phase_s[ROLLOUT]
    return IterationResult(
        count=resolved.iterations,
        seconds=sized.uncertainty.around(sized.step_s),
        prompts=asked.prompts,
        group=asked.group,
        answers=asked.count,
        trained_answers=settings.trained,
        optimizer_steps=resolved.steps,
        input_tokens=asked.inputs,
        output_tokens=answers.mean,
        longest_tokens=float(answers.expected_longest(asked.count)),
        max_output_tokens=settings.max_output_tokens,
        cut_share=answers.cut_share,
        tokens=settings.trained * settings.updates * (asked.read + answers.mean),
        output_tokens_per_s=written / rollout_s if rollout_s else 0.0,
        answers_at_once=float(rollout.writing.running[0]),
        waiting_share=float(rollout.writing.waiting_share[0]),
        idle_share=one.idle_share,
        colocated=one.colocated,
        asynchronous=one.asynchronous,
        max_staleness=settings.staleness,
        gpu_memory_utilization=rollout.share,
        sleep=settings.sleep if one.colocated else "",
        update=""
        if not (asked.carried or one.asynchronous)
        else DRAIN
        if not asked.carried
        else ABORT
        if asked.reread
        else GO_ON,
        tools=None if asked.environment is None else _tools(asked.environment, one),
    )


def _tools(environment: Environment, one: Iteration) -> Tools:
    """Calls of the responses, as long as all replicas are full."""
    rollout, writing = one.rollout, one.rollout.writing
    started, running = (float(each[0]) * rollout.replicas for each in (writing.started, writing.running))
    together = environment.wait_s > 0 and started == running  # batches that end together call together
    waiting = started if together else started - running
    calls = min(waiting, environment.at_once or waiting)
    exposed_s, rollout_s = float(writing.tools_s[0]), one.phase_s[ROLLOUT]
    return Tools(
        turns=environment.turns,
        calls=environment.calls,
        wait_s=environment.wait_s,
        calls_at_once=calls,
        environments_at_once=started,
        cores=calls * environment.cores,
        servers=math.ceil(calls * environment.cores / environment.server_cores - 1e-9),
        server_cores=environment.server_cores,
        exposed_s=exposed_s,
        share=exposed_s / rollout_s if rollout_s else 0.0,
    )


def _warnings(sized: ReinforcementEstimate, data: Data) -> Iterator[str]:
    """What is worth a word of the rollout, and of prompts that are read many times."""
    settings, count = sized.reinforcement.settings, sized.reinforcement.iterations
    scenario = sized.resolved.scenario
    if data.epochs is not None:
        read = f"{count:,} iteration{'s read' if count > 1 else ' reads'} the {data.samples:,} prompts"
        yield from tell_many_epochs(scenario, data.epochs, read)
    if scenario.values.rollout.output_tokens is None and settings.logged is None:
        setting = scenario.caller.setting("rollout.output_tokens")
        yield f"responses of {settings.answers.mean:,.0f} tokens are assumed; {setting} says how long they are"
    rollout, seq_len = scenario.values.rollout, scenario.values.train.seq_len
    if rollout.input_tokens is None and seq_len is not None and rollout.max_output_tokens is not None:
        inputs, longest = settings.asked.inputs, seq_len - rollout.max_output_tokens
        if longest > inputs:
            setting = scenario.caller.setting("rollout.input_tokens", longest)
            yield f"prompts of {inputs:,.0f} tokens are assumed, though up to {longest:,} pass; {setting} sizes those"
    if settings.answers.cut_share > MUCH_CUT:
        share, most = f"{100 * settings.answers.cut_share:.0f} %", f"{settings.max_output_tokens:,.0f}"
        yield f"{share} of the responses are truncated at {most} tokens"


REWARD_MODEL = reward_pass.name
MUCH_CUT = 0.05  # chosen: share of cut answers from which it is worth a word


def _beside(sized: ReinforcementEstimate, rows: Iterable[Beside]) -> Iterator[Beside]:
    """Reference and reward model, each with its pass of an iteration."""
    seconds = {REFERENCE: sized.component_s.get(reference_pass.name), REWARD_MODEL: sized.component_s.get(REWARD_MODEL)}
    for row in rows:
        yield replace(row, passes=1, seconds=seconds.get(row.name) or 0.0)


def _sources(sized: ReinforcementEstimate) -> Iterator[Source]:
    engine = sized.iteration.rollout.job.engine
    yield Source(name=f"engine {engine.name}", source=engine.source)
