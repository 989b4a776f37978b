"""State-space mixers in place of attention: projection in, short convolution, scan, gated norm, projection out.

Short convolutions between two gates (LFM2) are mixers without a scan.
The scan of Mamba-2 and of gated delta nets runs in chunks: products inside each chunk, and a state that passes from
chunk to chunk (arXiv:2405.21060, section 6; arXiv:2412.06464). Mamba-1 walks token by token in one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import (
    enter_parallel,
    exchange,
    leave_parallel,
    linear,
    memory_bound,
    narrow_product,
    norm,
    residual,
)
from xe_sizer.graph.operators import Matmul, Scan
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import StateSpace
    from xe_sizer.graph.operators import Array, MemoryBound, Operator

MODULE = "state_space"
# Tokens of a chunk: the defaults of mamba-ssm (256, of Megatron-LM 128) and of flash-linear-attention (64).
CHUNK = {"mamba-2": 128, "gated-delta-net": 64, "kimi-delta-attention": 64, "lightning-attention": 64}
SHORT = "short-convolution"
DELTA = ("gated-delta-net", "kimi-delta-attention")
# Kernels of a forward: profiled (flash-linear-attention 0.6), counted (mamba-ssm; states and outputs in the simple_gla
# of flash-linear-attention, which lightning attention is).
KERNELS = {"mamba-2": 5.0, "gated-delta-net": 9.0, "kimi-delta-attention": 11.0, "lightning-attention": 2.0}
SCORE_BYTES = 12.0  # counted: a score within a chunk is written and read in float32, its inverse written and read
# Fitted, of a channel and head: decays of every channel, and queries and keys times them, between the kernels; 4.5 ns
# of a token and head on H100, 3.1 on B200 and 17.7 on L40S.
CHANNEL_GATE_BYTES = 48.0
NARROW = {
    "decay": "decay",
    "gate": "mixer_gate",
}  # what Kimi delta attention may project through a narrow width, and the names of its weights
# Convolution and gated norm as one kernel each way, counting what it reads and writes.
CONV_PASSES, CONV_LAUNCHES = (2.0, 4.0), (1.0, 2.0)
GATE_PASSES, GATE_LAUNCHES = (3.0, 6.0), (1.0, 2.0)
PRODUCT_PASSES, PRODUCT_LAUNCHES = (3.0, 5.0), (1.0, 2.0)  # of a gate: two read, one written; back, three and two
# Copies where the kernels are apart, over the channels of values and gate: the projection's output once (2), what is
# convolved three times and the scan's parts and output as often (6); backward the same and the parts put together (2).
COPY_PASSES, COPY_LAUNCHES = (8.0, 10.0), (10.0, 11.0)
# Mamba-1: values, step size, gate and output pass once; the backward recomputes the states, in float32
# (arXiv:2312.00752, section 3.3.2: memory-bound at 16 state rows).
UPDATE_PASSES = (2.0, 0.0)
WALK_PASSES, WALK_LAUNCHES = (8.0, 20.0), (1.0, 2.0)


def _inputs(block: Block, space: StateSpace, operators: Iterator[Operator]) -> Iterator[Operator]:
    """A projection of the input in as many products as the reference implementation makes of it."""
    parts = float(space.input_parts)
    for op in operators:
        if isinstance(op, Matmul) and parts > 1.0:
            yield replace(op, n=op.n / parts, copies=parts * block.inputs.rank.ones, apart=True)
        else:
            yield op


def state_space_half(block: Block, space: StateSpace, own_norm: bool = True) -> Iterator[Operator]:
    """Operators of the mixer, in order. Tensor parallelism splits its heads, or its channels.

    Beside attention, which has normed the input, it adds its output to the same residual.

        operators = norm, projections in, convolution, scan, gate, projection out, residual
        operators = norm, projection in, gate, convolution, gate, projection out, residual      short-convolution

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    space : kind and sizes of the mixer
    own_norm : whether a norm stands before it

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: mamba-ssm and flash-linear-attention; arXiv:2312.00752, arXiv:2405.21060 and arXiv:2412.06464.
    """
    inputs, tokens = block.inputs, block.inputs.rank.tokens
    tp, e = inputs.rank.tp, inputs.element_bytes
    inner, mixed = (tokens * width / tp for width in (space.inner, space.mixed_channels))
    if own_norm:
        yield norm(block, "input norm", inputs.model.hidden, inputs.rank.resident_tokens)
    yield enter_parallel(block, "state space", MODULE)
    yield from _inputs(block, space, linear(block, "projection in", ("in",), tokens, inputs.hidden_bytes))
    if space.kind == SHORT:
        # Values times the first gate, what the last tokens are worth, and that times the second (Lfm2ShortConv).
        yield memory_bound(block, "input gate", MODULE, inner * e, PRODUCT_PASSES, PRODUCT_LAUNCHES, 3.0 * inner * e)
        yield scan(block, space)
        yield memory_bound(block, "gate", MODULE, inner * e, PRODUCT_PASSES, PRODUCT_LAUNCHES, inner * e)
        yield from _out(block, inner * e)
        return
    if space.kind != "mamba-1":
        yield from _inputs(block, space, linear(block, "step size", ("dt",), tokens, inputs.zeros))
    for name, weights in NARROW.items():
        yield from narrow_product(block, name, weights, getattr(space, f"{name}_rank"))
    # The fused kernels keep what the projection returned, and rebuild the rest from it in the backward.
    kept = (inner + mixed) * e
    mixing = "convolution" if space.conv_kernel > 1 else "activation"
    yield memory_bound(block, mixing, MODULE, mixed * e, CONV_PASSES, CONV_LAUNCHES, kept)
    if space.kind == "mamba-1":
        yield from linear(block, "state projection", ("x",), tokens, inner * e)
        # Every rank's channels need the whole step sizes and states, which are sums over the ranks' channels.
        message = tokens * (space.dt_rank + 2.0 * space.state) * e
        summed = (("all_reduce", np.asarray(message)),)
        yield exchange(block, "state projection exchange", MODULE, "tp", summed, summed)
        yield from linear(block, "step size", ("dt",), tokens, tokens * space.dt_rank * e)
    if inputs.kernels.mixer == "copied" and space.kind == "mamba-2":
        yield memory_bound(block, "mixer copies", MODULE, (inner + mixed) * e, COPY_PASSES, COPY_LAUNCHES, mixed * e)
    yield scan(block, space)
    yield memory_bound(block, "gate", MODULE, inner * e, GATE_PASSES, GATE_LAUNCHES, inner * e)
    # States at the borders of the context-parallel ranks' parts.
    message = np.asarray(inputs.rank.batch * inputs.rank.cp * (space.inner / inputs.rank.tp * space.state * FLOAT32))
    yield exchange(block, "context exchange", MODULE, "cp", (("all_gather", message),), (("reduce_scatter", message),))
    yield from _out(block, inner * e)


def _out(block: Block, channel_bytes: Array) -> Iterator[Operator]:
    """Back to the hidden size."""
    inputs = block.inputs
    yield from linear(block, "projection out", ("out",), inputs.rank.tokens, channel_bytes)
    if inputs.model.norms_per_layer == 4:
        yield norm(block, "post-attention norm", inputs.model.hidden, inputs.rank.resident_tokens)
    yield leave_parallel(block, "state space", MODULE)
    yield residual(block, "state space residual")


def scan(block: Block, space: StateSpace) -> Scan | MemoryBound:
    """What passes from token to token: a walk in one kernel (Mamba-1), chunks, or a convolution; decoding updates it.

        bytes of a walk = WALK_PASSES x tokens channels / tp x element
        products of a chunk = chunk x chunk, chunk x state and chunk x head, for every head
        bytes of a decode = UPDATE_PASSES x sequences channels / tp x state rows x element of a state

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    space : kind and sizes of the mixer

    Returns
    -------
    Scan or MemoryBound; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: arXiv:2312.00752, section 3.3.2 (walk); arXiv:2405.21060, section 6, and arXiv:2412.06464 (chunks).
    """
    if space.kind == SHORT:
        rank = block.inputs.rank
        mixed_bytes = rank.tokens * space.inner / rank.tp * block.inputs.element_bytes
        return memory_bound(block, "convolution", MODULE, mixed_bytes, CONV_PASSES, CONV_LAUNCHES, mixed_bytes)
    if block.inputs.kernels.attention == "decode":
        return _update(block, space)
    if space.kind == "mamba-1":
        rank = block.inputs.rank
        inner_bytes = rank.tokens * space.inner / rank.tp * block.inputs.element_bytes
        return memory_bound(block, "scan", MODULE, inner_bytes, WALK_PASSES, WALK_LAUNCHES, inner_bytes)
    return _chunked(block, space)


def _update(block: Block, space: StateSpace) -> MemoryBound:
    """A step of the recurrence: one kernel reads and writes the states of all sequences, as they are kept."""
    rank = block.inputs.rank
    states = rank.batch * space.inner / rank.tp * space.state_rows * space.state_element_bytes
    return memory_bound(block, "scan", MODULE, states, UPDATE_PASSES, (1.0, 0.0), 0.0 * states)


def _chunked(block: Block, space: StateSpace) -> Scan:
    """The chunked scan: products of chunk x chunk, chunk x state and chunk x head for every head.

    One kernel reads what the projections gave and writes the output; where they are several, each reads and writes in
    16 bit what stands between them.
    """
    rank, e = block.inputs.rank, block.inputs.element_bytes
    length = np.minimum(CHUNK[space.kind], rank.sequence)
    along = rank.sequence / rank.cp / length
    chunks = rank.batch * along
    heads, one = chunks * space.heads / rank.tp, np.ones_like(rank.tp)
    n, p = space.state * one, space.head_dim * one
    delta = space.kind in DELTA
    fused = space.kind in block.inputs.kernels.fused_scans
    shared = (space.key_heads if delta else space.groups) / space.heads  # queries and keys, of each head
    products: tuple[tuple[Array, Array, Array, Array], ...]
    if delta:
        products = (
            (length, length, n, heads),  # keys with keys
            (length, n, length, heads),  # keys behind the chunk's own corrections
            (length, p, length, heads),  # values likewise
            (length, p, n, heads),  # what the state knows already
            (length, length, n, heads),  # queries with keys
            (length, p, length, heads),  # within the chunk
            (n, p, length, heads),  # into the state
            (length, p, n, heads),  # out of it
        )
        moved = (7.0 * n + 6.0 * p) * e + SCORE_BYTES * length + 2.0 * n * p * e / length + 4.0 * n * shared * e
        moved = moved + (CHANNEL_GATE_BYTES * n if space.kind == "kimi-delta-attention" else 0.0)
    elif space.kind == "lightning-attention":
        products = (
            (length, length, n, heads),  # queries with keys
            (length, p, length, heads),  # within the chunk
            (n, p, length, heads),  # into the state
            (length, p, n, heads),  # out of it
        )
        # One kernel reads keys and values and writes the state before each chunk, the other reads all and writes.
        moved = 3.0 * (n + p) * e + 2.0 * n * p * e / length
    else:
        groups = chunks * np.maximum(space.groups / rank.tp, 1.0)
        products = (
            (length, length, n, groups),  # outputs with inputs of the state
            (length, p, length, heads),  # within the chunk
            (p, n, length, heads),  # into the chunk's state
            (length, p, n, heads),  # out of the state before it
        )
        moved = 3.0 * p * e + 4.0 * n * p * FLOAT32 / length + shared * (4.0 * n * e + 2.0 * length * FLOAT32)
    if fused:
        moved = 2.0 * (n * shared + p) * e
    states = heads * space.state * space.head_dim * FLOAT32
    return Scan(
        name="scan",
        module=MODULE,
        layers=block.layers,
        saved_bytes=states,
        products=products,
        state_bytes=states,
        moved_bytes=heads * length * moved,
        walked=along * (chunks > 0) * float(delta),
        kernels=1.0 if fused else KERNELS[space.kind],
        kind=space.kind,
        fused=fused,
    )
