"""One job with one factor moved at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import field
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import sixteen_bit, supported_precisions
from xe_sizer.laws.hardware import TRAINING_POWER_SHARE
from xe_sizer.laws.network import network as network_of
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.reinforcement.advice import at_the_same_time, interrupted_answers, narrow_weights, open_sharing
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import DEADLINE, OWN_SERVERS, Effect, Factor, Outcome, Sensitivity
from xe_sizer.scenario.provenance import Provenance
from xe_sizer.scenario.read import changed
from xe_sizer.scenario.tariff import TRAINING_UTILISATION, tariff_of
from xe_sizer.serving.advice import narrower_cache, narrower_weights
from xe_sizer.serving.resolve import JUDGED
from xe_sizer.serving.summary import build_layout as build_placement
from xe_sizer.serving.summary import find_scenario
from xe_sizer.serving.uncertainty import span as find_span
from xe_sizer.studies.estimate import job_wing, wing_of
from xe_sizer.studies.hardware import one_price
from xe_sizer.training.advice import other_adapters, packed_samples
from xe_sizer.training.device import build_device
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.methods import METHODS
from xe_sizer.training.summary import (
    build_layout,
    packed_seq_len,
    packed_steps,
    scenario_with_origins,
    warn_of_offloading,
)
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.scenario.read import Change
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining

# A step of a factor whose worth somebody asks for.


class Step(Immutable):
    """One step of a factor in words: scenario keys that change, or the hardware in place.

    server : one of the same build with another accelerator; scale_out : factor on the rate between nodes
    """

    words: str
    values: Mapping[str, object] = field(default_factory=dict)
    server: Server | None = None
    scale_out: float = 1.0


Proposes = Callable[["ReinforcementEstimate", "Registry"], Iterator["Change"]]
Factors = tuple[tuple[str, list[Step]], ...]


# The factors of reinforcement learning whose worth is told: answers, prompts, model, batch, and the GPUs.

RATE = "request_rate"  # the load that need be no whole number
BOTH_WAYS = (("half", 0.5), ("twice", 2.0))
CLEARLY = 1.1  # a step of a factor changes it by more than this


def of_iterations(base: ReinforcementEstimate, registry: Registry) -> Factors:
    """The factors of a job that learns from its own answers, each with its steps."""
    return (
        ("answer length", [*_answers(base)]),
        ("prompts of an iteration", [*_prompts(base)]),
        ("model size", [*_sizes(base, registry)]),
        ("batch size", [*_answers_a_step(base)]),
        ("GPUs and links", [*_gpus_of_pools(base)]),
        ("sharing of the GPUs", [*_advised(base, registry, open_sharing, at_the_same_time)]),
        ("writing of answers", [*_advised(base, registry, interrupted_answers, narrow_weights)]),
    )


def _answers(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the tokens of an answer, and of the longest."""
    settings = base.reinforcement.settings
    for words, factor in BOTH_WAYS:
        mean, most = settings.answers.mean * factor, max(round(settings.max_output_tokens * factor), 1)
        values: dict[str, object] = {"rollout.output_tokens": mean, "rollout.max_output_tokens": most}
        if settings.logged is not None:
            values["rollout.lengths"] = None
        yield Step(f"answers {words} as long", values)


def _prompts(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the prompts, in as many optimizer steps, over as many prompts in all."""
    settings, resolved = base.reinforcement.settings, base.reinforcement
    for words, factor in BOTH_WAYS:
        values = {
            "rollout.prompts": max(round(settings.asked.prompts * settings.kept * factor), 1),
            "train.global_batch": max(round(resolved.actor.global_batch * factor), 1),
            "train.steps": max(round(resolved.iterations / factor), 1),
        }
        yield Step(f"{words} the prompts", values)


def _advised(base: ReinforcementEstimate, registry: Registry, *remedies: Proposes) -> Iterator[Step]:
    """What advice proposes too."""
    for change in (change for remedy in remedies for change in remedy(base, registry)):
        yield Step(change.words, change.values)


def _answers_a_step(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the answers of an optimizer step, of which an iteration then has twice and half as many."""
    batch, answers = base.resolved.job.global_batch, base.reinforcement.settings.trained
    for words, factor in BOTH_WAYS:
        if batch * factor <= answers:
            yield Step(f"{words} the batch", {"train.global_batch": max(round(batch * factor), 1)})


def _gpus_of_pools(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the GPUs, of both pools."""
    for words, factor in BOTH_WAYS:
        values: dict[str, object] = {"gpus": round(base.gpus * factor)}
        if not base.iteration.colocated:
            values["rollout.gpus"] = max(round(base.iteration.rollout.gpus * factor), 1)
        if base.gpus * factor >= 1:
            yield Step(f"{words} the GPUs", values)


_SAME_JOB = frozenset({"gpus"})  # keys that leave the job what it is


def sensitivity(scenario: Scenario, registry: Registry) -> Sensitivity:
    """What each of the factors is worth, moved by a step each way; the widest effect first.

    That is the effect on the time of a job, and on the GPU time of a request of a service. The deadline comes last: its
    steps move the GPUs.

    Factors: those of Dell's design guide on sizing for model customization (data, model size, method, batch size, GPUs
    and their links, parallelism, deadline), and packing where samples are padded. Raises InputError for the job
    itself; a step that is not possible is left out.
    """
    wing = wing_of(scenario)
    kind = KINDS[wing.name]
    base = wing.size(wing.resolve(scenario, registry))
    as_asked = kind.outcome(base, base)
    moved = kind.factors(base, registry)
    factors = [_factor(name, steps, base, as_asked, registry) for name, steps in moved]
    # Largest change of what ranks them as a logarithm; what does not fit changes nothing.
    widths = {
        factor.name: max(
            (abs(math.log(getattr(each, kind.ranked_by))) for each in factor.effects if each.outcome.fits), default=0.0
        )
        for factor in factors
    }
    ranked = sorted((one for one in factors if one.effects), key=lambda one: widths[one.name], reverse=True)
    deadline = Factor(name=DEADLINE, effects=tuple(kind.deadline(base, as_asked)) if base.fits else ())
    owned = _factor(OWN_SERVERS, _own_servers(base), base, as_asked, registry)
    ranked += [one for one in (owned, deadline) if one.effects]
    other = any(step.server for _, steps in moved for step in steps)
    return Sensitivity(
        schema_version=SCHEMA_VERSION,
        scenario=kind.shown(base),
        base=as_asked,
        factors=tuple(ranked),
        ranked_by=kind.ranked_by,
        advice=() if base.fits else wing.advise(base, registry, 1),
        warnings=tuple(one_price(scenario)) if other else (),
        cautions=tuple(warn_of_offloading(base)) if kind is KINDS["training"] and base.fits else (),
    )


def _own_servers(base: Any) -> Iterator[Step]:
    """What the price of servers that are bought rests on: their use, the years of it, and electricity where priced."""
    own = base.resolved.tariff.own
    if own is None or not base.fits:
        return
    for use in dict.fromkeys((own.utilisation / 2, min(own.utilisation * 2, 1.0))):
        if use != own.utilisation:
            yield Step(f"{100 * use:.3g} % use instead of {100 * own.utilisation:.3g} %", {"cost.utilisation": use})
    for words, factor in BOTH_WAYS:
        yield Step(f"{words} the years of use ({own.years * factor:g})", {"cost.years": own.years * factor})
        if own.kwh_price:
            price = own.kwh_price * factor
            yield Step(f"{words} the price of electricity ({price:g} a kWh)", {"cost.kwh_price": price})


def of_training(base: TrainingEstimate, registry: Registry) -> Factors:
    """The factors of a job that learns from data, each with its steps."""
    return (
        ("data size", [*_data(base)]),
        ("model size", [*_sizes(base, registry)]),
        ("training method", [*_methods(base)]),
        ("batch size", [*_batches(base)]),
        ("packing", [*_packing(base, registry)]),
        ("GPUs and links", [*_gpus(base, registry), *_links(base)]),
        ("parallelism", [*_layouts(base)]),
    )


def _factor(name: str, steps: Iterable[Step], base: Any, as_asked: Outcome, registry: Registry) -> Factor:
    """The steps that are possible; those that come to one layout and one outcome are one, with the words of both."""
    wing = wing_of(base.resolved.scenario)
    kind = KINDS[wing.name]
    words: dict[object, str] = {}
    found: dict[object, Effect] = {}
    for step in steps:
        try:
            after = _after(base, step, registry)
            outcome = kind.outcome(after, base if step.server is None and step.values.keys() == _SAME_JOB else after)
        except InputError:
            continue
        same = (kind.layout(after), outcome)
        words[same] = f"{words[same]}, {step.words}" if same in words else step.words
        found.setdefault(same, _effect(step.words, as_asked, outcome))
    effects = (msgspec.structs.replace(effect, step=words[same]) for same, effect in found.items())
    return Factor(name=name, effects=tuple(effects))


def _after(base: Any, step: Step, registry: Registry) -> Any:
    """The job or the service a step away, which is else the same. Raises InputError where it is not possible."""
    resolved, wing = base.resolved, wing_of(base.resolved.scenario)
    same = KINDS[wing.name].same(base)
    after = wing.resolve(changed(resolved.scenario, {**same, **step.values}), registry)
    if step.server is not None or step.scale_out != 1.0:
        after = _rebuilt(after, step, registry)
    return wing.size(after)


def _same_job(base: TrainingEstimate) -> dict[str, object]:
    """A job on the same GPUs and with the same batch unless a step changes them."""
    batch = {"train.global_batch": base.resolved.job.global_batch} if base.question.batch_is_free else {}
    return {"gpus": base.gpus, **batch}


def _rebuilt(resolved: ResolvedTraining, step: Step, registry: Registry) -> ResolvedTraining:
    """The job on the accelerator and with the network of the step."""
    job = resolved.job
    network = replace(job.network, scale_out_bytes_per_s=job.network.scale_out_bytes_per_s * step.scale_out)
    job = replace(job, network=network)
    if step.server is None:
        return replace(resolved, job=job)
    gpu = step.server.accelerator
    device = build_device(gpu, job.stack, job.method, job.precision, resolved.efficiency)
    links = replace(job.network, scale_up=network_of(step.server).scale_up)
    job = replace(job, server=replace(job.server, accelerator=gpu), device=device, network=links)
    # As in a plan: a price for all kinds or by name is the user's, that of a profile is of its own accelerator.
    unpriced = replace(step.server, price_per_hour=None, capex=None)
    provenance = Provenance(resolved.scenario, registry)
    tariff = tariff_of(provenance, unpriced, TRAINING_POWER_SHARE, TRAINING_UTILISATION)
    return replace(resolved, job=job, tariff=tariff)


def _outcome(sized: TrainingEstimate, least: TrainingEstimate) -> Outcome:
    """What a job comes to.

    least : the estimate whose fewest GPUs are meant: those of the same job do not depend on how many it is tried on
    """
    span = sized.uncertainty.around(sized.total_s)
    chances = [limit.probability for limit in sized.limits if limit.probability is not None]
    return Outcome(
        fits=sized.fits,
        gpus=sized.gpus,
        minimum=least.minimum,
        total_s=sized.total_s,
        gpu_hours=sized.gpu_hours,
        peak_bytes=sized.peak_bytes,
        usable_bytes=sized.usable_bytes,
        price=sized.cost,
        currency=None if sized.cost is None else sized.resolved.tariff.currency,
        low_s=span.low,
        high_s=span.high,
        minimum_offloads=least.minimum is not None and least.minimum_offloads,
        meets_limits=all(limit.ok for limit in sized.limits) if sized.limits else None,
        limits_probability=min(chances, default=None),
        hourly_price=sized.resolved.tariff.hourly(sized.resolved.job.server),
    )


def _effect(words: str, base: Outcome, outcome: Outcome) -> Effect:
    return Effect(
        step=words,
        outcome=outcome,
        time_ratio=_over(outcome.total_s, base.total_s),
        gpus_ratio=outcome.gpus / base.gpus,
        memory_ratio=outcome.peak_bytes / base.peak_bytes,
        gpu_hours_ratio=_over(outcome.gpu_hours, base.gpu_hours),
    )


def _over(value: float, base: float) -> float:
    """A ratio; 1 where either is of what will never run."""
    return value / base if value and base else 1.0


def _data(base: TrainingEstimate) -> Iterator[Step]:
    """Half and twice the steps over data of the same kind."""
    for words, factor in BOTH_WAYS:
        steps = max(round(base.resolved.job.steps * factor), 1)
        yield Step(f"{words} the data", {"train.steps": steps})


def _sizes(base: TrainingEstimate | ServingEstimate, registry: Registry) -> Iterator[Step]:
    """The next smaller and the next larger model of the family."""
    for name in registry.neighbours(base.resolved.job.model, CLEARLY):
        yield Step(name, {"model": name})


def _methods(base: TrainingEstimate) -> Iterator[Step]:
    """The methods next to the job's, heavier and lighter; none starts a model from nothing instead."""
    kind = base.resolved.job.method.kind
    heavier = [other.name for other in METHODS.values() if other.lighter == kind.name and other.fine_tunes]
    for other in (*heavier, *([kind.lighter] if kind.lighter else [])):
        yield Step(f"{other} instead of {kind.name}", {"job": other})
    yield from (Step(change.words, dict(change.values)) for change in other_adapters(base))


def _batches(base: TrainingEstimate) -> Iterator[Step]:
    """Half and twice the sequences a step, over the same data."""
    job = base.resolved.job
    for words, factor in BOTH_WAYS:
        values = {"train.global_batch": round(job.global_batch * factor), "train.steps": round(job.steps / factor) or 1}
        yield Step(f"{words} the batch", values)


def _packing(base: TrainingEstimate, registry: Registry) -> Iterator[Step]:
    """Samples packed, where they are padded; as many steps as the same samples fill."""
    job = base.resolved.job
    for change in packed_samples(base, registry):
        steps = packed_steps(base, packed_seq_len(base))
        if steps:
            fixed = {"train.steps": steps} if base.resolved.fixed_steps else {}
            yield Step(f"packed in {steps:,} instead of {job.steps:,} steps", {**change.values, **fixed})


def _gpus(base: TrainingEstimate, registry: Registry) -> Iterator[Step]:
    """Half and twice the GPUs; in the same servers the vendor's next slower, faster and larger accelerator."""
    for words, factor in BOTH_WAYS:
        if base.gpus * factor >= 1:
            yield Step(f"{words} the GPUs", {"gpus": round(base.gpus * factor)})
    servers = _such_servers(base, registry)
    for name in _neighbours(base.resolved.job.server.accelerator, servers):
        yield Step(name, server=servers[name])


def _neighbours(own: Accelerator, servers: Mapping[str, Server]) -> tuple[str, ...]:
    """Of the accelerators of servers, by name, the next slower, the same with more memory, and the next faster."""
    peak = _peak(own)
    others = sorted((_peak(gpu), gpu.memory_bytes, gpu.name) for gpu in (one.accelerator for one in servers.values()))
    slower = [name for rate, _, name in others if rate < peak / CLEARLY][-1:]
    faster = [name for rate, _, name in others if rate > peak * CLEARLY][:1]
    roomier = [name for rate, size, name in others if rate == peak and size > own.memory_bytes * CLEARLY][:1]
    return (*slower, *roomier, *faster)


def _such_servers(base: TrainingEstimate, registry: Registry) -> dict[str, Server]:
    """Servers of the same build by their accelerator: the vendor's that know the job's precision."""
    job = base.resolved.job
    built = registry.servers_built(job.server.accelerators, job.server.scale_up)
    return {
        server.accelerator.name: server
        for server in built
        if server.accelerator.vendor == job.server.accelerator.vendor
        and job.precision in supported_precisions(server.accelerator)
    }


def _peak(gpu: Accelerator) -> float:
    peaks = gpu.peak_flops_per_s
    return peaks.get(sixteen_bit(peaks)) or max(peaks.values())


def _links(base: TrainingEstimate) -> Iterator[Step]:
    """Half and twice the network between nodes, where the job spans several."""
    if base.gpus > base.resolved.job.network.node_ranks:
        for words, factor in BOTH_WAYS:
            yield Step(f"{words} the network between nodes", scale_out=factor)


def _layouts(base: TrainingEstimate) -> Iterator[Step]:
    """Half and twice the tensor and pipeline parallelism, with what the layout as asked offloads."""
    offload = OFFLOAD[int(base.layouts.offload[0])]
    same: dict[str, object] = {} if offload == OFFLOAD[0] else {"layout.offload": offload}
    for name in ("tp", "pp"):
        size = int(getattr(base.layouts, name)[0])
        for other in (2 * size, size // 2):
            if other:
                yield Step(f"{name} {other} instead of {size}", {f"layout.{name}": other, **same})


def _deadline(base: TrainingEstimate, as_asked: Outcome) -> Iterator[Effect]:
    """The fewest GPUs that end in half and in twice the time."""
    open_, offloads = base.question.on_any_gpus(), any(warn_of_offloading(base))
    found = job_wing(base.resolved.scenario).candidates(open_, every_way=offloads).of_a_whole_search()
    for words, factor in BOTH_WAYS:
        in_time = [one for one in found if one.total_s <= base.total_s * factor]
        if in_time:
            first = min(in_time, key=lambda one: (one.gpus, one.total_s))
            yield _effect(f"{words} the time", as_asked, _outcome(first, base))


# The factors of a service: what is asked of it, and what it runs on and in.


def of_service(base: ServingEstimate, registry: Registry) -> Factors:
    """The factors of a service, each with its steps."""
    return (
        ("load", [*_loads(base)]),
        ("prompt length", [*_lengths(base, "input_tokens")]),
        ("answer length", [*_lengths(base, "output_tokens")]),
        ("turns", [*_turns(base)]),
        ("prefix cache", [*_hits(base)]),
        ("model size", [*_sizes(base, registry)]),
        ("number formats", [*_formats(base, registry)]),
        ("engine", [*_engines(base, registry)]),
        ("GPUs", [*_other_hardware(base, registry)]),
        ("parallelism", [*_placements(base)]),
        ("limits on latency", [*_latency_limits(base)]),
    )


def _loads(base: ServingEstimate) -> Iterator[Step]:
    """Half and twice what is asked for."""
    resolved = base.resolved
    if resolved.load in JUDGED:
        for words, factor in BOTH_WAYS:
            amount = resolved.amount * factor
            whole = amount if resolved.load == RATE else max(round(amount), 1)
            yield Step(f"{words} the load", {f"serve.{resolved.load}": whole})


def _lengths(base: ServingEstimate, key: str) -> Iterator[Step]:
    mean = getattr(base.resolved.values.serve, key)
    for words, factor in BOTH_WAYS:
        yield Step(f"{words} as long", {f"serve.{key}": max(mean * factor, 1.0)})


def _turns(base: ServingEstimate) -> Iterator[Step]:
    """Half and twice the turns of a session, and what lies between two of them."""
    turns = base.resolved.turns
    if turns is not None:
        for words, factor in BOTH_WAYS:
            yield Step(f"{words} the turns", {"serve.turns": max(round(turns.turns * factor), 1)})
            yield Step(f"{words} the time between turns", {"serve.tool_seconds": turns.gap_s * factor})


def _hits(base: ServingEstimate) -> Iterator[Step]:
    """Nothing, half and most of the prompts found in the prefix cache; where that is computed, no such cache."""
    serve, turns = base.resolved.values.serve, base.resolved.turns
    if turns is not None and turns.cached and not turns.size_bytes:
        yield Step("no prefix cache", {"serve.prefix_hit_share": 0.0})
    if serve.kv_host_gib is None and base.resolved.turns is None:
        now = serve.prefix_hit_share or 0.0
        for share in (each for each in (0.0, 0.5, 0.9) if each != now):
            yield Step(f"{share:.0%} of prompts found".replace("%", " %"), {"serve.prefix_hit_share": share})


def _formats(base: ServingEstimate, registry: Registry) -> Iterator[Step]:
    """Narrower weights and a narrower cache, as advice proposes them."""
    changes = [*narrower_weights(base, registry), *narrower_cache(base, registry)]
    yield from (Step(change.words, dict(change.values)) for change in changes)


def _engines(base: ServingEstimate, registry: Registry) -> Iterator[Step]:
    """The other engines that people serve with at scale: those that build on none and have a pool for each phase."""
    own = base.resolved.job.engine
    engines = [load_engine(name, finder=registry) for name in registry.names("engine")]
    (root,) = (one.name for one in engines if one.parent is None)
    for one in engines:
        apart = one.parent == root and one.batching.disaggregates and one.name != own.name
        if apart and (not one.vendors or base.resolved.job.server.accelerator.vendor in one.vendors):
            yield Step(one.name, {"serve.engine": one.name})


def _other_hardware(base: ServingEstimate, registry: Registry) -> Iterator[Step]:
    """The vendor's next slower, faster and larger accelerator, in servers of the same build where one was named."""
    own = base.resolved.job.server
    built = registry.servers_built(own.accelerators, own.scale_up)
    of_maker = sorted(built, key=lambda one: _maker(one) == _maker(own))  # the last of an accelerator is taken
    servers = {one.accelerator.name: one for one in of_maker if one.accelerator.vendor == own.accelerator.vendor}
    for name in _neighbours(own.accelerator, servers):
        server = servers[name].name
        yield Step(name, {"gpu": name}) if own.bare else Step(server, {"server": server})


def _maker(server: Server) -> str:
    """Who sells it, by the first word of its name."""
    return server.name.split("-", maxsplit=1)[0]


def _placements(base: ServingEstimate) -> Iterator[Step]:
    """Half and twice the ranks of tensor parallelism."""
    size = int(base.placement.tp[0])
    for other in (2 * size, size // 2):
        if other:
            yield Step(f"tp {other} instead of {size}", {"layout.tp": other})


def _latency_limits(base: ServingEstimate) -> Iterator[Step]:
    """Half and twice the time that requests may take."""
    for key, name in (("max_ttft_s", "TTFT"), ("max_tpot_s", "TPOT"), ("max_request_s", "time of a request")):
        limit = getattr(base.resolved.limits, key)
        if limit is not None:
            for words, factor in BOTH_WAYS:
                yield Step(f"{words} the {name}", {f"limits.{key}": limit * factor})


def _served(sized: ServingEstimate, _: ServingEstimate) -> Outcome:
    """What a service comes to: the mean time of a request, and the GPU time that one takes within the limits.

    Both are 0 where nothing fits. Raises InputError: more requests come than are taken, and wait for ever
    """
    if sized.fits and (sized.overloaded or not sized.most_per_s):
        hint = "'xe-sizer serve' says what they take; leave the number of GPUs open, or give less load"
        raise InputError(Problem("more requests come than these GPUs take", hint=hint))
    request_s = sized.point.request_s if sized.fits else 0.0
    ttft_s, tpot_s = sized.judged_s[:2]
    span = find_span(sized.resolved, "request").around(request_s)
    chances = [limit.probability for limit in sized.limits if limit.probability is not None]
    return Outcome(
        fits=sized.fits,
        gpus=sized.gpus,
        minimum=sized.choice.minimum,
        total_s=request_s,
        gpu_hours=sized.gpus / sized.most_per_s / HOUR_S if sized.fits else 0.0,
        peak_bytes=sized.peak_bytes,
        usable_bytes=sized.usable_bytes,
        price=sized.cost,
        currency=None if sized.cost is None else sized.resolved.tariff.currency,
        low_s=span.low,
        high_s=span.high,
        meets_limits=sized.keeps_limits if sized.limits else None,
        limits_probability=min(chances, default=None),
        hourly_price=sized.resolved.tariff.hourly(sized.resolved.job.server),
        replicas=sized.replicas,
        ttft_s=ttft_s if sized.fits else None,
        tpot_s=tpot_s if sized.fits and sized.resolved.job.answers else None,
        requests_per_s=sized.most_per_s,
    )


# What differs between the wings.


class Kind(Immutable):
    """How the scenarios of one wing are moved.

    factors : with their steps; same : keys that stay where no step changes them
    outcome : of an estimate; the second has the same job and says on how few GPUs it fits
    layout, shown : of an estimate, to tell steps apart, and its scenario; deadline : steps of the time that is given
    ranked_by : the ratio of an effect that ranks factors
    """

    factors: Callable[[Any, Registry], Factors]
    same: Callable[[Any], dict[str, object]]
    outcome: Callable[[Any, Any], Outcome]
    layout: Callable[[Any], msgspec.Struct]
    shown: Callable[[Any], dict[str, Any]]
    deadline: Callable[[Any, Outcome], Iterator[Effect]]
    ranked_by: Literal["time_ratio", "gpu_hours_ratio"]


def _of_jobs(factors: Callable[[Any, Registry], Factors]) -> Kind:
    return Kind(
        factors,
        _same_job,
        _outcome,
        lambda one: build_layout(one.layouts),
        lambda one: scenario_with_origins(one.resolved),
        _deadline,
        "time_ratio",
    )


KINDS: Mapping[str, Kind] = {
    "training": _of_jobs(of_training),
    "reinforcement": _of_jobs(of_iterations),
    "serving": Kind(
        of_service,
        lambda _: {},
        _served,
        lambda one: build_placement(one.placement),
        find_scenario,
        lambda *_: iter(()),
        "gpu_hours_ratio",
    ),
}
"""By the name of the wing."""
