"""An estimate as the result that users read: the JSON contract filled in, in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.laws.hardware import HOST_RESERVE_BYTES, energy_kwh, energy_words
from xe_sizer.result.common import (
    ONLY_STAGE,
    SCHEMA_VERSION,
    Factor,
    Gpus,
    MemoryComponent,
    Range,
    Reason,
    Source,
    TimeComponent,
)
from xe_sizer.result.training import (
    Checkpoint,
    Cost,
    Data,
    Layout,
    Loss,
    Memory,
    ModuleTime,
    MomentMemory,
    Price,
    Result,
    Time,
)
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.scenario.provenance import resolved_scenario
from xe_sizer.training.beside import beside_rows
from xe_sizer.training.checkpoints import write_rate
from xe_sizer.training.images_summary import sample_images, trained_parts
from xe_sizer.training.layout import WORDS
from xe_sizer.training.memory import at_level
from xe_sizer.training.memory_parts import MEMORY_PARTS
from xe_sizer.training.moments import MOMENTS
from xe_sizer.training.run_time import RUN_PARTS, run_parts
from xe_sizer.training.stage_time import COMPUTE_PARTS, MICRO_BATCH_PARTS
from xe_sizer.training.start_up import start_up_s
from xe_sizer.training.step import STEP_PARTS
from xe_sizer.training.warnings import cautions, warnings
from xe_sizer.units import GIB, HOUR_S, three_digits, whole_parts
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.laws.parts import Part
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.resolved import ResolvedTraining

COMPUTE = tuple(part.name for part in COMPUTE_PARTS)
EVERY_MICRO_BATCH = frozenset(part.name for part in MICRO_BATCH_PARTS)
KERNELS = "kernels below peak"


def summarise(sized: TrainingEstimate, details: bool = True) -> Result:
    """Everything about an estimate but the advice.

    details : with what only a full report shows: the minimum of GPUs, modules, losses and sources
    """
    resolved, job = sized.resolved, sized.resolved.job
    memory, time = _memory(sized, details), _time(sized, details)
    cost = cost_of(sized, time)
    confidence, caller = sized.confidence, resolved.given.caller
    reasons = (
        *memory_reasons(memory),
        *memory_doubt(sized, confidence),
        *missed(sized.limits, caller, confidence=confidence),
    )
    node, told = job.server.accelerators, tuple(cautions(sized))
    return Result(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=scenario_of(resolved),
        verdict=verdict_of(sized, confidence, sized.keeps_limits, reasons),
        gpus=Gpus(
            count=sized.gpus,
            nodes=math.ceil(sized.gpus / node),
            gpus_per_node=min(sized.gpus, node),
            minimum_that_fits=sized.minimum if details else None,
            minimum_offloads=details and sized.minimum_offloads,
        ),
        layout=layout_of(sized.layouts),
        memory=memory,
        time=time,
        data=_data(sized),
        cost=cost,
        checkpoint=checkpoint_of(sized),
        beside=tuple(beside_rows(sized)) if details else (),
        images=sample_images(sized),
        parts=tuple(trained_parts(sized)),
        warnings=tuple(dict.fromkeys((*resolved.warnings, *told, *warnings(sized)))),
        cautions=told,
        sources=_sources(resolved) if details else (),
    )


def with_operators(result: Result, sized: TrainingEstimate) -> Result:
    """The result with its step operator by operator."""
    from xe_sizer.scenario.trials import operator_rows
    from xe_sizer.training.operator_costs import operator_costs

    operators = operator_rows(operator_costs(sized.timeline), result.time.step_s.expected)
    return replace(result, time=replace(result.time, operators=operators))


def scenario_of(resolved: ResolvedTraining) -> dict[str, Any]:
    """Resolved keys, nested as in the scenario file, with the origin of each."""
    job = resolved.job
    scenario = resolved_scenario(resolved.values, resolved.origin, job.model, job.server)
    scenario["names"]["job"] = job.method.label
    return scenario


def layout_of(layouts: Layouts) -> Layout:
    names = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "micro_batch", "grad_accum", "zero_group", "expert_tp")
    sizes: dict[str, Any] = {name: int(getattr(layouts, name)[0]) for name in names}
    words: dict[str, Any] = {name: known[int(getattr(layouts, name)[0])] for name, known in WORDS.items()}
    return Layout(
        **sizes,
        **words,
        sequence_parallel=bool(layouts.sequence_parallel[0]),
    )


def _components(sized: TrainingEstimate, details: bool) -> tuple[MemoryComponent, ...]:
    """What the worst GPU holds at its worst moment, in whole bytes; with the numbers of the formulas as a detail."""
    held = sized.ledger.at_peak()
    found = [part for part in MEMORY_PARTS if part.name in held]
    terms = _terms(sized, held) if details else {}
    return tuple(
        MemoryComponent(
            name=part.name, bytes=size, formula=part.formula, source=part.source, terms=terms.get(part.name, ())
        )
        for part, size in zip(found, whole_parts(held[part.name] for part in found), strict=True)
    )


def _terms(sized: TrainingEstimate, held: Mapping[str, float]) -> dict[str, tuple[tuple[Factor, ...], ...]]:
    """Parts of the memory as sums of products, with their numbers."""
    from xe_sizer.training.memory_terms import peak_of, terms_at

    peak = peak_of(sized.resolved.job, sized.layouts, sized.ledger)
    return {
        name: tuple(
            tuple(Factor(value=one.value, name=one.name, divides=one.divides) for one in term)
            for term in terms_at(peak, name, size)
        )
        for name, size in held.items()
    }


def _memory(sized: TrainingEstimate, details: bool) -> Memory:
    job, layouts = sized.resolved.job, sized.layouts
    stage, moment = sized.ledger.worst()
    typical = at_level(sized.ledger, job, layouts, "typical")
    stages = int(layouts.pp[0])
    number = 1 if stage == 0 else stages
    components = _components(sized, details)
    peak, usable = sum(part.bytes for part in components), float(round(sized.usable_bytes))
    return Memory(
        peak_bytes=peak,
        usable_bytes=usable,
        headroom_bytes=usable - peak,
        phase=MOMENTS[moment],
        gpu=f"pipeline stage {number} of {stages}",
        components=components,
        host_bytes=float(round(sized.ledger.host_bytes[0])),
        host_available_bytes=job.server.host_memory_bytes,
        host_reserve_bytes=HOST_RESERVE_BYTES,
        allocated_bytes=float(round(typical.tensor_peak_bytes[0])),
        reserved_bytes=float(round(typical.reserved_peak_bytes[0])),
        device_bytes=float(round(typical.monitored_peak_bytes[0])),
        cached_bytes=float(round(typical.cached_bytes[0])),
        error_share=job.stack.memory.error_share,
        trainable_parameters=job.method.trainable_parameters(job.model),
        moments=tuple(
            MomentMemory(name=name, bytes=float(round(size))) for name, size in sized.ledger.over_time().items()
        ),
    )


def _time(sized: TrainingEstimate, details: bool) -> Time:
    job, line = sized.resolved.job, sized.timeline
    seconds = {name: float(value[0]) for name, value in line.components.items()}
    step_s = sum(seconds.values())
    span = sized.uncertainty
    per_gpu = step_s * job.device.peak_flops_per_s
    useful = float(line.flops[0])
    ideal = sized.ideal_s if details else None
    return Time(
        step_s=span.around(step_s),
        components=tuple(
            _component(part, value, step_s, _micro_batches(sized, name, value))
            for part, (name, value) in zip(STEP_PARTS, seconds.items(), strict=True)
            if value > 0
        ),
        modules=tuple(
            ModuleTime(name=name, forward_s=float(forward[0]), backward_s=float(backward[0]))
            for name, (forward, backward) in (line.modules if details else {}).items()
        ),
        steps=job.steps,
        total_s=span.around(sized.total_s),
        tokens_per_s_per_gpu=sized.tokens_per_s / sized.gpus,
        samples_per_s=sized.samples_per_s,
        mfu=useful / per_gpu,
        hfu=(useful + float(line.recompute_flops[0])) / per_gpu,
        bound=bound_of(seconds),
        start_up_s=start_up_s(job),
        calibrated=span.calibrated,
        evidence=span.evidence,
        basis=span.basis,
        ideal_step_s=None if ideal is None else sum(ideal.values()),
        losses=() if ideal is None else _losses(seconds, ideal),
        run=run_of(sized),
        goodput=job.steps * step_s / sized.total_s if job.interrupted else None,
    )


def run_of(sized: TrainingEstimate) -> tuple[TimeComponent, ...]:
    """Parts of the time of the whole run; nothing where it is its steps alone."""
    if not sized.resolved.job.interrupted:
        return ()
    seconds = {name: float(value[0]) for name, value in run_parts(sized.run).items()}
    return tuple(_component(part, seconds[part.name], sized.total_s) for part in RUN_PARTS if seconds[part.name] > 0)


def _component(
    part: Part[Any], seconds: float, whole_s: float, terms: tuple[tuple[Factor, ...], ...] = ()
) -> TimeComponent:
    """A part of a step or of the whole run, with its share of that."""
    return TimeComponent(
        name=part.name,
        seconds=seconds,
        share=seconds / whole_s,
        formula=part.formula,
        source=part.source,
        terms=terms,
    )


def checkpoint_of(sized: TrainingEstimate) -> Checkpoint:
    """What one checkpoint holds and takes, and how often the run is saved."""
    run, pauses = sized.run, sized.resolved.job.pauses
    saves, fails = int(run.saves[0]), pauses.failures_per_gpu_day > 0
    return Checkpoint(
        bytes=float(round(run.saved.size[0])),
        weights_bytes=float(round(run.saved.weights[0])),
        optimizer_bytes=float(round(run.saved.optimizer[0])),
        pause_s=float(run.pause_s[0]),
        save_s=float(run.saved.whole_s[0]),
        write_bytes_per_s=float(write_rate(sized.resolved.job, sized.layouts)[0]),
        asynchronous=pauses.asynchronous,
        every_steps=int(run.every[0]) if saves else None,
        count=saves,
        best_every_steps=int(run.best_every[0]) if fails else None,
        mean_time_between_failures_s=float(run.mtbf_s[0]) if fails else None,
    )


def _micro_batches(sized: TrainingEstimate, name: str, seconds: float) -> tuple[tuple[Factor, ...], ...]:
    """What each micro-batch takes of a part that comes with every one of them."""
    if name not in EVERY_MICRO_BATCH:
        return ()
    accum = float(sized.layouts.grad_accum[0])
    return ((Factor(value=accum, name="micro-batches"), Factor(value=seconds / accum, name="s each")),)


def _losses(seconds: Mapping[str, float], ideal: Mapping[str, float]) -> tuple[Loss, ...]:
    """What each part takes beyond the speed of light, largest first, kernels together; they sum to what is lost.

    A part may take longer at the speed of light, where compute hides less of it: what slow kernels hide is not lost by
    them, and is taken off the largest losses.
    """
    step_s = sum(seconds.values())
    beyond = {name: seconds[name] - ideal[name] for name in seconds}
    beyond = {KERNELS: sum(beyond.pop(name) for name in COMPUTE), **beyond}
    hidden_s = -sum(min(s, 0.0) for s in beyond.values())
    losses = []
    for name, lost_s in sorted(beyond.items(), key=lambda item: -item[1]):
        taken_s = min(max(lost_s, 0.0), hidden_s)
        hidden_s -= taken_s
        losses.append((name, lost_s - taken_s))
    found = sorted(losses, key=lambda item: -item[1])
    return tuple(Loss(name=name, seconds=s, share=s / step_s) for name, s in found if s > 0)


def bound_of(seconds: Mapping[str, float]) -> str:
    """The part of the step that takes longest, forward, backward and recomputation taken together as compute."""
    compute = sum(seconds.get(name, 0.0) for name in COMPUTE)
    others = {name: value for name, value in seconds.items() if name not in COMPUTE}
    name, value = max(others.items(), key=lambda item: item[1])
    return "compute" if compute >= value else name


def _data(sized: TrainingEstimate) -> Data:
    job = sized.resolved.job
    sequences = sized.choice.sequences
    trained = job.steps * job.global_batch
    processed = trained * sized.tokens_per_sample
    padding = float(sequences.padding_share[0])
    return Data(
        samples=round(job.samples),
        real_tokens=processed * (1.0 - padding),
        processed_tokens=processed,
        padding_share=padding,
        sequence_tokens=float(sequences.mean_tokens[0]),
        longest_tokens=float(sequences.longest_tokens[0]),
        padding=job.padding,
        samples_read=job.samples_read,
        epochs=sized.resolved.epochs,
        sequences_per_sample=job.method.sequences_per_sample,
    )


def cost_of(sized: TrainingEstimate, time: Time) -> Cost:
    """Hours of the GPUs in use; energy of them and their share of the servers; the price of what is paid for."""
    resolved = sized.resolved
    hours = Range(**{end: getattr(time.total_s, end) / HOUR_S * sized.gpus for end in ("low", "expected", "high")})
    price = None
    if sized.cost is not None:
        per_hour = sized.cost / hours.expected
        ends = {end: getattr(hours, end) * per_hour for end in ("low", "expected", "high")}
        price = Price(currency=resolved.tariff.currency, **ends)
    server = resolved.job.server
    energy = energy_kwh(server, hours.expected)
    return Cost(
        gpu_hours=hours,
        energy_kwh=energy,
        price=price,
        energy_formula=energy_words(server),
        hourly_price=resolved.tariff.hourly(server),
    )


def memory_reasons(memory: Memory) -> tuple[Reason, ...]:
    """What keeps memory from sufficing: bytes that a GPU lacks at its peak, and bytes that the host lacks."""
    reasons = []
    stage = "" if memory.gpu == ONLY_STAGE else f"{memory.gpu}, "
    if memory.headroom_bytes < 0:
        message = (
            f"needs {three_digits(memory.peak_bytes / GIB)} GiB per GPU, "
            f"{three_digits(memory.usable_bytes / GIB)} GiB available, "
            f"{three_digits(-memory.headroom_bytes / GIB)} GiB missing ({stage}{memory.phase})"
        )
        reasons.append(Reason(code="out-of-memory", message=message))
    host = memory.host_available_bytes
    if host is not None and memory.host_bytes > max(host - memory.host_reserve_bytes, 0.0):
        needed = f"{three_digits(memory.host_bytes / GIB)} GiB of host memory per node"
        system = f"{memory.host_reserve_bytes / GIB:.0f} for the system"
        message = f"offloading needs {needed}, {host / GIB:.0f} GiB available less {system}"
        reasons.append(Reason(code="out-of-host-memory", message=message))
    return tuple(reasons)


def _sources(resolved: ResolvedTraining) -> tuple[Source, ...]:
    job, gpu = resolved.job, resolved.job.server.accelerator
    found = [
        Source(name=f"accelerator {gpu.name}", source=gpu.source),
        Source(name=f"server {job.server.name}", source=job.server.source),
        Source(name="matrix products", source=job.device.matmul.source),
        Source(name="attention", source=job.device.attention.source),
        Source(name=f"stack {job.stack.name}", source=job.stack.source),
        Source(name="token lengths", source=resolved.data_source or job.lengths.assumption),
    ]
    found += [Source(name=f"collective {name}", source=law.source) for name, law in job.network.scale_up.items()]
    return tuple(source for source in found if source.source)
