"""An estimate as the result that users read: the JSON contract filled in, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.experts import find_loop
from xe_sizer.graph.model import VOCABULARY
from xe_sizer.graph.weights import count_parameters
from xe_sizer.laws.hardware import HOST_RESERVE_BYTES, energy_kwh, energy_words
from xe_sizer.laws.matmul import misalignment
from xe_sizer.result.common import (
    LIKELY,
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
    Beside,
    Checkpoint,
    Cost,
    Data,
    Holding,
    Layout,
    Loss,
    Memory,
    ModuleTime,
    MomentMemory,
    Price,
    Result,
    SampleImages,
    StageMemory,
    Time,
    TrainedPart,
)
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.scenario.provenance import joining_assumptions, resolved_scenario
from xe_sizer.scenario.tariff import tariff_sources, what_is_paid
from xe_sizer.software.number_formats import told_by
from xe_sizer.training.evaluation import COMPUTE_PARTS, MICRO_BATCH_PARTS, Evaluation
from xe_sizer.training.layout import OFFLOAD, WORDS, Counted
from xe_sizer.training.memory import at_level, ledger_of
from xe_sizer.training.memory_parts import KINDS_OF_PARTS, MEMORY_PARTS, MOMENTS, OVERHEAD_PARTS, TENSOR_PARTS, Around
from xe_sizer.training.methods import METHODS
from xe_sizer.training.model_states import FULLY_SHARDED
from xe_sizer.training.padding import PACKED, TO_SEQ_LEN
from xe_sizer.training.resolve import unsized_evaluation
from xe_sizer.training.run import NOTICEABLE, RUN_PARTS, beforehand, run_parts, start_up_s, write_rate
from xe_sizer.training.search_space import offload_options
from xe_sizer.training.step_time import STEP_PARTS, timeline
from xe_sizer.training.uncertainty import memory_suffices
from xe_sizer.units import FLOAT32, GIB, HOUR_S, MINUTE_S, three_digits, whole_parts
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.laws.parts import Part
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.resolved import ResolvedTraining

# What each of the frozen weights beside a model takes of memory and time.


def beside_rows(estimate: TrainingEstimate) -> Iterator[Beside]:
    """Each of them, with what it adds to a step; of passes beforehand, what they add to the run."""
    method = estimate.resolved.job.method
    for one in method.frozen:
        yield _row(estimate, one, once=False, seconds=_seconds(estimate, one))
    for one in method.before:
        seconds = float(run_parts(estimate.run)[beforehand.name][0]) / len(method.before)
        yield _row(estimate, one, once=True, seconds=seconds)


def _row(estimate: TrainingEstimate, one: Frozen, *, once: bool, seconds: float) -> Beside:
    job, evaluation = estimate.resolved.job, estimate.choice.evaluation
    stage, _ = estimate.ledger.worst()
    on_card = one.copies * (1.0 - float(evaluation.copies_on_host[0]))
    alone = next((other for each, other in evaluation.beside if each is one), None)
    alone = alone or Evaluation(job.beside(one), estimate.layouts)
    return Beside(
        name=one.words,
        model=(one.model or job.model).name,
        copies=one.copies,
        passes=one.forwards,
        beforehand=once,
        bytes=on_card * float(alone.as_copy_bytes[stage, 0]),
        seconds=seconds,
    )


def _seconds(estimate: TrainingEstimate, one: Frozen) -> float:
    """What a step takes less without its passes, gathers and transfers among it."""
    job = estimate.resolved.job
    others = tuple(each for each in job.method.frozen if each is not one)
    without = timeline(
        replace(job, method=replace(job.method, frozen=others)), estimate.layouts, estimate.choice.sequences
    )
    return max(estimate.step_s - float(without.step_s[0]), 0.0)


# What packing makes of the optimizer's steps: the same tokens are fewer sequences.

MUCH_LONGER = 1.5  # chosen: times the longest sample from which a sequence length that nothing reaches is another job
SAME_NUMBER = 0.1  # share by which a number of steps may differ and count as kept


def packed_seq_len(estimate: TrainingEstimate) -> int:
    """Tokens of the sequences to pack into: those of the job, of the longest sample where these are far longer."""
    seq_len, longest = estimate.resolved.job.seq_len, int(estimate.choice.sequences.longest_tokens[0])
    return longest if seq_len > MUCH_LONGER * longest else seq_len


def packed_settings(estimate: TrainingEstimate) -> dict[str, object]:
    """The settings that pack the samples so, the number of steps left as it is."""
    seq_len = packed_seq_len(estimate)
    shorter: dict[str, object] = {} if seq_len == estimate.resolved.job.seq_len else {"train.seq_len": seq_len}
    return {"train.padding": PACKED, **shorter}


def packed_steps(estimate: TrainingEstimate, seq_len: int) -> int:
    """Optimizer steps that read the same samples packed into sequences of `seq_len` tokens; 0: less than one batch."""
    batches = _packed_sequences(estimate, seq_len) / estimate.resolved.job.global_batch
    return round(batches) if estimate.resolved.fixed_steps else math.ceil(batches)


def kept_steps_words(estimate: TrainingEstimate, seq_len: int) -> str:
    """The global batch, a multiple of what the data-parallel ranks read at once, that keeps the number of steps.

        batch = packed sequences / steps, to the nearest multiple

    With fewer packed sequences a step than ranks no batch keeps it: then the nearest, with the steps that it makes.
    """
    layouts, steps = estimate.layouts, estimate.resolved.job.steps
    micro = int(layouts.micro_batch[0]) if "micro_batch" in estimate.resolved.fixed else 1
    together, sequences = int(layouts.dp[0]) * micro, _packed_sequences(estimate, seq_len)
    batch = max(round(sequences / steps / together), 1) * together
    kept = max(math.ceil(sequences / batch), 1)
    if abs(kept - steps) <= SAME_NUMBER * steps:
        return f"a global batch of {batch:,} keeps the number of steps"
    return f"{kept:,} with a global batch of {batch:,}"


def _packed_sequences(estimate: TrainingEstimate, seq_len: int) -> float:
    return estimate.resolved.job.read_tokens / seq_len


# What an answer itself gives reason to say; what changes its meaning stands beside the verdict.

MOST_EPOCHS = 30  # passes over a data set from which they are worth a warning
MOST_PADDING = 0.5  # share of padding from which it is worth a warning
LOADED_BITS, QUANTISED_BITS = 16, 4  # of a weight: as most methods hold it, and as those that quantise do


def warnings(estimate: TrainingEstimate) -> Iterator[str]:
    """Yield the warnings beside the cautions, which come first."""
    yield from joining_assumptions(estimate.resolved.job.server, estimate.gpus)
    yield from warn_of_unreached_lengths(estimate)
    yield from warn_of_padding(estimate)
    yield from warn_of_many_epochs(estimate.resolved)
    yield from _kept_by_fsdp(estimate)
    if estimate.cost is not None:
        resolved = estimate.resolved
        paid, server = (estimate.billed_gpus, estimate.gpus), resolved.job.server
        yield from what_is_paid(resolved.tariff, *paid, server, resolved.scenario.caller)
    yield from slow_start(estimate)


def cautions(estimate: TrainingEstimate) -> Iterator[str]:
    """Yield what a reader must know to read the verdict and the time right."""
    resolved, stack = estimate.resolved, estimate.resolved.job.stack
    yield from (f"{resolved.job.model.name}: {guess}" for guess in resolved.job.model.guesses)
    if estimate.gpus > 1 and not stack.supports.several_gpus:
        yield f"{stack.name} trains on one GPU; the times of {estimate.gpus} are those of plain data parallelism"
    yield from warn_of_offloading(estimate)
    yield from warn_of_looped_experts(resolved)
    yield from warn_of_odd_vocabulary(resolved)
    yield from warn_of_epochs_of_nothing(resolved)
    yield from unsized_evaluation(resolved.scenario, resolved.job.pauses)
    yield from warn_of_unpacked_weights(resolved)


def warn_of_offloading(estimate: TrainingEstimate) -> Iterator[str]:
    """That the layout offloads what nobody asked to, as nothing else fits: the training has to be told so too."""
    resolved, code = estimate.resolved, int(estimate.layouts.offload[0])
    if code and code not in offload_options(resolved.rules):
        without = resolved.scenario.caller.setting("layout.offload", OFFLOAD[0])
        stack = resolved.job.stack.name
        yield f"{OFFLOAD[code]} offloaded, which {stack} does only when it is told to; {without} judges the job without"


def warn_of_looped_experts(resolved: ResolvedTraining) -> Iterator[str]:
    """That experts are computed one after the other, and the setting that prices them together."""
    job = resolved.job
    if job.model.experts is None or not find_loop(job.stack.graph_kernels(job.attention), job.model.experts):
        return
    told = f"{job.stack.name} computes the {job.model.experts.count} experts of a layer one after the other"
    together = [name for name, kernels in job.stack.fused.items() if kernels.get("experts") == "grouped"]
    for name in together[:1]:
        told += f"; {resolved.scenario.caller.setting('train.fused_kernels', name)} estimates grouped products"
    yield told


def warn_of_odd_vocabulary(resolved: ResolvedTraining) -> Iterator[str]:
    """That the head's products run in slow kernels, where they were measured and nobody pads the vocabulary."""
    job, law = resolved.job, resolved.job.device.matmul
    slower = float(misalignment(job.model.vocab, job.model.hidden, 1.0, law.unaligned))
    if not job.stack.kernels.pads_vocabulary and job.model.head == VOCABULARY and slower > 1.0:
        yield (
            f"{job.model.vocab:,} tokens are no multiple of 8: products of the head take {slower:.1f} times as long on "
            f"{job.server.accelerator.name}; pad the embedding (pad_to_multiple_of=64)"
        )


def warn_of_epochs_of_nothing(resolved: ResolvedTraining) -> Iterator[str]:
    """That passes over the data say nothing where nobody said how much data there is."""
    epochs, caller = resolved.scenario.values.train.epochs, resolved.scenario.caller
    if epochs is not None and resolved.known_samples is None:
        written, samples = caller.setting("train.epochs", epochs), caller.setting("data.samples", 50_000)
        data = f"{samples}, for example, or {caller.setting('data.profile')} says how much an epoch is"
        passes = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
        said = {"file": f"the file says {passes}", "stack": f"{passes} by default of the tool"}
        told = said.get(resolved.scenario.origin.get("train.epochs", ""))
        yield f"{told}; how many samples? {data}" if told else f"{written} has no effect without the data: {data}"


def warn_of_unpacked_weights(resolved: ResolvedTraining) -> Iterator[str]:
    """That weights which are published in a narrow format are held in another, and the method that keeps 4 bit."""
    job, name = resolved.job, resolved.scenario.values.model
    told = None if not isinstance(name, str) or name == job.model.name else told_by(name)
    if told is None or (told.bits or 0) >= LOADED_BITS:
        return
    narrow = f"{name} names {f'{told.bits}-bit ' if told.bits else ''}weights ({told.words})"
    if not job.method.quantised:
        keeping = next((kind.name for kind in METHODS.values() if kind.quantises), None)
        keeps = (
            f"; {resolved.scenario.caller.setting('job', keeping)} keeps them in {QUANTISED_BITS} bit"
            if keeping
            else ""
        )
        yield f"{narrow}, which are taken as 16-bit ones here{keeps}"
    elif told.bits != QUANTISED_BITS:
        yield f"{narrow}, which are held in {QUANTISED_BITS} bit here"


def slow_start(estimate: TrainingEstimate) -> Iterator[str]:
    """That a job which lasts minutes spends a good part of them before its first step."""
    before_s = start_up_s(estimate.resolved.job)
    if estimate.fits and before_s > NOTICEABLE * estimate.total_s:
        share = f"{100.0 * before_s / estimate.total_s:.0f} %"
        yield f"start-up comes on top: about {before_s / MINUTE_S:.1f} min, {share} of the time of the steps (assumed)"


def warn_of_unreached_lengths(estimate: TrainingEstimate) -> Iterator[str]:
    """That memory is for the longest sample, where the user asks for far longer sequences and nothing fills them."""
    resolved, job = estimate.resolved, estimate.resolved.job
    longest, filled = job.lengths.longest, job.padding in (PACKED, TO_SEQ_LEN)
    if "train.seq_len" in resolved.scenario.origin and not filled and job.seq_len > MUCH_LONGER * longest:
        yield f"the longest sample has {longest:,.0f} tokens: memory is for that, not for {job.seq_len:,}"


def _kept_by_fsdp(estimate: TrainingEstimate) -> Iterator[str]:
    """Why gradients are whole and weights wide where ZeRO would share them out, and what shares them out otherwise."""
    resolved, job, layouts = estimate.resolved, estimate.resolved.job, estimate.layouts
    states, dtype, zero = job.stack.states, job.stack.defaults.weights_dtype, int(layouts.zero[0])
    upcast = states.sharded_upcast and states.trained_weight_bytes < FLOAT32
    kept = []
    if estimate.choice.evaluation.accumulates_whole_gradients[0]:
        kept.append("gradients stay whole until the last micro-batch of a step")
    if upcast and zero == FULLY_SHARDED and job.method.learning.base:
        kept.append(f"shards of what learns are float32 though {dtype} is loaded")
    others = [name for name in job.stack.runs_on if name != job.stack.backend]
    if kept and others:
        setting = resolved.scenario.caller.setting("train.backend", others[0])
        yield f"{job.stack.name} runs FSDP as accelerate does: {' and '.join(kept)}; not so with {setting}"


def warn_of_padding(estimate: TrainingEstimate) -> Iterator[str]:
    """That most of the work is padding, and what packs the same data into sequences that memory holds now."""
    job, padding = estimate.resolved.job, float(estimate.choice.sequences.padding_share[0])
    if padding <= MOST_PADDING or not estimate.fits:
        return
    told = f"{100 * padding:.0f} % of the processed tokens are padding"
    answers = job.method.compares or job.method.kind.rollout is not None
    if not job.packs or job.method.kind.rollout is not None:
        what = "answers" if answers else "samples"
        yield f"{told}: a stack that packs {what} would save most of it, {job.stack.name} does not"
        return
    seq_len = packed_seq_len(estimate)
    steps = packed_steps(estimate, seq_len)
    if not steps:
        yield f"{told}: packed, the samples fill less than one batch of {job.global_batch:,}"
        return
    settings = packed_settings(estimate)
    if estimate.resolved.fixed_steps:
        settings["train.steps"] = steps
    saves = f"packing the same samples ({estimate.resolved.scenario.caller.settings(settings)}) saves most of it"
    fewer = f", in {steps:,} instead of {job.steps:,} optimizer steps; {kept_steps_words(estimate, seq_len)}"
    yield f"{told}: {saves}{fewer if steps != job.steps else ''}"


def warn_of_many_epochs(resolved: ResolvedTraining) -> Iterator[str]:
    """That the steps read the same samples many times; reinforcement learning counts its prompts itself."""
    job, epochs = resolved.job, resolved.epochs
    if epochs is not None and job.method.kind.rollout is None:
        steps = f"{job.steps:,.9g} step{'s read' if job.steps > 1 else ' reads'}"
        yield from tell_many_epochs(resolved.scenario, epochs, f"{steps} the {job.samples:,.9g} samples")


def tell_many_epochs(scenario: Scenario, epochs: float, read: str) -> Iterator[str]:
    """What reads the data so many times, and what sizes fewer passes."""
    if epochs > MOST_EPOCHS:
        setting = scenario.caller.setting("train.epochs", 3)
        yield f"{read} {round(epochs):,.9g} times; {setting} sizes three passes"


# What a result says of images: the tokens of a sample, and which parts of the model learn.

LANGUAGE = "language"


def sample_images(estimate: TrainingEstimate) -> SampleImages | None:
    """The images of a sample and what becomes of them; None where samples have none."""
    job, data = estimate.resolved.job, estimate.resolved.values.data
    if job.images is None:
        return None
    seen, count = job.images.seen, int(data.images or 0)
    return SampleImages(
        per_sample=count,
        size=str(data.image_size),
        pieces_each=seen.pieces,
        patches_each=seen.pieces * seen.patches,
        tokens_each=seen.tokens,
        tokens=count * seen.tokens,
    )


def trained_parts(estimate: TrainingEstimate) -> Iterator[TrainedPart]:
    """The language model and the parts beside it, with what learns of each; nothing where there are none beside."""
    job = estimate.resolved.job
    parts = job.method.parts
    if not parts:
        return
    beside = sum(part.learning_parameters for part in parts)
    learning = job.method.trainable_parameters(job.model) - beside
    yield TrainedPart(LANGUAGE, count_parameters(job.model).total, learning, adapters=not job.method.learning.base)
    for part in parts:
        yield TrainedPart(part.name, part.parameters, part.learning_parameters, adapters=not part.learning.base)


COMPUTE = tuple(part.name for part in COMPUTE_PARTS)
EVERY_MICRO_BATCH = frozenset(part.name for part in MICRO_BATCH_PARTS)
KERNELS = "kernels below peak"


def summarise(estimate: TrainingEstimate, details: bool = True) -> Result:
    """Everything about an estimate but the advice.

    details : with what only a full report shows: the minimum of GPUs, modules, losses and sources
    """
    resolved, job = estimate.resolved, estimate.resolved.job
    memory, time = _memory(estimate, details), _time(estimate, details)
    cost = build_cost(estimate, time)
    confidence, caller = estimate.confidence, resolved.scenario.caller
    reasons = (
        *memory_reasons(memory, estimate.counted),
        *memory_doubt(estimate, confidence),
        *missed(estimate.limits, caller, confidence=confidence),
    )
    node, told = job.server.accelerators, tuple(cautions(estimate))
    return Result(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=scenario_with_origins(resolved),
        verdict=verdict_of(estimate, confidence, estimate.keeps_limits, reasons),
        gpus=Gpus(
            count=estimate.gpus,
            nodes=math.ceil(estimate.gpus / node),
            gpus_per_node=min(estimate.gpus, node),
            minimum_that_fits=estimate.minimum if details else None,
            minimum_offloads=details and estimate.minimum_offloads,
            minimum_in_servers=details and node > 1 and estimate.resolved.whole_servers,
        ),
        layout=build_layout(estimate.layouts),
        memory=memory,
        time=time,
        data=_data(estimate),
        cost=cost,
        checkpoint=build_checkpoint(estimate),
        beside=tuple(beside_rows(estimate)) if details else (),
        images=sample_images(estimate),
        parts=tuple(trained_parts(estimate)),
        warnings=tuple(dict.fromkeys((*resolved.warnings, *told, *warnings(estimate)))),
        cautions=told,
        sources=_sources(resolved) if details else (),
    )


def with_operators(result: Result, estimate: TrainingEstimate) -> Result:
    """The result with its optimizer step operator by operator."""
    from xe_sizer.scenario.trials import operator_rows
    from xe_sizer.training.step_time import operator_costs

    operators = operator_rows(operator_costs(estimate.timeline), float(estimate.timeline.step_s[0]))
    return replace(result, time=replace(result.time, operators=operators))


def scenario_with_origins(resolved: ResolvedTraining) -> dict[str, Any]:
    """Resolved keys, nested as in the scenario file, with the origin of each."""
    job = resolved.job
    scenario = resolved_scenario(resolved.scenario, resolved.values, resolved.origins, job.model, job.server)
    scenario["names"]["job"] = job.method.label
    return scenario


def build_layout(layouts: Layouts) -> Layout:
    names = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "micro_batch", "grad_accum", "zero_group", "expert_tp")
    sizes: dict[str, Any] = {name: int(getattr(layouts, name)[0]) for name in names}
    words: dict[str, Any] = {name: known[int(getattr(layouts, name)[0])] for name, known in WORDS.items()}
    return Layout(
        **sizes,
        **words,
        sequence_parallel=bool(layouts.sequence_parallel[0]),
    )


def _components(estimate: TrainingEstimate, details: bool) -> tuple[MemoryComponent, ...]:
    """What the worst GPU holds at its worst moment, in whole bytes; with the numbers of the formulas as a detail."""
    evaluation, ledger = estimate.choice.evaluation.at_fuller_stage, estimate.ledger
    held = ledger.at_peak()
    found = [part for part in MEMORY_PARTS if part.name in held]
    terms = terms_at(evaluation, ledger, *ledger.worst()) if details else {}
    return tuple(
        MemoryComponent(
            name=part.name, bytes=size, formula=part.formula, source=part.source, terms=terms.get(part.name, ())
        )
        for part, size in zip(found, whole_parts(held[part.name] for part in found), strict=True)
    )


def terms_at(
    evaluation: Evaluation, ledger: Ledger, stage: int, moment: int
) -> dict[str, tuple[tuple[Factor, ...], ...]]:
    """Parts of the memory of one layout on a stage at a moment as sums of products, with their numbers."""
    shape = ledger.total_bytes.shape
    live = np.asarray(sum(np.broadcast_to(ledger.components[part.name], shape) for part in TENSOR_PARTS))
    around = Around(evaluation, live, "cautious", ledger.components)
    scale = evaluation.job.stack.memory.tensor_scale
    fitted = () if scale == 1.0 else (Factor(scale, "measured over predicted"),)
    found: dict[str, tuple[tuple[Factor, ...], ...]] = {}
    for part in MEMORY_PARTS:
        inputs: Any = around if part in OVERHEAD_PARTS else evaluation
        terms = part.terms(inputs, stage, moment, 0) if part.applies(inputs) else ()
        scaled = fitted if part in TENSOR_PARTS else ()
        found[part.name] = tuple((*(Factor(*one) for one in term), *scaled) for term in terms)
    return found


def _memory(estimate: TrainingEstimate, details: bool) -> Memory:
    job, layouts = estimate.resolved.job, estimate.layouts
    stage, moment = estimate.ledger.worst()
    second = estimate.choice.evaluation.at_fuller_stage.stages.counted[0] == Counted.SECOND
    typical = at_level(estimate.ledger, estimate.choice.evaluation, "typical")
    stages = int(layouts.pp[0])
    number = stages if stage else 1 + int(second)
    components = _components(estimate, details)
    peak, usable = sum(part.bytes for part in components), float(round(estimate.usable_bytes))
    return Memory(
        peak_bytes=peak,
        usable_bytes=usable,
        headroom_bytes=usable - peak,
        phase=MOMENTS[moment],
        gpu=f"pipeline stage {number} of {stages}",
        components=components,
        host_bytes=float(round(estimate.ledger.host_bytes[0])),
        host_available_bytes=job.server.host_memory_bytes,
        host_reserve_bytes=HOST_RESERVE_BYTES,
        allocated_bytes=float(round(typical.tensor_peak_bytes[0])),
        reserved_bytes=float(round(typical.reserved_peak_bytes[0])),
        device_bytes=float(round(typical.monitored_peak_bytes[0])),
        cached_bytes=float(round(typical.cached_bytes[0])),
        error_share=max(memory_suffices(job.lengths_assumed).quantile(LIKELY) - 1.0, 0.0),
        trainable_parameters=job.method.trainable_parameters(job.model),
        moments=tuple(_moments(estimate.ledger, stage)),
        stages=tuple(_stages(estimate)) if details and stages > 1 else (),
    )


def _moments(ledger: Ledger, stage: int) -> Iterator[MomentMemory]:
    """The moments of a step on one stage."""
    for place, name in enumerate(MOMENTS):
        holds = holdings(ledger.held(stage, place))
        yield MomentMemory(name=name, bytes=sum(one.bytes for one in holds), holds=holds)


def holdings(held: Mapping[str, float]) -> tuple[Holding, ...]:
    """Parts of a memory by their kinds, in whole bytes; what is of no kind stands for itself."""
    kind_of = {part.name: kind for kind, parts in KINDS_OF_PARTS.items() for part in parts}
    kinds = dict.fromkeys(KINDS_OF_PARTS, 0.0)
    for name, size in held.items():
        kind = kind_of.get(name, name)
        kinds[kind] = kinds.get(kind, 0.0) + size
    sizes = whole_parts(kinds.values())
    return tuple(Holding(name=kind, bytes=size) for kind, size in zip(kinds, sizes, strict=True) if size)


def _stages(estimate: TrainingEstimate) -> Iterator[StageMemory]:
    """Every stage of the pipeline by the equations that price the fullest."""
    evaluation = estimate.choice.evaluation.at_each_stage
    ledger, stages = ledger_of(evaluation), len(evaluation.layouts)
    for place in range(stages):
        end = int(place == stages - 1 and not evaluation.stages.mirrored[0])
        moment = int(np.argmax(ledger.total_bytes[end, :, place]))
        holds = holdings(ledger.held(end, moment, place))
        yield StageMemory(
            stage=place + 1,
            layers=float(evaluation.stages.at_ends[end, place]),
            micro_batches=float(evaluation.in_flight[end, place]),
            peak_bytes=sum(one.bytes for one in holds),
            phase=MOMENTS[moment],
            holds=holds,
        )


def _time(estimate: TrainingEstimate, details: bool) -> Time:
    job, line = estimate.resolved.job, estimate.timeline
    seconds = {name: float(value[0]) for name, value in line.components.items()}
    step_s = sum(seconds.values())
    span = estimate.uncertainty
    per_gpu = step_s * job.device.peak_flops_per_s
    useful = float(line.flops[0])
    ideal = estimate.ideal_s if details else None
    return Time(
        step_s=span.around(step_s),
        components=tuple(
            _component(part, value, step_s, _micro_batches(estimate, name, value))
            for part, (name, value) in zip(STEP_PARTS, seconds.items(), strict=True)
            if value > 0
        ),
        modules=tuple(
            ModuleTime(name=name, forward_s=float(forward[0]), backward_s=float(backward[0]))
            for name, (forward, backward) in (line.modules if details else {}).items()
        ),
        steps=job.steps,
        total_s=span.around(estimate.total_s),
        tokens_per_s_per_gpu=estimate.tokens_per_s / estimate.gpus,
        samples_per_s=estimate.samples_per_s,
        mfu=useful / per_gpu,
        hfu=(useful + float(line.recompute_flops[0])) / per_gpu,
        bound=longest_part(seconds),
        start_up_s=start_up_s(job),
        calibrated=span.calibrated,
        evidence=span.evidence,
        basis=span.basis,
        ideal_step_s=None if ideal is None else sum(ideal.values()),
        losses=() if ideal is None else find_losses(seconds, ideal),
        run=run_components(estimate),
        goodput=job.steps * step_s / estimate.total_s if job.interrupted else None,
    )


def run_components(estimate: TrainingEstimate) -> tuple[TimeComponent, ...]:
    """Parts of the time of the whole run; nothing where it is its steps alone."""
    if not estimate.resolved.job.interrupted:
        return ()
    seconds = {name: float(value[0]) for name, value in run_parts(estimate.run).items()}
    return tuple(_component(part, seconds[part.name], estimate.total_s) for part in RUN_PARTS if seconds[part.name] > 0)


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


def build_checkpoint(estimate: TrainingEstimate) -> Checkpoint:
    """Build the size and time of one checkpoint, and how often the run is saved."""
    run, pauses = estimate.run, estimate.resolved.job.pauses
    saves, fails = int(run.saves[0]), pauses.failures_per_gpu_day > 0
    return Checkpoint(
        bytes=float(round(run.saved.size[0])),
        weights_bytes=float(round(run.saved.weights[0])),
        optimizer_bytes=float(round(run.saved.optimizer[0])),
        pause_s=float(run.pause_s[0]),
        save_s=float(run.saved.whole_s[0]),
        write_bytes_per_s=float(write_rate(estimate.resolved.job, estimate.layouts)[0]),
        asynchronous=pauses.asynchronous,
        every_steps=int(run.every[0]) if saves else None,
        count=saves,
        best_every_steps=int(run.best_every[0]) if fails else None,
        mean_time_between_failures_s=float(run.mtbf_s[0]) if fails else None,
    )


def _micro_batches(estimate: TrainingEstimate, name: str, seconds: float) -> tuple[tuple[Factor, ...], ...]:
    """What each micro-batch takes of a part that comes with every one of them."""
    if name not in EVERY_MICRO_BATCH:
        return ()
    accum = float(estimate.layouts.grad_accum[0])
    return ((Factor(value=accum, name="micro-batches"), Factor(value=seconds / accum, name="s each")),)


def find_losses(seconds: Mapping[str, float], ideal: Mapping[str, float]) -> tuple[Loss, ...]:
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


def longest_part(seconds: Mapping[str, float]) -> str:
    """Name the part of the step that takes longest, forward, backward and recomputation taken together as compute."""
    compute = sum(seconds.get(name, 0.0) for name in COMPUTE)
    others = {name: value for name, value in seconds.items() if name not in COMPUTE}
    name, value = max(others.items(), key=lambda item: item[1])
    return "compute" if compute >= value else name


def _data(estimate: TrainingEstimate) -> Data:
    job = estimate.resolved.job
    sequences = estimate.choice.sequences
    trained = job.steps * job.global_batch
    processed = trained * estimate.tokens_per_sample
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
        epochs=estimate.resolved.epochs,
        sequences_per_sample=job.method.sequences_per_sample,
    )


def build_cost(estimate: TrainingEstimate, time: Time) -> Cost:
    """Hours of the GPUs in use; energy of them and their share of the servers; the price of what is paid for."""
    resolved = estimate.resolved
    hours = Range(**{end: getattr(time.total_s, end) / HOUR_S * estimate.gpus for end in ("low", "expected", "high")})
    price = None
    if estimate.cost is not None:
        per_hour = estimate.cost / hours.expected
        ends = {end: getattr(hours, end) * per_hour for end in ("low", "expected", "high")}
        price = Price(currency=resolved.tariff.currency, **ends)
    server = resolved.job.server
    energy = energy_kwh(server, hours.expected, gpus=estimate.gpus)
    electricity = None
    drawn = resolved.tariff.electricity_of_hour(estimate.gpus)
    if drawn is not None:
        per_gpu_hour = drawn / estimate.gpus
        ends = {end: getattr(hours, end) * per_gpu_hour for end in ("low", "expected", "high")}
        electricity = Price(currency=resolved.tariff.currency, **ends)
    return Cost(
        gpu_hours=hours,
        parts=resolved.tariff.cost_parts(estimate.hours, estimate.billed_gpus, estimate.gpus),
        electricity=electricity,
        power_w=estimate.power_w,
        energy_kwh=energy,
        price=price,
        energy_formula=energy_words(server),
        hourly_price=resolved.tariff.hourly(server),
    )


def memory_reasons(memory: Memory, counted: Mapping[str, float] = MappingProxyType({})) -> tuple[Reason, ...]:
    """What keeps memory from sufficing: bytes that a GPU lacks at its peak, and bytes that the host lacks.

    counted : parts of the peak that are no estimate, the largest first [bytes]
    """
    reasons = []
    stage = "" if memory.gpu == ONLY_STAGE else f"{memory.gpu}, "
    if memory.headroom_bytes < 0:
        message = (
            f"needs {three_digits(memory.peak_bytes / GIB)} GiB per GPU, "
            f"{three_digits(memory.usable_bytes / GIB)} GiB available, "
            f"{three_digits(-memory.headroom_bytes / GIB)} GiB missing ({stage}{memory.phase})"
            f"{_too_much_alone(counted, memory.usable_bytes)}"
        )
        reasons.append(Reason(code="out-of-memory", message=message))
    host = memory.host_available_bytes
    if host is not None and memory.host_bytes > max(host - memory.host_reserve_bytes, 0.0):
        needed = f"{three_digits(memory.host_bytes / GIB)} GiB of host memory per node"
        system = f"{memory.host_reserve_bytes / GIB:.0f} for the system"
        message = f"offloading needs {needed}, {host / GIB:.0f} GiB available less {system}"
        reasons.append(Reason(code="out-of-host-memory", message=message))
    return tuple(reasons)


def _too_much_alone(counted: Mapping[str, float], usable_bytes: float) -> str:
    """The fewest parts that are more than the card has; empty where all of them are not."""
    names: list[str] = []
    needed = 0.0
    for name, size in counted.items():
        names, needed = [*names, name], needed + size
        if needed > usable_bytes:
            parts = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
            return f"; the {parts} alone need {three_digits(needed / GIB)} of {three_digits(usable_bytes / GIB)} GiB"
    return ""


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
    found += tariff_sources(resolved.origins)
    found += [Source(name=f"collective {name}", source=law.source) for name, law in job.network.scale_up.items()]
    return tuple(source for source in found if source.source)
