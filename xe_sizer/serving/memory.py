"""Memory of one GPU that serves: weights, the pool of the KV cache, what a step needs, and what software takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.attention import cached_bytes, indexer_cache_bytes
from xe_sizer.graph.experts import EXPERTS
from xe_sizer.graph.inputs import adapters_on, model_adapters
from xe_sizer.graph.operators import MemoryBound, as_array, layers_per_stage
from xe_sizer.graph.vision import VISION, largest_image, vision_weights
from xe_sizer.graph.weights import NGRAM_TABLE, embedding_weights, head_weights, layer_weights
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import Part, computed, larger, named, part, product, smaller, value_of
from xe_sizer.serving.job import ReplicaLayouts, wide_modules
from xe_sizer.units import FLOAT32, GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Adapter
    from xe_sizer.graph.model import ModelShape, StateSpace, VisionTower
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.laws.parts import Sum
    from xe_sizer.serving.job import ServedAdapters, ServingJob, Traffic
    from xe_sizer.software.number_formats import Format, Scheme

# LoRA adapters: what those that are held take, and their products beside those of the model.

MODULE = "adapters"
# What a GPU holds of the layers, where experts may have GPUs of their own.
SHARED = "shared"  # how names of experts begin that see all tokens
Alone = Literal["experts", "images"]  # what GPUs of their own hold
IMAGES: Alone = "images"
Holds = Literal["both", "attention"] | Alone
# Projections that share an input and whose adapters one pair of kernels computes (vLLM's packed modules).
TOGETHER = (("q", "k", "v"), ("gate", "up"), ("shared_expert_gate", "shared_expert_up"))
SHRINK_AND_EXPAND = 2.0  # counted, kernels: to the rank, and from it to the outputs


def adapter_bytes(model: ModelShape, adapters: ServedAdapters, placements: ReplicaLayouts) -> Array:
    """Bytes of the held adapters on one GPU.

        bytes = held x element x sum over the projections of a stage's layers of r (inputs + outputs) on the rank

    Parameters
    ----------
    model : its projections [-]
    adapters : how many are held, and their ranks
    placements : tp and pp of shape (placements,) [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: vLLM's lora_a_stacked and lora_b_stacked (lora/layers/base_linear.py), SGLang's LoRAMemoryPool
    (lora/mem_pool.py); A of column-parallel and B of row-parallel projections are whole on every rank.
    """
    tp = as_array(placements.tp)
    elements = np.zeros(len(placements))
    for layers, adapter in model_adapters(model, adapters.forms):
        elements = elements + layers * adapter.on_rank(tp)
    share = layers_per_stage(model.layers, placements.pp) / model.layers
    return np.asarray(adapters.held * adapters.element_bytes * share * elements)


def distinct(adapters: ServedAdapters, sequences: ArrayLike) -> Array:
    """Different adapters among the sequences of a step, in the mean.

        n = min(N (1 - (1 - 1 / N)^s), held)

    Parameters
    ----------
    adapters : N that requests ask for, each as often
    sequences : s [-]

    Returns
    -------
    ndarray of float, shape of the sequences [-]

    Source: own derivation: an adapter is missing if none of the sequences asks for it.
    """
    count = float(adapters.count)
    some = count * (1.0 - (1.0 - 1.0 / count) ** as_array(sequences))
    return np.asarray(np.minimum(some, adapters.held))


def adapter_operators(
    model: ModelShape, adapters: ServedAdapters, tp: Array, tokens: Array, sequences: Array, element_bytes: float
) -> Iterator[MemoryBound]:
    """Build the grouped products of a step beside those of the model: x A^T, and of it B^T added to the output.

        shrink bytes = inputs tokens element + n r inputs element + 4 r tokens
        expand bytes = 4 r tokens + n r outputs element + 2 outputs tokens element

    n different adapters in the step. Two kernels for projections that share an input; the rank's few columns leave
    them bound by memory.

    Parameters
    ----------
    model : its projections [-]
    adapters : how many there are, and their ranks
    tp : tensor-parallel ranks, shape (points,) [-]
    tokens, sequences : of the step on a rank, shape (points,) [-]
    element_bytes : of activations [bytes]

    Returns
    -------
    iterator of MemoryBound, bytes of shape (points,) [bytes]

    Source: vLLM lora_shrink and lora_expand (lora/ops/triton_ops), with a float32 buffer between them; Punica
    (arXiv:2310.18547) and S-LoRA (arXiv:2311.03285) for the grouping.
    """
    different = distinct(adapters, sequences)
    for kind, layers in model.layer_kinds:
        here = adapters_on(layer_weights(model, kind), adapters.forms)
        known = {adapter.members[0].name: adapter for adapter in here}
        for group in _groups(known):
            inputs, outputs, columns = _sizes(group, tp)
            elements_of_b = np.asarray(sum((_rank(one) * _outputs(one, tp) for one in group), np.zeros_like(tp)))
            weights = different * adapters.element_bytes * (columns * inputs + elements_of_b)
            moved = tokens * (element_bytes * (inputs + 2.0 * outputs) + 2.0 * FLOAT32 * columns) + weights
            yield MemoryBound(
                name="+".join(adapter.members[0].name for adapter in group) + " adapter",
                module=MODULE,
                layers=float(layers),
                saved_bytes=np.zeros_like(moved),
                forward_bytes=moved,
                backward_bytes=np.zeros_like(moved),
                forward_launches=SHRINK_AND_EXPAND * adapters.kernel_launches,
                backward_launches=0.0,
                temporary_bytes=np.zeros_like(moved),
            )


def _groups(known: Mapping[str, Adapter]) -> Iterator[tuple[Adapter, ...]]:
    """Adapters that one pair of kernels computes."""
    grouped = {name for names in TOGETHER for name in names}
    for names in TOGETHER:
        if group := tuple(known[name] for name in names if name in known):
            yield group
    yield from ((adapter,) for name, adapter in known.items() if name not in grouped)


def _sizes(group: tuple[Adapter, ...], tp: Array) -> tuple[Array, Array, float]:
    """Inputs and outputs of the rank's shards of a group, and columns of all its A [-]."""
    first = group[0].members[0]
    inputs = first.inputs / tp if first.split == "row" else first.inputs * np.ones_like(tp)
    outputs = sum((_outputs(adapter, tp) for adapter in group), np.zeros_like(tp))
    return inputs, outputs, float(sum(_rank(adapter) for adapter in group))


def _rank(adapter: Adapter) -> int:
    """Columns of A [-]."""
    return adapter.matrices[0][0]


def _outputs(adapter: Adapter, tp: Array) -> Array:
    shards = (weight.output_shards(tp) if weight.split == "column" else 1.0 for weight in adapter.members)
    parts = zip(adapter.members, shards, strict=True)
    return np.asarray(sum((weight.outputs / part for weight, part in parts), np.zeros_like(tp)))


# Weights, whole or on one rank.


def weight_bytes(model: ModelShape, scheme: Scheme) -> float:
    """Weights of the whole model as a checkpoint of the format has them.

        bytes = elements of matrices x bytes of the format, with its scales + all other elements x 2

    Matrices of the layers are in the format; embedding, head, router, norms, biases and the encoder of images stay in
    16 bit, but for formats that embedding and head are stored in too.

    Parameters
    ----------
    model : its weights [-]
    scheme : formats of weights, activations and cache

    Returns
    -------
    float [bytes]

    Source: checkpoints of GPTQ, AWQ, compressed-tensors, ModelOpt and gpt-oss.
    """
    one = ReplicaLayouts.of()
    layers = [count * _elements(weights, one, scheme) for count, weights in _layers(model)]
    ends = (_elements(part, one, scheme) for part in _ends(model))
    return float(_stored(np.sum([*layers, *ends, _vision(model, one, scheme)], axis=0), scheme).value[0])


def rank_weight_bytes(
    model: ModelShape, scheme: Scheme, placements: ReplicaLayouts, redundant_experts: int = 0
) -> Array:
    """Weights on the fullest rank of each placement.

        bytes = heaviest ceil(L / pp) layers in a row + max(embedding + vision, head)
        bytes = layers + embedding + vision + head                                       one stage

    The encoder of images stays in 16 bit, and is sharded like the layers, on the first stage. Copies of busy experts
    are divided among the ranks as experts are.

    Parameters
    ----------
    model : its weights [-]
    scheme : formats of weights, activations and cache
    placements : shape (placements,)
    redundant_experts : copies of experts in each layer [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: `weight_bytes`; column-, row- and expert-parallel shards as in Megatron-LM (arXiv:1909.08053) and the
    engines.
    """
    return _rank_weights(model, scheme, placements, redundant=redundant_experts).value


def _rank_weights(
    model: ModelShape, scheme: Scheme, placements: ReplicaLayouts, on_gpu: float = 1.0, embedded: bool = True,
    redundant: int = 0, holds: Holds = "both",
) -> Sum:  # fmt: skip
    """The same as elements in the format and in 16 bit, each with its size.

    on_gpu : share of the layers, without all of which the head is on the CPU too [-]; embedded : the embedding is there
    redundant : copies of experts in each layer [-]; holds : which part of the model
    """
    copies = 1.0 + redundant / model.experts.count if model.experts else 1.0
    if holds == IMAGES:
        return _stored(_vision(model, placements, scheme), scheme)
    if holds == EXPERTS:
        placements = replace(placements, tp=np.ones_like(placements.tp))
    layers = on_gpu * _fullest_stage(model, scheme, placements, copies, holds)
    if holds == EXPERTS:
        return _stored(layers, scheme)
    embedding, head = (_elements(part, placements, scheme) for part in _ends(model, on_gpu=True))
    if not embedded and not model.tied_embeddings:
        embedding = np.zeros_like(embedding)
    if on_gpu < 1.0:
        embedding, head = np.zeros_like(embedding), np.zeros_like(head)
    first, head_alone = embedding + _vision(model, placements, scheme), head
    if on_gpu == 1.0 and model.tied_embeddings:  # the last stage has a copy of the table
        table = tuple(weight for weight in embedding_weights(model) if weight.name == "embedding")
        head_alone = head + _elements(table, placements, scheme)
    heavier = _stored(first, scheme).value >= _stored(head_alone, scheme).value
    ends = np.where(placements.pp > 1, np.where(heavier, first, head_alone), first + head)
    return _stored(layers + ends, scheme)


def _stored(elements: Array, scheme: Scheme) -> Sum:
    """Elements in the format and in 16 bit, of shape (2, placements), with their sizes; together where these are one.

    A format that is wider than 16 bit is that of all.
    """
    (narrow, wide), size = elements, scheme.weights.element_bytes
    if size >= SIXTEEN_BIT:
        return product((narrow + wide, "elements"), (size, "B"))
    in_format = product((narrow, f"elements in {scheme.weights.name}"), (size, "B"))
    return in_format + product((wide, "elements in 16 bit"), (SIXTEEN_BIT, "B"))


def _fullest_stage(model: ModelShape, scheme: Scheme, placements: ReplicaLayouts, copies: float, holds: Holds) -> Array:
    """Elements of the heaviest run of ceil(layers / pp) layers that a rank may hold, as `_elements`."""
    share = layers_per_stage(model.layers, placements.pp) / model.layers
    each = [
        (count, _elements(_held_by(holds, weights), placements, scheme, copies)) for count, weights in _layers(model)
    ]
    if len(each) == 1 or model.kv_layers is not None:
        return np.asarray(share * sum(count * elements for count, elements in each))
    kinds = np.stack([elements for _, elements in each], axis=1)  # shape (2, kinds, placements)
    found = np.zeros((2, len(placements)))
    for stages in np.unique(placements.pp):
        of_stages = placements.pp == stages
        runs = _runs(model, int(layers_per_stage(model.layers, stages))) @ kinds[..., of_stages]
        heaviest = _stored(runs, scheme).value.argmax(axis=0)
        found[:, of_stages] = np.take_along_axis(runs, heaviest[None, None], axis=1)[:, 0]
    return found


def _runs(model: ModelShape, length: int) -> Array:
    """Layers of each kind in every run of `length` neighbours, shape (runs, kinds), each kind of run once."""
    kinds = [kind for kind, _ in model.layer_kinds]
    ones = np.array([[kind == known for known in kinds] for kind in model.layer_sequence], dtype=float)
    sums = np.vstack([np.zeros(len(kinds)), np.cumsum(ones, axis=0)])
    return np.unique(sums[length:] - sums[:-length], axis=0)


def _layers(model: ModelShape) -> Iterator[tuple[float, tuple[Weight, ...]]]:
    """Weights of each kind of layer and how many layers have them; borrowed keys and values are not stored."""
    lent = 0.0 if model.kv_layers is None else 1.0 - model.kv_layers / model.layers
    for kind, count in model.layer_kinds:
        weights = layer_weights(model, kind)
        yield float(count), tuple(weight for weight in weights if not (lent and weight.name in ("k", "v")))
        if lent:
            yield count * (1.0 - lent), tuple(weight for weight in weights if weight.name in ("k", "v"))


def _held_by(holds: Holds, weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """Of the weights of a layer those that a GPU holds where experts may have GPUs of their own."""
    return tuple(
        one for one in weights if holds in ("both", "experts" if is_of_experts(one.module, one.name) else "attention")
    )


# Step-3 (arXiv:2507.19427) and the plugin of vLLM (vllm-project/afd-plugin) have both on the side of the experts.
def is_of_experts(module: str, name: str) -> bool:
    """Whether a weight or an operator is of GPUs that hold experts alone: routed ones, and shared ones."""
    return module == EXPERTS or name.startswith(SHARED)


def _ends(model: ModelShape, on_gpu: bool = False) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Weights before and behind the layers; on_gpu: without tables that are in host memory."""
    away = on_gpu and model.ngram_tables is not None and model.ngram_tables.on_host
    first = tuple(weight for weight in embedding_weights(model) if not (away and weight.name == NGRAM_TABLE))
    return first, head_weights(model)


def ngram_table_bytes(model: ModelShape, scheme: Scheme) -> float:
    """Tables of n-grams of a replica, wherever they are.

        bytes = sum over tables of rows x width x bytes of an element

    Parameters
    ----------
    model : its tables [-]
    scheme : formats of weights, activations and cache

    Returns
    -------
    float, 0 without tables [bytes]

    Source: checkpoints of Qwen3.8-Flash-Next and DeepSeek-V4.1-Flash.
    """
    tables = tuple(weight for weight in embedding_weights(model) if weight.name == NGRAM_TABLE)
    return float(_stored(_elements(tables, ReplicaLayouts.of(), scheme), scheme).value[0])


def _vision(model: ModelShape, placements: ReplicaLayouts, scheme: Scheme) -> Array:
    """The encoder of images and its projectors on one rank, as `_elements`; zero where the model has none."""
    groups = vision_weights(model.vision) if model.vision else ()
    elements = [np.zeros((2, len(placements)))]
    for count, weights in groups:
        of_encoder = tuple(replace(weight, module=VISION) for weight in weights)  # formats of few bits leave it alone
        elements.append(count * _elements(of_encoder, placements, scheme))
    return np.asarray(np.sum(elements, axis=0))


# Published: checkpoints in 8 bit or less have these tables in fp8, with a scale for 32 elements (DeepSeek-V4.1-Flash,
# rows of 256 and 8 bytes) or for all (Qwen3.8-Flash-Next-FP8, 47.7 GiB).
NARROW_TABLE_BYTES = 1.0 + 1.0 / 32.0


def _elements(weights: tuple[Weight, ...], placements: ReplicaLayouts, scheme: Scheme, copies: float = 1.0) -> Array:
    """Elements on one rank in the format, and those in 16 bit, biases among them; shape (2, placements) [-].

    copies : of experts, in the mean [-]
    """
    found = np.zeros((2, len(placements)))
    tp = as_array(placements.tp)
    expert_ranks = as_array(placements.ep) * placements.expert_tp / copies
    kept_wide = wide_modules(scheme)
    for weight in weights:
        stored = weight.kind == "linear" or (scheme.weights.everywhere and weight.module in ("embedding", "head"))
        matrix, bias = weight.matrix_elements, weight.bias_elements
        if weight.name == NGRAM_TABLE and scheme.weights.element_bytes <= 1.0 and not stored:
            found[1] += weight.on_rank(matrix, bias, tp, expert_ranks) * NARROW_TABLE_BYTES / SIXTEEN_BIT
        elif stored and weight.module not in kept_wide:
            found[0] += weight.on_rank(matrix, 0.0, tp, expert_ranks)
            found[1] += weight.on_rank(0.0, bias, tp, expert_ranks)
        else:
            found[1] += weight.on_rank(matrix, bias, tp, expert_ranks)
    return found


# KV cache and recurrent states: bytes of a token and a sequence, and how many sequences a pool holds.

CONVOLUTION_BYTES = 2.0  # published: the last inputs of the convolution are kept in 16 bit


def attention_layers(model: ModelShape, windows: bool = True) -> Iterator[tuple[ModelShape, float, float]]:
    """Each kind of attention of the model: its shape, layers that keep all tokens, layers that keep a window [-].

    windows : whether the engine keeps windows; else windowed layers keep all tokens too
    """
    counts: dict[ModelShape, int] = {}
    for kind, count in model.layer_kinds:
        if kind.attends and not kind.borrows:
            seen = model.seen_by(kind)
            counts[seen] = counts.get(seen, 0) + count
    for each, layers in counts.items():
        seen, compressed = each, each.compressed_attention
        if compressed and compressed.tokens:  # a window beside the entries
            yield each, 0.0 if compressed.lent else float(layers), 0.0
            seen = replace(each, compressed_attention=replace(compressed, tokens=0), indexer=None)
        own = layers * (seen.kv_layers / seen.layers if seen.kv_layers is not None else 1.0)
        windowed = own * seen.windowed_layers / seen.layers if seen.sliding_window and windows else 0.0
        yield seen, own - windowed, windowed


def layer_token_bytes(model: ModelShape, cache: Format, tp: ArrayLike = 1.0) -> Array:
    """Cache of one token in one layer on one rank [bytes].

        bytes = cached_bytes      2 x heads of keys and values x head size x element, or the latent and its rotary part
        bytes += indexer_cache_bytes      sparse attention

    Parameters
    ----------
    model : its heads, latent attention and indexer [-]
    cache : format of an element
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [bytes]

    Source: paged attention (arXiv:2309.06180); DeepSeek-V2 (arXiv:2405.04434, section 2.1.2); `indexer_cache_bytes`.
    """
    size, ranks = cache.element_bytes, as_array(tp)
    return np.asarray(cached_bytes(model, size, ranks) + indexer_cache_bytes(model, size, ranks))


def token_bytes(model: ModelShape, cache: Format) -> float:
    """Cache of one further token in the whole model, in the layers that keep all tokens.

        bytes = sum over the kinds of attention of layers x layer_token_bytes

    Where every layer keeps a window, of all of them.

    Parameters
    ----------
    model : its layers and heads [-]
    cache : format of an element

    Returns
    -------
    float [bytes]

    Source: `layer_token_bytes`.
    """
    kinds = [(layer_token_bytes(seen, cache), full, windowed) for seen, full, windowed in attention_layers(model)]
    whole = sum(full * size for size, full, _ in kinds)
    return float(whole or sum(windowed * size for size, _, windowed in kinds))


def sequence_bytes(
    model: ModelShape,
    cache: Format,
    tokens: ArrayLike,
    placements: ReplicaLayouts,
    block: ArrayLike,
    windows: bool = True,
) -> Array:
    """Cache of one sequence on one rank, tokens rounded up to whole blocks.

        bytes = sum over the kinds of attention of ceil(full layers / pp) x layer_token_bytes x held
                + ceil(windowed layers / pp) x layer_token_bytes x min(held, window + block), and the state
        held = ceil(tokens / block) block

    A windowed layer keeps its window and the block that it ends in; state-space layers keep a state of fixed size.

    Parameters
    ----------
    model : its layers and heads [-]
    cache : format of an element
    tokens : of the sequence [tokens]
    placements : tp and pp of shape (placements,) [-]
    block : tokens of a block, a number or of shape (placements,) [tokens]
    windows : whether the engine keeps windows; else windowed layers keep all tokens too

    Returns
    -------
    ndarray of float, shape that tokens and placements broadcast to [bytes]

    Source: paged attention (arXiv:2309.06180); stages of whole layers, the fullest decides.
    """
    block = as_array(block)
    held = np.ceil(as_array(tokens) / block) * block
    size = state_bytes(model, placements)
    for seen, full, windowed in attention_layers(model, windows):
        layer = layer_token_bytes(seen, cache, placements.tp)
        size = size + layers_per_stage(full, placements.pp) * layer * held
        if seen.sliding_window:
            within = np.minimum(held, seen.sliding_window + block)
            size = size + layers_per_stage(windowed, placements.pp) * layer * within
    return np.asarray(size)


def state_bytes(model: ModelShape, placements: ReplicaLayouts) -> Array:
    """Recurrent states and convolution windows of one sequence on one tensor-parallel rank, of a stage.

        bytes = ceil(layers / pp) (channels x state rows x element + mixed channels (kernel - 1) x 2) / tp

    Parameters
    ----------
    model : its state-space layers [-]
    placements : tp and pp of shape (placements,) [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: mamba-ssm and flash-linear-attention, which keep states in float32 (arXiv:2312.00752, arXiv:2405.21060);
    vLLM's MambaStateDtypeCalculator and SGLang's mamba2_state_dtype, which keep the convolution's in 16 bit.
    """
    space = model.state_space
    if space is None:
        return np.zeros(len(placements))
    layers = sum(count for kind, count in model.layer_kinds if kind.recurs)
    return np.asarray(layers_per_stage(layers, placements.pp) * layer_state_bytes(space) / as_array(placements.tp))


def layer_state_bytes(space: StateSpace) -> float:
    """State and convolution window of one sequence in one layer, of all ranks [bytes]; see `state_bytes`."""
    window_bytes = space.mixed_channels * (space.conv_kernel - 1) * CONVOLUTION_BYTES
    return space.inner * space.state_rows * space.state_element_bytes + window_bytes


def block_tokens(job: ServingJob, placements: ReplicaLayouts) -> Array:
    """Tokens of a block of the cache.

        tokens = b                                                    the engine's
        tokens = b ceil(layer_state_bytes / tp / (b layer_token_bytes))      where blocks hold a state as well

    An engine whose layers all take blocks from one pool makes those of attention as large as the state of a layer.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)

    Returns
    -------
    ndarray of float, shape (placements,) [tokens]

    Source: vLLM, verify_and_update_config of hybrid models ("Setting attention block size to ... tokens to ensure that
    attention page size is >= mamba page size").
    """
    memory, model = job.engine.memory, job.model
    block = memory.block_tokens * np.ones(len(placements))
    each = [layer_token_bytes(seen, job.scheme.cache, placements.tp) for seen, _, _ in attention_layers(model)]
    if not memory.states_in_blocks or model.state_space is None or not each:
        return block
    state = layer_state_bytes(model.state_space) / as_array(placements.tp)
    return np.asarray(block * np.maximum(np.ceil(state / (block * np.minimum.reduce(each))), 1.0))


# Tensors of the hidden size that a layer holds together: residual, its normalised copy, the block's output (counted).
HIDDEN_TENSORS = 3.0
# Published: two buffers in turn, each to send and to receive 16 bit; DeepEP csrc/config.hpp, LowLatencyLayout.
DISPATCH_BUFFERS_BYTES = 2.0 * 2.0 * SIXTEEN_BIT
SAMPLED_TOGETHER = 256  # chosen: sequences that get logits in the engine's first run, and in parts in later ones


class ServingMemory(Immutable):
    """Bytes of the fullest GPU; arrays of shape (placements,).

    fixed : component -> bytes, all but the cache; pool_bytes : what is left for the cache, not below zero
    usable_bytes : of the card
    of_experts : component -> bytes of a GPU that holds experts alone; empty where none does
    """

    fixed: dict[str, Array]
    pool_bytes: Array
    usable_bytes: float
    of_experts: dict[str, Array]

    def __getitem__(self, index: NDArray[np.bool_] | slice) -> ServingMemory:
        fixed, others = ({name: value[index] for name, value in one.items()} for one in (self.fixed, self.of_experts))
        return ServingMemory(fixed, self.pool_bytes[index], self.usable_bytes, others)

    @property
    def experts_bytes(self) -> Array:
        """All that a GPU of experts holds; 0 where there is none [bytes]."""
        return np.asarray(sum(self.of_experts.values(), np.zeros(self.pool_bytes.shape)))

    @property
    def beside_tensors(self) -> Array:
        """What software takes beside the live tensors [bytes]."""
        return np.asarray(sum(self.fixed[part.name] for part in BESIDE))


class Holding(Immutable):
    """What the parts beside the cache are computed from: the placements, and the tokens of a step.

    tokens : of the step; sampled : sequences of it that get logits [-]
    alone : what the GPU holds alone, where a part of the model has GPUs of its own; None: it is one of the others
    """

    job: ServingJob
    placements: ReplicaLayouts
    tokens: ArrayLike
    sampled: ArrayLike
    alone: Alone | None = None

    @property
    def holds(self) -> Holds:
        return self.alone or ("attention" if self.placements.apart else "both")

    def everywhere(self, gib: float) -> Sum:
        """The same on every GPU [bytes]."""
        return product((gib, "GiB"), (GIB, "")) * np.ones(len(self.placements))


@part("weights", "elements of the rank's shards x bytes of the format", "checkpoints of the format")
def weights(held: Holding) -> Sum:
    job = held.job
    embedded = job.engine.memory.embedding == "gpu"
    redundant = job.redundant_experts or 0
    return _rank_weights(job.model, job.scheme, held.placements, job.gpu_share, embedded, redundant, held.holds)


@part(
    "drafter",
    "elements of the layers that draft, and of a head or an embedding of their own x bytes of their format",
    "the engine's sharing of embedding and head",
    lambda held: held.job.drafter is not None,
)
def drafter(held: Holding) -> Array:
    """Weights of what proposes the tokens of speculative decoding, on the fullest rank.

        bytes = modules x (layers + joining + norms) + own head + own embedding

    EAGLE's heads and modules for multi-token prediction share embedding and head with the model; the embedding is
    loaded again where the last pipeline stage is not the first.

    Source: load_model, _maybe_share_embeddings and _maybe_share_lm_head of vLLM (v1/spec_decode/llm_base_proposer.py);
    set_embed_and_head of SGLang (speculative/eagle_worker.py); NVIDIA's blog 2 on TensorRT-LLM (MTP modules).
    """
    kept, placements = held.job.drafter, held.placements
    assert kept is not None
    model, scheme = kept.first.model, kept.first.scheme
    one_stage = kept.placements(placements)
    embedding, head = _ends(model)
    beside = tuple(weight for weight in (*embedding, *head) if weight.split != "vocabulary")
    layers = [count * _elements(weights, one_stage, scheme) for count, weights in _layers(model)]
    elements = kept.modules * np.sum([*layers, _elements(beside, one_stage, scheme)], axis=0)
    table = tuple(weight for weight in embedding if weight.split == "vocabulary")
    again = 1.0 if kept.own_embedding else as_array(placements.pp > 1) * kept.embeds
    elements = elements + again * _elements(table, one_stage, scheme)
    if kept.own_head:
        elements = elements + _elements(tuple(one for one in head if one.split == "vocabulary"), one_stage, scheme)
    return _stored(elements, scheme).value


@part("LoRA adapters", "held adapters x r (inputs + outputs) of their projections x 2", "preallocated by the engine")
def adapters(held: Holding) -> Array:
    kept, count = held.job.adapters, len(held.placements)
    return adapter_bytes(held.job.model, kept, held.placements) if kept else np.zeros(count)


@part("activations", "widest tensors of a layer for the tokens of a step", "the profiling run of the engine")
def activations(held: Holding) -> Array:
    """The hidden tensors beside gate, up and their product, or beside the rows that experts get.

    The encoder of images runs before the layers and has memory of its own, which they use again. GPUs of experts share
    the tokens of all groups of attention.
    """
    job, tp, tokens = held.job, as_array(held.placements.tp), as_array(held.tokens)
    if held.alone == IMAGES:
        tower = job.model.vision
        assert tower is not None
        return np.asarray(_widest(tower.encoder, tp, _encoded(held, tower)) * job.element_bytes)
    if held.alone == EXPERTS:
        tokens = tokens * held.placements.dp / held.placements.expert_gpus
        return np.asarray(_widest(job.model, np.ones_like(tp), tokens, job.halves) * job.element_bytes)
    model = replace(job.model, experts=None) if held.placements.apart else job.model
    elements = _widest(model, tp, tokens, job.halves)
    if job.model.vision:
        encoded = _encoded(held, job.model.vision)
        elements = np.maximum(elements, _widest(job.model.vision.encoder, tp, encoded))
    return np.asarray(elements * job.element_bytes)


def _widest(model: ModelShape, tp: Array, tokens: Array, halves: bool = False) -> Array:
    """Elements of the widest tensors that a layer holds together; of two halves one is inside a block [-]."""
    hidden = HIDDEN_TENSORS * tokens * model.hidden
    tokens = tokens / 2.0 if halves else tokens
    wide = tokens * (3.0 if model.gated else 2.0) * model.ffn / tp
    if model.experts:
        per_token = model.experts.per_token * ((3.0 if model.gated else 2.0) * model.experts.ffn / tp + model.hidden)
        wide = np.maximum(wide, tokens * per_token)
    qkv = tokens * (2.0 * model.heads + 2.0 * model.kv_heads) * model.qk_head_dim / tp
    return np.asarray(hidden + np.maximum(wide, qkv))


def _encoded(held: Holding, tower: VisionTower) -> Array:
    """Patches that are encoded together: of the images of a step; an engine that keeps a pool tries the largest [-].

    A GPU that only encodes has steps of images alone.

    Source: vLLM v1/worker/gpu_model_runner.py, profile_run: as many of the largest images as a step has tokens for.
    """
    tokens, images = as_array(held.tokens), held.job.images
    share = 0.0
    if images is not None:
        of_images = images.each * images.seen.tokens
        whole = of_images if held.alone == IMAGES else images.prompt_tokens
        share = images.each * images.seen.pieces * images.seen.patches / whole
    most = largest_image(tower)
    together = np.maximum(tokens // most.tokens, 1.0) * most.pieces * most.patches
    return np.maximum(tokens * share, 0.0 if held.job.grows else together)


@part("embeddings", "tokens of a step x hidden x 16 bit", "the engine's cache of what is encoded, as large as a step")
def embeddings(held: Holding) -> Sum:
    """States of images that a GPU which only encodes keeps until they are sent.

    Source: vLLM compute_mm_encoder_budget (v1/core/encoder_cache_manager.py): the cache has room for a step's tokens.
    """
    size = product((held.job.model.hidden, "hidden"), (held.job.element_bytes, "B"))
    return named(as_array(held.tokens), "tokens") * size * np.ones(len(held.placements))


@part("logits", "sequences of a step x vocabulary x (16 bit + float32)", "samplers widen the logits")
def logits(held: Holding) -> Sum:
    """Of every token where the engine computes `all_logits`."""
    tokens, each = as_array(held.tokens), held.job.element_bytes + FLOAT32
    every = held.job.engine.kernels.all_logits
    if not held.job.answers:
        return product((0.0, "logits"), (each, "B")) * np.ones(len(held.placements))
    rows = named(tokens, "tokens") if every else named(np.minimum(as_array(held.sampled), tokens), "sequences")
    vocab, one = float(held.job.model.logits), np.ones(len(held.placements))
    return rows * named(vocab, "vocabulary") * named(each, "B") * one


@part("CUDA graphs", "captured decode steps", "the engine")
def cuda_graphs(held: Holding) -> Sum:
    return held.everywhere(held.job.engine.memory.graphs_gib)


@part("CUDA context", "driver and kernels", "measured contexts, 0.47 to 0.92 GiB")
def cuda_context(held: Holding) -> Sum:
    return held.everywhere(held.job.engine.memory.context_gib)


@part(
    "communicators",
    "buffers of NCCL or of the engine's all-reduce; room of a dispatcher for the tokens of all ranks with each expert",
    "measured groups, 0.5 to 0.7 GiB; DeepEP",
)
def communicators(held: Holding) -> Sum | Array:
    groups = held.everywhere(held.job.engine.memory.communicator_gib) * (held.placements.gpus > 1)
    job, experts = held.job, held.job.model.experts
    sends = (job.sends_by(held.placements).prompts, job.sends_by(held.placements).decodes)
    if experts is None or not any(exchange.rows for exchange in sends):
        return groups
    slots = float(experts.count + (job.redundant_experts or 0))
    tokens = float(job.engine.exchanges.rows_of_a_rank)
    rows = product((slots, "experts"), (tokens, "tokens"), (float(job.model.hidden), "elements"))
    return groups + DISPATCH_BUFFERS_BYTES * rows * (held.placements.ep > 1)


@part("workspaces", "cuBLAS and the attention's partial results", "the engine")
def workspaces(held: Holding) -> Sum:
    return held.everywhere(held.job.engine.memory.workspace_gib)


class Cached(Immutable):
    """Sequences on one GPU, the tokens of each, and how often the engine holds their cache."""

    job: ServingJob
    placements: ReplicaLayouts
    sequences: ArrayLike
    tokens: ArrayLike
    copies: ArrayLike = 1.0


@part(
    "KV cache",
    "2 x layers x KV heads x head size x element x tokens, in whole blocks",
    "paged attention (arXiv:2309.06180)",
)
def cache(cached: Cached) -> Sum:
    each = request_bytes(cached.job, cached.placements, cached.tokens)
    requests = product((as_array(cached.sequences), "requests"), (each, "B a request"))
    return named(cached.copies, "copies") * requests


class Card(Immutable):
    """One card, and what an engine that keeps a pool has on it beside the pool; graphs are captured last."""

    job: ServingJob
    placements: ReplicaLayouts
    fixed: Mapping[str, Array]
    graphs: Array

    @property
    def card_bytes(self) -> float:
        return self.job.server.accelerator.memory_bytes

    @cached_property
    def taken(self) -> Sum:
        """All parts beside the pool and the graphs [bytes]."""
        return sum(named(size, f"B of {name}") for name, size in self.fixed.items())  # type: ignore[return-value]

    @property
    def engine_bytes(self) -> Sum | Array:
        """What the engine takes but for the graphs, where the pool gets all that its share leaves [bytes]."""
        engine, whole, taken = self.job.engine.memory, self.card_bytes, self.taken.value
        if engine.utilization_of == "free":
            return taken + engine.utilization * (whole - taken)
        if engine.utilization_of == "static":
            before = self.fixed[cuda_context.name] + self.fixed[communicators.name]
            return taken - self.fixed[weights.name] + engine.utilization * (whole - before)
        return product((engine.utilization, ""), (whole, "B of the card")) * np.ones(taken.shape)


@part(
    "KV cache",
    "share of the engine x card - all other parts, or share x what these leave; the context that it was started with",
    "documentation of the engines",
)
def pool(card: Card) -> Sum:
    most = named(card.card_bytes, "B of the card") - card.taken - named(card.graphs, f"B of {cuda_graphs.name}")
    if card.job.allocated is not None:
        most = smaller(named(started_with(card.job, card.placements), "B of the context"), most)
    return larger(smaller(card.engine_bytes - card.taken, most), 0.0)


@part("left free by the engine", "card - share of the engine - CUDA graphs", "gpu_memory_utilization")
def left_free(card: Card) -> Array:
    return np.asarray(card.card_bytes - np.minimum(value_of(card.engine_bytes) + card.graphs, card.card_bytes))


STEP_TENSORS = (activations, logits)
BESIDE = (cuda_context, communicators, workspaces)
FIXED_PARTS = (weights, drafter, adapters, *STEP_TENSORS, *BESIDE)
HOLDING_PARTS = (*FIXED_PARTS, cuda_graphs)  # what is there beside the pool
# The parts of an engine's memory: one that keeps a pool as it starts, and where not one request fits; one whose cache
# grows with a batch.
Held = Part[Holding] | Part[Cached] | Part[Card]
ALLOCATED_PARTS: tuple[Held, ...] = (weights, drafter, adapters, pool, *STEP_TENSORS, *BESIDE, cuda_graphs)
SHORT_PARTS: tuple[Held, ...] = (
    weights, drafter, adapters, cache, *STEP_TENSORS, *BESIDE, cuda_graphs, left_free,
)  # fmt: skip
BATCH_PARTS: tuple[Held, ...] = (weights, drafter, cache, *STEP_TENSORS, *BESIDE)
READING_PARTS: tuple[Held, ...] = (weights, activations, *BESIDE)  # no answers: neither cache nor logits
# Of GPUs that hold a part of the model alone: its experts, or its encoder of images.
ALONE_PARTS: Mapping[Alone, tuple[Part[Holding], ...]] = {
    "experts": (weights, activations, *BESIDE, cuda_graphs),
    "images": (weights, activations, embeddings, *BESIDE),
}


def serving_memory(job: ServingJob, placements: ReplicaLayouts, prompt_tokens: float | None = None) -> ServingMemory:
    """Memory that an engine which keeps a pool finds when it starts.

        pool = utilization x card - weights - activations - logits - context - communicators - workspaces
        pool = utilization x (card - all of these)      TensorRT-LLM, LMDeploy: a share of what is free
        pool = utilization x (card - context - communicators) - weights      SGLang: a share for what stays
        pool = min(pool, card - all of these - graphs)
        pool = min(sequences x request_bytes, card - all of these)      llama.cpp: the context that it was started with

    Graphs are captured after the pool is sized, out of the rest. A step is the largest that the engine takes.

    Parameters
    ----------
    job : model, engine, format and server
    placements : shape (placements,)
    prompt_tokens : of one request; None: not known [tokens]

    Returns
    -------
    ServingMemory, shape (placements,) [bytes]

    Source: documentation of the engines; vllm.utils.mem_utils; profile_max_num_token of SGLang; llama_kv_cache of
    llama.cpp, which allocates all cells of the context.
    """
    held = largest_step(job, placements, prompt_tokens)
    absent = absent_parts(job)
    fixed = computed((one for one in FIXED_PARTS if one.name not in absent), held)
    graphs = cuda_graphs(held)
    card = Card(job, placements, fixed, graphs)
    of_experts = held_alone(held, "experts") if placements.apart else {}
    return ServingMemory({**fixed, cuda_graphs.name: graphs}, pool(card), card.card_bytes, of_experts)


def held_alone(held: Holding, alone: Alone) -> dict[str, Array]:
    """Memory of a GPU that holds a part of the model alone, by component.

        bytes = sum of ALONE_PARTS of what it holds

    Parameters
    ----------
    held : the job, and the largest step under each placement
    alone : what such a GPU holds: experts, or the encoder of images

    Returns
    -------
    dict of ndarray of float, shape (placements,) [bytes]

    Source: each part names its own.
    """
    return computed(ALONE_PARTS[alone], replace(held, alone=alone))


def absent_parts(job: ServingJob) -> frozenset[str]:
    """Names of the parts that answers about the job do not list: it has no adapters, or nothing that drafts."""
    left_out = ((drafter, job.drafter), (adapters, job.adapters))
    return frozenset(part.name for part, kept in left_out if kept is None)


def largest_step(job: ServingJob, placements: ReplicaLayouts, prompt_tokens: float | None) -> Holding:
    """The step that an engine tries as it starts.

        tokens = max_step_tokens, at least the prompt where prompts are not cut; min of both where the cache grows

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    prompt_tokens : of one request; None: not known [tokens]

    Returns
    -------
    Holding, of shape (placements,): tokens [-]

    Source: vllm v1/worker/gpu_model_runner.py, profile_run; profile_max_num_token of SGLang.
    """
    batching = job.engine.batching
    tokens = float(batching.max_step_tokens)
    if prompt_tokens is not None and job.grows:
        tokens = min(tokens, prompt_tokens)
    elif prompt_tokens is not None and not batching.chunked_prefill:
        tokens = max(tokens, prompt_tokens)
    together = batching.max_sequences if job.allocated is None else job.allocated.sequences
    return Holding(job, placements, tokens, min(together, SAMPLED_TOGETHER))


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
        sequences = min(s pool / states, (1 - s) pool / (request_bytes - states)) x ranks      states have a share s

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
    per_rank = memory.pool_bytes / np.maximum(each, 1.0)  # all layers, and with them the cache, may be on the CPU
    share = job.engine.memory.state_share
    if share and job.model.state_space:
        states = job.gpu_share * state_bytes(job.model, placements)
        of_tokens = (1.0 - share) * memory.pool_bytes / np.maximum(each - states, 1.0)
        per_rank = np.minimum(share * memory.pool_bytes / np.maximum(states, 1.0), of_tokens)
    return np.asarray(np.where(per_rank < 1.0, per_rank, per_rank * placements.dp))


def request_bytes(job: ServingJob, placements: ReplicaLayouts, tokens: ArrayLike) -> Array:
    """Cache of one request on one GPU, as the engine keeps it.

        bytes = sequence_bytes in blocks of the engine, with windows where it keeps them, of the layers on the GPU
        bytes += modules x sequence_bytes of the drafter      speculative decoding, on the last stage

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    tokens : of the request [tokens]

    Returns
    -------
    ndarray of float, shape that tokens and placements broadcast to [bytes]

    Source: `sequence_bytes`; block size and windows stand in the engine's file.
    """
    block, windows = block_tokens(job, placements), job.engine.kernels.windows
    size = job.gpu_share * sequence_bytes(job.model, job.scheme.cache, tokens, placements, block, windows)
    if job.drafter is None:
        return size
    one_stage, drafting = job.drafter.placements(placements), job.drafter.first
    own = sequence_bytes(drafting.model, drafting.scheme.cache, tokens, one_stage, block, windows)
    return np.asarray(size + job.drafter.modules * own)


def host_layer_bytes(job: ServingJob, sequences: float, tokens: float) -> float:
    """Weights and cache of the layers on the CPU, with the head and the embedding, which are there too.

        bytes = weight_bytes - weights on the GPU + sequences (1 - share on the GPU) sequence_bytes

    Parameters
    ----------
    job : the model and its layers on the CPU
    sequences, tokens : that are held, and of each [-]

    Returns
    -------
    float [bytes]

    Source: `weight_bytes` and `sequence_bytes`.
    """
    one = ReplicaLayouts.of()
    kept = float(_rank_weights(job.model, job.scheme, one, job.gpu_share, False).value[0])
    each = float(sequence_bytes(job.model, job.scheme.cache, tokens, one, job.engine.memory.block_tokens)[0])
    return weight_bytes(job.model, job.scheme) - kept + sequences * (1.0 - job.gpu_share) * each


def needed_bytes(job: ServingJob, placements: ReplicaLayouts, batch: float, inputs: float, outputs: float) -> Array:
    """What a GPU has to hold, of an engine whose cache grows or is allocated for a context.

        bytes = peak of the batch + software               the cache grows
        bytes = all other parts + cache of the context     it was started with one

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    batch : sequences that run together [-]
    inputs, outputs : of each [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: `static_peak` and `serving_memory`.
    """
    memory = serving_memory(job, placements, inputs)
    if job.allocated is None:
        return memory.beside_tensors + sum(static_peak(job, placements, batch, inputs, outputs).values())
    return np.asarray(sum(memory.fixed.values()) + started_with(job, placements))


def started_with(job: ServingJob, placements: ReplicaLayouts) -> Array:
    """Cache of one GPU that an engine allocates as it starts, for the context that it was started with.

        bytes = sequences x request_bytes

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: llama_kv_cache in llama.cpp, whose tensors have all cells of the context.
    """
    assert job.allocated is not None
    return job.allocated.sequences * request_bytes(job, placements, job.allocated.tokens)


ROOM = 0.97  # chosen: share of a card that layers may fill where as many as fit are asked for


def fewest_cpu_layers(job: ServingJob, placement: ReplicaLayouts, inputs: float, outputs: float, batch: float) -> int:
    """Layers that have to be on the CPU for the rest to fit.

        n = min of n with weights + cache + tensors of a step + software <= 0.97 card

    The cache is that of the context that the engine was started with, where it was.

    Parameters
    ----------
    job : of an engine whose cache grows, and the host as a device
    placement : one
    inputs, outputs, batch : tokens of a prompt and of an answer, and sequences that run together [-]

    Returns
    -------
    int, at most all layers [-]

    Source: own derivation: each layer more on the CPU frees its weights and its cache.
    """
    assert job.cpu is not None
    usable = ROOM * job.server.accelerator.memory_bytes
    for layers in range(job.model.layers + 1):
        tried = replace(job, cpu=replace(job.cpu, layers=layers) if layers else None)
        if float(np.max(needed_bytes(tried, placement, batch, inputs, outputs))) <= usable:
            return layers
    return job.model.layers


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
    return _live(*worst_moment(job, placements, batch, inputs, outputs))


def worst_moment(
    job: ServingJob, placements: ReplicaLayouts, batch: ArrayLike, inputs: ArrayLike, outputs: ArrayLike
) -> tuple[Holding, Cached]:
    """Memory of a GPU at the worst moment of a batch whose cache grows.

        tokens = share where weights + cache + step tensors of the last step >= those of the prefill, else share inputs
        tokens = min(share inputs, max_step_tokens)      prompts are cut: one is read while others end their answers
        tokens = min(share, max_sequences) inputs <= max(max_step_tokens, inputs)      no answers, and no cache
        share = batch / dp

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    batch : sequences [-]
    inputs, outputs : of each [tokens]

    Returns
    -------
    Holding and Cached: tokens, sequences and copies of shape (placements,) [-]

    Source: `static_peak`, whose worst moment this is.
    """
    batch, inputs, outputs = as_array(batch), as_array(inputs), as_array(outputs)
    share, copies = batch / as_array(placements.dp), job.engine.memory.cache_copies
    if not job.answers:
        return _reading(job, placements, share, inputs)
    if job.engine.batching.chunked_prefill:
        tokens = np.minimum(share * inputs, job.engine.batching.max_step_tokens)
        return Holding(job, placements, tokens, share), Cached(job, placements, share, inputs + outputs, copies)
    prefill = Holding(job, placements, share * inputs, share), Cached(job, placements, share, inputs)
    last_step = Holding(job, placements, share, share), Cached(job, placements, share, inputs + outputs, copies)
    early, late = (np.asarray(sum(_live(*moment).values())) for moment in (prefill, last_step))
    at_end = late >= early
    tokens, kept = np.where(at_end, share, share * inputs), np.where(at_end, inputs + outputs, inputs)
    held = Holding(job, placements, tokens, share)
    return held, Cached(job, placements, share, kept, np.where(at_end, copies, 1.0))


def _reading(job: ServingJob, placements: ReplicaLayouts, share: Array, inputs: Array) -> tuple[Holding, Cached]:
    """A step of texts without answers, as large as the engine takes, of which nothing is kept."""
    batching = job.engine.batching
    tokens = np.minimum(
        np.minimum(share, batching.max_sequences) * inputs, np.maximum(batching.max_step_tokens, inputs)
    )
    return Holding(job, placements, tokens, share), Cached(job, placements, 0.0, inputs)


def _live(held: Holding, cached: Cached) -> dict[str, Array]:
    """Tensors that are live in a step of a batch [bytes]."""
    own = computed((drafter,), held) if held.job.drafter else {}
    return {weights.name: weights(held), **own, cache.name: cache(cached), **computed(STEP_TENSORS, held)}


# Sessions that come back: whose cache stays on the GPU, whose in host memory, and how many find theirs again.


class Hits(Immutable):
    """Shares of returning sessions that find their cache on the GPU, or in host memory alone [-]."""

    gpu: Array
    host: Array

    @property
    def both(self) -> Array:
        """That need not be computed again [-]."""
        return self.gpu + self.host


def hit_shares(idle: ArrayLike, on_gpu: ArrayLike, in_host: ArrayLike, host_holds: str) -> Hits:
    """Sessions that find their cache again, of those that come back.

        gpu = min(g / n, 1)
        gpu + host = min(max(g, h) / n, 1)      the host has a copy of what is on the GPU
        gpu + host = min((g + h) / n, 1)        it has what the GPU evicted

    n sessions whose users think, g of which the GPU has room for, h the host. Users think for exponential times and the
    oldest is evicted, so that a session is found if it comes back within a time T: its share 1 - e^(-T/Z) is the room
    over the sessions.

    Parameters
    ----------
    idle, on_gpu, in_host : n, g and h of a replica [-]
    host_holds : copies or evicted

    Returns
    -------
    Hits, shape that the numbers broadcast to [-]

    Source: Che's approximation of an LRU cache (IEEE JSAC 20, 2002), exact here as all sessions come back alike.
    """
    idle, on_gpu, in_host = (as_array(one) for one in (idle, on_gpu, in_host))
    room = np.maximum(on_gpu, in_host) if host_holds == "copies" else on_gpu + in_host
    sessions = np.maximum(idle, 1e-12)
    gpu = np.minimum(on_gpu / sessions, 1.0)
    return Hits(gpu, np.minimum(room / sessions, 1.0) - gpu)


def sessions_on_gpu(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, running: ArrayLike,
    seen_tokens: float,
) -> Array:  # fmt: skip
    """Idle sessions that the pool of a replica has room for beside the requests that run.

        g = (pool x attention ranks - running x request_bytes(held)) / request_bytes(seen)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers [tokens]
    running : requests that run on a replica [-]
    seen_tokens : of a session that its next prompt begins with [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation: prefix caches keep blocks that no request uses until these are needed (vLLM, SGLang).
    """
    held = request_bytes(job, placements, held_tokens(job, traffic.inputs, traffic.outputs_in_time))
    free = memory.pool_bytes * placements.dp - as_array(running) * held
    return np.asarray(np.maximum(free, 0.0) / np.maximum(request_bytes(job, placements, seen_tokens), 1.0))


def sessions_in_host(job: ServingJob, placements: ReplicaLayouts, size_bytes: float, seen_tokens: float) -> Array:
    """Sessions that the host memory of a replica has room for.

        h = size / (request_bytes(seen) x tp pp)

    Every rank keeps its own part, so that latent caches are kept once a rank.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    size_bytes : of one replica [bytes]
    seen_tokens : of a session that its next prompt begins with [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: SGLang's HiCache (mem_cache/memory_pool_host.py) and vLLM's OffloadingConnector keep the pages of each rank.
    """
    return size_bytes / (request_bytes(job, placements, seen_tokens) * placements.tp * placements.pp)


def fetch_s(job: ServingJob, placements: ReplicaLayouts, tokens: float) -> Array:
    """Time to bring the cache of one session from host memory back to all GPUs that serve it.

        t = request_bytes / (0.88 x PCIe rate)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    tokens : of the session [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [s]

    Source: `laws.collectives.copy_time_s`; every rank has a bus of its own.
    """
    return copy_time_s(request_bytes(job, placements, tokens), job.server.pcie_bytes_per_s)


# The longest context, and how many sessions fit.

LONGEST = 2**27  # chosen: tokens that are looked for where a model names no positions


def sessions_held(job: ServingJob, placements: ReplicaLayouts, inputs: float, outputs: float) -> Array:
    """Whole sequences that a replica holds at once, to their last token.

        sessions = dp floor(sequences_held / dp)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    inputs, outputs : of one sequence [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: `sequences_held`; each attention rank has a pool of its own.
    """
    found = sequences_held(job, placements, serving_memory(job, placements, inputs), inputs, outputs)
    if job.grows:
        return np.asarray(np.floor(found))
    return np.asarray(np.floor(np.where(found < 1.0, 0.0, found / placements.dp)) * placements.dp)


def sequences_held(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, inputs: float, outputs: float
) -> Array:
    """Sequences that a replica holds at once, to their last token; a fraction below one where not even one fits.

        sequences = max_sequences                                       the engine keeps a pool
        sequences = 1 + (card - peak(1)) / (peak(2) - peak(1))          the cache grows with the sequences
        sequences = infinite where the largest step fits                no answers, and no cache

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : of shape (placements,) [bytes]
    inputs, outputs : of one sequence [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: `max_sequences` and `static_peak`.
    """
    if not job.grows:
        return max_sequences(job, placements, memory, inputs + outputs)
    one, two = (np.asarray(sum(static_peak(job, placements, n, inputs, outputs).values())) for n in (1.0, 2.0))
    room = memory.usable_bytes - memory.beside_tensors - one
    found = np.asarray(np.maximum(1.0 + room / np.maximum(two - one, 1.0), 0.0))
    if job.answers:
        return found
    largest = sum(static_peak(job, placements, np.inf, inputs, outputs).values())
    return np.where(largest + memory.beside_tensors <= memory.usable_bytes, np.inf, found)


def longest_context(
    job: ServingJob, placements: ReplicaLayouts, sessions: ArrayLike, outputs: float, most: int | None
) -> Array:
    """Find the longest prompt and answer of which a replica holds so many at once.

        longest = max of T with sessions_held(T - outputs, outputs) >= sessions

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sessions : that a replica has to hold, shape (placements,) [-]
    outputs : of the T tokens, the answer [tokens]
    most : tokens that are looked for at most; None: no bound is known [tokens]

    Returns
    -------
    ndarray of float, shape (placements,); 0 where not even a prompt of one token fits [tokens]

    Source: own derivation: halving, as fewer sequences fit the longer they are.
    """
    asked = np.broadcast_to(as_array(sessions), len(placements))
    found = np.zeros(len(placements))
    for place in range(len(placements)):
        one = placements[place : place + 1]
        low, high = int(outputs), (most or LONGEST) + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = sessions_held(job, one, middle - outputs, outputs)[0] >= asked[place]
            low, high = (middle, high) if fits else (low, middle)
        found[place] = low if low > outputs else 0.0
    return found
