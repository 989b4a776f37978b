"""A scenario with everything resolved: names to profiles, gaps to the stack's defaults, contradictions to errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import xe_sizer.training.jobs  # noqa: F401  makes the methods known to scenarios
from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.laws.device import BF16, FP16, supported_precisions
from xe_sizer.laws.network import network
from xe_sizer.scenario.options import SERVE_LIMITS
from xe_sizer.scenario.provenance import (
    Provenance,
    assumptions,
    borrowed_laws,
    collect,
    efficiency_of,
    gpu_count,
    in_reading_order,
    model_and_server,
    relative,
    tariff_of,
    with_further,
)
from xe_sizer.scenario.read import serves
from xe_sizer.software.optimizer import load_optimizer
from xe_sizer.software.stack import default_stack, load_stack
from xe_sizer.training.answers import usual_padding, without_effect
from xe_sizer.training.asked import fixed_layout, layers_asked, lengths_assumed, refuse_layers, routed_as_asked
from xe_sizer.training.batches import assumes_batch, global_batch
from xe_sizer.training.chosen_images import left_out, seeing
from xe_sizer.training.chosen_method import method_of, quantises
from xe_sizer.training.chosen_pauses import pauses_of
from xe_sizer.training.chosen_stack import as_chosen
from xe_sizer.training.conflicts import conflicts
from xe_sizer.training.device import device_of, without_losses
from xe_sizer.training.job import Job
from xe_sizer.training.known_data import known_data
from xe_sizer.training.methods import DEFAULT_METHOD, METHODS
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.targets import target_share
from xe_sizer.training.uncertainty import memory_suffices
from xe_sizer.training.workload import DEFAULT_SEQ_LEN, workload
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.read import Given
    from xe_sizer.scenario.schema import LimitsSection
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.chosen_images import Seeing
    from xe_sizer.training.methods import Method

METHOD_SECTIONS = ("lora", "p_tuning")


def _stack(given: Given, registry: Registry, provenance: Provenance) -> Stack | None:
    name = provenance.settle("stack", default_stack())
    if "stack" in given.unread:
        return None
    try:
        stack = load_stack(relative(given, "stack", name), partial(given.locate, ("stack",)), registry)
    except InputError as error:
        raise InputError([_sharding_meant(one, str(name), given, registry) for one in error.problems]) from None
    return _fused(_loaded(_shared_out(stack, given), given), given)


def _shared_out(stack: Stack, given: Given) -> Stack:
    """The stack with states shared out by the library that is asked for. Raises InputError where it has none such."""
    name = given.values.train.backend
    if name is None or (name not in stack.runs_on and gives_way(given, "train.backend")):
        return stack
    if name not in stack.runs_on:
        known = f"it has {', '.join(stack.runs_on)}" if stack.runs_on else "what shares its states out is part of it"
        where = given.locate(("train", "backend"))
        hint = did_you_mean(name, stack.runs_on) or known
        raise InputError(Problem(f"the stack {stack.name} has no backend '{name}'", where, hint))
    return stack if name == stack.backend else stack.on_backend(name)


def chosen(given: Given, key: str) -> bool:
    """Whether somebody chose the value of a key; what a tool fills in where its file says nothing is no choice."""
    return given.origin.get(key) in ("file", "env", "flag")


def gives_way(given: Given, key: str) -> bool:
    """Whether a key was said for another stack: a flag or variable names the stack, and neither of them the key."""
    of_caller = ("flag", "env")
    return given.origin.get("stack") in of_caller and given.origin.get(key) not in of_caller


def _loaded(stack: Stack, given: Given) -> Stack:
    """The stack with weights in the number format that is asked for. Raises InputError where it has none such."""
    dtype = given.values.train.weights_dtype
    if dtype is None or (dtype not in stack.weights_dtypes and gives_way(given, "train.weights_dtype")):
        kind = METHODS.get(given.values.job or DEFAULT_METHOD.name)
        dtype = stack.defaults.quantised_weights_dtype if kind and quantises(given, kind) else None
        return stack.loaded_in(dtype) if dtype else stack
    if dtype not in stack.weights_dtypes:
        known = ", ".join(stack.weights_dtypes)
        hint = f"it has {known}" if known else "what it keeps weights in is part of the stack"
        where = given.locate(("train", "weights_dtype"))
        raise InputError(Problem(f"the stack {stack.name} cannot load weights in {dtype}", where, hint))
    return stack.loaded_in(dtype)


def _fused(stack: Stack, given: Given) -> Stack:
    """The stack with the fused kernels that are asked for. Raises InputError for names that it does not know."""
    asked = given.values.train.fused_kernels or ()
    where = given.locate(("train", "fused_kernels"))
    unknown = [name for name in asked if name not in stack.fused]
    if unknown:
        known = f"known: {', '.join(stack.fused)}"
        hints = {name: did_you_mean(name, stack.fused) or known for name in unknown}
        raise InputError(Problem(f"no fused kernel is called '{name}'", where, hints[name]) for name in unknown)
    return stack.with_fused(asked)


def _sharding_meant(problem: Problem, name: str, given: Given, registry: Registry) -> Problem:
    """The problem of a stack; where its name is that of a way to share states, with what to write instead."""
    from xe_sizer.scenario.foreign_words import sharding_in

    framework, stage = sharding_in(name) or ("", None)
    if stage is None:
        return problem
    zero: dict[str, object] = {"layout.zero": stage}
    if framework and registry.find("stack", framework):
        return replace(problem, hint=f"write {given.caller.settings({'stack': framework, **zero})}")
    told = f"that is ZeRO {stage} here: write {given.caller.settings(zero)} and name what trains as the stack"
    return replace(problem, hint=f"{told}; {problem.hint}")


def _optimizer(given: Given, registry: Registry, stack: Stack) -> Optimizer:
    """The optimizer asked for, which the stack has or a file of the user's describes, or the stack's own."""
    name = given.values.optimizer or stack.defaults.optimizer
    found = load_optimizer(relative(given, "optimizer", name), partial(given.locate, ("optimizer",)), registry)
    rank = given.values.train.optimizer_rank
    if rank is None:
        return found
    if found.low_rank is None:
        where = given.locate(("train", "optimizer_rank"))
        hint = "leave it out, or choose an optimizer that does"
        raise InputError(Problem(f"{found.label} projects no gradients to a rank", where, hint))
    return found.at_rank(rank)


def resolve(given: Given, registry: Registry) -> ResolvedTraining:
    """Everything that the estimate needs.

    Raises
    ------
    InputError : every unknown name, unsupported combination and contradiction with the model or hardware
    """
    if serves(given):
        raise InputError(_inference(given))
    return _trained(given, registry)


def _trained(given: Given, registry: Registry) -> ResolvedTraining:
    """As `resolve`, for a scenario that may have settings of inference."""
    problems: list[Problem] = []
    resolved = _resolved(given, registry, problems)
    if problems or resolved is None:
        raise InputError(in_reading_order(problems, given))
    return resolved


def rearranged(resolved: ResolvedTraining, given: Given, registry: Registry) -> ResolvedTraining | None:
    """The same job on other GPUs of its kind, or under another layout, as a changed scenario has them.

    None where the change makes another job of it: a batch that nobody gave may depend on the GPUs; or where their
    number is open.

    Raises
    ------
    InputError : every contradiction with the model, the hardware or the stack
    """
    job = resolved.job
    gpus = gpu_count(Provenance(given, registry), job.server)
    problems = list(conflicts(given, job.model, job.server, job.stack, job.precision, gpus, registry))
    if problems:
        raise InputError(in_reading_order(problems, given))
    if gpus is None or global_batch(given, gpus, job.stack) != job.global_batch:
        return None
    return replace(resolved, given=given, fixed=fixed_layout(given.values), gpus=gpus)


def _inference(given: Given) -> Problem:
    """What to say to a scenario that another command answers."""
    asked = "the job is inference" if given.values.job else "a scenario with a 'serve' section and no job is inference"
    serve, train = given.caller.call("serve", given.path, {}, ()), given.caller.setting("job", DEFAULT_METHOD.name)
    hint = f"{serve!r} sizes inference; {train} and others are trained"
    return Problem(asked, given.locate(("job",) if given.values.job else ("serve",), key=True), hint)


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and stack have against the rest of it."""
    return with_further(problems, rest, _trained, registry)


def _resolved(
    given: Given, registry: Registry, problems: list[Problem], replicas: int | None = None, batch: int | None = None
) -> ResolvedTraining | None:
    """The resolved job, or None with every problem that can be found added to the list.

    replicas : those that make the global batch, where it follows the layout
    batch : the global batch that is assumed, where it follows the GPUs
    Where one name is unknown, the rest is still checked against what the other names stand for.
    """
    provenance = Provenance(given, registry)
    model, server = model_and_server(problems, given, registry, provenance)
    model = model and collect(problems, routed_as_asked, given, model)
    collect(problems, known_data, given, registry)
    stack = collect(problems, _stack, given, registry, provenance)
    job_name = provenance.settle("job", DEFAULT_METHOD.name)
    model = model and METHODS.get(job_name, DEFAULT_METHOD).read_by(model, given.values.train.task)
    # What a method asks of a model hardly depends on the stack: an unknown one need not hide the answer.
    assumed = stack or load_stack(default_stack())
    method = model and collect(problems, _method, provenance, model, assumed, job_name, registry)
    precision = _precision(provenance, server, stack) if server and stack else given.values.precision
    gpus = gpu_count(provenance, server)
    problems += conflicts(given, model, server, stack, precision, gpus, registry)
    if server:
        collect(problems, tariff_of, given, server, registry)
    if problems or given.unread or not (model and server and stack and method and precision):
        return None
    fitted = gpus is None and assumes_batch(given)
    batch, at_replicas = _batch(given, provenance, gpus, stack, registry, replicas, batch)
    seq_len = provenance.settle("train.seq_len", min(model.max_positions or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN))
    default_padding = usual_padding(stack, method)
    padding = provenance.settle("train.padding", default_padding, "stack")
    per_sample = method.sequences_per_sample
    work = collect(problems, workload, given, seq_len, batch, padding, registry, per_sample)
    optimizer = collect(problems, _optimizer, given, registry, stack)
    if work is None or optimizer is None:
        return None
    job = collect(problems, seeing, provenance, model, stack, method, work)
    if job is None:
        return None
    made = _assembled(given, provenance, model, server, stack, job, optimizer, precision, gpus)
    return replace(made, at_replicas=at_replicas, at_batch=partial(_for_batch, given, registry) if fitted else None)


def _batch(
    given: Given, provenance: Provenance, gpus: int | None, stack: Stack, registry: Registry, replicas: int | None,
    assumed: int | None,
) -> tuple[int, Callable[[int], ResolvedTraining] | None]:  # fmt: skip
    """The global batch; and where it follows the layout, what resolves the scenario for a number of replicas.

    Then the batch is that of one replica, or of as many as are asked for.
    """
    batch, train = assumed or global_batch(given, gpus, stack), given.values.train
    follows = None
    if batch is None:
        batch = (train.micro_batch or 1) * (train.grad_accum or 1) * (replicas or 1)
        follows = cache(partial(_for_replicas, given, registry)) if replicas is None else None
    made = train.grad_accum is not None and train.micro_batch is not None
    origin = given.origin["train.grad_accum"] if made else "default"
    return provenance.settle("train.global_batch", batch, origin), follows


def _for_replicas(given: Given, registry: Registry, replicas: int) -> ResolvedTraining:
    """A scenario that is known to resolve, with the global batch of so many replicas."""
    found = _resolved(given, registry, [], replicas)
    assert found is not None
    return found


def _for_batch(given: Given, registry: Registry, batch: int) -> ResolvedTraining:
    """A scenario that is known to resolve, with another global batch where one is assumed."""
    found = _resolved(given, registry, [], batch=batch)
    assert found is not None
    return found


def _assembled(
    given: Given, provenance: Provenance, model: ModelShape, server: Server, stack: Stack, seen: Seeing,
    optimizer: Optimizer, precision: str, gpus: int | None,
) -> ResolvedTraining:  # fmt: skip
    values, work, method = given.values, seen.work, seen.method
    efficiency = efficiency_of(given)
    refuse_layers(given, model, method)
    if not optimizer.masters and precision in stack.weights_dtypes:  # it keeps no float32 copy of all weights
        stack = stack.loaded_in(precision)
    if precision == FP16 and stack.defaults.weights_dtype == BF16 and not chosen(given, "train.weights_dtype"):
        stack = stack.loaded_in(FP16) if FP16 in stack.weights_dtypes else stack
    stack_used = without_losses(as_chosen(stack, provenance, values, precision, server, method), efficiency)
    provenance.settle("optimizer", stack.defaults.optimizer, "stack")
    job = Job(
        model=model,
        method=method,
        stack=stack_used,
        server=server,
        network=network(server),
        device=device_of(server.accelerator, stack_used, method, precision, efficiency),
        precision=precision,
        optimizer=optimizer,
        attention=provenance.settle("attention", stack.kernels.attention, "stack"),
        lengths=work.lengths,
        target_share=target_share(provenance, model, work.seq_len, method.kind.fine_tunes),
        padding=work.padding,
        seq_len=work.seq_len,
        samples=work.samples,
        global_batch=work.global_batch,
        steps=work.steps,
        **layers_asked(values),
        pauses=pauses_of(provenance, work, writes=method.kind.rollout is not None),
        images=seen.images,
        lengths_assumed=lengths_assumed(values, provenance.origin["train.seq_len"]),
    )
    written = ("rollout",) if method.kind.rollout else ()
    provenance.keep(("data", "train", "storage", "layout", *written, "p_tuning", "limits", "cost", "efficiency"))
    _of_stack(provenance, stack)
    for key, value in work.defaults.items():
        provenance.note(key, value, "default")
    return ResolvedTraining(
        given=given,
        job=job,
        fixed=fixed_layout(values),
        gpus=gpus,
        min_headroom_bytes=_headroom_bytes(values.limits, job),
        tariff=tariff_of(given, server, provenance.finder),
        efficiency=efficiency,
        values=provenance.values,
        origin=provenance.origin,
        warnings=(*work.warnings, *_warnings(given, job, efficiency)),
        data_source=work.source,
        known_samples=work.known_samples,
    )


def _otherwise(given: Given, job: Job) -> Iterator[str]:
    """Precision, weights and backend that are not what a tool's default or another stack's file says."""
    known, usual = supported_precisions(job.server.accelerator), (given.values.precision, job.stack.defaults.precision)
    if not chosen(given, "precision") and (missing := [one for one in usual if one is not None and one not in known]):
        yield f"{job.server.accelerator.name} has no {missing[0]}: the run computes in {job.precision} instead"
    backend, dtype = given.values.train.backend, given.values.train.weights_dtype
    if backend is not None and backend not in job.stack.runs_on:
        yield f"the stack {job.stack.name} has no backend {backend}, which the file says: it shares states out itself"
    if dtype is not None and dtype not in job.stack.weights_dtypes:
        yield f"the stack {job.stack.name} cannot load weights in {dtype}, which the file says: it keeps its own type"
    elif dtype is not None and job.stack.loads_alike and chosen(given, "train.weights_dtype"):
        setting, keeps = given.caller.setting("train.weights_dtype", dtype), job.stack.backend or job.stack.name
        yield f"{setting} has no effect: {keeps} keeps 16-bit weights with float32 copies, whatever is loaded"


def _headroom_bytes(limits: LimitsSection, job: Job) -> float:
    """What a layout must leave free of the card: what is asked, and what memory as sure as is asked takes [bytes]."""
    asked = (limits.min_headroom_gib or 0.0) * GIB
    if limits.confidence is None:
        return asked
    card_bytes = job.server.accelerator.memory_bytes
    room = memory_suffices(job.lengths_assumed).quantile(limits.confidence)
    return card_bytes - (card_bytes - asked) / max(room, 1.0)


def _method(provenance: Provenance, model: ModelShape, stack: Stack, job_name: str, registry: Registry) -> Method:
    kind = METHODS.get(job_name)
    if kind is None:  # a job of the other wing, beside other problems of the scenario
        raise InputError(_inference(provenance.given))
    return method_of(provenance, model, stack, kind, registry)


def _precision(provenance: Provenance, server: Server, stack: Stack) -> str:
    known = supported_precisions(server.accelerator)
    default = stack.defaults.precision
    given = provenance.given
    if chosen(given, "precision"):
        return str(provenance.settle("precision", default, "stack"))
    default = given.values.precision or default
    usable = default if default in known else FP16 if FP16 in known else known[0]
    provenance.note("precision", usable, given.origin.get("precision", "stack"))
    return usable


def _of_stack(provenance: Provenance, stack: Stack) -> None:
    """Note what weights are loaded in and what shares states out, also where the stack has it otherwise than said."""
    given = provenance.given
    asked = {"train.weights_dtype": stack.defaults.weights_dtype, "train.backend": stack.backend}
    for key, value in asked.items():
        if value is None or (key == "train.backend" and key not in given.origin):
            provenance.drop(key)
        else:
            provenance.note(key, value, given.origin.get(key, "stack") if provenance.is_given(key, value) else "stack")


def _warnings(given: Given, job: Job, efficiency: Efficiency) -> Iterator[str]:
    values, model = given.values, job.model
    if values.train.seq_len and model.max_positions and values.train.seq_len > model.max_positions:
        asked, trained = f"{values.train.seq_len:,}", f"{model.max_positions:,}"
        yield f"seq_len {asked} is above the {trained} positions that {model.name} was trained for"
    if (ramp := job.batch_ramp) is not None:
        more = ramp.more_steps(job.global_batch, float(job.steps * job.global_batch))
        grows = f"the batch grows from {ramp.start:,} to {job.global_batch:,} sequences over {ramp.samples:,}"
        yield f"{grows}: {more:,.0f} steps more than the {job.steps:,} of whole batches, which memory is for"
    for section in METHOD_SECTIONS:
        if section not in job.method.settings and any(key.startswith(f"{section}.") for key in given.origin):
            yield f"{section} settings have no effect on the job {job.method.name}"
    others = {key for kind in METHODS.values() for key in kind.reads} - set(job.method.kind.reads)
    for key in sorted(others & set(given.origin)):
        yield f"{given.caller.setting(key)} has no effect on the job {job.method.name}"
    yield from without_effect(given, job)
    yield from _otherwise(given, job)
    if job.method.kind.rollout is None and any(key.startswith("rollout.") for key in given.origin):
        yield f"rollout settings have no effect on the job {job.method.name}"
    served = {key for key, origin in given.origin.items() if origin != "env" and key in SERVE_LIMITS}
    if any(key.startswith("serve.") and origin != "env" for key, origin in given.origin.items()):
        served.add("serve settings")
    if served:
        yield f"{' and '.join(sorted(served))} have no effect on the job {job.method.name}"
    yield from left_out(given, model)
    yield from assumptions(model, job.server)
    yield from borrowed_laws(job.server.accelerator, efficiency)
