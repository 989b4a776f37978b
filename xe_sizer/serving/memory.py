"""Memory of one GPU that serves: weights, the pool of the KV cache, what a step needs, and what software takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import Array, as_array
from xe_sizer.serving.job import ServingJob
from xe_sizer.serving.kv_cache import sequence_bytes
from xe_sizer.serving.layout import ReplicaLayouts
from xe_sizer.serving.weights import rank_weight_bytes
from xe_sizer.units import FLOAT32, GIB

# Tensors of the hidden size that a layer holds together: residual, its normalised copy, the block's output.
HIDDEN_TENSORS = 3.0
SAMPLED_TOGETHER = 256  # sequences that get logits in the engine's first run, and in parts in later ones
BESIDE = ("CUDA context", "communicators", "workspaces")
FORMULAS: dict[str, tuple[str, str]] = {
    "weights": ("elements of the rank's shards x bytes of the format", "checkpoints of the format"),
    "KV cache": (
        "2 x layers x KV heads x head size x element x tokens, in whole blocks", "paged attention (arXiv:2309.06180)"
    ),
    "activations": ("widest tensors of a layer for the tokens of a step", "the profiling run of the engine"),
    "logits": ("sequences of a step x vocabulary x (16 bit + float32)", "samplers widen the logits"),
    "CUDA graphs": ("captured decode steps", "the engine"),
    "CUDA context": ("driver and kernels", "measured contexts, 0.47 to 0.92 GiB"),
    "communicators": ("buffers of NCCL or of the engine's all-reduce", "measured groups, 0.5 to 0.7 GiB"),
    "workspaces": ("cuBLAS and the attention's partial results", "the engine"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ServingMemory:
    """Bytes of the fullest GPU; arrays of shape (placements,).

    fixed : component -> bytes, all but the cache; pool_bytes : what is left for the cache, not below zero
    usable_bytes : of the card
    """

    fixed: dict[str, Array]
    pool_bytes: Array
    usable_bytes: float

    def __getitem__(self, index: NDArray[np.bool_] | slice) -> ServingMemory:
        fixed = {name: value[index] for name, value in self.fixed.items()}
        return ServingMemory(fixed, self.pool_bytes[index], self.usable_bytes)

    @property
    def beside_tensors(self) -> Array:
        """What software takes beside the live tensors [bytes]."""
        return np.asarray(sum(self.fixed[name] for name in BESIDE))


def step_tensors(
    job: ServingJob, placements: ReplicaLayouts, tokens: ArrayLike, sampled: ArrayLike
) -> dict[str, Array]:
    """Activations and logits of a step of so many tokens, of which some get logits [bytes].

    Widest point of a layer: the hidden tensors beside gate, up and their product, or beside the rows that experts
    get. `all_logits` makes them for every token, in 16 bit and in float32.
    """
    model, tp = job.model, as_array(placements.tp)
    size, tokens = job.element_bytes, as_array(tokens)
    wide = tokens * (2.0 if model.gated else 1.0) * model.ffn / tp
    if model.experts:
        per_token = model.experts.per_token * ((3.0 if model.gated else 2.0) * model.experts.ffn / tp + model.hidden)
        wide = np.maximum(wide, tokens * per_token)
    qkv = tokens * (2.0 * model.heads + 2.0 * model.kv_heads) * model.qk_head_dim / tp
    logits = tokens if job.engine.kernels.all_logits else np.minimum(as_array(sampled), tokens)
    return {
        "activations": (HIDDEN_TENSORS * tokens * model.hidden + np.maximum(wide, qkv)) * size,
        "logits": logits * model.vocab * (size + FLOAT32) * np.ones_like(tp),
    }


def serving_memory(job: ServingJob, placements: ReplicaLayouts, prompt_tokens: float | None = None) -> ServingMemory:
    """What an engine that keeps a pool finds when it starts.

    pool = utilization x card - weights - activations - context - communicators (vLLM, SGLang: `utilization_of` total),
    or utilization x (card - all of these) (TensorRT-LLM, LMDeploy: free). Graphs are captured after the pool is sized,
    out of the rest. A step is the largest that the engine takes, and at least a prompt of `prompt_tokens` where prompts
    are not cut; where the pool grows with the sequences it is that prompt. Source: documentation of the engines;
    vllm.utils.mem_utils.
    """
    memory, batching = job.engine.memory, job.engine.batching
    card = job.server.accelerator.memory_bytes
    several = (placements.gpus > 1).astype(float)
    sampled = min(batching.max_sequences, SAMPLED_TOGETHER)
    tokens = float(batching.max_step_tokens)
    if prompt_tokens is not None and memory.grows:
        tokens = min(tokens, prompt_tokens)
    elif prompt_tokens is not None and not batching.chunked_prefill:
        tokens = max(tokens, prompt_tokens)
    tensors = step_tensors(job, placements, tokens, sampled)
    fixed = {
        "weights": rank_weight_bytes(job.model, job.scheme, placements),
        **tensors,
        "CUDA context": np.full(len(placements), memory.context_gib * GIB),
        "communicators": several * memory.communicator_gib * GIB,
        "workspaces": np.full(len(placements), memory.workspace_gib * GIB),
    }
    taken = np.asarray(sum(fixed.values()))
    share = memory.utilization
    left = share * (card - taken) if memory.utilization_of == "free" else share * card - taken
    graphs = np.full(len(placements), memory.graphs_gib * GIB)
    left = np.minimum(left, card - taken - graphs)
    return ServingMemory({**fixed, "CUDA graphs": graphs}, np.maximum(left, 0.0), card)


def held_tokens(job: ServingJob, inputs: ArrayLike, outputs: ArrayLike) -> Array:
    """Tokens of the cache that a running request holds on average [-]: its prompt and half of its answer, or all."""
    whole = job.engine.batching.reserves == "whole"
    return np.asarray(as_array(inputs) + as_array(outputs) * (1.0 if whole else 0.5))


def max_sequences(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, tokens: ArrayLike) -> Array:
    """Sequences of so many tokens that the pool of a replica holds [-], a fraction below one where not even one fits.

    Each attention rank has a pool of its own; pipeline stages hold all sequences, each its layers of them.
    """
    each = request_bytes(job, placements, tokens)
    per_rank = memory.pool_bytes / each
    return np.asarray(np.where(per_rank < 1.0, per_rank, per_rank * placements.dp))


def request_bytes(job: ServingJob, placements: ReplicaLayouts, tokens: ArrayLike) -> Array:
    """Cache of a request of so many tokens on one GPU, as the engine keeps it [bytes]."""
    block, windows = job.engine.memory.block_tokens, job.engine.kernels.windows
    return sequence_bytes(job.model, job.scheme.cache, tokens, placements, block, windows)


def static_peak(
    job: ServingJob, placements: ReplicaLayouts, batch: ArrayLike, inputs: ArrayLike, outputs: ArrayLike
) -> dict[str, Array]:
    """Live tensors at the worst moment of a batch whose cache grows [bytes]: the prefill's end, or the last step.

    Prefill: the prompt's cache beside the activations and logits of all its tokens. Last step: the whole cache, as
    often as the engine holds it.
    """
    batch, inputs, outputs = as_array(batch), as_array(inputs), as_array(outputs)
    copies = job.engine.memory.cache_copies
    share = batch / as_array(placements.dp)
    early, late = (share * request_bytes(job, placements, tokens) for tokens in (inputs, inputs + outputs))
    first = step_tensors(job, placements, share * inputs, share)
    last = step_tensors(job, placements, share, share)
    prefill, decode = early + sum(first.values()), copies * late + sum(last.values())
    at_end = decode >= prefill
    return {
        "weights": rank_weight_bytes(job.model, job.scheme, placements),
        "KV cache": np.where(at_end, copies * late, early),
        **{name: np.where(at_end, last[name], first[name]) for name in first},
    }
