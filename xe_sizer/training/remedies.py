"""The remedies: each proposes changes of one kind, the mildest first. Whether they help is not decided here.

Efforts order what a user would rather do first, by how much of the training changes: 0 is to leave out what the user
chose to save memory with, 1 is nothing but a kernel or a batch's parts, 2 and 3 the layout, the optimizer's storage or
that of frozen weights, 4 needs host memory or makes adapters smaller. From COSTLY on quality suffers: some adapters are
left out, sequences halved, or weights trained in 16 bit. From HARDWARE on it is other hardware, from OTHER_TRAINING on
another way to train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.graph.operators import LEAST_MEMORY
from xe_sizer.scenario.read import Change
from xe_sizer.scenario.trials import Remedy
from xe_sizer.software.optimizer import load_optimizer
from xe_sizer.software.stack import Objective, has_optimizer, load_stack
from xe_sizer.training.adapters.low_rank import narrower_targets
from xe_sizer.training.gradients import accumulates_whole_gradients
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, can_offload, offloaded_parts
from xe_sizer.training.packing import packed_settings
from xe_sizer.training.padding import PACKED
from xe_sizer.training.remedies_beside import OTHER_TRAINING, fewer_learning_weights, reference_elsewhere
from xe_sizer.training.space import LARGEST_SEARCH
from xe_sizer.training.step import OFFLOAD_PARTS
from xe_sizer.units import GIB, whole_percent

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.job import Job

DROPPED, COSTLY, HARDWARE = 0, 6, 8
DESKTOP, MOST_ON_A_DESK = "desktop", 4  # a segment, and how many of its cards go into one machine
SHORTER = (4, 8, 16)  # parts of the sequence length to try where half is not enough
SHORTEST = 512  # tokens under which a sequence is no longer what the user trains on
LITTLE, SAID = 0.05, 0.005  # share of the tokens that a cut may take and be mild, and from which it is said
SMALLEST_RANK = 8  # of adapters, that people train
NOTICEABLY, NEXT_SIZE = 1.1, 1.8  # times the memory: a larger card has more, the next size up has no more
MUCH_PADDING = 0.2  # share of the processed tokens from which packing is worth a trial
OFFLOADED = {
    "optimizer": "optimizer states in host memory",
    "params": "parameters and optimizer in host memory",
    "activations": "activations in host memory",
    "optimizer+activations": "optimizer states and activations in host memory",
    "params+activations": "parameters, optimizer and activations in host memory",
}


def chunked_loss(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    job = sized.resolved.job
    if job.stack.kernels.loss != LEAST_MEMORY.name and job.method.objective is Objective.NEXT_TOKEN:
        yield Change("chunked cross-entropy without float32 logits", {"loss": LEAST_MEMORY.name}, 1)


def earlier_reduction(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    if accumulates_whole_gradients(sized.resolved.job, sized.layouts)[0]:
        key = "train.reduce_every_micro_batch"
        called = sized.resolved.job.stack.settings.get(key)
        words = "gradients reduced in every micro-batch" + (f" ({called})" if called else "")
        yield Change(words, {key: True}, 1)


def smaller_micro_batch(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    micro = int(sized.layouts.micro_batch[0])
    for smaller in sorted({micro // 2, micro // 4, 1}, reverse=True):
        if 0 < smaller < micro and micro % smaller == 0:
            yield Change(f"micro-batch {smaller} instead of {micro}", {"train.micro_batch": smaller}, 1)


def recomputation(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """As far as the stack has a switch for it."""
    for stronger in RECOMPUTE[int(sized.layouts.recompute[0]) + 1 :]:
        if stronger in sized.resolved.job.stack.supports.recompute:
            yield Change(f"{stronger} recomputation", {"layout.recompute": stronger}, 2)


def zero_stage(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    layouts = sized.layouts
    if int(layouts.dp[0]) * int(layouts.cp[0]) > 1:
        for stage in sized.resolved.job.stack.supports.zero:
            if stage > int(layouts.zero[0]) and (stage < 2 or int(layouts.pp[0]) == 1):
                yield Change(f"ZeRO stage {stage}", {"layout.zero": stage}, 2)


def tensor_parallel(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Wider than the user fixed it; where it is open, the search has tried all widths."""
    job, layouts, tp = sized.resolved.job, sized.layouts, int(sized.layouts.tp[0])
    if job.stack.supports.tensor_parallel and "tp" in sized.resolved.fixed:
        for times in (2, 4, 8):
            whole = job.model.heads % (times * tp) == 0 and int(layouts.dp[0]) % times == 0
            if whole and times * tp <= job.server.accelerators:
                values = {"layout.tp": times * tp, **_fewer_replicas(sized, times)}
                yield Change(f"tp {times * tp} instead of {tp}", values, 2)


def pipeline_stages(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """More than the user fixed; where they are open, the search has tried all numbers."""
    job, pp = sized.resolved.job, int(sized.layouts.pp[0])
    if job.stack.supports.pipeline_parallel and "pp" in sized.resolved.fixed:
        for times in (2, 4, 8):
            if job.model.layers % (times * pp) == 0 and int(sized.layouts.dp[0]) % times == 0:
                values = {"layout.pp": times * pp, **_fewer_replicas(sized, times)}
                yield Change(f"pp {times * pp} instead of {pp}", values, 3)


def _fewer_replicas(sized: TrainingEstimate, times: int) -> dict[str, object]:
    """The replicas that are left on the same GPUs, where the user fixed their number."""
    return {"layout.dp": int(sized.layouts.dp[0]) // times} if "dp" in sized.resolved.fixed else {}


def small_optimizer(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """On the card alone: optimizers that run on the host are 32 bit (DeepSpeed's CPUAdam)."""
    job, on_card = sized.resolved.job, not bool(sized.layouts.hosts_optimizer[0])
    smaller = job.optimizer.smaller
    while on_card and smaller is not None and has_optimizer(job.stack, smaller):
        optimizer = load_optimizer(smaller)
        yield Change(optimizer.label, {"optimizer": smaller}, 3)
        smaller = optimizer.smaller


def smaller_adapters(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Half the rank, and half of that, down to what people train."""
    rank = whole = sized.resolved.values.get("lora.rank", 0)
    while rank // 2 >= SMALLEST_RANK:
        rank //= 2
        yield Change(f"adapters of rank {rank} instead of {whole}", {"lora.rank": rank}, 4)


def fewer_adapters(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Adapters on part of the modules that have them."""
    model, targets = sized.resolved.job.model, sized.resolved.values.get("lora.targets")
    for words, fewer in narrower_targets(model, targets) if targets else ():
        yield Change(f"adapters on {words} alone", {"lora.targets": list(fewer)}, COSTLY)


def narrower_weights(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Weights that learn or are quantised, loaded in the 16-bit format of the products where that is narrower."""
    job = sized.resolved.job
    now, learns = job.stack.defaults.weights_dtype, job.method.learning.base
    quantised = job.method.quantised and now == job.stack.defaults.quantised_weights_dtype
    if (learns or quantised) and _loads_narrower(job):
        words = f"weights loaded in {job.precision} instead of {now}"
        yield Change(words, {"train.weights_dtype": job.precision}, COSTLY if learns else 2)


def _loads_narrower(job: Job) -> bool:
    """Whether the stack can hold less for every weight that learns by loading the format of the products."""
    wide = job.stack.states.trained_weight_bytes
    can = job.precision in job.stack.weights_dtypes
    return can and job.stack.loaded_in(job.precision).states.trained_weight_bytes < wide


def lighter_stack(sized: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """The variant of the stack that holds less where its weights cannot be loaded narrower, as under adapters."""
    job = sized.resolved.job
    learns = job.method.learning.base
    if job.stack.lighter is not None and not (learns and _loads_narrower(job)):
        other = load_stack(job.stack.lighter, finder=registry)
        described = other.describes.partition(";")[0].rstrip(".")
        words = f"stack {other.name} ({described}) instead of {job.stack.name}"
        yield Change(words, {"stack": other.name}, COSTLY if learns else 3)


def more_offload(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """States to the host; the equations say what it needs there, and whether the server has it.

    Weights in 4 bit stay on the card: what ZeRO-Infinity streams is 16 bit (arXiv:2104.07857).
    """
    job, layouts = sized.resolved.job, sized.layouts
    now = offloaded_parts(OFFLOAD[int(layouts.offload[0])])
    for name in OFFLOAD:
        parts = offloaded_parts(name)
        streams = not ("params" in parts and job.method.quantised)
        if parts > now and can_offload(name, job.stack.supports.offload) and streams:
            sharded = "params" in parts and int(layouts.dp[0]) * int(layouts.cp[0]) > 1
            managed = "optimizer" in parts and "zero" in sized.resolved.fixed
            least = 3 if sharded else job.stack.supports.offload_from_zero if managed else 0
            zero: dict[str, object] = {"layout.zero": least} if int(layouts.zero[0]) < least else {}
            words = f"ZeRO stage {least} with {OFFLOADED[name]}" if zero else OFFLOADED[name]
            yield Change(words, {"layout.offload": name, **zero}, 4)


def less_offload(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """States back to the card: for a host that is too small, or a run that is too slow."""
    now = offloaded_parts(OFFLOAD[int(sized.layouts.offload[0])])
    for name in (name for name in reversed(OFFLOAD) if offloaded_parts(name) < now):
        words = "no offload" if name == "none" else f"only {OFFLOADED[name]}"
        yield Change(words, {"layout.offload": name}, 2)


def dropped_choices(sized: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Less of what the user chose to save memory with, for a job that may fit without it."""
    fixed, job = sized.resolved.fixed, sized.resolved.job
    if "offload" in fixed:
        share = sum(sized.component_s[part] for part in OFFLOAD_PARTS) / sized.step_s
        takes = f"as offloading takes {whole_percent(share)} of a step"
        for change in less_offload(sized, registry):
            yield replace(change, words=f"{change.words}, {takes}", effort=DROPPED)
    if "recompute" in fixed:
        more = RECOMPUTE[int(sized.layouts.recompute[0])]
        for name in RECOMPUTE[: int(sized.layouts.recompute[0])]:
            if name in job.stack.supports.recompute:
                yield Change(f"recompute {name} instead of {more}", {"layout.recompute": name}, DROPPED)
    if "zero" in fixed:
        for stage in job.stack.supports.zero:
            if stage < int(sized.layouts.zero[0]):
                words = f"ZeRO stage {stage} instead of {int(sized.layouts.zero[0])}"
                yield Change(words, {"layout.zero": stage}, DROPPED)


def packed_samples(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Samples end to end in place of padding, where the stack can."""
    padding = float(sized.choice.sequences.padding_share[0])
    if padding > MUCH_PADDING and sized.resolved.job.packs:
        yield Change("packing in place of padding", packed_settings(sized), 3)


def better_checkpoints(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Fewer or more of them, as failures have it, and such that training does not wait for storage."""
    run, pauses = sized.run, sized.resolved.job.pauses
    best = int(run.best_every[0])
    if pauses.checkpoint_every and pauses.failures_per_gpu_day and best != int(run.every[0]):
        words = f"a checkpoint every {best:,} steps (Young/Daly) instead of every {int(run.every[0]):,}"
        yield Change(words, {"train.checkpoint_every": best}, 1)
    if run.saves[0] and not pauses.asynchronous:
        yield Change("asynchronous checkpoints", {"train.async_checkpoint": True}, 1)


def _most_gpus(sized: TrainingEstimate) -> int:
    """As many as advice may name: what a machine holds of cards for desktops."""
    job, most = sized.resolved.job, sized.resolved.given.values.limits.max_gpus or LARGEST_SEARCH
    on_a_desk = job.server.accelerator.segment == DESKTOP and job.server.bare
    return min(most, MOST_ON_A_DESK) if on_a_desk else most


def more_gpus(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """As many as it takes."""
    most = _most_gpus(sized)
    enough = sized.fewest.that_fit_unasked if most > sized.gpus else None
    if enough is not None and sized.gpus < enough <= most:
        yield Change(f"{enough} GPUs instead of {sized.gpus}", {"gpus": enough}, 9)


def other_counts(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    if not sized.resolved.job.stack.supports.several_gpus:
        return
    for count in (sized.gpus // 2, 2 * sized.gpus, 4 * sized.gpus, 8 * sized.gpus):
        if 0 < count <= _most_gpus(sized):
            yield Change(f"{count} GPUs instead of {sized.gpus}", {"gpus": count}, 9)


def next_card(sized: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """The next size up of the same segment."""
    return _cards(sized, registry, HARDWARE, lambda share, same: same and share <= NEXT_SIZE)


def larger_card(sized: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Still larger ones of the same segment."""
    return _cards(sized, registry, HARDWARE + 2, lambda share, same: same and share > NEXT_SIZE)


def other_card(sized: TrainingEstimate, registry: Registry) -> Iterator[Change]:
    """Larger ones of the other segment."""
    return _cards(sized, registry, HARDWARE + 3, lambda _, same: not same)


def _cards(
    sized: TrainingEstimate, registry: Registry, effort: int, wanted: Callable[[float, bool], bool]
) -> Iterator[Change]:
    """Larger GPUs, as many as now, of which that is wanted by times the memory and whether the segment is the same."""
    gpu, given = sized.resolved.job.server.accelerator, sized.resolved.given.values
    if given.limits.max_cost is not None:
        return  # the price that the user gave is not that of another card
    of_all = isinstance(given.cost.price_per_gpu_hour, int | float)
    price = ", not at the price given" if of_all else ""
    for larger in registry.larger_gpus(gpu, NOTICEABLY):
        if wanted(larger.memory_bytes / gpu.memory_bytes, larger.segment == gpu.segment):
            size = f"{larger.memory_bytes / GIB:.0f} GiB"
            values = {"gpu": larger.name, "gpus": sized.gpus}
            yield Change(f"{larger.name} ({size}) instead of {gpu.name}{price}", values, effort)


def lighter_method(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Lighter methods; none does what training a model from the start does."""
    kind = sized.resolved.job.method.kind
    if kind.fine_tunes:
        for effort, lighter in enumerate(kind.lighter_ones(), start=OTHER_TRAINING):
            yield Change(f"{lighter.words} instead of {kind.words}", {"job": lighter.name}, effort)


def half_sequences(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Where that cuts little of the samples."""
    job = sized.resolved.job
    if _cut_share(job, job.seq_len // 2) <= LITTLE:
        yield from _cut(job, (2,), 6)


def shorter_sequences(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    job = sized.resolved.job
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
    Remedy(2, zero_stage), Remedy(2, tensor_parallel), Remedy(3, pipeline_stages), Remedy(3, small_optimizer),
    Remedy(2, narrower_weights), Remedy(1, reference_elsewhere), Remedy(3, lighter_stack), Remedy(4, more_offload),
)  # fmt: skip
"""Remedies that keep model, method, data and hardware, by effort."""
GENTLE = (*SAME_JOB, Remedy(4, smaller_adapters))
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
