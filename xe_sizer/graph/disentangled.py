"""Disentangled attention: queries and keys are also compared with a table of relative positions (DeBERTa)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.adapters import MASK
from xe_sizer.graph.building_blocks import memory_bound
from xe_sizer.graph.operators import Matmul
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.operators import Array, Operator

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
