"""The attention half of a layer: norm, projections, rotary, attention core, output projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import (
    context_exchanges,
    enter_parallel,
    leave_parallel,
    linear,
    memory_bound,
    narrow_product,
    norm,
    residual,
)
from xe_sizer.graph.inputs import MASK, Block
from xe_sizer.graph.operators import Attention, Matmul, attended_positions
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import CompressedAttention, LatentAttention, ModelShape, SparseIndexer
    from xe_sizer.graph.operators import Array, MemoryBound, Operator, RankShape

# Disentangled attention (DeBERTa): queries and keys are also compared with a table of relative positions.

INDEX = 8.0  # bytes of an index: torch.int64
TERMS = 2.0  # counted: content to position and position to content (pos_att_type of every published model)
ALIVE = 5.0  # counted: scores of the content, of both terms, of one scaled, and their sum, all local variables
# Counted, of 16-bit scores and both terms: gathers by 64-bit indices (2 x (4 + 1 + 1)), scales (4), sums (6); backward:
# zeros and scattered additions instead of the gathers, gradients of scales.
GATHER_PASSES, GATHER_LAUNCHES = (22.0, 26.0), (12.0, 12.0)


def disentangled_scores(block: Block) -> Iterator[Operator]:
    """Scores of tokens against relative positions, in both directions, and their way to pairs of tokens.

        FLOPs = 2 terms (rows h h / tp + b heads / tp s rows d)

    The table's rows pass the projections of queries and keys, which layers share with the tokens. Kept are the scores
    against rows, the indices of pairs, which all sequences share, a mask of each sequence, and scaled keys; all layers
    share the relative positions and the model's mask.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)

    Returns
    -------
    iterator of Operator, none where the model has no such table; sizes [-] and bytes [bytes] broadcast to shape
    (rank shape,)

    Source: DeBERTa (arXiv:2006.03654, section 3.1) and v3 (arXiv:2111.09543); DisentangledSelfAttention of
    transformers (models/deberta_v2).
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    if not model.disentangled_positions:
        return
    rows, heads = model.disentangled_positions * rank.ones, model.heads / rank.tp
    copied = rank.batch * heads * rows * model.head_dim * inputs.element_bytes
    yield _product(
        block, "position projections", rows, heads * model.head_dim, model.hidden * rank.ones, TERMS * rank.ones,
        TERMS * copied,
    )  # fmt: skip
    queries = rank.sequence / rank.cp
    copies = TERMS * rank.batch * heads
    yield _product(block, "position scores", queries, rows, model.head_dim * rank.ones, copies, inputs.zeros)
    pairs = queries * rank.keys
    scores = rank.batch * heads * pairs * inputs.element_bytes
    kept = copies * queries * rows * inputs.element_bytes + pairs * (TERMS * INDEX + rank.batch * MASK)
    kept = kept + rank.batch * heads * rank.keys * model.head_dim * inputs.element_bytes
    gathers = memory_bound(block, "position gathers", "attention", scores, GATHER_PASSES, GATHER_LAUNCHES, kept, ALIVE)
    of_all_layers = pairs * (INDEX + rank.batch * FLOAT32)
    yield replace(gathers, temporary_bytes=gathers.temporary_bytes + of_all_layers)


def _product(block: Block, name: str, m: Array, n: Array, k: Array, copies: Array, saved_bytes: Array) -> Matmul:
    learns = block.inputs.learning.base
    return Matmul(
        name=name,
        module="attention",
        layers=block.layers,
        saved_bytes=np.asarray(saved_bytes),
        m=m,
        n=n,
        k=k,
        copies=copies,
        input_gradient=True,
        weight_gradient=learns,
        learns=learns,
        apart=False,
    )


# Heads of keys and values on a rank, and what a cache holds of them.


def kv_heads_per_rank(model: ModelShape, tp: Array) -> Array:
    """Heads of keys and values on a tensor-parallel rank; where there are fewer than ranks, they are replicated.

        heads = max(kv_heads / tp, 1)

    Parameters
    ----------
    model : its kv_heads [-]
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [-]

    Source: Megatron-LM and the engines copy heads of keys and values to the ranks that share one.
    """
    return np.asarray(np.maximum(model.kv_heads / tp, 1.0))


def heads_of_a_rank(inputs: GraphInputs) -> tuple[Array, Array]:
    """Query heads, and heads of keys and values, that attention works on; copies where there are fewer than ranks [-].

        heads = model's heads / (tp head_ranks);  kv_heads = kv_heads_per_rank(tp head_ranks)

    Parameters
    ----------
    inputs : model, and rank of shape (rank shape,)

    Returns
    -------
    (heads, kv_heads), ndarrays of float, shape (rank shape,) [-]

    Source: Megatron-LM (arXiv:1909.08053); DeepSpeed-Ulysses (arXiv:2309.14509), whose context ranks share heads out.
    """
    ranks = inputs.rank.tp * inputs.rank.head_ranks
    return inputs.model.heads / ranks, kv_heads_per_rank(inputs.model, ranks)


def cache_width(model: ModelShape, tp: Array) -> Array:
    """Elements that a rank caches per token and layer: keys and values, or the latent that both are computed from.

        elements = kv_heads_per_rank (qk head size + v head size)
        elements = latent rank + rotary part      latent attention: they serve all heads, so every rank holds them whole
        elements = head size / tokens of an entry      compressed attention likewise; without entries of the window

    Parameters
    ----------
    model : its heads or the ranks of its latent attention [-]
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [-]

    Source: DeepSeek-V2 (arXiv:2405.04434, section 2.1.2) for latent attention; DeepseekV4Attention of transformers.
    """
    latent = model.latent_attention
    if latent:
        return (latent.kv_rank + latent.qk_rope_head_dim) * np.ones_like(tp)
    if model.compressed_attention:
        return model.head_dim / max(model.compressed_attention.tokens, 1) * np.ones_like(tp)
    return kv_heads_per_rank(model, tp) * (model.qk_head_dim + model.v_head_dim)


SPARSE_SCALES = 4.0 / 128.0  # published: a float32 scale for 128 elements (FlashMLA, "FP8 KV cache"; DeepSeek-V3.2)
# Published: of an element of an indexer's own key, whatever the cache: in fp8 where heads are weighted (DeepSeek-V3.2),
# else in 16 bit (MiniMaxM3IndexerCache of vLLM, whose fp8 must be asked for).
INDEXER_KEY_BYTES = {True: 1.0 + SPARSE_SCALES, False: SIXTEEN_BIT}


def indexer_cache_bytes(model: ModelShape, element_bytes: float, tp: Array) -> Array:
    """Keys of the indexer of one token and layer in the cache of a rank; 0 without one.

        bytes = head size x element / tokens of an entry      one key of its own, on every rank
        bytes = cached_bytes (1 + summaries) / tokens that a key stands for      means of the attention's keys, which
                                                                                  take the place of keys and values each

    Parameters
    ----------
    model : its indexer, heads, and its entries where attention is compressed [-]
    element_bytes : of the cache's format [bytes]
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [bytes]

    Source: DeepSeek-V3.2 (fp8 with a float32 scale for 128); MiniMaxM3IndexerCache of vLLM; MiniCPMCompressedCache of
    SGLang, which keeps a key for 16 tokens and one for 64 in slots of its pool.
    """
    indexer = model.indexer
    if indexer is None or not indexer.own:
        return np.zeros_like(tp)
    if not indexer.scoring.projections:
        return cached_bytes(model, element_bytes, tp) * (1.0 + indexer.scoring.summaries) / indexer.key_tokens
    tokens = max(model.compressed_attention.tokens, 1) if model.compressed_attention else indexer.key_tokens
    return indexer.head_dim * INDEXER_KEY_BYTES[indexer.scoring.weighted] / tokens * np.ones_like(tp)


def cached_bytes(model: ModelShape, element_bytes: float, tp: Array) -> Array:
    """Keys and values of one token and layer in the cache of a rank, without the keys of an indexer.

        bytes = cache_width x element
        bytes = latent rank (1 + 4 / 128) + 2 rotary part      latent attention whose queries pick, in 8 bit

    Sparse kernels keep the latent in 8 bit with a float32 scale for 128 elements, and the rotary part in 16 bit: 656
    bytes of DeepSeek-V3.2, not 576.

    Parameters
    ----------
    model : its heads, latent attention and indexer [-]
    element_bytes : of the cache's format [bytes]
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [bytes]

    Source: `cache_width`; README of FlashMLA (FP8 KV cache); `fp8_ds_mla` of vLLM.
    """
    latent = model.latent_attention
    if latent and model.indexer and element_bytes == 1.0:
        each = latent.kv_rank * (element_bytes + SPARSE_SCALES) + latent.qk_rope_head_dim * SIXTEEN_BIT
        return each * np.ones_like(tp)
    return cache_width(model, tp) * element_bytes


def cache_writes(block: Block, tokens: Array) -> Iterator[Operator]:
    """Writes the new keys and values into the cache, or copies the whole of it to make room for them.

        bytes = tokens cache_width (element + cached element)                                paged
        bytes = b keys (2 cache_width cached element + copies for all query heads element)   concatenated

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    tokens : new ones, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator, empty without a cache; bytes of shape (rank shape,) [bytes]

    Source: vLLM's reshape_and_cache; DynamicCache of transformers, which concatenates.
    """
    inputs, rank, kind = block.inputs, block.inputs.rank, block.inputs.kernels.cache
    if kind not in ("paged", "concatenated") or inputs.model.borrows:
        return
    size = inputs.element_bytes if inputs.cached_element_bytes is None else inputs.cached_element_bytes
    width = cache_width(inputs.model, rank.tp)
    if kind == "paged":
        moved, launches = tokens * width * (size + inputs.element_bytes), rank.ones
    else:
        repeated = _repeated_width(inputs)
        moved = rank.batch * rank.keys * (2.0 * width * size + repeated * inputs.element_bytes)
        launches = np.where(repeated > 0, 4.0, 2.0)
    yield memory_bound(block, "cache write", "attention", moved, (1.0, 0.0), (launches, 0.0))


def _repeated_width(inputs: GraphInputs) -> Array:
    """Elements moved per cached token where keys and values are copied to all query heads before they are used [-]."""
    model, tp = inputs.model, inputs.rank.tp
    heads, kv_heads = model.heads / tp, kv_heads_per_rank(model, tp)
    copied = (heads > kv_heads) * float(inputs.kernels.repeats_kv)
    return np.asarray(copied * (heads + kv_heads) * (model.qk_head_dim + model.v_head_dim))


# The attention half of a layer.

# Rotary over Q and K: one fused pass, or two products, a negation, a concatenation and a sum (transformers).
ROTARY_PASSES = {"fused": (2.0, 2.0), "eager": (10.0, 12.0), "in-attention": (0.0, 0.0)}
# Bytes for each pair of tokens while a mask is made: conditions, their conjunction and the last one; distances and
# their absolute values, as 64-bit integers.
CONDITIONS, DISTANCES = 3.0, 16.0
OUTPUT_GATE_PASSES, OUTPUT_GATE_LAUNCHES = (5.0, 8.0), (2.0, 3.0)  # sigmoid and product
# Eager, of queries and keys (counted): halves are turned, two products, a sum; a slice's gradient is zeros and a copy.
ROTARY_LAUNCHES = {"fused": (1.0, 1.0), "eager": (10.0, 18.0), "in-attention": (0.0, 0.0)}


def attention_half(block: Block, own_norm: bool = True) -> Iterator[Operator]:
    """Operators of the attention half, in order.

        operators = norm, projections, rotary, attention core, output projection, residual

    Where attention and MLP run side by side, the MLP half enters and leaves the tensor-parallel region for both.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    own_norm : whether a norm stands before the attention; in models that norm the sums one stands behind

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: reference implementations in Hugging Face transformers; Megatron-LM's tensor-parallel regions
    (arXiv:1909.08053).
    """
    inputs = block.inputs
    tokens = inputs.rank.tokens
    if own_norm:
        yield norm(block, "input norm", inputs.model.hidden, inputs.rank.resident_tokens)
    if not inputs.model.parallel_block:
        yield enter_parallel(block, "attention", "qkv", readers=1 if inputs.fused_qkv else 3)
    yield from _projections(block, tokens)
    if inputs.model.qk_norm:
        width = (inputs.model.heads + inputs.model.own_kv_heads) * inputs.model.head_dim
        yield norm(block, "qk norm", width, tokens / inputs.rank.tp, inner=True, apart=2)
    yield from _rotary(block, tokens)
    yield from disentangled_scores(block)
    yield from _prefixed(block)
    yield from attention_core(block)
    if inputs.model.output_gate:
        gated_bytes = tokens * inputs.model.heads / inputs.rank.tp * inputs.model.v_head_dim * inputs.element_bytes
        yield memory_bound(
            block, "output gate", "attention", gated_bytes, OUTPUT_GATE_PASSES, OUTPUT_GATE_LAUNCHES, 2.0 * gated_bytes
        )
    yield from _output_projection(block, tokens)
    if inputs.model.norms_per_layer == 4:
        yield norm(block, "post-attention norm", inputs.model.hidden, inputs.rank.resident_tokens)
    if not inputs.model.parallel_block:
        yield leave_parallel(block, "attention", "output_projection")
        yield residual(block, "attention residual")
    if inputs.model.post_norm:
        yield norm(block, "attention norm", inputs.model.hidden, inputs.rank.resident_tokens)


def _prefixed(block: Block) -> Iterator[MemoryBound]:
    """Keys and values that learn are put before those of the sequence: both are read and written; back, sliced."""
    inputs, rank = block.inputs, block.inputs.rank
    if not inputs.learning.prefix:
        return
    width = cache_width(inputs.model, rank.tp)
    moved = rank.batch * rank.keys * width * inputs.element_bytes
    made = memory_bound(block, "prefix", "attention", moved, (2.0, 2.0), (2.0, 4.0))
    yield replace(made, adapter=True)


def attention_core(block: Block) -> Iterator[Operator]:
    """Build the operators that depend on whose tokens they work on: the cache, and attention itself.

        FLOPs = 2 b heads pairs (qk head size + v head size)

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: FlashAttention (arXiv:2205.14135) for what fused kernels keep; the eager implementations of Hugging Face
    transformers for the rest, traced.
    """
    yield from cache_writes(block, block.inputs.rank.tokens)
    yield from _core(block)


def _projections(block: Block, tokens: Array) -> Iterator[Operator]:
    """Q, K and V read the same input, which is kept once, or a cast of it for each."""
    inputs, model = block.inputs, block.inputs.model
    if model.latent_attention:
        yield from _latent_projections(block, model.latent_attention, tokens)
        return
    if model.compressed_attention:
        yield from _compressed_projections(block, model.compressed_attention, tokens)
        return
    if model.shared_blocks:
        for name in ("q", "k", "v"):
            yield from narrow_product(block, f"own {name}", f"own_{name}", model.shared_blocks.attention_rank)
    if inputs.fused_qkv:
        # With those of an indexer, which read the same (MinimaxM3QKVParallelLinearWithIndexer of vLLM).
        yield from linear(block, "qkv", ("q", "k", "v", *_scorer(inputs)), tokens, inputs.hidden_bytes)
        return
    kept = False
    for name in ("q", "k", "v"):
        input_bytes = inputs.hidden_bytes * (inputs.casts_inputs if kept else 1.0)
        kept = kept or inputs.keeps_input(name)
        yield from linear(block, name, (name,), tokens, input_bytes)
    yield from _further_projections(block, _scorer(inputs), tokens)


def _scorer(inputs: GraphInputs) -> tuple[str, ...]:
    return ("indexer_q", "indexer_k", "indexer_head_weights") if _running_indexer(inputs) else ()


def _further_projections(block: Block, names: tuple[str, ...], tokens: Array) -> Iterator[Operator]:
    """Of an input that another product keeps."""
    for name in names:
        yield from linear(block, name.replace("_", " "), (name,), tokens, block.inputs.zeros)


def _latent_projections(block: Block, latent: LatentAttention, tokens: Array) -> Iterator[Operator]:
    """Down to the low ranks, norms there, and up to the heads (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    inputs, e = block.inputs, block.inputs.element_bytes
    yield from linear(block, "q", ("q",), tokens, inputs.hidden_bytes)
    yield from linear(block, "q down", ("q_down",), tokens, inputs.hidden_bytes)
    if latent.query_rank:
        yield norm(block, "q latent norm", latent.query_rank, tokens, inner=True)
        yield from linear(block, "q up", ("q_up",), tokens, tokens * latent.query_rank * e)
    yield from linear(block, "kv down", ("kv_down",), tokens, inputs.zeros)
    yield norm(block, "kv latent norm", latent.kv_rank, tokens, inner=True)
    yield from linear(block, "kv up", ("kv_up",), tokens, tokens * latent.kv_rank * e)
    yield from _further_projections(block, (*_scorer(inputs), "output_gate"), tokens)


def _compressed_projections(block: Block, compressed: CompressedAttention, tokens: Array) -> Iterator[Operator]:
    """Low-rank queries, one head of keys that are values, and what sums up tokens in entries."""
    inputs, e = block.inputs, block.inputs.element_bytes
    yield from linear(block, "q down", ("q_down",), tokens, inputs.hidden_bytes)
    yield norm(block, "q latent norm", compressed.query_rank, tokens, inner=True)
    yield from linear(block, "q up", ("q_up",), tokens, tokens * compressed.query_rank * e)
    yield from linear(block, "k", ("k",), tokens, inputs.zeros)
    yield norm(block, "k norm", inputs.model.head_dim, tokens, inner=True)
    yield from _further_projections(block, ("entries", "indexer_entries", *_scorer(inputs)), tokens)


def _output_projection(block: Block, tokens: Array) -> Iterator[Operator]:
    """Its input is the attention's output, which the attention core already keeps, or what groups of heads yield."""
    inputs, compressed = block.inputs, block.inputs.model.compressed_attention
    kept = inputs.zeros
    if compressed:
        yield from linear(block, "output groups", ("o_down",), tokens, kept)
        kept = tokens * compressed.output_groups * compressed.output_rank / inputs.rank.tp * inputs.element_bytes
    yield from linear(block, "output projection", ("o",), tokens, kept)


def _rotary(block: Block, tokens: Array) -> Iterator[Operator]:
    inputs, model = block.inputs, block.inputs.model
    if model.position == "rope":
        kind = inputs.kernels.rotary
        heads = model.heads / inputs.rank.tp + kv_heads_per_rank(model, inputs.rank.tp) * float(not model.borrows)
        tensor_bytes = tokens * heads * model.qk_head_dim * model.rotary_fraction * inputs.element_bytes
        yield memory_bound(block, "rotary", "qkv", tensor_bytes, ROTARY_PASSES[kind], ROTARY_LAUNCHES[kind])


def _core(block: Block) -> Iterator[Operator]:
    """Full and windowed layers apart; a context rank works on 1/cp of the queries or heads, and on all keys."""
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    windows = model.sliding_window is not None and inputs.kernels.windows
    windowed = block.layers * model.windowed_layers / model.layers if windows else 0.0
    if windowed < block.layers:
        yield from indexing(block, block.layers - windowed)
        yield attention_operator(block, "attention", block.layers - windowed, _picked_tokens(inputs))
    if windowed > 0:
        near = attention_operator(block, "windowed attention", windowed, model.sliding_window)
        yield from _with_entries(block, near, windowed)
    yield from _repeated_for_masks(block, block.layers - windowed, windowed)
    keys_and_values = rank.batch * rank.sequence * heads_of_a_rank(inputs)[1]
    yield from context_exchanges(block, keys_and_values * (model.qk_head_dim + model.v_head_dim) * inputs.element_bytes)


def _with_entries(block: Block, near: Attention, layers: float) -> Iterator[Operator]:
    """Attention to a window, and in the same kernel to entries of m tokens each, all or those that the indexer picks.

        pairs = pairs of the window + pairs with the last w m tokens / m,  w entries that are picked

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    near : the attention to the window
    layers : that have it [-]

    Source: DeepseekV4Attention of transformers.
    """
    model, rank = block.inputs.model, block.inputs.rank
    compressed = model.compressed_attention
    if compressed is None:
        yield near
        return
    near = replace(near, values_in_keys=True)
    if not compressed.tokens:
        yield near
        return
    tokens = float(compressed.tokens)
    yield from indexing(block, layers, tokens)
    picked = np.inf if model.indexer is None else model.indexer.top_k * tokens
    far = attended_positions(rank.sequence, rank.keys, np.minimum(picked, rank.keys)) / tokens / rank.ring_ranks
    loaded = None if near.loaded_keys is None else near.loaded_keys + np.minimum(rank.keys, picked) / tokens
    yield replace(near, name="compressed attention", pairs=near.pairs + far, loaded_keys=loaded)


def _masked(inputs: GraphInputs, window: Array | float | None) -> Array | None:
    """Share of micro-batches whose attention is given a mask, for padding or for a sliding window; None: none [-].

    Source: transformers masking_utils.py, _ignore_causal_mask_sdpa: no mask where nothing is padded and the sequence is
    shorter than the window, so that is_causal takes its place; _update_causal_mask of models before release 4.53 did
    the same. `_picks_by_mask` for what an indexer picks.
    """
    if _picks_by_mask(inputs):
        return None if inputs.kernels.attention == "eager" else np.ones_like(inputs.rank.sequence)
    if inputs.kernels.attention != "sdpa":
        return None
    if inputs.learning.prefix:  # fewer queries than keys
        return np.ones_like(inputs.rank.sequence)
    if inputs.kernels.attention_mask == "none":
        return None
    past_window = 0.0 if window is None else (inputs.rank.sequence >= window).astype(float)
    masked = np.maximum(inputs.padded * np.ones_like(inputs.rank.sequence), past_window)
    return masked if np.any(masked > 0) else None


def mask_bytes(inputs: GraphInputs) -> tuple[Array, Array]:
    """Masks that a model makes for all its layers before the first one runs: while it makes them, and made [bytes].

        made = 1 byte x pairs x sequences with padding of their own, for whole and for windowed attention
        making = made + 1 byte x pairs x (results of two conditions; distances of an encoder's window in 64 bit, and
                 without their sign, before the comparison)

    Parameters
    ----------
    inputs : model, rank and kernels; sizes of shape (rank shape,)

    Returns
    -------
    two ndarrays of float, shape (rank shape,), 0 where attention gets no mask [bytes]

    Source: transformers masking_utils.py (sdpa_mask, and_masks, sliding_window_bidirectional_overlay); traced.
    """
    model, rank = inputs.model, inputs.rank
    pairs = rank.sequence / rank.ring_ranks * rank.keys
    masks = np.where(inputs.padded > 0, rank.batch, 1.0)
    made, making = inputs.zeros, inputs.zeros
    for window, layers in ((None, model.layers - model.windowed_layers), (model.sliding_window, model.windowed_layers)):
        masked = _masked(inputs, window) if layers and (window is None or inputs.kernels.windows) else None
        if masked is None:
            continue
        there = (masked > 0) * pairs
        distances = DISTANCES if model.bidirectional and window is not None else 0.0
        making = np.maximum(making, made + there * np.maximum(distances, CONDITIONS * masks))
        made = made + there * masks
    return np.asarray(making), np.asarray(made)


def _repeated_for_masks(block: Block, full: float, windowed: float) -> Iterator[Operator]:
    """Keys and values copied to all query heads: with a mask PyTorch's kernels have no groups of heads.

        bytes = tokens (heads + kv_heads) (qk head size + v head size) element, forward; the same backward, summed

    Source: transformers integrations/sdpa_attention.py (use_gqa_in_sdpa, repeat_kv).
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    heads, kv_heads = heads_of_a_rank(inputs)
    masks = [(_masked(inputs, None), full), (_masked(inputs, model.sliding_window), windowed)]
    share = sum((mask * layers / block.layers for mask, layers in masks if mask is not None), inputs.zeros)
    if not np.any(share * (heads - kv_heads) > 0) or _falls_back(inputs):
        return
    width = (heads + kv_heads) * (heads > kv_heads) * (model.qk_head_dim + model.v_head_dim)
    moved = share * rank.batch * rank.keys * width * inputs.element_bytes
    yield memory_bound(block, "repeated keys and values", "attention", moved, (1.0, 1.0), (2.0, 2.0), None, 0.0)


INDEXER_CAST, SELECTION = "indexer cast", "key selection"
PAGED = ("paged", "in-attention")  # caches of engines that keep a pool
PICKED_MASK = "picked mask"
OF_SEQUENCES = ("cache write", INDEXER_CAST, SELECTION, PICKED_MASK)
"""Memory-bound operators whose work depends on whose tokens they work on."""
# Counted, of the indexer's queries and key, in 16 bit: rotary and Hadamard transforms read and write them, the cast
# reads them and writes half (indexer of DeepSeek-V3.2 and vLLM's); a key has a norm before.
NARROWING_PASSES, NARROWING_LAUNCHES = (5.5, 0.0), (4.0, 0.0)
# Scores are written once and read for histograms and for those in the bins that remain: three times, measured.
# Selecting runs at 1.1 TB/s (values all alike) to 2.9 of scores on H200, at 1.2 to 3.2 on B200 (SGLang's
# fast_topk_transform_fused, prompts of 4,096 to 16,384 tokens, timed by aiconfigurator).
SELECTION_PASSES, SELECTION_LAUNCHES = (4.0, 0.0), (1.0, 0.0)


def indexing(block: Block, layers: float, tokens: float = 1.0) -> Iterator[Operator]:
    """Build the operators by which queries pick keys: narrowing, scores of all keys, and the selection.

        FLOPs of scores = 2 b heads pairs head size, in 8 bit where heads are weighted
        bytes of scores read by a decode = b keys (bytes of the indexer's cache of a token)
        bytes of the selection = SELECTION_PASSES x 4 b rankings pairs / tokens of a block

    Keys are those that the indexer scores, and pairs those of a query and such a key, in sequences that do not attend
    to all tokens. Weighted heads are summed to one ranking; else each group of query heads of the rank has one.

    Where no cache is paged, operands are as wide as others, and what narrows them is not there. Nothing of it is kept.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    layers : that have it [-]
    tokens : that one entry sums up (compressed attention) [-]

    Returns
    -------
    iterator of Operator, none where the model has no indexer; sizes [-] and bytes [bytes] broadcast to (rank shape,)

    Source: DeepSeek-V3.2 (arXiv:2512.02556, section 2.1) and its reference code; fp8_mqa_logits of DeepGEMM; kernels of
    vLLM for MiniMax-M3 (models/minimax_m3/common/ops/index_topk.py), whose scores leave as the largest of a block.
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    indexer = _running_indexer(inputs)
    if indexer is None or not indexer.own:
        return
    if _picks_by_mask(inputs):
        yield _picked_mask(replace(block, layers=layers), indexer)
        return
    weighted, own, ranks = indexer.scoring.weighted, indexer.scoring.projections, rank.tp * rank.head_ranks
    heads = _scoring_heads(inputs, indexer)
    rankings = np.ones_like(rank.tp) if indexer.scoring.summed else kv_heads_per_rank(model, ranks)
    tokens = max(tokens, float(indexer.key_tokens))
    batch = rank.batch * (rank.keys > indexer.dense_tokens)
    pairs = attended_positions(rank.sequence, rank.keys) / rank.ring_ranks / tokens
    there = replace(block, layers=layers)
    cached = inputs.kernels.cache in PAGED
    if cached and weighted:
        moved = rank.tokens * (heads + 1.0 / tokens) * indexer.head_dim * inputs.element_bytes
        yield memory_bound(there, INDEXER_CAST, "attention", moved, NARROWING_PASSES, NARROWING_LAUNCHES)
    yield Attention(
        name="indexer",
        module="attention",
        layers=layers,
        saved_bytes=inputs.zeros,
        batch=batch,
        heads=heads,
        kv_heads=np.ones_like(rank.tp) if own else kv_heads_per_rank(model, ranks),
        query=rank.sequence / rank.ring_ranks,
        key=rank.keys / tokens,
        pairs=pairs,
        qk_head_dim=indexer.head_dim,
        v_head_dim=0,
        kernel="decode" if inputs.kernels.attention == "decode" else "flash",
        statistics_bytes=inputs.zeros,
        cached_element_bytes=INDEXER_KEY_BYTES[weighted] if cached and own else inputs.cached_element_bytes,
        narrow=cached and weighted,
    )
    scores = batch * rankings * pairs * tokens / max(tokens, float(indexer.block_tokens)) * FLOAT32
    yield memory_bound(there, SELECTION, "attention", scores, SELECTION_PASSES, SELECTION_LAUNCHES)


def _scoring_heads(inputs: GraphInputs, indexer: SparseIndexer) -> Array:
    """Heads of the indexer on a rank: all of them where their scores make one ranking, else its share of them."""
    rank = inputs.rank
    shared = 1.0 if indexer.scoring.summed else rank.tp * rank.head_ranks
    return np.maximum(indexer.heads / shared * rank.ones, 1.0)


def _running_indexer(inputs: GraphInputs) -> SparseIndexer | None:
    """The scorer of the layers at hand; None where they have none, or a stack that attends to all tokens."""
    indexer = inputs.model.indexer
    return None if indexer and indexer.kind in inputs.kernels.sparse_dense else indexer


def _picks_by_mask(inputs: GraphInputs) -> bool:
    """Whether what an indexer picks becomes a mask of PyTorch's attention, which then works on all pairs."""
    indexer = _running_indexer(inputs)
    return bool(indexer and indexer.kind in inputs.kernels.sparse_masked and not inputs.model.compressed_attention)


# Counted, of a score in float32: written by the product, read and written as those of later tokens are masked, read for
# the largest of a block. Of an element of the mask in the compute type: what is picked is spread over tokens and heads,
# joined with the causal mask and negated in bytes, and fills what was zeros (build_block_mask). Alive together: scores
# and masked ones; picked blocks, picked pairs, their negation, zeros and the mask (traced: 7.1 bytes an element).
MASK_SCORE_PASSES, MASKED_SCORES, MASK_BYTES, MASKS = 4.0, 2.0, 12.0, 7.0


def _picked_mask(block: Block, indexer: SparseIndexer) -> Operator:
    """Scores of all pairs written out, and the mask made of what is picked. Nothing of it learns, nor is kept by it."""
    inputs, rank = block.inputs, block.inputs.rank
    pairs = rank.batch * rank.sequence / rank.ring_ranks * rank.keys
    heads = _scoring_heads(inputs, indexer)
    masks = _mask_heads(inputs)
    moved = pairs * (heads * FLOAT32 * MASK_SCORE_PASSES + masks * MASK_BYTES)
    made = memory_bound(block, PICKED_MASK, "attention", moved, (1.0, 0.0), (15.0, 0.0), None, 0.0)
    return replace(made, forward_temporary_bytes=pairs * np.maximum(heads * FLOAT32 * MASKED_SCORES, masks * MASKS))


def _mask_heads(inputs: GraphInputs) -> Array:
    """Masks of a sequence: one, or one for each query head of the rank where groups of heads pick on their own [-]."""
    indexer = _running_indexer(inputs)
    own = _picks_by_mask(inputs) and indexer is not None and not indexer.scoring.summed
    return heads_of_a_rank(inputs)[0] * inputs.rank.ones if own else inputs.rank.ones


def _picked_tokens(inputs: GraphInputs) -> Array | None:
    """Tokens that a query attends to at most; None: all, as where those in a cache are masked [-]."""
    indexer = _running_indexer(inputs)
    if indexer is None or (_picks_by_mask(inputs) and inputs.kernels.cache != "none"):
        return None
    return np.where(inputs.rank.keys > indexer.dense_tokens, float(indexer.top_k), inputs.rank.keys)


def _score_bytes(inputs: GraphInputs) -> tuple[float, float, float]:
    """Per score, what unfused attention keeps, what its backward holds beside that, and what its forward holds [bytes].

    Kept: the softmax's result, in float32 and cast, or in the compute type alone; a soft cap's; with dropout a mask and
    the dropped probabilities (Korthikanti et al. 2022: 2 + 1 + 2 bytes), which take the place of a cast copy. The
    fallback of sdpa keeps float32 alone. The backward of the softmax holds its result and two gradients of its type,
    and no copy any more; with dropout in the compute type the product behind has as much, and the mask.
    The forward holds most while the softmax runs: masked scores, where they are narrower the float32 copy of them, and
    the result; before that product and masked product. Some classes hold the product without the mask all the while.
    """
    size, held = inputs.element_bytes, inputs.model.held_scores
    if inputs.kernels.attention == "sdpa":
        return FLOAT32, 2.0 * FLOAT32, 2.0 * FLOAT32
    wide = inputs.kernels.softmax == "float32" and not (inputs.model.narrow_softmax and not inputs.autocast)
    drops, capped = inputs.drops("attention"), size * float("scores" in inputs.model.soft_caps)
    kept = size + FLOAT32 + drops * MASK if wide else size + drops * (MASK + size)
    backward = (3.0 * FLOAT32 if wide else 3.0 * size + drops * MASK) - kept
    copied = 2.0 * FLOAT32 if size < FLOAT32 else FLOAT32
    forward = size * (1.0 + float("unmasked" in held)) + (copied if wide else size)
    return kept + capped, backward, forward


def _falls_back(inputs: GraphInputs) -> bool:
    """Whether sdpa leaves its fused kernels for plain arithmetic in float32."""
    return inputs.kernels.attention == "sdpa" and inputs.model.math_attention


def _saved_operands(inputs: GraphInputs, heads: Array, kv_heads: Array) -> Array:
    """Q, K, V and output that autograd keeps [bytes].

    The fallback of sdpa keeps float32 copies of Q, K and V, broadcast to all heads where the batch has more than one
    sequence (a single one needs a view only), and the output where the next product learns.
    """
    model, rank, e = inputs.model, inputs.rank, inputs.element_bytes
    # Each rank keeps its own keys; those gathered from the other context ranks are dropped.
    tokens, kept_keys = rank.batch * rank.sequence / rank.ring_ranks, rank.batch * rank.keys / rank.ring_ranks
    if _falls_back(inputs):
        copied = np.where(rank.batch > 1, heads, kv_heads)
        values = heads * float(inputs.keeps_input("o")) * e + copied * FLOAT32
        return np.asarray(tokens * ((heads + copied) * model.qk_head_dim * FLOAT32 + values * model.v_head_dim))
    kept_kv = heads if inputs.kernels.repeats_kv else kv_heads
    # The output is what a fused kernel's backward reads; else the next product keeps it, where it does.
    output = model.v_head_dim * (float(inputs.keeps_input("o")) if inputs.kernels.attention == "eager" else 1.0)
    width = model.qk_head_dim + model.v_head_dim
    operands = (tokens * heads * (model.qk_head_dim + output) + kept_keys * kept_kv * width) * e
    exchanged = np.where(rank.head_ranks * rank.ones > 1.0, 1.0, 0.0)
    if np.any(exchanged):  # the projection's input is what came back for the output, another tensor
        operands = operands + exchanged * tokens * heads * model.v_head_dim * e * float(inputs.keeps_input("o"))
    fused = inputs.fused_qkv and model.latent_attention is None  # whose way up to heads is no such projection
    if fused and model.position == "rope" and inputs.kernels.attention != "eager":
        # The values are a view into the fused projection, unless they are exchanged, or cast because the projection
        # returns a wider type: it stays whole beside the rotated queries and keys.
        viewed = (1.0 - exchanged) * (np.asarray(inputs.returned_bytes) <= e)
        operands = operands + viewed * tokens * (heads + kv_heads) * model.qk_head_dim * e
    if inputs.kernels.attention == "sdpa" and inputs.kernels.rotary == "eager" and model.rotary_fraction < 1:
        # Queries concatenated from turned and untouched parts lie head by head, and so does the output, which is
        # copied token by token for the next product.
        operands = operands + tokens * heads * model.v_head_dim * e * float(inputs.keeps_input("o"))
    return np.asarray(operands)


def attention_operator(block: Block, name: str, layers: float, window: Array | float | None) -> Attention:
    """One kernel of attention.

        FLOPs = 2 b heads pairs (qk head size + v head size)

    Fused kernels keep Q, K, V, output and the float32 log-sum-exp; eager the probabilities, in float32 and cast. Biases
    of relative positions are a mask to sdpa, made anew in every layer.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    name, layers : of the operator [-]
    window : tokens that a query sees at most; None: all [-]

    Returns
    -------
    Attention; sizes [-] and bytes [bytes] of shape (rank shape,)

    Source: FlashAttention (arXiv:2205.14135); create_position_bias_mask of transformers; the eager modules, traced.
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    heads, kv_heads = heads_of_a_rank(inputs)
    query = rank.sequence / rank.ring_ranks
    # Of positions that learn, keys and values beside those of the sequence.
    width = kv_heads * (model.qk_head_dim + model.v_head_dim)
    prefix = np.asarray(rank.batch * inputs.learning.prefix * width * inputs.element_bytes)
    operands, statistics = _saved_operands(inputs, heads, kv_heads) + prefix, rank.batch * heads * query * FLOAT32
    masked = _masked(inputs, window)
    if masked is not None:
        # A mask in the compute type for every sequence, since PyTorch writes out what was expanded when it turns words
        # of yes and no into numbers to add (convert_boolean_attn_mask); and, for every head, keys and values.
        size = (masked > 0) * inputs.element_bytes
        repeated = 0.0 if inputs.kernels.repeats_kv else heads - kv_heads
        keys = query + inputs.learning.prefix
        operands = operands + size * rank.batch * keys * repeated * (model.qk_head_dim + model.v_head_dim)
        row = rank.sequence + inputs.learning.prefix
        statistics = statistics + size * rank.batch * query * row * _mask_heads(inputs)
    kernel, temporary, in_forward, returned = inputs.kernels.attention, 0.0, inputs.zeros, inputs.zeros
    if model.relative_buckets:
        statistics = statistics + heads * query * rank.keys * inputs.element_bytes
    if kernel == "eager" or _falls_back(inputs):
        kept, temporary, alive = _score_bytes(inputs)
        scores = rank.batch * heads * query * rank.keys
        returned = scores * inputs.element_bytes * float(kernel == "eager" and "returned" in model.held_scores)
        kernel, statistics, in_forward = "eager", scores * kept, scores * np.maximum(alive - kept, 0.0)
    softmax = "unfused"
    if inputs.kernels.softmax == "fused":
        softmax = "fused-with-dropout" if inputs.drops("attention") else "fused"
    # On a cache the up-projections move into queries and output: attention over the latent, always where queries pick.
    picking = bool(model.indexer and inputs.kernels.cache in PAGED and not _picks_by_mask(inputs))
    absorbed = model.latent_attention if kernel == "decode" or picking else None
    ranked = bool(model.indexer and model.indexer.scoring.summed)  # one by one; else in blocks
    padded = inputs.kernels.sparse_heads if picking and ranked else 0.0
    block_rate = None
    if picking and model.indexer and not ranked and inputs.kernels.block_rate:
        block_rate = np.where(rank.keys > model.indexer.dense_tokens, inputs.kernels.block_rate, np.inf)
    pairs = _pairs(inputs, window) / rank.ring_ranks
    if padded and window is not None:  # short of keys, they still go through as many
        pairs = np.where(rank.keys > window, query * window, pairs)
    cached = inputs.cached_element_bytes
    if picking and cached is not None:
        cached = float(cached_bytes(model, cached, rank.ones)[0] / cache_width(model, rank.ones)[0])
    repeated = inputs.kernels.repeats_kv and (kernel == "decode" or inputs.kernels.cache == "concatenated")
    loaded_keys = None  # those of the whole cache; of a window only those in it
    if window is not None and inputs.kernels.cache != "none":
        loaded_keys = np.asarray(np.minimum(rank.keys, window + rank.sequence - 1.0))
    return Attention(
        name=name,
        module="attention",
        layers=layers,
        saved_bytes=operands + statistics,
        batch=rank.batch,
        heads=np.maximum(heads, padded),
        kv_heads=np.ones_like(kv_heads) if absorbed else heads if repeated else kv_heads,
        query=query,
        key=rank.keys,
        pairs=pairs,
        qk_head_dim=absorbed.kv_rank + absorbed.qk_rope_head_dim if absorbed else model.qk_head_dim,
        v_head_dim=absorbed.kv_rank if absorbed else model.v_head_dim,
        kernel=kernel,
        statistics_bytes=statistics,
        score_temporary_bytes=temporary,
        forward_temporary_bytes=in_forward,
        returned_bytes=returned,
        softmax=softmax,
        cached_element_bytes=cached,
        loaded_keys=loaded_keys,
        masked=None if kernel == "eager" else masked,
        values_in_keys=absorbed is not None,  # the latent part of the keys
        gathers=picking and ranked,
        peak_share=block_rate,
        window=window,
        blocks=rank.ring_ranks
        if inputs.kernels.context in ("ring", "hybrid") and np.any(rank.ring_ranks > 1)
        else None,
    )


def _pairs(inputs: GraphInputs, window: Array | float | None) -> Array:
    """Query-key pairs per head and sequence: what a causal mask leaves, or all of them in an encoder [-].

    Windows of an encoder lie side by side, so that each of its tokens sees the whole of one.
    """
    rank = inputs.rank
    if not inputs.model.bidirectional:
        return attended_positions(rank.sequence, rank.keys, window)
    return np.asarray(rank.sequence * np.minimum(rank.keys, np.inf if window is None else window))


# Cross-attention: tokens of a decoder look at what the encoder returns.


def cross_attention(block: Block, source: RankShape) -> Iterator[Operator]:
    """Operators of the cross attention, in order.

        FLOPs = 2 tokens (2 h q + ...) of q and o + 2 source tokens h (k + v) + 2 b heads s t (qk + v head size)

    Queries come from the decoder's t tokens, keys and values from the encoder's s, and every query sees every key. The
    encoder's output is one tensor for all layers, which what stands behind the encoder keeps; under autocast each
    projection casts it once more.

    Parameters
    ----------
    block : a kind of decoder layer, with the inputs of the graph; sizes of shape (rank shape,)
    source : the rank's share of the encoder's tokens, of shape (rank shape,)

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.3; T5LayerCrossAttention and BartDecoderLayer of
    transformers.
    """
    inputs, rank = block.inputs, block.inputs.rank
    hidden, before = inputs.model.hidden, not inputs.model.post_norm
    if before:
        yield norm(block, "cross norm", hidden, rank.resident_tokens)
    yield enter_parallel(block, "cross attention", "qkv")
    yield from linear(block, "cross q", ("cross_q",), rank.tokens, inputs.hidden_bytes)
    cast = source.tokens * hidden * inputs.element_bytes * inputs.casts_inputs
    for name in ("k", "v"):
        yield from linear(block, f"cross {name}", (f"cross_{name}",), source.tokens, cast)
    seen = replace(rank, past=source.sequence - rank.sequence)
    both_ways = replace(inputs, model=replace(inputs.model, bidirectional=True, relative_buckets=0), rank=seen)
    yield attention_operator(Block(both_ways, block.weights, block.layers), "cross attention", block.layers, None)
    yield from linear(block, "cross output projection", ("cross_o",), rank.tokens, inputs.zeros)
    yield leave_parallel(block, "cross attention", "output_projection")
    yield residual(block, "cross residual")
    if not before:
        yield norm(block, "cross norm", hidden, rank.resident_tokens)
