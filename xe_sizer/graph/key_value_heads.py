"""Heads of keys and values on a rank: how many there are, what a cache holds of them, and what writing it moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.building_blocks import memory_bound

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block, GraphInputs
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, Operator


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

    Parameters
    ----------
    model : its heads or the ranks of its latent attention [-]
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [-]

    Source: DeepSeek-V2 (arXiv:2405.04434, section 2.1.2) for latent attention.
    """
    latent = model.latent_attention
    if latent:
        return (latent.kv_rank + latent.qk_rope_head_dim) * np.ones_like(tp)
    return kv_heads_per_rank(model, tp) * (model.qk_head_dim + model.v_head_dim)


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
    if kind not in ("paged", "concatenated"):
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
