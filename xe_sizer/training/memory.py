"""Memory of one GPU as a ledger: what it holds, at which moment, on which pipeline stage.

Every component is an array of shape (stage, moment, layout) or one that broadcasts to it; stages are the first
and the last, moments those of MOMENTS. The verdict takes the worst of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xe_sizer.graph.operators import Array, as_array
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.training.activations import activations, micro_batches_in_flight
from xe_sizer.training.job import Job
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, Layouts
from xe_sizer.training.sharding import Census, Shards, census, layers_per_stage, sharded_elements
from xe_sizer.training.state_bytes import StateBytes
from xe_sizer.units import GIB

MOMENTS = (
    "end of forward",
    "loss",
    "backward of the last layer",
    "backward of the first layer",
    "end of backward",
    "optimizer step",
)
FLOAT32 = 4.0


def _during(*moments: str) -> Array:
    """1 at the named moments, else 0, shape (moment, 1)."""
    return np.array([[float(moment in moments)] for moment in MOMENTS])


FORWARD, LOSS, LAST_LAYER, FIRST_LAYER, BACKWARD_END, OPTIMIZER = (_during(moment) for moment in MOMENTS)
ALL_ACTIVATIONS = FORWARD + LOSS + LAST_LAYER
LAYERS_BACKWARD = LAST_LAYER + FIRST_LAYER
PASSES = ALL_ACTIVATIONS + FIRST_LAYER

FORMULAS = {
    "weights": (
        "elements on the rank x bytes each, over the ZeRO-3 group",
        "stack states; ZeRO, arXiv:1910.02054",
    ),
    "cast weights": (
        "linear weights x 2 bytes, kept by autograd until their backward",
        "PyTorch autocast",
    ),
    "gathered layers": (
        "(root unit + 2 layers) x gather bytes, in the backward the root's gradient too",
        "PyTorch FSDP, DeepSpeed ZeRO-3",
    ),
    "dequantised layer": (
        "half a layer's quantised weights in the compute type, its largest product",
        "bitsandbytes matmul_4bit",
    ),
    "adapters": ("r (inputs + outputs) per adapted weight, and the prompt encoder", "LoRA, arXiv:2106.09685"),
    "gradients": (
        "learning elements x gradient bytes, over the ZeRO-2 group; whole while micro-batches accumulate unreduced",
        "stack states; no_sync of PyTorch FSDP",
    ),
    "optimizer states": (
        "learning elements x (master + moments), over the ZeRO-1 group; none where offloaded or paged",
        "stack states",
    ),
    "activations": (
        "layers x saved bytes per layer x micro-batches in flight, less the layer in its backward",
        "operator graph; arXiv:2205.05198",
    ),
    "layer in its backward": (
        "its saved tensors not yet freed + fresh gradients + gradients of operator outputs, at their worst",
        "operator graph, walked backwards",
    ),
    "logits and loss": ("tokens x vocabulary / TP x bytes alive together", "stack's loss kernel"),
    "optimizer workspace": (
        "temporaries of the multi-tensor update, one per learning element",
        "torch.optim foreach",
    ),
    "communication buckets": ("bucket of the data-parallel reduction, at most the gradients", "stack"),
    "CUDA context": ("per process", "measured 0.47 to 0.92 GiB on A100; typical and cautious values of the stack"),
    "NCCL buffers": ("per communicator that the layout needs", "measured 0.5 to 1.5 GiB a group"),
    "library workspaces": ("cuBLAS and cuBLASLt", "PyTorch defaults, 32 MiB on Hopper"),
    "allocator slack": (
        "share of the tensors that is reserved but not live",
        "out-of-memory reports, 3.7 to 5 %",
    ),
}
BUCKETS = "communication buckets"
# Beside the tensors: what varies between runs of the same job.
OVERHEADS = ("CUDA context", "NCCL buffers", "library workspaces", "allocator slack")
# What torch.cuda.memory_allocated() does not see.
NOT_TENSORS = ("CUDA context", "NCCL buffers", "allocator slack")
# What torch.cuda.memory_reserved() does not see.
NOT_RESERVED = ("CUDA context", "NCCL buffers")


@dataclass(frozen=True, eq=False)
class Ledger:
    """Memory of one GPU under each layout.

    components : name -> bytes, broadcastable to (stage, moment, layout)
    host_bytes : what offloading puts into one node's memory [bytes], shape (layout,)
    """

    components: dict[str, Array]
    host_bytes: Array

    @property
    def total_bytes(self) -> Array:
        return _sum(self.components.values())

    @cached_property
    def peak_bytes(self) -> Array:
        """Worst stage and moment of each layout, shape (layout,)."""
        return np.asarray(self.total_bytes.max(axis=(0, 1)))

    @property
    def tensor_peak_bytes(self) -> Array:
        """Peak of live tensors alone, what PyTorch calls allocated, shape (layout,)."""
        tensors = _sum(value for name, value in self.components.items() if name not in NOT_TENSORS)
        return np.asarray(tensors.max(axis=(0, 1)))

    @property
    def reserved_peak_bytes(self) -> Array:
        """Peak of what the allocator holds: tensors and its slack, shape (layout,)."""
        reserved = _sum(value for name, value in self.components.items() if name not in NOT_RESERVED)
        return np.asarray(reserved.max(axis=(0, 1)))

    def over_time(self, index: int = 0) -> dict[str, float]:
        """Bytes at each moment on the stage of the peak, one layout."""
        stage, _ = self.worst(index)
        return dict(zip(MOMENTS, self.total_bytes[stage, :, index].tolist(), strict=True))

    def at(self, index: int) -> Ledger:
        """The ledger of one of the layouts."""
        chosen = slice(index, index + 1)
        picked = {name: v if v.shape[-1] == 1 else v[..., chosen] for name, v in self.components.items()}
        return Ledger(picked, self.host_bytes[chosen])

    def worst(self, index: int = 0) -> tuple[int, int]:
        """Stage and moment of the peak of one layout."""
        total = self.total_bytes[:, :, index]
        stage, moment = np.unravel_index(int(np.argmax(total)), total.shape)
        return int(stage), int(moment)

    def at_peak(self, index: int = 0) -> dict[str, float]:
        """Bytes of each component at the peak of one layout, those that are there; they sum to the peak."""
        stage, moment = self.worst(index)
        shape = self.total_bytes.shape
        parts = {name: float(np.broadcast_to(v, shape)[stage, moment, index]) for name, v in self.components.items()}
        return {name: size for name, size in parts.items() if size > 0}


def _sum(parts: Iterable[Array]) -> Array:
    """The sum of arrays that broadcast to (stage, moment, layout); small ones are added up first."""
    total: Array = np.zeros((1, 1, 1))
    for part in sorted(parts, key=np.size):
        inside = np.broadcast_shapes(total.shape, part.shape) == total.shape
        total = np.add(total, part, out=total) if inside else total + part
    return total


def _spread(per_stage: Array) -> Array:
    """(stage, layout) to (stage, 1, layout)."""
    return per_stage[:, None, :]


def _states(job: Job, layouts: Layouts, held: Census, shards: Shards) -> dict[str, Array]:
    """Weights, gradients and optimizer states, with what ZeRO shards and offloading moves to the host."""
    states, method = job.stack.states, job.method
    base = float(method.learning.base)
    sizes = StateBytes.of(job)
    frozen_linear = held.linear * sizes.frozen_linear + held.other * sizes.frozen
    dense_bytes = (held.linear + held.other) * sizes.weight * base + frozen_linear * (1.0 - base)
    expert_bytes = held.experts * (sizes.weight * base + sizes.frozen_linear * (1.0 - base))
    learning, learning_experts = (held.linear + held.other) * base, held.experts * base
    offloaded = layouts.offload >= OFFLOAD.index("optimizer")
    optimizer_on_gpu = np.where(offloaded, 0.0, float(not job.paged_optimizer))
    weights_on_gpu = (layouts.offload < OFFLOAD.index("params")).astype(float)
    gradients_on_gpu = np.where(offloaded & (layouts.zero >= 2), 0.0, 1.0)
    optimizer = sharded_elements(learning, learning_experts, shards.optimizer, shards) * sizes.optimizer
    optimizer = optimizer + held.adapters * sizes.adapter_optimizer / shards.optimizer
    gradients = sharded_elements(learning, learning_experts, shards.gradients, shards) * sizes.gradient
    gradients = gradients + held.adapters * sizes.adapter_gradient / shards.gradients
    whole = (learning + learning_experts) * sizes.gather + held.adapters * sizes.adapter_gradient
    return {
        "weights": _spread(sharded_elements(dense_bytes, expert_bytes, shards.weights, shards) * weights_on_gpu),
        "adapters": _spread(held.adapters * states.adapter_weight_bytes / shards.weights),
        "gradients": _gradients_over_time(job, layouts, held, gradients * gradients_on_gpu, whole),
        "optimizer states": _spread(optimizer * optimizer_on_gpu),
    }


def accumulates_whole_gradients(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether a rank keeps whole gradients between micro-batches, because it reduces them after the last one only.

    Source: `no_sync` of PyTorch FSDP, which accelerate and Lightning enter while they accumulate.
    """
    once_a_step = not job.stack.defaults.reduces_every_micro_batch
    return np.asarray(once_a_step & (layouts.zero >= 2) & (layouts.grad_accum > 1) & (layouts.data_ranks > 1))


def updates_at_once(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether the optimizer runs in the backward, weight by weight."""
    return np.asarray(job.stack.states.updates_in_backward & (layouts.gpus == 1) & (layouts.grad_accum == 1))


def keeps_fresh_gradients(job: Job, layouts: Layouts) -> Array:
    """1 where the backward creates gradients, 0 where it adds them to buffers that exist already."""
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    return np.where(buffered & (layouts.zero < 3) | accumulates_whole_gradients(job, layouts), 0.0, 1.0)


def _gradients_over_time(job: Job, layouts: Layouts, held: Census, gradients: Array, whole: Array) -> Array:
    """Gradients at each moment: fresh ones come with the backward, head first; buffers are always there.

    `whole` is what a rank holds of them until the last micro-batch has reduced them, where the stack waits for it.
    """
    size = StateBytes.of(job).gradient
    base = float(job.method.learning.base)
    sharded = np.where(layouts.zero >= 2, as_array(layouts.zero_ranks), 1.0)
    tables = held.embedding * float(not job.model.tied_embeddings)
    head, later = held.head * base * size / sharded, (held.whole_layer + tables) * base * size / sharded
    fresh = _spread(gradients) * (BACKWARD_END + OPTIMIZER)
    # The first layer's own gradients are counted with its backward; the tables' come after it.
    fresh = fresh + _spread(np.minimum(head, gradients)) * LAST_LAYER
    fresh = fresh + _spread(np.maximum(gradients - later, 0.0)) * FIRST_LAYER
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    accumulated = _spread(whole) * (1.0 - OPTIMIZER) + _spread(gradients) * OPTIMIZER
    waits = accumulates_whole_gradients(job, layouts)
    at_once = updates_at_once(job, layouts)
    passing = _spread(held.head * base * size) * LAST_LAYER + _spread(tables * base * size) * BACKWARD_END
    return np.select([at_once, waits, buffered], [passing, accumulated, _spread(gradients)], fresh)


def _in_passing(job: Job, layouts: Layouts, held: Census, shards: Shards) -> dict[str, Array]:
    """What exists beside the states only while a micro-batch runs, or while the optimizer does."""
    base = float(job.method.learning.base)
    sharded = (layouts.zero == 3).astype(float)
    casts = job.element_bytes * (1.0 - sharded) * float(job.casts_weights)
    kept = (layouts.recompute < RECOMPUTE.index("full")).astype(float)  # a recomputed layer casts again
    cast = (
        _spread((held.linear + held.experts) * casts * kept) * ALL_ACTIVATIONS
        + _spread(held.whole_layer * casts) * (FIRST_LAYER + (1.0 - kept) * LAST_LAYER)
        + _spread(held.head * casts) * (FORWARD + LOSS)
    )
    sizes = StateBytes.of(job)
    size = job.element_bytes if job.method.quantised else sizes.gather
    quantised = float(job.method.quantised)
    per_weight = (job.method.frozen_linear_bytes or 0.0) * quantised + size * (1.0 - quantised)
    units = held.root * size + 2.0 * np.minimum(held.whole_layer, held.base) * per_weight
    learning = held.base * base + held.adapters
    multi_tensor = float(job.stack.memory.optimizer_transient == "multi-tensor")
    # bitsandbytes updates a weight in one kernel, and so does an optimizer that runs in the backward.
    in_one = "8bit" in job.optimizer or job.paged_optimizer
    without = in_one | (layouts.offload >= OFFLOAD.index("optimizer")) | updates_at_once(job, layouts)
    workspace = np.where(without, 0.0, learning / shards.optimizer * multi_tensor * sizes.weight)
    return {
        "cast weights": cast,
        "gathered layers": _spread(units * sharded) * PASSES
        + _spread(held.root * size * base * sharded) * LAYERS_BACKWARD,
        "dequantised layer": _spread(held.whole_layer / 2.0 * job.element_bytes * quantised) * PASSES,
        "optimizer workspace": _spread(workspace) * OPTIMIZER,
    }


def _activations(job: Job, layouts: Layouts, held: Census, longest_tokens: Array) -> dict[str, Array]:
    """Saved activations, the layer in its backward and the loss, at the longest sequence of the run.

    Every stage holds the micro-batches in flight; all but the one in its backward stay whole.
    """
    shapes = job.rank_shapes(layouts, longest_tokens)
    gradient_bytes = StateBytes.of(job).gradient
    one = activations(shapes, layouts, gradient_bytes, keeps_fresh_gradients(job, layouts))
    layers, in_flight = layers_per_stage(job.model, layouts), micro_batches_in_flight(layouts)
    # Autocast runs a float32 head in 16 bit all the same.
    upcast = job.method.quantised and job.stack.states.quantised_upcast and not job.stack.states.autocast
    wide_logits = np.where(layouts.zero < 3, FLOAT32 * float(upcast), 0.0) * shapes.spread(
        logits_per_rank(shapes.inputs)
    )
    has_head = np.stack([layouts.pp == 1, np.ones_like(layouts.pp, dtype=bool)]).astype(float)
    first_stage = np.stack([np.ones(len(layouts)), (layouts.pp == 1).astype(float)])
    kept = one.kept * layers * in_flight - one.before_learning * in_flight * first_stage
    ends = one.ends * has_head
    first = one.kept * layers * np.maximum(in_flight - 1.0, 0.0) + one.checkpoint
    # A tied table's second gradient, and their sum, stand beside the first until the sum replaces it.
    tied = 2.0 * float(job.model.tied_embeddings and job.method.learning.base) * held.embedding * gradient_bytes
    return {
        "activations": _spread(kept + ends) * (FORWARD + LOSS)
        + _spread(kept - one.kept + one.checkpoint) * LAST_LAYER
        + _spread(first) * FIRST_LAYER,
        "layer in its backward": one.backward_peak * LAYERS_BACKWARD
        + _spread(tied + shapes.spread(shapes.inputs.residual_bytes)) * BACKWARD_END,
        "logits and loss": _spread((one.loss_kept + wide_logits) * has_head) * FORWARD
        + _spread((one.loss_live + wide_logits) * has_head) * LOSS,
    }


def _buckets(job: Job, layouts: Layouts, held: Census) -> Array:
    """Buckets of the data-parallel reduction, from the loss to the end of the backward."""
    learning = held.base * float(job.method.learning.base) + held.adapters
    bucket = np.minimum(job.stack.memory.bucket_gib * GIB, learning * StateBytes.of(job).reduce)
    return _spread(bucket) * (layouts.data_ranks > 1) * (LOSS + LAYERS_BACKWARD + BACKWARD_END)


def _overheads(job: Job, layouts: Layouts, tensors: Array, level: str) -> dict[str, Array]:
    """What sits on the card beside the tensors, and what the allocator keeps in reserve; `level` as in the stack."""
    around = job.stack.memory
    groups = (layouts.tp > 1, layouts.pp > 1, layouts.cp > 1, layouts.dp > 1, layouts.ep > 1)
    communicators = sum(np.asarray(group, dtype=float) for group in groups)
    return {
        "CUDA context": as_array(getattr(around.context_gib, level) * GIB).reshape(1, 1, 1),
        "NCCL buffers": communicators * getattr(around.communicator_gib, level) * GIB * np.ones((1, 1, 1)),
        "library workspaces": as_array(getattr(around.workspace_gib, level) * GIB).reshape(1, 1, 1),
        "allocator slack": tensors * getattr(around.slack_share, level),
    }


def _host_bytes(job: Job, layouts: Layouts, held: Census) -> Array:
    """Offloaded and paged states of all ranks of a node, shape (layout,) [bytes]; gradients go with the optimizer."""
    states, base = job.stack.states, float(job.method.learning.base)
    shards = Shards.of(layouts)
    learning = sharded_elements(
        (held.linear + held.other) * base + held.adapters, held.experts * base, shards.optimizer, shards
    )
    moments = states.moment_bytes[job.optimizer]
    optimizer = learning * (states.master_bytes + moments + FLOAT32)
    paged = learning * moments * float(job.paged_optimizer)
    weights = (
        sharded_elements(held.linear + held.other, held.experts, shards.weights, shards) * StateBytes.of(job).gather
    )
    offload = layouts.offload
    moved = offload >= OFFLOAD.index("optimizer")
    per_rank = np.where(moved, optimizer, paged) + weights * (offload >= OFFLOAD.index("params"))
    ranks = np.minimum(layouts.gpus, job.server.accelerators)
    return np.asarray(per_rank.max(axis=0) * ranks)


def memory_ledger(job: Job, layouts: Layouts, longest_tokens: Array | None = None, level: str = "cautious") -> Ledger:
    """Memory of one GPU under each layout.

    Parameters
    ----------
    longest_tokens : longest sequence that the run meets, shape (layout,); from the job's data when None [tokens]
    level : "typical" or "cautious" for what varies between runs: context, communicators, workspaces, slack. A verdict
    is cautious

    Returns
    -------
    Ledger; bytes

    Source: states after ZeRO (arXiv:1910.02054); activations after the operator graph; formulas in FORMULAS.
    """
    if longest_tokens is None:
        longest_tokens = as_array(job.sequences(layouts).longest_tokens)
    held, shards = census(job.model, job.method, layouts), Shards.of(layouts)
    components = _states(job, layouts, held, shards)
    components |= _in_passing(job, layouts, held, shards)
    components |= _activations(job, layouts, held, longest_tokens)
    components |= _overheads(job, layouts, _sum(components.values()), level)
    components[BUCKETS] = _buckets(job, layouts, held)
    return Ledger({name: components[name] for name in FORMULAS}, _host_bytes(job, layouts, held))


def at_level(ledger: Ledger, job: Job, layouts: Layouts, level: str) -> Ledger:
    """The same tensors with what varies between runs at another level."""
    tensors = _sum(value for name, value in ledger.components.items() if name not in (*OVERHEADS, BUCKETS))
    components = ledger.components | _overheads(job, layouts, tensors, level)
    return Ledger(components, ledger.host_bytes)


def fits(ledger: Ledger, job: Job, min_headroom_bytes: float = 0.0) -> NDArray[np.bool_]:
    """Whether each layout fits the card, with the headroom asked for, and the host's memory where it is known."""
    on_card = ledger.peak_bytes + min_headroom_bytes <= job.server.accelerator.memory_bytes
    host = job.server.host_memory_bytes
    return on_card if host is None else on_card & (ledger.host_bytes <= host)
