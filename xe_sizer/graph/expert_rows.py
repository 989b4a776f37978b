"""How tokens fall to the experts of a rank: the busiest one, how many it touches, and rows of grouped products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import Experts
    from xe_sizer.graph.operators import Array, Kernels

SMALLEST_TILE = 16.0  # rows of the smallest tile of grouped products
# What DeepGEMM's grouped products take where scales are no powers of two: tokens, width of an expert's part, alignment.
LEAST_TOKENS, WIDEST_REFUSED, ALIGNED = 128.0, 512.0, 128.0
SURELY = 1.0 - 1e-12  # share of the experts that a token picks where it picks them all


def busiest_load(ranks: Array, local: Array, kernels: Kernels) -> Array:
    """Tokens of the busiest rank of an expert group over their mean.

        load = imbalance (1 + spread z(n) / sqrt(E / n)), at most n; 1 alone

    A rank adds up the loads of its experts, which vary by `spread`; z is the largest of n such sums, in standard
    deviations (`largest_of`).

    Parameters
    ----------
    ranks : n, of the expert group, shape (rank shape,) [-]
    local : E / n, experts of a rank, shape (rank shape,) [-]
    kernels : imbalance and spread of the stack [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation for loads that do not depend on each other.
    """
    load = kernels.expert_imbalance * (1.0 + kernels.expert_spread * largest_of(ranks) / np.sqrt(local))
    return np.where(ranks > 1, np.minimum(load, ranks), 1.0)


def largest_of(ranks: Array) -> Array:
    """The largest of so many normal values, in standard deviations above their mean.

        z(n) = Phi^-1((n - 0.375) / (n + 0.25))      0 for one

    Parameters
    ----------
    ranks : n, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: Blom 1958 for the largest of n normal values.
    """
    from statistics import NormalDist  # dense models need none

    sizes, places = np.unique(ranks, return_inverse=True)
    largest = np.array([NormalDist().inv_cdf((size - 0.375) / (size + 0.25)) for size in sizes])[places]
    return np.asarray(largest.reshape(ranks.shape))


def touched_experts(block: Block, experts: Experts) -> Array:
    """Experts of the busiest rank that at least one token is routed to.

        q = 1 - (1 - k / E) (1 + s^2 l)^(-1 / s^2),  l = -(T - 1) ln(1 - k / E)      1 - (1 - k / E)^T where s = 0
        touched = n q + z(ep) sqrt(n q (1 - q)),  n = E / ep                         z(1) = 0

    Each of T tokens picks k of E experts. How often they pick one varies around the mean by s, as a gamma distribution
    does: the popular ones are picked again and again, so that fewer are touched than if all were picked evenly. With
    thousands of tokens that is nearly all of them, with a few it is not.

    Parameters
    ----------
    block : a kind of layer; T, the tokens of the expert group, from its rank, shape (rank shape,) [-]; s of its kernels
    experts : E of them, k for each token [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation: the expectation for tokens that do not depend on each other, whose counts follow a negative
    binomial distribution; z as in `busiest_load`.
    """
    rank, spread = block.inputs.rank, block.inputs.kernels.expert_spread
    tokens = rank.tokens * rank.expert_tp / rank.tp * rank.ep
    each = -np.log1p(-min(experts.per_token / experts.count, SURELY))  # of one token
    first, further = each * np.minimum(tokens, 1.0), each * np.maximum(tokens - 1.0, 0.0)
    missed = np.exp(-first - (np.log1p(spread**2 * further) / spread**2 if spread else further))
    own = as_array(experts.count) / rank.ep
    varied = largest_of(rank.ep) * np.sqrt(own * missed * (1.0 - missed))
    return np.asarray(np.minimum(own * (1.0 - missed) + varied, own))


def reserved_rows(kernels: Kernels, tokens: Array, width: Array, hidden: Array, ranks: Array) -> Array | None:
    """Whether grouped products run over rows that are reserved for the worst case; None where they never do.

        reserved = ranks < reserved_below
        reserved = ranks < reserved_below, M >= 128, N > 512, N mod 128 = K mod 128 = 0      where they are gated

    Parameters
    ----------
    kernels : reserved_below and reserved_gated
    tokens : M, of all ranks whose tokens the products see, shape (rank shape,) [-]
    width : N, of the rank's part of an expert, shape (rank shape,) [-]
    hidden : K, shape (rank shape,) [-]
    ranks : that split each expert, shape (rank shape,) [-]

    Returns
    -------
    ndarray of bool, shape (rank shape,) [-]; or None

    Source: vLLM fused_moe/deep_gemm_moe.py (_valid_deep_gemm) and triton_deep_gemm_moe.py (apply): other sizes run in
    Triton, unless scales are powers of two (is_deep_gemm_e8m0_used).
    """
    if not kernels.reserved_below:
        return None
    reserves = ranks < kernels.reserved_below
    if not kernels.reserved_gated:
        return np.asarray(reserves)
    aligned = (width % ALIGNED == 0) & (hidden % ALIGNED == 0)
    return np.asarray(reserves & aligned & (tokens >= LEAST_TOKENS) & (width > WIDEST_REFUSED))


def expert_rows(
    kernels: Kernels, routed: Array, possible: Array, local: Array, held: Array, reserves: Array | None
) -> tuple[Array, Array]:
    """Rows of one expert's product in a grouped kernel, and rows of all experts that pass what stands around it.

        m = r + clip(r, 16, tile) / 2,  r = routed / local      rounded up to tiles; r alone without any
        all = routed

    Where the host does not know how many tokens each expert gets, rows are reserved for the worst case: each expert
    that the rank holds could leave a tile but for one row empty. Those that nobody needs are computed too.

        all = possible + held (tile - 1),  m = all / local        where they are reserved

    Parameters
    ----------
    kernels : expert_tile
    routed : token copies of the rank, shape (rank shape,) [-]
    possible : those that it would have if all tokens that it sees picked its experts, shape (rank shape,) [-]
    local : experts of the rank that get any, shape (rank shape,) [-]
    held : experts that the rank holds, shape (rank shape,) [-]
    reserves : as `reserved_rows` says, shape (rank shape,); None: nowhere [-]

    Returns
    -------
    (m, all), ndarrays of float, shape (rank shape,) [-]

    Source: own derivation, the mean of shares rounded up to tiles; vLLM 0.12 compute_aligned_M and
    deepgemm_moe_permute (model_executor/layers/fused_moe/deep_gemm_utils.py), which gives empty rows to expert 0.
    """
    tile, shared = kernels.expert_tile, np.maximum(local, 1e-9)
    each = routed / shared
    tiled = each + np.clip(each, SMALLEST_TILE, tile) / 2.0 if tile else each
    if reserves is None:
        return tiled, routed
    reserved = possible + held * (tile - 1.0)
    return np.where(reserves, reserved / shared, tiled), np.where(reserves, reserved, routed)
