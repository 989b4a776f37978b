"""Attention of a decoder's tokens to what the encoder returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.graph.attention import attention_of
from xe_sizer.graph.building_blocks import linear, norm, residual
from xe_sizer.graph.exchanges import enter_parallel, leave_parallel
from xe_sizer.graph.inputs import Block

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Operator, RankShape


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
    yield attention_of(Block(both_ways, block.weights, block.layers), "cross attention", block.layers, None)
    yield from linear(block, "cross output projection", ("cross_o",), rank.tokens, inputs.zeros)
    yield leave_parallel(block, "cross attention", "output_projection")
    yield residual(block, "cross residual")
    if not before:
        yield norm(block, "cross norm", hidden, rank.resident_tokens)
