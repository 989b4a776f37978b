"""Memory of one GPU as a ledger: what it holds, at which moment, on which pipeline stage.

Every component is an array of shape (stage, moment, layout) or one that broadcasts to it; stages are the first
and the last, moments those of MOMENTS. The verdict takes the worst of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xe_sizer.graph.operators import Array, Attention, Operator, as_array
from xe_sizer.graph.transformer import embedding_operators, head_operators, layer_operators
from xe_sizer.training.job import Job
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, Layouts
from xe_sizer.training.sharding import Census, census, layers_per_stage
from xe_sizer.units import GIB

STAGES = ("first", "last")
MOMENTS = ("loss", "end of backward", "optimizer step")
LOSS = np.array([1.0, 0.0, 0.0])[:, None]
BACKWARD = np.array([0.0, 1.0, 0.0])[:, None]
OPTIMIZER = np.array([0.0, 0.0, 1.0])[:, None]
PASSES = LOSS + BACKWARD
# Bytes per logit that are alive together when the loss turns into its gradient. Eager: 16-bit logits, their
# float32 copy, log-probabilities and the gradient; vocab-parallel: 16-bit logits, float32 in place, gradient in
# 16 bit; fused: 16-bit logits overwritten by their gradient, and a chunk.
LOSS_LIVE_BYTES = {"eager": 14.0, "vocab-parallel": 8.0, "fused": 3.0}
FLOAT32 = 4.0

FORMULAS = {
    "weights": (
        "elements on the rank x bytes each, over the ZeRO-3 group",
        "stack states; ZeRO, arXiv:1910.02054",
    ),
    "cast weights": (
        "learning elements x 2 bytes, kept by autograd until their backward",
        "PyTorch autocast",
    ),
    "gathered layers": (
        "(root unit + 2 layers) x gather bytes + 1 layer's gradient",
        "PyTorch FSDP, DeepSpeed ZeRO-3",
    ),
    "dequantised layer": ("one layer's quantised weights in the compute type", "bitsandbytes matmul_4bit"),
    "adapters": ("r (inputs + outputs) per adapted weight, and the prompt encoder", "LoRA, arXiv:2106.09685"),
    "gradients": ("learning elements x gradient bytes, over the ZeRO-2 group", "stack states"),
    "optimizer states": ("learning elements x (master + moments), over the ZeRO-1 group", "stack states"),
    "activations": (
        "layers x saved bytes per layer x micro-batches in flight",
        "operator graph; arXiv:2205.05198",
    ),
    "recomputed layer": ("saved bytes of the layer that runs its backward", "operator graph"),
    "logits and loss": ("tokens x vocabulary / TP x bytes alive together", "stack's loss kernel"),
    "backward workspace": ("gradients of one layer's widest tensors", "operator graph"),
    "optimizer workspace": (
        "temporaries of the multi-tensor update, one per learning element",
        "torch.optim foreach",
    ),
    "communication buckets": ("two buckets of the data-parallel reduction, at most the gradients", "stack"),
    "CUDA context": ("per process", "measured 0.47 to 0.92 GiB on A100"),
    "NCCL buffers": ("per communicator that the layout needs", "measured 0.5 to 1.5 GiB a group"),
    "library workspaces": ("cuBLAS and cuBLASLt", "PyTorch defaults, 32 MiB on Hopper"),
    "allocator slack": (
        "share of the tensors that is reserved but not live",
        "out-of-memory reports, 3.7 to 5 %",
    ),
}
# What torch.cuda.memory_allocated() does not see.
NOT_TENSORS = ("CUDA context", "NCCL buffers", "allocator slack")


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
        return np.asarray(sum(self.components.values()))

    @property
    def peak_bytes(self) -> Array:
        """Worst stage and moment of each layout, shape (layout,)."""
        return np.asarray(self.total_bytes.max(axis=(0, 1)))

    @property
    def tensor_peak_bytes(self) -> Array:
        """Peak of live tensors alone, what PyTorch calls allocated, shape (layout,)."""
        tensors = sum(value for name, value in self.components.items() if name not in NOT_TENSORS)
        return np.asarray(np.asarray(tensors).max(axis=(0, 1)))

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
        """Bytes of each component at the peak of one layout; they sum to the peak."""
        stage, moment = self.worst(index)
        shape = self.total_bytes.shape
        return {name: float(np.broadcast_to(v, shape)[stage, moment, index]) for name, v in self.components.items()}


@dataclass(frozen=True, eq=False)
class _Shards:
    """Sizes of the groups that shard states, shape (layout,): 1 where the ZeRO stage leaves the state whole."""

    optimizer: Array
    gradients: Array
    weights: Array
    expert_scale: Array

    @classmethod
    def of(cls, layouts: Layouts) -> _Shards:
        group = as_array(layouts.dp * layouts.cp)
        zero = layouts.zero
        return cls(
            np.where(zero >= 1, group, 1.0),
            np.where(zero >= 2, group, 1.0),
            np.where(zero >= 3, group, 1.0),
            group / layouts.expert_dp,
        )


def _sharded(dense: Array, experts: Array, group: Array, shards: _Shards) -> Array:
    """Dense elements over the data-parallel group, experts over the smaller group that holds the same experts."""
    expert_group = np.where(group > 1, np.maximum(group / shards.expert_scale, 1.0), 1.0)
    return dense / group + experts / expert_group


def _spread(per_stage: Array) -> Array:
    """(stage, layout) to (stage, 1, layout)."""
    return per_stage[:, None, :]


def _states(job: Job, layouts: Layouts, held: Census, shards: _Shards) -> dict[str, Array]:
    """Weights, gradients and optimizer states, with what ZeRO shards and offloading moves to the host."""
    states, method = job.stack.states, job.method
    base = float(method.learning.base)
    wide = job.precision not in ("bf16", "fp16", "fp8")
    weight_bytes = FLOAT32 if wide else states.trained_weight_bytes
    gradient_bytes = FLOAT32 if wide else states.gradient_bytes
    master_bytes = 0.0 if wide else states.master_bytes
    moments = states.moment_bytes[job.optimizer]
    frozen = FLOAT32 if wide else states.frozen_bytes
    linear = frozen if method.frozen_linear_bytes is None else method.frozen_linear_bytes
    dense_bytes = (held.linear + held.other) * weight_bytes * base + (held.linear * linear + held.other * frozen) * (
        1.0 - base
    )
    expert_bytes = held.experts * (weight_bytes * base + linear * (1.0 - base))
    learning = (held.linear + held.other) * base + held.adapters
    learning_experts = held.experts * base
    optimizer_on_gpu = (layouts.offload < OFFLOAD.index("optimizer")).astype(float)
    weights_on_gpu = (layouts.offload < OFFLOAD.index("params")).astype(float)
    gradients_on_gpu = np.where((optimizer_on_gpu == 0) & (layouts.zero >= 2), 0.0, 1.0)
    optimizer = _sharded(learning, learning_experts, shards.optimizer, shards) * (master_bytes + moments)
    gradients = _sharded(learning, learning_experts, shards.gradients, shards) * gradient_bytes
    # Gradients that are freed after each step are not there yet when the first micro-batch reaches its loss.
    early = 1.0 if states.gradients_persist else (layouts.grad_accum > 1).astype(float)
    persists = LOSS * early + BACKWARD + OPTIMIZER
    return {
        "weights": _spread(_sharded(dense_bytes, expert_bytes, shards.weights, shards) * weights_on_gpu),
        "adapters": _spread(held.adapters * states.adapter_weight_bytes / shards.weights),
        "gradients": _spread(gradients * gradients_on_gpu) * persists,
        "optimizer states": _spread(optimizer * optimizer_on_gpu),
    }


def _in_passing(job: Job, layouts: Layouts, held: Census, shards: _Shards) -> dict[str, Array]:
    """What exists beside the states only while a micro-batch runs, or while the optimizer does."""
    states, base = job.stack.states, float(job.method.learning.base)
    sharded = (layouts.zero == 3).astype(float)
    cast = (held.linear + held.experts) * job.element_bytes * (1.0 - sharded) * float(job.casts_weights)
    size = job.element_bytes if job.method.quantised else states.gather_bytes * job.element_bytes / 2.0
    quantised = float(job.method.quantised)
    per_weight = (job.method.frozen_linear_bytes or 0.0) * quantised + size * (1.0 - quantised)
    units = held.root * size + 2.0 * np.minimum(held.whole_layer, held.base) * per_weight
    gradient_unit = held.whole_layer * size * base
    learning = held.base * base + held.adapters
    temporaries = float(job.stack.memory.optimizer_transient == "multi-tensor") * FLOAT32
    moved_away = layouts.offload >= OFFLOAD.index("optimizer")
    workspace = np.where(moved_away, 0.0, learning / shards.optimizer * temporaries)
    return {
        "cast weights": _spread(cast) * PASSES,
        "gathered layers": _spread((units + gradient_unit) * sharded) * PASSES,
        "dequantised layer": _spread(held.whole_layer / 2.0 * job.element_bytes * quantised) * PASSES,
        "optimizer workspace": _spread(workspace) * OPTIMIZER,
    }


def saved_bytes(operators: tuple[Operator, ...]) -> Array:
    """What autograd keeps of one micro-batch over all the model's layers [bytes]."""
    return np.asarray(sum(op.layers * op.saved_bytes for op in operators))


def _attention_statistics(operators: tuple[Operator, ...]) -> Array:
    """What selective recomputation drops: all that the attention core keeps beyond its operands [bytes]."""
    return np.asarray(sum(op.layers * op.statistics_bytes for op in operators if isinstance(op, Attention)))


def micro_batches_in_flight(layouts: Layouts) -> Array:
    """Micro-batches whose activations a stage holds, shape (stage, layout).

    1F1B: the first stage holds pp, the last 1 (Narayanan et al. 2021, arXiv:2104.04473). Interleaved over vpp
    chunks, stage i runs 2 (pp - i - 1) + (vpp - 1) pp + 1 chunks forward before its first backward ends: the
    first holds pp + (pp - 1) / vpp micro-batches (Korthikanti et al. 2022), the last pp - (pp - 1) / vpp.
    Never more than there are.
    """
    pp, vpp = as_array(layouts.pp), as_array(layouts.vpp)
    first = pp + np.where(vpp > 1, (pp - 1.0) / vpp, 0.0)
    last = pp - (pp - 1.0) / vpp
    held = np.stack([first, last])
    return np.asarray(np.minimum(held, as_array(layouts.grad_accum)))


def _activations(job: Job, layouts: Layouts, longest_tokens: Array) -> dict[str, Array]:
    """Saved activations, the loss, and the workspace of the backward, at the longest sequence of the run."""
    inputs = job.graph(layouts, longest_tokens)
    rank, model = inputs.rank, job.model
    operators = layer_operators(inputs)
    everything = saved_bytes(operators) / model.layers
    selective = everything - _attention_statistics(operators) / model.layers
    checkpoint = rank.resident_tokens * model.hidden * inputs.element_bytes
    mode = layouts.recompute
    per_layer = np.select(
        [mode == RECOMPUTE.index("full"), mode == RECOMPUTE.index("selective")],
        [checkpoint, selective],
        everything,
    )
    redone = np.select(
        [mode == RECOMPUTE.index("full"), mode == RECOMPUTE.index("selective")],
        [everything, everything - selective],
        0.0,
    )
    stage_layers = layers_per_stage(model, layouts)
    head = saved_bytes(head_operators(inputs)) + saved_bytes(embedding_operators(inputs))
    has_head = np.stack([layouts.pp == 1, np.ones_like(layouts.pp, dtype=bool)]).astype(float)
    logits = rank.tokens * model.vocab / rank.tp * LOSS_LIVE_BYTES[job.stack.kernels.loss]
    width = np.maximum(model.ffn / rank.tp * (2.0 if model.gated else 1.0), 2.0 * model.hidden)
    workspace = rank.tokens * width * inputs.element_bytes
    kept = per_layer * stage_layers * micro_batches_in_flight(layouts) + head * has_head
    # When the backward ends, all but the last layer's activations are gone, unless more micro-batches are in flight.
    still_there = kept * (1.0 - 1.0 / np.maximum(micro_batches_in_flight(layouts), 1.0)) + per_layer
    return {
        "activations": _spread(kept) * LOSS + _spread(np.minimum(still_there, kept)) * BACKWARD,
        "recomputed layer": redone * BACKWARD,
        "logits and loss": _spread(logits * has_head) * LOSS,
        "backward workspace": workspace * PASSES,
    }


def _around(job: Job, layouts: Layouts, held: Census, tensors: Array) -> dict[str, Array]:
    """What sits on the card beside the tensors, and what the allocator keeps in reserve."""
    around = job.stack.memory
    groups = (layouts.tp > 1, layouts.pp > 1, layouts.cp > 1, layouts.dp > 1, layouts.ep > 1)
    communicators = sum(np.asarray(group, dtype=float) for group in groups)
    learning = held.base * float(job.method.learning.base) + held.adapters
    bucket = np.minimum(around.bucket_gib * GIB, learning * job.stack.states.reduce_bytes)
    return {
        "communication buckets": _spread(bucket) * (layouts.dp * layouts.cp > 1) * (BACKWARD + LOSS),
        "CUDA context": as_array(around.context_gib * GIB).reshape(1, 1, 1),
        "NCCL buffers": communicators * around.communicator_gib * GIB * np.ones((1, 1, 1)),
        "library workspaces": as_array(around.workspace_gib * GIB).reshape(1, 1, 1),
        "allocator slack": tensors * around.slack_share,
    }


def _host_bytes(job: Job, layouts: Layouts, held: Census) -> Array:
    """Offloaded states of all ranks of a node, shape (layout,) [bytes]; gradients of the CPU optimizer included."""
    states, base = job.stack.states, float(job.method.learning.base)
    shards = _Shards.of(layouts)
    learning = _sharded(
        (held.linear + held.other) * base + held.adapters, held.experts * base, shards.optimizer, shards
    )
    optimizer = learning * (states.master_bytes + states.moment_bytes[job.optimizer] + FLOAT32)
    weights = _sharded(held.linear + held.other, held.experts, shards.weights, shards) * states.gather_bytes
    offload = layouts.offload
    per_rank = optimizer * (offload >= OFFLOAD.index("optimizer")) + weights * (offload >= OFFLOAD.index("params"))
    ranks = np.minimum(layouts.gpus, job.server.accelerators)
    return np.asarray(per_rank.max(axis=0) * ranks)


def memory_ledger(job: Job, layouts: Layouts, longest_tokens: Array | None = None) -> Ledger:
    """Memory of one GPU under each layout.

    Parameters
    ----------
    longest_tokens : longest sequence that the run meets, shape (layout,); from the job's data when None [tokens]

    Returns
    -------
    Ledger; bytes

    Source: states after ZeRO (arXiv:1910.02054); activations after the operator graph; formulas in FORMULAS.
    """
    if longest_tokens is None:
        longest_tokens = as_array(job.sequences(layouts).longest_tokens)
    held, shards = census(job.model, job.method, layouts), _Shards.of(layouts)
    components = _states(job, layouts, held, shards)
    components |= _in_passing(job, layouts, held, shards)
    components |= _activations(job, layouts, longest_tokens)
    tensors = np.asarray(sum(components.values()))
    components |= _around(job, layouts, held, tensors)
    return Ledger({name: components[name] for name in FORMULAS}, _host_bytes(job, layouts, held))


def fits(ledger: Ledger, job: Job, min_headroom_bytes: float = 0.0) -> NDArray[np.bool_]:
    """Whether each layout fits the card, with the headroom asked for, and the host's memory where it is known."""
    on_card = ledger.peak_bytes + min_headroom_bytes <= job.server.accelerator.memory_bytes
    host = job.server.host_memory_bytes
    return on_card if host is None else on_card & (ledger.host_bytes <= host)
