"""Rows of the grouped products of experts: as tokens ask for, rounded up to tiles, or reserved for the worst case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Kernels

SMALLEST_TILE = 16.0  # rows of the smallest tile of grouped products


def expert_rows(kernels: Kernels, routed: Array, local: Array, held: Array, ranks: Array) -> tuple[Array, Array]:
    """Rows of one expert's product in a grouped kernel, and rows of all experts that pass what stands around it.

        m = r + clip(r, 16, tile) / 2,  r = routed / local      rounded up to tiles; r alone without any
        all = routed

    Where the host does not know how many tokens each expert gets, rows are reserved for the worst case: each expert
    that the rank holds could leave a tile but for one row empty. Those that nobody needs are computed too.

        all = routed + held (tile - 1),  m = all / local        reserved: below so many ranks that split an expert

    Parameters
    ----------
    kernels : expert_tile and reserved_below
    routed : token copies of the rank, shape (rank shape,) [-]
    local : experts of the rank that get any, shape (rank shape,) [-]
    held : experts that the rank holds, shape (rank shape,) [-]
    ranks : that split each expert, shape (rank shape,) [-]

    Returns
    -------
    (m, all), ndarrays of float, shape (rank shape,) [-]

    Source: own derivation, the mean of shares rounded up to tiles; vLLM 0.12 compute_aligned_M and
    deepgemm_moe_permute (model_executor/layers/fused_moe/deep_gemm_utils.py), which gives empty rows to expert 0.
    """
    tile, shared = kernels.expert_tile, np.maximum(local, 1e-9)
    each = routed / shared
    tiled = each + np.clip(each, SMALLEST_TILE, tile) / 2.0 if tile else each
    if not kernels.reserved_below:
        return tiled, routed
    reserved = routed + held * (tile - 1.0)
    reserves = ranks < kernels.reserved_below
    return np.where(reserves, reserved / shared, tiled), np.where(reserves, reserved, routed)
