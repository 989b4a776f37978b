"""What an answer itself gives reason to say; what changes its meaning stands beside the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.graph.experts import loop_of
from xe_sizer.scenario.provenance import joining_assumptions, whole_servers
from xe_sizer.software.number_formats import told_by
from xe_sizer.training.chosen_pauses import unsized_evaluation
from xe_sizer.training.gradients import accumulates_whole_gradients
from xe_sizer.training.methods import METHODS
from xe_sizer.training.packing import MUCH_LONGER, kept_steps_words, packed_seq_len, packed_settings, packed_steps
from xe_sizer.training.padding import PACKED, TO_SEQ_LEN
from xe_sizer.training.start_up import NOTICEABLE, start_up_s
from xe_sizer.training.state_bytes import FULLY_SHARDED
from xe_sizer.units import FLOAT32, MINUTE_S

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining

MOST_EPOCHS = 30  # passes over a data set from which they are worth a warning
MOST_PADDING = 0.5  # share of padding from which it is worth a warning
LOADED_BITS, QUANTISED_BITS = 16, 4  # of a weight: as most methods hold it, and as those that quantise do


def warnings(sized: TrainingEstimate) -> Iterator[str]:
    """What is worth a word beside the cautions, which come first."""
    yield from joining_assumptions(sized.resolved.job.server, sized.gpus)
    yield from _unreached(sized)
    yield from _padding(sized)
    yield from _many_epochs(sized.resolved)
    yield from _kept_by_fsdp(sized)
    if sized.cost is not None:
        yield from whole_servers(sized.billed_gpus, sized.gpus, sized.resolved.job.server)
    yield from slow_start(sized)


def cautions(sized: TrainingEstimate) -> Iterator[str]:
    """What a reader must know to read the verdict and the time right."""
    resolved, stack = sized.resolved, sized.resolved.job.stack
    yield from (f"{resolved.job.model.name}: {guess}" for guess in resolved.job.model.guesses)
    if sized.gpus > 1 and not stack.supports.several_gpus:
        yield f"{stack.name} trains on one GPU; the times of {sized.gpus} are those of plain data parallelism"
    yield from _expert_loop(resolved)
    yield from _epochs_of_nothing(resolved)
    yield from unsized_evaluation(resolved.given, resolved.job.pauses)
    yield from _unpacked_weights(resolved)


def _expert_loop(resolved: ResolvedTraining) -> Iterator[str]:
    """That experts are computed one after the other, and the setting that prices them together."""
    job = resolved.job
    if job.model.experts is None or not loop_of(job.stack.graph_kernels(job.attention), job.model.experts):
        return
    told = f"{job.stack.name} computes the {job.model.experts.count} experts of a layer one after the other"
    together = [name for name, kernels in job.stack.fused.items() if kernels.get("experts") == "grouped"]
    for name in together[:1]:
        told += f"; {resolved.given.caller.setting('train.fused_kernels', name)} estimates grouped products"
    yield told


def _epochs_of_nothing(resolved: ResolvedTraining) -> Iterator[str]:
    """That passes over the data say nothing where nobody said how much data there is."""
    epochs, caller = resolved.given.values.train.epochs, resolved.given.caller
    if epochs is not None and resolved.known_samples is None:
        written, samples = caller.setting("train.epochs", epochs), caller.setting("data.samples", 50_000)
        data = f"{samples}, for example, or {caller.setting('data.profile')} says how much an epoch is"
        passes = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
        said = {"file": f"the file says {passes}", "stack": f"{passes} by default of the tool"}
        told = said.get(resolved.given.origin.get("train.epochs", ""))
        yield f"{told}; how many samples? {data}" if told else f"{written} has no effect without the data: {data}"


def _unpacked_weights(resolved: ResolvedTraining) -> Iterator[str]:
    """That weights which are published in a narrow format are held in another, and the method that keeps 4 bit."""
    job, name = resolved.job, resolved.given.values.model
    told = None if not isinstance(name, str) or name == job.model.name else told_by(name)
    if told is None or (told.bits or 0) >= LOADED_BITS:
        return
    narrow = f"{name} names {f'{told.bits}-bit ' if told.bits else ''}weights ({told.words})"
    if not job.method.quantised:
        keeping = next((kind.name for kind in METHODS.values() if kind.quantises), None)
        keeps = (
            f"; {resolved.given.caller.setting('job', keeping)} keeps them in {QUANTISED_BITS} bit" if keeping else ""
        )
        yield f"{narrow}, which are taken as 16-bit ones here{keeps}"
    elif told.bits != QUANTISED_BITS:
        yield f"{narrow}, which are held in {QUANTISED_BITS} bit here"


def slow_start(sized: TrainingEstimate) -> Iterator[str]:
    """That a job which lasts minutes spends a good part of them before its first step."""
    before_s = start_up_s(sized.resolved.job)
    if sized.fits and before_s > NOTICEABLE * sized.total_s:
        share = f"{100.0 * before_s / sized.total_s:.0f} %"
        yield f"start-up comes on top: about {before_s / MINUTE_S:.1f} min, {share} of the time of the steps (assumed)"


def _unreached(sized: TrainingEstimate) -> Iterator[str]:
    """That memory is for the longest sample, where the user asks for far longer sequences and nothing fills them."""
    resolved, job = sized.resolved, sized.resolved.job
    longest, filled = job.lengths.longest, job.padding in (PACKED, TO_SEQ_LEN)
    if "train.seq_len" in resolved.given.origin and not filled and job.seq_len > MUCH_LONGER * longest:
        yield f"the longest sample has {longest:,.0f} tokens: memory is for that, not for {job.seq_len:,}"


def _kept_by_fsdp(sized: TrainingEstimate) -> Iterator[str]:
    """Why gradients are whole and weights wide where ZeRO would share them out, and what shares them out otherwise."""
    resolved, job, layouts = sized.resolved, sized.resolved.job, sized.layouts
    states, dtype, zero = job.stack.states, job.stack.defaults.weights_dtype, int(layouts.zero[0])
    upcast = states.sharded_upcast and states.trained_weight_bytes < FLOAT32
    kept = []
    if accumulates_whole_gradients(job, layouts)[0]:
        kept.append("gradients stay whole until the last micro-batch of a step")
    if upcast and zero == FULLY_SHARDED and job.method.learning.base:
        kept.append(f"shards of what learns are float32 though {dtype} is loaded")
    others = [name for name in job.stack.runs_on if name != job.stack.backend]
    if kept and others:
        setting = resolved.given.caller.setting("train.backend", others[0])
        yield f"{job.stack.name} runs FSDP as accelerate does: {' and '.join(kept)}; not so with {setting}"


def _padding(sized: TrainingEstimate) -> Iterator[str]:
    """That most of the work is padding, and what packs the same data into sequences that memory holds now."""
    job, padding = sized.resolved.job, float(sized.choice.sequences.padding_share[0])
    if padding <= MOST_PADDING or not sized.fits:
        return
    told = f"{100 * padding:.0f} % of the processed tokens are padding"
    answers = job.method.compares or job.method.kind.rollout is not None
    if not job.packs or job.method.kind.rollout is not None:
        what = "answers" if answers else "samples"
        yield f"{told}: a stack that packs {what} would save most of it, {job.stack.name} does not"
        return
    seq_len = packed_seq_len(sized)
    steps = packed_steps(sized, seq_len)
    if not steps:
        yield f"{told}: packed, the samples fill less than one batch of {job.global_batch:,}"
        return
    settings = packed_settings(sized)
    if sized.resolved.fixed_steps:
        settings["train.steps"] = steps
    saves = f"packing the same samples ({sized.resolved.given.caller.settings(settings)}) saves most of it"
    fewer = f", in {steps:,} instead of {job.steps:,} optimizer steps; {kept_steps_words(sized, seq_len)}"
    yield f"{told}: {saves}{fewer if steps != job.steps else ''}"


def _many_epochs(resolved: ResolvedTraining) -> Iterator[str]:
    job, epochs = resolved.job, resolved.epochs
    if epochs is not None and epochs > MOST_EPOCHS:
        setting = resolved.given.caller.setting("train.epochs", 3)
        steps = f"{job.steps:,.9g} step{'s read' if job.steps > 1 else ' reads'}"
        yield f"{steps} the {job.samples:,.9g} samples {round(epochs):,.9g} times; {setting} sizes three passes"
