"""Memory of one GPU that serves: weights, the pool of the KV cache, what a step needs, and what software takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.vision import largest_image
from xe_sizer.laws.parts import Part, computed, part
from xe_sizer.serving.adapters import adapter_bytes
from xe_sizer.serving.kv_cache import sequence_bytes
from xe_sizer.serving.weights import rank_weight_bytes
from xe_sizer.units import FLOAT32, GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts

# Tensors of the hidden size that a layer holds together: residual, its normalised copy, the block's output (own count).
HIDDEN_TENSORS = 3.0
SAMPLED_TOGETHER = 256  # sequences that get logits in the engine's first run, and in parts in later ones


@frozen
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
        return np.asarray(sum(self.fixed[part.name] for part in BESIDE))


@frozen
class Holding:
    """What the parts beside the cache are computed from: the placements, and the tokens of a step.

    tokens : of the step; sampled : sequences of it that get logits [-]
    """

    job: ServingJob
    placements: ReplicaLayouts
    tokens: ArrayLike
    sampled: ArrayLike

    def everywhere(self, gib: float) -> Array:
        """The same on every GPU [bytes]."""
        return np.full(len(self.placements), gib * GIB)


@part("weights", "elements of the rank's shards x bytes of the format", "checkpoints of the format")
def weights(held: Holding) -> Array:
    return rank_weight_bytes(held.job.model, held.job.scheme, held.placements)


@part("LoRA adapters", "held adapters x r (inputs + outputs) of their projections x 2", "preallocated by the engine")
def adapters(held: Holding) -> Array:
    kept = held.job.adapters
    return adapter_bytes(held.job.model, kept, held.placements) if kept else held.everywhere(0.0)


@part("activations", "widest tensors of a layer for the tokens of a step", "the profiling run of the engine")
def activations(held: Holding) -> Array:
    """The hidden tensors beside gate, up and their product, or beside the rows that experts get.

    The encoder of images runs before the layers and has memory of its own, which they use again.
    """
    job, tp = held.job, as_array(held.placements.tp)
    elements = _widest(job.model, tp, as_array(held.tokens))
    if job.model.vision:
        elements = np.maximum(elements, _widest(job.model.vision.encoder, tp, _encoded(held, job.model.vision)))
    return np.asarray(elements * job.element_bytes)


def _widest(model: ModelShape, tp: Array, tokens: Array) -> Array:
    """Elements of the widest tensors that a layer holds together [-]."""
    wide = tokens * (3.0 if model.gated else 2.0) * model.ffn / tp
    if model.experts:
        per_token = model.experts.per_token * ((3.0 if model.gated else 2.0) * model.experts.ffn / tp + model.hidden)
        wide = np.maximum(wide, tokens * per_token)
    qkv = tokens * (2.0 * model.heads + 2.0 * model.kv_heads) * model.qk_head_dim / tp
    return np.asarray(HIDDEN_TENSORS * tokens * model.hidden + np.maximum(wide, qkv))


def _encoded(held: Holding, tower: VisionTower) -> Array:
    """Patches that are encoded together: of the images of a step; an engine that keeps a pool tries the largest [-].

    Source: vLLM v1/worker/gpu_model_runner.py, profile_run: as many of the largest images as a step has tokens for.
    """
    tokens, images = as_array(held.tokens), held.job.images
    share = 0.0 if images is None else images.each * images.seen.pieces * images.seen.patches / images.prompt_tokens
    most = largest_image(tower)
    together = np.maximum(tokens // most.tokens, 1.0) * most.pieces * most.patches
    return np.maximum(tokens * share, 0.0 if held.job.engine.memory.grows else together)


@part("logits", "sequences of a step x vocabulary x (16 bit + float32)", "samplers widen the logits")
def logits(held: Holding) -> Array:
    """Of every token where the engine computes `all_logits`."""
    tokens = as_array(held.tokens)
    rows = tokens if held.job.engine.kernels.all_logits else np.minimum(as_array(held.sampled), tokens)
    one = np.ones_like(as_array(held.placements.tp))
    return np.asarray(rows * held.job.model.vocab * (held.job.element_bytes + FLOAT32) * one)


@part("CUDA graphs", "captured decode steps", "the engine")
def cuda_graphs(held: Holding) -> Array:
    return held.everywhere(held.job.engine.memory.graphs_gib)


@part("CUDA context", "driver and kernels", "measured contexts, 0.47 to 0.92 GiB")
def cuda_context(held: Holding) -> Array:
    return held.everywhere(held.job.engine.memory.context_gib)


@part("communicators", "buffers of NCCL or of the engine's all-reduce", "measured groups, 0.5 to 0.7 GiB")
def communicators(held: Holding) -> Array:
    several = (held.placements.gpus > 1).astype(float)
    return np.asarray(several * held.job.engine.memory.communicator_gib * GIB)


@part("workspaces", "cuBLAS and the attention's partial results", "the engine")
def workspaces(held: Holding) -> Array:
    return held.everywhere(held.job.engine.memory.workspace_gib)


@frozen
class Cached:
    """Sequences on one GPU, the tokens of each, and how often the engine holds their cache."""

    job: ServingJob
    placements: ReplicaLayouts
    sequences: ArrayLike
    tokens: ArrayLike
    copies: float = 1.0


@part(
    "KV cache",
    "2 x layers x KV heads x head size x element x tokens, in whole blocks",
    "paged attention (arXiv:2309.06180)",
)
def cache(cached: Cached) -> Array:
    each = request_bytes(cached.job, cached.placements, cached.tokens)
    return np.asarray(cached.copies * (as_array(cached.sequences) * each))


@frozen
class Card:
    """One card, and what an engine that keeps a pool has on it beside the pool; graphs are captured last."""

    job: ServingJob
    fixed: Mapping[str, Array]
    graphs: Array

    @property
    def card_bytes(self) -> float:
        return self.job.server.accelerator.memory_bytes

    @property
    def taken(self) -> Array:
        """All parts beside the pool and the graphs [bytes]."""
        return np.asarray(sum(self.fixed.values()))

    @property
    def engine_bytes(self) -> Array:
        """What the engine takes but for the graphs, where the pool gets all that its share leaves [bytes]."""
        engine, whole = self.job.engine.memory, self.card_bytes
        if engine.utilization_of == "free":
            return np.asarray(self.taken + engine.utilization * (whole - self.taken))
        if engine.utilization_of == "static":
            before = self.fixed[cuda_context.name] + self.fixed[communicators.name]
            return np.asarray(self.taken - self.fixed[weights.name] + engine.utilization * (whole - before))
        return np.full(self.taken.shape, engine.utilization * whole)


@part(
    "KV cache",
    "share of the engine x card - all other parts, or share x what these leave; graphs out of the rest",
    "documentation of the engines",
)
def pool(card: Card) -> Array:
    most = card.card_bytes - card.taken - card.graphs
    return np.maximum(np.minimum(card.engine_bytes - card.taken, most), 0.0)


@part("left free by the engine", "card - share of the engine - CUDA graphs", "gpu_memory_utilization")
def left_free(card: Card) -> Array:
    return np.asarray(card.card_bytes - np.minimum(card.engine_bytes + card.graphs, card.card_bytes))


STEP_TENSORS = (activations, logits)
BESIDE = (cuda_context, communicators, workspaces)
FIXED_PARTS = (weights, adapters, *STEP_TENSORS, *BESIDE)
# The parts of an engine's memory: one that keeps a pool as it starts, and where not one request fits; one whose cache
# grows with a batch.
Held = Part[Holding] | Part[Cached] | Part[Card]
ALLOCATED_PARTS: tuple[Held, ...] = (weights, adapters, pool, *STEP_TENSORS, *BESIDE, cuda_graphs)
SHORT_PARTS: tuple[Held, ...] = (
    weights, adapters, cache, *STEP_TENSORS, *BESIDE, cuda_graphs, left_free,
)  # fmt: skip
BATCH_PARTS: tuple[Held, ...] = (weights, cache, *STEP_TENSORS, *BESIDE)


def serving_memory(job: ServingJob, placements: ReplicaLayouts, prompt_tokens: float | None = None) -> ServingMemory:
    """What an engine that keeps a pool finds when it starts.

        pool = utilization x card - weights - activations - logits - context - communicators - workspaces
        pool = utilization x (card - all of these)      TensorRT-LLM, LMDeploy: a share of what is free
        pool = utilization x (card - context - communicators) - weights      SGLang: a share for what stays
        pool = min(pool, card - all of these - graphs)

    Graphs are captured after the pool is sized, out of the rest. A step is the largest that the engine takes, and at
    least a prompt of `prompt_tokens` where prompts are not cut; where the cache grows with the sequences it is that
    prompt.

    Parameters
    ----------
    job : model, engine, format and server
    placements : shape (placements,)
    prompt_tokens : of one request; None: not known [tokens]

    Returns
    -------
    ServingMemory, shape (placements,) [bytes]

    Source: documentation of the engines; vllm.utils.mem_utils; profile_max_num_token of SGLang.
    """
    batching = job.engine.batching
    tokens = float(batching.max_step_tokens)
    if prompt_tokens is not None and job.engine.memory.grows:
        tokens = min(tokens, prompt_tokens)
    elif prompt_tokens is not None and not batching.chunked_prefill:
        tokens = max(tokens, prompt_tokens)
    held = Holding(job, placements, tokens, min(batching.max_sequences, SAMPLED_TOGETHER))
    parts = FIXED_PARTS if job.adapters else tuple(one for one in FIXED_PARTS if one is not adapters)
    fixed, graphs = computed(parts, held), cuda_graphs(held)
    card = Card(job, fixed, graphs)
    return ServingMemory({**fixed, cuda_graphs.name: graphs}, pool(card), card.card_bytes)


def held_tokens(job: ServingJob, inputs: ArrayLike, outputs: ArrayLike) -> Array:
    """Tokens of the cache that a running request holds on average.

        tokens = inputs + outputs / 2      blocks as they are needed; inputs + outputs where they are reserved at once

    Parameters
    ----------
    job : its engine says when blocks are taken
    inputs, outputs : of a request [tokens]

    Returns
    -------
    ndarray of float, shape that inputs and outputs broadcast to [tokens]

    Source: own derivation: the mean over an answer that grows by one token in every step (arXiv:2309.06180 for blocks).
    """
    whole = job.engine.batching.reserves == "whole"
    return np.asarray(as_array(inputs) + as_array(outputs) * (1.0 if whole else 0.5))


def max_sequences(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, tokens: ArrayLike) -> Array:
    """Sequences that the pool of a replica holds, a fraction below one where not even one fits.

        sequences = pool / request_bytes x attention ranks

    Each attention rank has a pool of its own; pipeline stages hold all sequences, each its layers of them.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    tokens : of one sequence [tokens]

    Returns
    -------
    ndarray of float, shape that tokens and placements broadcast to [-]

    Source: own derivation from the sizes of the pool and of a request.
    """
    each = request_bytes(job, placements, tokens)
    per_rank = memory.pool_bytes / each
    return np.asarray(np.where(per_rank < 1.0, per_rank, per_rank * placements.dp))


def request_bytes(job: ServingJob, placements: ReplicaLayouts, tokens: ArrayLike) -> Array:
    """Cache of one request on one GPU, as the engine keeps it.

        bytes = sequence_bytes in blocks of the engine, with windows where it keeps them

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    tokens : of the request [tokens]

    Returns
    -------
    ndarray of float, shape that tokens and placements broadcast to [bytes]

    Source: `serving.kv_cache.sequence_bytes`; block size and windows stand in the engine's file.
    """
    block, windows = job.engine.memory.block_tokens, job.engine.kernels.windows
    return sequence_bytes(job.model, job.scheme.cache, tokens, placements, block, windows)


def static_peak(
    job: ServingJob, placements: ReplicaLayouts, batch: ArrayLike, inputs: ArrayLike, outputs: ArrayLike
) -> dict[str, Array]:
    """Live tensors at the worst moment of a batch whose cache grows: the end of the prefill, or the last step.

        prefill = cache of the prompts + activations and logits of all their tokens
        last step = copies x whole cache + activations and logits of one token each
        peak = weights + max(prefill, last step)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    batch : sequences [-]
    inputs, outputs : of each [tokens]

    Returns
    -------
    dict of part -> ndarray of float, shape that batch and placements broadcast to [bytes]

    Source: own derivation from the DynamicCache of transformers; the engine's file says how often the cache is held.
    """
    batch, inputs, outputs = as_array(batch), as_array(inputs), as_array(outputs)
    share = batch / as_array(placements.dp)
    early = Holding(job, placements, share * inputs, share), Cached(job, placements, share, inputs)
    copies = job.engine.memory.cache_copies
    late = Holding(job, placements, share, share), Cached(job, placements, share, inputs + outputs, copies)
    prefill, decode = (
        {cache.name: cache(cached), **computed(STEP_TENSORS, holding)} for holding, cached in (early, late)
    )
    at_end = np.asarray(sum(decode.values())) >= np.asarray(sum(prefill.values()))
    live = {name: np.where(at_end, decode[name], prefill[name]) for name in prefill}
    return {weights.name: weights(late[0]), **live}
