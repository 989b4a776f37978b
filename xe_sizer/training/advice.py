"""Which of the remedies to take: what mends the job, what gives it headroom, or what makes it faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import LEAST_MEMORY
from xe_sizer.laws.device import FP32
from xe_sizer.profiles.catalogue import has_optimizer, load_optimizer, load_stack
from xe_sizer.scenario.options import OPTION_OF
from xe_sizer.scenario.read import Change, changed, together
from xe_sizer.scenario.schema import NO_ADAPTERS
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Remedy, Trials, advice_of, key_of, mildest
from xe_sizer.software.stack import OF_GRADIENTS, Objective
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.adapters.low_rank import narrower_targets
from xe_sizer.training.estimate import MinimumGpus, TrainingEstimate
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, SWITCHES, WORDS, can_offload, offloaded_parts
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, PRECOMPUTED, REFERENCE
from xe_sizer.training.padding import PACKED
from xe_sizer.training.resolve import rearranged, resolve
from xe_sizer.training.search import size, size_each
from xe_sizer.training.search_space import LARGEST_SEARCH
from xe_sizer.training.step_time import OFFLOAD_PARTS
from xe_sizer.training.summary import kept_steps_words, packed_seq_len, packed_settings
from xe_sizer.units import GIB, HOUR_S, MINUTE_S, three_digits, whole_percent

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Advice
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.training.adapters import AdapterKind
    from xe_sizer.training.job import Job
    from xe_sizer.training.resolved import ResolvedTraining

# Remedies of jobs that compare answers or have a teacher: what stands beside the model, and what learns of it.

KEY = "train.reference"
OTHER_TRAINING = 13  # chosen: effort from which a remedy is another way to train


def reference_elsewhere(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Log-probabilities of a reference from the model without its adapters, or computed before the training."""
    method = estimate.resolved.job.method
    references = [one for one in method.frozen if one.words == REFERENCE]
    if method.adapter and any(one.copies for one in references):
        yield Change("the reference from the model with its adapters off, without a copy", {KEY: ADAPTERS_OFF}, 1)
    if references:
        yield Change("reference log-probabilities computed beforehand", {KEY: PRECOMPUTED}, 2)


def other_adapters(estimate: TrainingEstimate) -> Iterator[Change]:
    """All weights in place of adapters, and the adapters that change least to take less; under a job that takes any."""
    method = estimate.resolved.job.method
    if method.adapter and method.kind.implies_adapter:
        copied = estimate.resolved.scenario.values.train.reference == ADAPTERS_OFF
        values: dict[str, object] = {"adapter": NO_ADAPTERS, **({KEY: COPY} if copied else {})}
        yield Change(f"all weights instead of {method.adapter.label}", values, OTHER_TRAINING)
    yield from islice(_fewer(estimate), 1)


def fewer_learning_weights(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Adapters in place of all weights, or lighter ones, under a job that takes any."""
    return _fewer(estimate)


def _fewer(estimate: TrainingEstimate) -> Iterator[Change]:
    method = estimate.resolved.job.method
    if not method.kind.implies_adapter:
        return
    copied = estimate.resolved.scenario.values.train.reference == COPY
    now = method.adapter.label if method.adapter else "all weights"
    for effort, lighter in enumerate(_lighter(method.adapter), start=OTHER_TRAINING):
        values = {"adapter": lighter.name, **({KEY: ADAPTERS_OFF} if copied else {})}
        yield Change(f"{lighter.label} instead of {now}", values, effort)


def _lighter(now: AdapterKind | None) -> Iterator[AdapterKind]:
    """Kinds of adapters that take less, the one that changes least first."""
    usual = next((kind for kind in ADAPTERS.values() if kind.usual), None)
    kind = usual if now is None else ADAPTERS.get(now.lighter or "")
    while kind is not None:
        yield kind
        kind = ADAPTERS.get(kind.lighter or "")


# The remedies: each proposes changes of one kind, the mildest first. Whether they help is not decided here.
#
# Efforts order what a user would rather do first, by how much of the training changes: 0 is to leave out what the user
# chose to save memory with, 1 is nothing but a kernel or a batch's parts, 2 and 3 the layout, the storage of frozen
# weights, or the optimizer's states in a host that is known to hold them, 4 is another optimizer, 5 needs a host of
# which nobody says how much it holds, streams weights from it, or makes adapters smaller. From COSTLY on quality
# suffers: some adapters are left out, sequences halved, or weights trained in 16 bit. From HARDWARE on it is other
# hardware, from OTHER_TRAINING on another way to train.

DROPPED, COSTLY, HARDWARE = 0, 6, 8
DESKTOP, MOST_ON_A_DESK = "desktop", 4  # a segment, and how many of its cards go into one machine
MUCH_HOST_GIB = 64  # chosen: four modules of 16 GB, as machines for a desk have
SHORTER = (4, 8, 16)  # parts of the sequence length to try where half is not enough
SHORTEST = 512  # tokens under which a sequence is no longer what the user trains on
LITTLE, SAID = 0.05, 0.005  # share of the tokens that a cut may take and be mild, and from which it is said
SMALLEST_RANK = 8  # of adapters, that people train
NOTICEABLY, NEXT_SIZE = 1.1, 1.8  # times the memory: a larger card has more, the next size up has no more
MUCH_PADDING = 0.2  # share of the processed tokens from which packing is worth a trial
MUCH_ROOM = 0.2  # share of a sequence that its sample leaves free, from which fewer sequences are worth one
OFFLOADED = {
    "optimizer": "optimizer states in host memory",
    "params": "parameters and optimizer in host memory",
    "activations": "activations in host memory",
    "optimizer+activations": "optimizer states and activations in host memory",
    "params+activations": "parameters, optimizer and activations in host memory",
}


def chunked_loss(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    job = estimate.resolved.job
    if job.stack.kernels.loss != LEAST_MEMORY.name and job.method.objective is Objective.NEXT_TOKEN:
        yield Change("chunked cross-entropy without float32 logits", {"loss": LEAST_MEMORY.name}, 1)


def earlier_reduction(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    if estimate.choice.evaluation.accumulates_whole_gradients[0]:
        key = "train.reduce_every_micro_batch"
        called = estimate.resolved.job.stack.settings.get(key)
        words = "gradients reduced in every micro-batch" + (f" ({called})" if called else "")
        yield Change(words, {key: True}, 1)


def smaller_micro_batch(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    micro = int(estimate.layouts.micro_batch[0])
    for smaller in sorted({micro // 2, micro // 4, 1}, reverse=True):
        if 0 < smaller < micro and micro % smaller == 0:
            yield Change(f"micro-batch {smaller} instead of {micro}", {"train.micro_batch": smaller}, 1)


def recomputation(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """As far as the stack has a switch for it."""
    for stronger in RECOMPUTE[int(estimate.layouts.recompute[0]) + 1 :]:
        if stronger in estimate.resolved.job.stack.supports.recompute:
            yield Change(f"{stronger} recomputation", {"layout.recompute": stronger}, 2)


def zero_stage(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    layouts = estimate.layouts
    if int(layouts.dp[0]) * int(layouts.cp[0]) > 1:
        for stage in estimate.resolved.job.stack.supports.zero:
            if stage > int(layouts.zero[0]) and (stage < 2 or int(layouts.pp[0]) == 1):
                yield Change(f"ZeRO stage {stage}", {"layout.zero": stage}, 2)


def tensor_parallel(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Wider than the user fixed it; where it is open, the search has tried all widths."""
    job, layouts, tp = estimate.resolved.job, estimate.layouts, int(estimate.layouts.tp[0])
    if job.stack.supports.tensor_parallel and "tp" in estimate.resolved.fixed:
        for times in (2, 4, 8):
            whole = job.model.heads % (times * tp) == 0 and int(layouts.dp[0]) % times == 0
            if whole and times * tp <= job.server.accelerators:
                values = {"layout.tp": times * tp, **_fewer_replicas(estimate, times)}
                yield Change(f"tp {times * tp} instead of {tp}", values, 2)


def pipeline_stages(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """More than the user fixed; where they are open, the search has tried all numbers."""
    job, pp = estimate.resolved.job, int(estimate.layouts.pp[0])
    if job.stack.supports.pipeline_parallel and "pp" in estimate.resolved.fixed:
        for times in (2, 4, 8):
            if job.model.layers % (times * pp) == 0 and int(estimate.layouts.dp[0]) % times == 0:
                values = {"layout.pp": times * pp, **_fewer_replicas(estimate, times)}
                yield Change(f"pp {times * pp} instead of {pp}", values, 3)


def _fewer_replicas(estimate: TrainingEstimate, times: int) -> dict[str, object]:
    """The replicas that are left on the same GPUs, where the user fixed their number."""
    return {"layout.dp": int(estimate.layouts.dp[0]) // times} if "dp" in estimate.resolved.fixed else {}


def small_optimizer(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """On the card alone: optimizers that run on the host are 32 bit (DeepSpeed's CPUAdam)."""
    job, on_card = estimate.resolved.job, not bool(estimate.layouts.hosts_optimizer[0])
    smaller = job.optimizer.smaller
    while on_card and smaller is not None and has_optimizer(job.stack, smaller):
        optimizer = load_optimizer(smaller)
        yield Change(optimizer.label, {"optimizer": smaller}, 4)
        smaller = optimizer.smaller


def smaller_adapters(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Half the rank, and half of that, down to what people train."""
    rank = whole = estimate.resolved.values.lora.rank or 0
    while rank // 2 >= SMALLEST_RANK:
        rank //= 2
        yield Change(f"adapters of rank {rank} instead of {whole}", {"lora.rank": rank}, 5)


def fewer_adapters(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Adapters on part of the modules that have them."""
    model, targets = estimate.resolved.job.model, estimate.resolved.values.lora.targets
    for words, fewer in narrower_targets(model, targets) if targets else ():
        yield Change(f"adapters on {words} alone", {"lora.targets": list(fewer)}, COSTLY)


def narrower_weights(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Weights that learn or are quantised, loaded in the 16-bit format of the products where that is narrower."""
    job = estimate.resolved.job
    now, learns = job.stack.defaults.weights_dtype, job.method.learning.base
    quantised = job.method.quantised and now == job.stack.defaults.quantised_weights_dtype
    if (learns or quantised) and _loads_narrower(job):
        words = f"weights loaded in {job.precision} instead of {now}"
        yield Change(words, {"train.weights_dtype": job.precision}, COSTLY if learns else 2)


def narrower_gradients(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Gradients of weights that learn in 16 bit, where the stack has them in float32 and need not."""
    job, key = estimate.resolved.job, "train.gradient_dtype"
    now = job.stack.gradient_dtype(OF_GRADIENTS[key], job.precision)
    if job.method.learning.base and now == FP32:
        for dtype in job.stack.gradient_dtypes(OF_GRADIENTS[key], job.precision):
            if dtype != now:
                yield Change(f"gradients in {dtype} instead of {now}", {key: dtype}, 4)


def _loads_narrower(job: Job) -> bool:
    """Whether the stack can hold less for every weight that learns by loading the format of the products."""
    wide = job.stack.states.trained_weight_bytes
    can = job.precision in job.stack.weights_dtypes
    return can and job.stack.loaded_in(job.precision).states.trained_weight_bytes < wide


def lighter_stack(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """The variant of the stack that holds less where its weights cannot be loaded narrower, as under adapters."""
    job = estimate.resolved.job
    learns = job.method.learning.base
    if job.stack.lighter is not None and not (learns and _loads_narrower(job)):
        other = load_stack(job.stack.lighter, finder=registry)
        described = other.describes.partition(";")[0].rstrip(".")
        words = f"stack {other.name} ({described}) instead of {job.stack.name}"
        yield Change(words, {"stack": other.name}, COSTLY if learns else 3)


def more_offload(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """States to the host; the equations say what it needs there, and whether the server has it.

    Weights in 4 bit stay on the card: what ZeRO-Infinity streams is 16 bit (arXiv:2104.07857).
    """
    job, layouts = estimate.resolved.job, estimate.layouts
    now = offloaded_parts(OFFLOAD[int(layouts.offload[0])])
    for name in OFFLOAD:
        parts = offloaded_parts(name)
        streams = not ("params" in parts and job.method.quantised)
        if parts > now and can_offload(name, job.stack.supports.offload) and streams:
            sharded = "params" in parts and int(layouts.dp[0]) * int(layouts.cp[0]) > 1
            managed = "optimizer" in parts and "zero" in estimate.resolved.fixed
            least = 3 if sharded else job.stack.supports.offload_from_zero if managed else 0
            zero: dict[str, object] = {"layout.zero": least} if int(layouts.zero[0]) < least else {}
            words = f"ZeRO stage {least} with {OFFLOADED[name]}" if zero else OFFLOADED[name]
            same_training = parts == {"optimizer"} and job.server.host_memory_bytes is not None
            yield Change(words, {"layout.offload": name, **zero}, 3 if same_training else 5)


def less_offload(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """States back to the card: for a host that is too small, or a run that is too slow."""
    now = offloaded_parts(OFFLOAD[int(estimate.layouts.offload[0])])
    for name in (name for name in reversed(OFFLOAD) if offloaded_parts(name) < now):
        words = "no offload" if name == "none" else f"only {OFFLOADED[name]}"
        yield Change(words, {"layout.offload": name}, 2)


def dropped_choices(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Less of what the user chose to save memory with, for a job that may fit without it."""
    fixed, job = estimate.resolved.fixed, estimate.resolved.job
    if "offload" in fixed:
        share = sum(estimate.component_s[part] for part in OFFLOAD_PARTS) / estimate.step_s
        takes = f"as offloading takes {whole_percent(share)} of a step"
        for change in less_offload(estimate, registry):
            yield replace(change, words=f"{change.words}, {takes}", effort=DROPPED)
    if "recompute" in fixed:
        more = RECOMPUTE[int(estimate.layouts.recompute[0])]
        tied = "offload" in fixed and OFFLOAD[int(estimate.layouts.offload[0])] == job.stack.defaults.usual_offload
        with_it: dict[str, object] = {"layout.offload": "none"} if tied else {}  # which goes with the recomputation
        for name in RECOMPUTE[: int(estimate.layouts.recompute[0])]:
            if name in job.stack.supports.recompute:
                yield Change(f"recompute {name} instead of {more}", {"layout.recompute": name, **with_it}, DROPPED)
    if "zero" in fixed:
        for stage in job.stack.supports.zero:
            if stage < int(estimate.layouts.zero[0]):
                words = f"ZeRO stage {stage} instead of {int(estimate.layouts.zero[0])}"
                yield Change(words, {"layout.zero": stage}, DROPPED)


def packed_samples(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Samples end to end, where the stack can: without padding, and in fewer sequences.

    A micro-batch of one sample has no padding, yet as many micro-batches and steps as there are samples, and each pays
    anew for what does not follow its tokens: launches, the optimizer's step, states that the host sends.
    """
    job, padding = estimate.resolved.job, float(estimate.choice.sequences.padding_share[0])
    if not job.packs or job.padding == PACKED:
        return
    if padding > MUCH_PADDING:
        yield Change("packing instead of padding", packed_settings(estimate), 3)
    elif job.lengths.mean < (1.0 - MUCH_ROOM) * packed_seq_len(estimate):
        yield Change("packing the samples into fewer sequences", packed_settings(estimate), 3)


def better_checkpoints(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Fewer or more of them, as failures have it, and such that training does not wait for storage."""
    run, pauses = estimate.run, estimate.resolved.job.pauses
    best = int(run.best_every[0])
    if pauses.checkpoint_every and pauses.failures_per_gpu_day and best != int(run.every[0]):
        words = f"a checkpoint every {best:,} steps (Young/Daly) instead of every {int(run.every[0]):,}"
        yield Change(words, {"train.checkpoint_every": best}, 1)
    if run.saves[0] and not pauses.asynchronous:
        yield Change("asynchronous checkpoints", {"train.async_checkpoint": True}, 1)


def _most_gpus(estimate: TrainingEstimate) -> int:
    """As many as advice may name: what a machine holds of cards for desktops."""
    most = estimate.resolved.scenario.values.limits.max_gpus or LARGEST_SEARCH
    return min(most, MOST_ON_A_DESK) if _on_a_desk(estimate) else most


def more_gpus(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """As many as it takes."""
    most = _most_gpus(estimate)
    enough = estimate.minimum_gpus.that_fit_unasked if most > estimate.gpus else None
    if enough is not None and estimate.gpus < enough <= most:
        yield Change(f"{enough} GPUs instead of {estimate.gpus}", {"gpus": enough}, 9)


def other_counts(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    if not estimate.resolved.job.stack.supports.several_gpus:
        return
    for count in (estimate.gpus // 2, 2 * estimate.gpus, 4 * estimate.gpus, 8 * estimate.gpus):
        if 0 < count <= _most_gpus(estimate):
            yield Change(f"{count} GPUs instead of {estimate.gpus}", {"gpus": count}, 9)


def next_card(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """The next size up of the same segment."""
    return _cards(estimate, registry, HARDWARE, lambda share, same: same and share <= NEXT_SIZE)


def larger_card(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Still larger ones of the same segment."""
    return _cards(estimate, registry, HARDWARE + 2, lambda share, same: same and share > NEXT_SIZE)


def other_card(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Larger ones of the other segment."""
    return _cards(estimate, registry, HARDWARE + 3, lambda _, same: not same)


def _cards(
    estimate: TrainingEstimate, registry: Registry, effort: int, wanted: Callable[[float, bool], bool]
) -> Iterator[Change]:
    """Larger GPUs, as many as now, of which that is wanted by times the memory and whether the segment is the same."""
    gpu, asked = estimate.resolved.job.server.accelerator, estimate.resolved.scenario.values
    if asked.limits.max_cost is not None:
        return  # the price that the user gave is not that of another card
    given = asked.cost.price_per_gpu_hour, asked.cost.capex_per_server
    of_all = any(isinstance(price, int | float) for price in given)
    price = ", not at the price given" if of_all else ""
    for larger in registry.larger_gpus(gpu, NOTICEABLY):
        if wanted(larger.memory_bytes / gpu.memory_bytes, larger.segment == gpu.segment):
            size = f"{larger.memory_bytes / GIB:.0f} GiB"
            values = {"gpu": larger.name, "gpus": estimate.gpus}
            yield Change(f"{larger.name} ({size}) instead of {gpu.name}{price}", values, effort)


def lighter_method(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Lighter methods; none does what training a model from the start does."""
    kind = estimate.resolved.job.method.kind
    if kind.fine_tunes:
        for effort, lighter in enumerate(kind.lighter_ones(), start=OTHER_TRAINING):
            yield Change(f"{lighter.words} instead of {kind.words}", {"job": lighter.name}, effort)


def half_sequences(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Where that cuts little of the samples."""
    job = estimate.resolved.job
    if _cut_share(job, job.seq_len // 2) <= LITTLE:
        yield from _cut(job, (2,), 6)


def shorter_sequences(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    job = estimate.resolved.job
    half = () if _cut_share(job, job.seq_len // 2) <= LITTLE else (2,)
    yield from _cut(job, (*half, *SHORTER), OTHER_TRAINING + 3)


def _cut(job: Job, parts: Iterable[int], effort: int) -> Iterator[Change]:
    whole = job.seq_len
    for part in parts:
        tokens = whole // part
        if tokens >= SHORTEST:
            words = f"sequences of {tokens:,} tokens instead of {whole:,}"
            cut = _cut_share(job, tokens)
            words += f", which cuts {100 * cut:.0f} % of the tokens" if cut >= SAID else ""
            yield Change(words, {"train.seq_len": tokens}, effort)


def _cut_share(job: Job, tokens: int) -> float:
    """Share of the tokens that are trained on now and would be cut off; packed samples are split instead."""
    lengths = job.lengths
    if job.padding == PACKED or lengths.longest <= lengths.mean:
        return 0.0  # samples of one length are sequences of whatever length
    return 1.0 - lengths.truncated(tokens).mean / lengths.truncated(job.seq_len).mean


LESS_OFFLOAD = Remedy(2, less_offload)
SAME_JOB = (
    Remedy(1, chunked_loss), Remedy(1, earlier_reduction), Remedy(1, smaller_micro_batch), Remedy(2, recomputation),
    Remedy(2, zero_stage), Remedy(2, tensor_parallel), Remedy(3, pipeline_stages), Remedy(2, narrower_weights),
    Remedy(1, reference_elsewhere), Remedy(3, lighter_stack), Remedy(3, more_offload), Remedy(4, small_optimizer),
    Remedy(4, narrower_gradients),
)  # fmt: skip
"""Remedies that keep model, method, data and hardware, by effort."""
GENTLE = (*SAME_JOB, Remedy(5, smaller_adapters))
"""Those that keep the hardware and the method, and cost next to no quality."""
ON_THE_CARD = (*GENTLE, Remedy(COSTLY, fewer_adapters), Remedy(COSTLY, half_sequences))
"""Those that keep the hardware and the method."""
OTHER_HARDWARE = (
    Remedy(8, next_card), Remedy(9, more_gpus), Remedy(10, larger_card), Remedy(11, other_card),
)  # fmt: skip
OTHER_METHOD = (Remedy(13, lighter_method), Remedy(13, fewer_learning_weights), Remedy(16, shorter_sequences))
FOR_LIMITS = (
    Remedy(1, better_checkpoints), LESS_OFFLOAD, Remedy(2, reference_elsewhere), Remedy(3, packed_samples),
    Remedy(6, half_sequences), Remedy(8, next_card), Remedy(9, other_counts), Remedy(10, larger_card),
    Remedy(11, other_card), Remedy(13, lighter_method), Remedy(13, fewer_learning_weights),
    Remedy(16, shorter_sequences),
)  # fmt: skip


# What a change leads to, in the words of advice: memory, time, and what the job needs more or less.

FROM_HOURS_S = 90 * MINUTE_S  # reports write 72.3 min


def effect(before: TrainingEstimate, option: Option[TrainingEstimate]) -> str:
    """Memory and time that the change leads to, and against a job that can run what it adds to its time."""
    after = option.after
    words = memory_words(after)
    host, has = float(after.ledger.host_bytes[0]), after.resolved.job.server.host_memory_bytes
    if host >= GIB:
        words += f", {host / GIB:,.0f}{f' of {has / GIB:,.0f}' if has else ''} GiB of host memory per node"
        words += " (if available)" if after.host_unknown else ""
    if before.resolved.gpus is None and after.gpus != before.gpus:
        words += f", on {after.gpus} instead of {before.gpus} GPUs"
    micro, other = int(before.layouts.micro_batch[0]), int(after.layouts.micro_batch[0])
    if micro != other and "train.micro_batch" not in option.change.values:
        words += f", micro-batch {other} instead of {micro}"
    words += f", {time_words(after.total_s)}"
    return f"{words} instead of {time_words(before.total_s)} ({_gain(before, after)})" if before.fits else words


def memory_words(after: TrainingEstimate) -> str:
    """What the fullest GPU holds, and whether an error of the model could turn that."""
    words = f"{three_digits(after.peak_bytes / GIB)} of {three_digits(after.usable_bytes / GIB)} GiB per GPU"
    return words if after.roomy else f"{words} (tight)"


def _gain(before: TrainingEstimate, after: TrainingEstimate) -> str:
    """Time, and on another number of GPUs GPU-hours, against the job as it was asked."""
    words = f"{difference_words(before.total_s, after.total_s)} time"
    if after.gpus != before.gpus:
        words += f", {difference_words(before.total_s * before.gpus, after.total_s * after.gpus)} GPU-hours"
    return words


def difference_words(before: float, after: float) -> str:
    """A change as people say it: +18 %; no more than a factor where a share would be hard to read."""
    if after >= 2.95 * before:
        return f"{after / before:.3g} x the"
    share = round(100.0 * (after / before - 1.0))
    return f"{share:+d} %" if share else "same"


def time_words(seconds: float) -> str:
    """A time in hours, and in minutes or seconds where reports have them so."""
    if seconds >= FROM_HOURS_S:
        hours = seconds / HOUR_S
        return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"
    return f"{three_digits(seconds / MINUTE_S)} min" if seconds >= MINUTE_S else f"{three_digits(seconds)} s"


MOST_FOR_HEADROOM = 2
MOST_ON_THE_CARD = MOST_OTHER_HARDWARE = 2  # of the advice to a job that does not fit: there is room for each kind
WORTH_SAYING = 0.05  # a faster layout is mentioned from this share of the time on
LAYOUT_EFFORT = 3  # a layout of several new degrees, as many as a user may know how to set
SAME_JOB_KEYS = ("gpus", "train.micro_batch", "train.global_batch")  # beside those of the layout
BATCH_KEYS = frozenset(
    {
        "gpus",
        "gpu",
        "server",
        "stack",
        "layout.tp",
        "layout.pp",
        "layout.cp",
        "layout.dp",
        "train.micro_batch",
    }
)  # that change the global batch which an accumulation makes
DATA_KEYS = frozenset({"train.padding", "train.global_batch", "train.seq_len"})  # that change what a step reads
MUCH_MORE = 1.5  # times the data: what whole steps may add where there are few
ROOM = 0.02  # no change is suggested that leaves less than this share of the card free
Options = list[Option[TrainingEstimate]]
Training = Trials[TrainingEstimate]


def advise(estimate: TrainingEstimate, registry: Registry, most: int = MOST_ADVICE) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first, then the faster; each was estimated.

    most : 1 for the first of them alone, which takes fewer trials, 0 for none
    """
    if not most:
        return ()
    trials = Trials(
        before=estimate,
        scenario=estimate.resolved.scenario,
        registry=registry,
        size=lambda scenario: size(resolve(scenario, registry)),
        mends=lambda after: mends(estimate, after),
        keeping=lambda change: with_the_same_data(estimate, with_the_same_batch(estimate, change), registry),
        hopeless=lambda change: beyond_the_speed_of_light(estimate, change, registry),
        together=lambda changes: _together(estimate, changes, registry),
    )
    order = largest_gain_first if estimate.ok else least_effort_first(estimate)
    options = sorted(_options(trials, most), key=order)[:most]
    return advice_of(trials, options, "estimate", lambda option: effect(estimate, option))


def ways(estimate: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Other ways to run the job on the same GPUs that advice proposes and that are no layout: `plan` searches each."""
    for remedy in (packed_samples, reference_elsewhere, better_checkpoints):
        for change in remedy(estimate, registry):
            yield with_the_same_data(estimate, with_the_same_batch(estimate, change), registry)


LENGTHS = 8  # parts of the sequence length, the most of which that fits is looked for
SHOWN_AFTER = 2  # optimizer steps: the first makes the states of the optimizer, the second runs beside them


def settle(
    estimate: TrainingEstimate, registry: Registry, size_of: Callable[[Scenario], TrainingEstimate] | None = None
) -> tuple[str, ...]:
    """What would settle whether memory suffices: each change of the batch's parts with which it likely does, and a run.

    size_of : estimates a changed scenario; None: as a job of this wing
    """
    trials = Trials(
        before=estimate,
        scenario=estimate.resolved.scenario,
        registry=registry,
        size=size_of or (lambda scenario: size(resolve(scenario, registry))),
        mends=lambda after: after.roomy,
    )
    changes = (smaller_micro_batch, recomputation, _shorter)
    found = [option for one in changes for option in islice(trials.kept(one(estimate, registry)), 1)]
    said = [f"{option.change.words}: {probability_words(option.after)}" for option in found]
    return (*_given_lengths(estimate), *said, _shortest_run(estimate))


def _given_lengths(estimate: TrainingEstimate) -> Iterator[str]:
    """What the doubt about lengths that nobody gave is of it."""
    job = estimate.resolved.job
    if job.lengths_assumed:
        chance = f"{100 * estimate.known_chance(False):.0f} %"
        yield f"sequences of {job.seq_len:,} tokens are assumed, if they are given: {chance}"


def _shorter(estimate: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Sequences of seven eighths, and so on down."""
    whole = estimate.resolved.job.seq_len
    for part in range(LENGTHS - 1, 0, -1):
        tokens = whole * part // LENGTHS
        if tokens >= SHORTEST:
            yield Change(f"sequences of {tokens:,} tokens instead of {whole:,}", {"train.seq_len": tokens}, COSTLY)


def _shortest_run(estimate: TrainingEstimate) -> str:
    """The shortest run that shows the peak: with the states of the optimizer, on the longest sequences."""
    job = estimate.resolved.job
    vary = job.padding != PACKED and job.lengths.longest > job.lengths.mean
    on = f" on samples of the longest {job.seq_len:,} tokens" if vary else ""
    return f"a run of {SHOWN_AFTER} steps{on} shows the peak"


def probability_words(after: TrainingEstimate) -> str:
    """How likely memory suffices after a change, as far as anybody knows how much there is."""
    return f"{100 * after.card_chance:.0f} %"


def mends(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    """Whether the answer is yes with a little room; a host of unknown memory is taken to have that of ours."""
    if not reads_no_more(before, after):
        return False
    if not after.choice.fits_with_headroom or after.peak_bytes > after.usable_bytes * (1.0 - ROOM):
        return False
    asked_bytes = before.resolved.job.server.host_usable_bytes
    host_bytes = after.resolved.job.server.host_usable_bytes or asked_bytes
    if host_bytes is not None and float(after.ledger.host_bytes[0]) > host_bytes:
        return False
    return after.ok and (buys_nothing(before, after) or after.roomy)


def buys_nothing(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    """Whether a change keeps the hardware, or how sure memory must be was asked for; else it must likely suffice."""
    card, other = (one.resolved.job.server.accelerator.name for one in (before, after))
    return before.confidence is not None or (after.gpus <= before.gpus and card == other)


def _together(
    before: TrainingEstimate, changes: Sequence[Change], registry: Registry
) -> dict[str, TrainingEstimate | None]:
    """Changes of the layout or the number of GPUs alone, estimated as one array: the job stays what it is."""
    estimates: dict[str, TrainingEstimate | None] = {}
    same_job: dict[str, ResolvedTraining] = {}
    for change in changes:
        if all(key in SAME_JOB_KEYS or key.startswith("layout.") for key in change.values):
            try:
                resolved = rearranged(before.resolved, changed(before.resolved.scenario, change.values), registry)
            except InputError:
                estimates[key_of(change)] = None
                continue
            if resolved is not None:
                same_job[key_of(change)] = resolved
    return estimates | dict(zip(same_job, size_each(list(same_job.values())), strict=True))


def with_the_same_batch(before: TrainingEstimate, change: Change) -> Change:
    """Keep the global batch of before, where that is given by an accumulation which may not go with the change."""
    resolved = before.resolved
    says = {"train.grad_accum", "train.global_batch"} & change.values.keys()
    if "train.grad_accum" not in resolved.scenario.origin or says or BATCH_KEYS.isdisjoint(change.values):
        return change
    return replace(change, values={**change.values, "train.global_batch": resolved.job.global_batch})


def with_the_same_data(before: TrainingEstimate, change: Change, registry: Registry) -> Change:
    """Keep the tokens that are read, with another number of steps where each of them reads another number of tokens.

    Steps that follow from passes over the data do so by themselves; it is said where there are more or fewer of them.
    """
    resolved, job = before.resolved, before.resolved.job
    usual_batch = resolved.fixed_steps and "train.global_batch" not in resolved.scenario.origin
    reads_otherwise = not DATA_KEYS.isdisjoint(change.values) or usual_batch
    if not reads_otherwise or "train.steps" in change.values:
        return change
    try:
        after = resolve(changed(resolved.scenario, change.values), registry).job
    except InputError:
        return change  # which its estimate will find
    fixed = resolved.fixed_steps
    steps = max(round(job.read_tokens / (after.read_tokens / after.steps)), 1) if fixed else after.steps
    if steps == job.steps:
        return change
    taken = f"the same data in {steps:,} optimizer steps instead of {job.steps:,}"
    if "train.padding" in change.values:
        taken += f"; {kept_steps_words(before, after.seq_len)}"
    return replace(
        change, words=f"{change.words} ({taken})", values={**change.values, **({"train.steps": steps} if fixed else {})}
    )


def beyond_the_speed_of_light(before: TrainingEstimate, change: Change, registry: Registry) -> bool:
    """Whether other GPUs or shorter sequences would miss max_hours even at peak rates and without padding.

    Such a change needs no estimate. Products grow with the tokens and attention with their square, so that a part of
    the tokens takes at least the square of that part.
    """
    resolved, values = before.resolved, change.values
    limits, job = resolved.scenario.values.limits, resolved.job
    if limits.max_hours is None or not values.keys() <= {"gpus", "gpu", "train.seq_len"}:
        return False
    gpu = registry.accelerator(str(values["gpu"])) if "gpu" in values else job.server.accelerator
    peak_flops_per_s = gpu.peak_flops_per_s.get(job.precision, max(gpu.peak_flops_per_s.values()))
    gpus = values.get("gpus") or resolved.gpus or limits.max_gpus
    if gpus is None:
        return False
    real = 1.0 - float(before.choice.sequences.padding_share[0])
    kept = real * min(int(str(values.get("train.seq_len", job.seq_len))) / job.seq_len, 1.0)
    flops = float(before.timeline.flops[0]) * before.gpus * job.steps * kept**2
    return flops / (peak_flops_per_s * int(str(gpus))) > limits.max_hours * HOUR_S


def _options(trials: Training, most: int) -> Options:
    before = trials.before
    if not before.choice.fits_with_headroom:
        return _made_to_fit(trials, most)
    if before.ok:
        dropped = _faster(trials, dropped_choices(before, trials.registry))
        faster = _with(
            sorted(dropped, key=largest_gain_first)[:1],
            [
                *_faster(trials, _layout_changes(before, "a faster layout", 1)),
                *_faster(trials, packed_samples(before, trials.registry)),
                *_faster(trials, reference_elsewhere(before, trials.registry)),
                *_faster(trials, better_checkpoints(before, trials.registry)),
            ],
        )
        return faster if before.roomy else [*faster, *_given_headroom(trials)]
    if before.resolved.scenario.values.limits.max_cost is not None and before.resolved.tariff.per_gpu_hour is None:
        return []  # nothing can be said about a price that nobody knows
    # What changes time and price: a faster layout, other GPU counts, other GPUs, a smaller job.
    layouts = _faster(trials, _layout_changes(before, "a faster layout", 1))
    found = trials.try_each(FOR_LIMITS, most, [option for option in layouts if trials.mends(option.after)])
    return found or trials.combination(trials.strongest(FOR_LIMITS))


def least_effort_first(before: TrainingEstimate) -> Callable[[Option[TrainingEstimate]], tuple[float, ...]]:
    """The card at hand comes before other hardware, and that before another training; what is tight comes last there.

    Then what asks least of the user, fewest GPUs, least time. Who has one card for a desktop trains fewer weights on it
    before buying another, or more host memory than such a machine has.
    """
    one_card = before.gpus == 1 and _on_a_desk(before)

    def place(option: Option[TrainingEstimate]) -> tuple[float, ...]:
        effort, after = option.change.effort, option.after
        stage = (effort >= HARDWARE) + (effort >= OTHER_TRAINING)
        if one_card and effort < HARDWARE and _needs_much_host_memory(after):
            stage = 2
        elif one_card and stage:
            stage = 1 if {"job", "adapter"} & option.change.values.keys() else 3
        return stage, not after.roomy, effort, after.gpus, after.total_s

    return place


def _on_a_desk(estimate: TrainingEstimate) -> bool:
    server = estimate.resolved.job.server
    return server.accelerator.segment == DESKTOP and server.bare


def _needs_much_host_memory(estimate: TrainingEstimate) -> bool:
    """Whether it takes more than a desktop has, of a host of which nobody says how much it has."""
    known = estimate.resolved.job.server.host_memory_bytes is not None
    return not known and float(estimate.ledger.host_bytes[0]) > MUCH_HOST_GIB * GIB


def largest_gain_first(option: Option[TrainingEstimate]) -> tuple[bool, bool, bool, float]:
    """To a job that needs no mending: what has room, on the card at hand, and takes the least time.

    A choice that costs time for memory that the job has is left out before anything else is changed.
    """
    effort, after = option.change.effort, option.after
    return not after.roomy, effort >= HARDWARE, effort > DROPPED, after.total_s


def _made_to_fit(trials: Training, most: int) -> Options:
    """What brings memory down on the card at hand; on other hardware; another training; several of them together."""
    order = least_effort_first(trials.before)
    found = sorted(_on_the_card(trials, most), key=order)[:MOST_ON_THE_CARD]
    one_card = trials.before.gpus == 1 and _on_a_desk(trials.before)
    if found and most == 1 and not (_on_a_desk(trials.before) and _needs_much_host_memory(found[0].after)):
        return found
    if found or one_card:
        most = MOST_ADVICE  # other ways to train are tried too
    other = [*trials.try_each(OTHER_HARDWARE, most, []), *_more_gpus_freely(trials)]
    hardware = sorted(other, key=order)[:MOST_OTHER_HARDWARE]
    on_the_card = found
    found = trials.try_each(OTHER_METHOD, most, [*found, *hardware])
    if one_card and not on_the_card and len(found) == len(hardware):
        found += _fewer_weights_and_shorter(trials)
    limited = bool(trials.before.resolved.scenario.values.limits.max_hours)
    every = ON_THE_CARD + (FOR_LIMITS if limited else OTHER_HARDWARE + OTHER_METHOD)
    return found or trials.combination(trials.strongest(every))


def _fewer_weights_and_shorter(trials: Training) -> Options:
    """The adapters that take least with the longest sequences that fit then, where neither alone suffices."""
    before, registry = trials.before, trials.registry
    for remedy in (fewer_learning_weights, lighter_method):
        for lightest in list(remedy(before, registry))[-1:]:
            cuts = (*_shorter(before, registry), *shorter_sequences(before, registry))
            return mildest(trials.kept(together([lightest, cut]) for cut in cuts))
    return []


def _on_the_card(trials: Training, most: int) -> Options:
    """One remedy, another layout, or two together, first of those that cost no quality; else as many as it takes."""
    before = trials.before
    first = (LESS_OFFLOAD,) if before.host_share > 1.0 else ()
    gentle, every = first + GENTLE, first + ON_THE_CARD
    found = trials.try_each(gentle, most, [])
    if len(found) < MOST_ADVICE:
        # The fastest layout that fits on the same GPUs, where it is not the one that the user fixed.
        found = _with(found, list(trials.kept(_layout_changes(before, "another layout", LAYOUT_EFFORT))))
    if not _any_roomy(found):
        found = _with(found, trials.pairs(gentle))
    found = trials.try_each(ON_THE_CARD[len(GENTLE) :], most, found)
    if not _any_roomy(found):
        found = _with(found, trials.pairs(every))
    return found or trials.combination(trials.strongest(every))


def _any_roomy(found: Options) -> bool:
    return any(option.after.roomy for option in found)


def _with(found: Options, more: Options) -> Options:
    """Both, but for changes that come to the same as one that was found."""
    known = [option.change.values for option in found]
    return [*found, *(option for option in more if option.change.values not in known)]


def _given_headroom(trials: Training) -> Options:
    """For a job that fits inside the error of the model: what moves it out of there."""
    found: Options = []
    for remedy in ON_THE_CARD + OTHER_HARDWARE + OTHER_METHOD:
        if len(found) < MOST_FOR_HEADROOM:
            changes = remedy.changes(trials.before, trials.registry)
            found += [option for option in mildest(trials.kept(changes)) if option.after.roomy]
    return found


def _faster(trials: Training, changes: Iterable[Change]) -> Options:
    """Return the changes with which the same job takes less time."""
    return list(trials.kept(changes, lambda after: is_faster(trials.before, after)))


def is_faster(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    holds = after.fits and (after.ok or not before.ok) and reads_no_more(before, after)
    return holds and after.total_s < before.total_s * (1.0 - WORTH_SAYING)


def reads_no_more(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    """Whether it is the same job: a batch that has grown beyond the data of all fixed steps makes it another."""
    more = after.resolved.job.read_tokens / before.resolved.job.read_tokens
    return not before.resolved.fixed_steps or more < MUCH_MORE


def _open_layout(estimate: TrainingEstimate) -> TrainingEstimate | None:
    """The same job with its layout left to the search; None where the user left it open already."""
    open_layout = estimate.resolved.without_layout()
    if open_layout.fixed == estimate.resolved.fixed:
        return None
    try:
        return size(open_layout)
    except InputError:  # the search's own choices may not divide a count that the user's do
        return None


def _layout_changes(estimate: TrainingEstimate, what: str, effort: int) -> Iterator[Change]:
    """The layout that an open search chooses, as the flags that ask for it: those of the user's that have to change."""
    after = _open_layout(estimate)
    if after is None:
        return
    values = other_settings(estimate, after)
    if values:
        yield Change(f"{what}: {settings_words(values)}", values, effort)


def _more_gpus_freely(trials: Training) -> Options:
    """More GPUs under another layout, where the one that the user fixed fits on no number of them."""
    before, resolved = trials.before, trials.before.resolved
    if not resolved.fixed or before.minimum_gpus.that_fit_unasked is not None:
        return []
    open_layout = replace(resolved.without_layout(), gpus=None)
    enough, most = MinimumGpus(open_layout).that_fit_unasked, resolved.scenario.values.limits.max_gpus
    if enough is None or enough <= before.gpus or (most is not None and enough > most):
        return []
    values = other_settings(before, size(replace(open_layout, gpus=enough)))
    if not values:
        return []
    words = f"{enough} GPUs instead of {before.gpus} with {settings_words(values)}"
    return list(trials.kept([Change(words, {"gpus": enough, **values}, HARDWARE + 1)]))


def other_settings(estimate: TrainingEstimate, after: TrainingEstimate) -> dict[str, object]:
    """Keys of the layout that the user fixed, as another layout has them; none where the stack lacks a switch."""
    fixed = estimate.resolved.fixed
    chosen = {name: int(getattr(after.layouts, name)[0]) for name in fixed}
    values = {layout_key(name): layout_value(name, code) for name, code in chosen.items() if fixed[name] != code}
    has_switch = values.get("layout.recompute", "none") in estimate.resolved.job.stack.supports.recompute
    return values if has_switch and all(key in OPTION_OF for key in values) else {}


def settings_words(values: Mapping[str, object]) -> str:
    return ", ".join(_setting_words(key, value) for key, value in values.items())


def _setting_words(key: str, value: object) -> str:
    name = key.rpartition(".")[2].replace("_", "-")
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def layout_key(name: str) -> str:
    return f"{'train' if name in ('micro_batch', 'grad_accum') else 'layout'}.{name}"


def layout_value(name: str, code: int) -> object:
    """A coded field of a layout as a scenario writes it: a word, a switch or a number."""
    if name in SWITCHES:
        return bool(code)
    return WORDS[name][code] if name in WORDS else code
