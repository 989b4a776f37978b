"""Projectors that read an image with a fixed number of queries: one layer of attention over its patches.

Qwen-VL (arXiv:2308.12966, section 2.1) and MiniCPM-V (arXiv:2408.01800, section 3): the patches are widened to the
language model, learned queries attend to them, and a norm and a product follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.building_blocks import linear, norm
from xe_sizer.graph.operators import Attention
from xe_sizer.graph.weight import Weight

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import Projector
    from xe_sizer.graph.operators import Array, Operator

MODULE = "vision"
HEAD_DIM = 128  # of both models
WEIGHTS = ("resampler_q", "resampler_k", "resampler_v", "resampler_o")


def resampler_weights(projector: Projector) -> Iterator[Weight]:
    """Weights of a projector with queries.

        elements = w d + 4 (d^2 + d) + d^2 + norms + queries d (1, or 2 where they have learned positions)

    Parameters
    ----------
    projector : widths w of a patch and d of the language model, and its queries [-]

    Returns
    -------
    iterator of Weight

    Source: Resampler of Qwen-VL (visual.py) and of MiniCPM-V (resampler.py).
    """
    width, hidden = projector.widths
    tables = projector.queries * (2 if projector.query_positions else 1)
    yield Weight("queries", MODULE, "embedding", tables, hidden)
    yield Weight("resampler_kv", MODULE, "linear", width, hidden)
    for name in WEIGHTS:
        yield Weight(name, MODULE, "linear", hidden, hidden, hidden)
    yield Weight("resampler_norms", MODULE, "vector", 1, 3 * hidden, 3 * hidden)
    yield Weight("resampler_out", MODULE, "linear", hidden, hidden)


def resampler_operators(block: Block, projector: Projector, pieces: Array, patches: Array) -> Iterator[Operator]:
    """Operators of a projector with queries.

        FLOPs = 2 patches (w d + 2 d^2) + 2 queries 3 d^2 + 4 queries patches d

    Parameters
    ----------
    block : with the weights of `resampler_weights`, and the inputs of the graph
    projector : its widths and queries
    pieces, patches : of images, and of all of them together, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: as the weights; the queries are the same for every piece, but each piece has its own copy.
    """
    hidden, size = projector.widths[-1], block.inputs.element_bytes
    rows = pieces * projector.queries
    wide, narrow = patches * hidden * size, rows * hidden * size
    yield from linear(block, "patches widened", ("resampler_kv",), patches, block.inputs.zeros)
    yield norm(block, "norm of patches", hidden, patches)
    yield norm(block, "norm of queries", hidden, rows)
    yield from linear(block, "queries", ("resampler_q",), rows, narrow)
    yield from linear(block, "keys", ("resampler_k",), patches, wide)
    yield from linear(block, "values", ("resampler_v",), patches, wide)
    yield _attention(block, projector, pieces, patches)
    yield from linear(block, "resampled", ("resampler_o",), rows, block.inputs.zeros)
    yield norm(block, "norm of tokens", hidden, rows)
    yield from linear(block, "tokens", ("resampler_out",), rows, narrow)


def _attention(block: Block, projector: Projector, pieces: Array, patches: Array) -> Attention:
    """Every query of a piece attends to every patch of it; queries, keys, values and output are kept."""
    hidden, one = projector.widths[-1], block.inputs.rank.ones
    heads = hidden / HEAD_DIM * one
    keys = patches / np.maximum(pieces, 1.0)
    query = projector.queries * one
    statistics = pieces * heads * query * 4.0
    operands = 2.0 * (pieces * query + patches) * hidden * block.inputs.element_bytes
    return Attention(
        name="resampling",
        module=MODULE,
        layers=block.layers,
        saved_bytes=operands + statistics,
        batch=pieces,
        heads=heads,
        kv_heads=heads,
        query=query,
        key=keys,
        pairs=query * keys,
        qk_head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        kernel=block.inputs.kernels.attention,
        statistics_bytes=statistics,
    )
