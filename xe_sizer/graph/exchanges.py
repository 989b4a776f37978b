"""Collectives inside the layers: into and out of tensor-parallel regions, and any other exchange of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import Collective

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.operators import Array, Picks


def enter_parallel(
    block: Block, name: str, module: str, share: Array | float = 1.0, readers: int = 1, group: str = "tp"
) -> Collective:
    """Into a tensor-parallel region: all-gather under sequence parallelism; else all-reduce of the gradient.

        message = share x tokens hidden element

    The backward of the gather is a reduce-scatter; a learning weight gathers its sharded input once more.

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]
    readers : products that are not fused; each reduces its own gradient of the shared input [-]
    group : tp, or etp: those that split an expert

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    regathered = sharded * float(block.inputs.learning.base)
    backward = (("reduce_scatter", sharded), *[("all_reduce", message - sharded)] * readers, ("all_gather", regathered))
    return exchange(block, f"{name} input", module, group, (("all_gather", sharded),), backward)


def leave_parallel(block: Block, name: str, module: str, share: Array | float = 1.0, group: str = "tp") -> Collective:
    """Out of a tensor-parallel region: reduce-scatter under sequence parallelism, else all-reduce.

        message = share x tokens hidden element

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]
    group : tp, or etp: those that split an expert

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    forward = (("reduce_scatter", sharded), ("all_reduce", message - sharded))
    return exchange(block, f"{name} output", module, group, forward, (("all_gather", sharded),))


def _message_bytes(block: Block) -> Array:
    return block.inputs.rank.tokens * block.inputs.model.hidden * block.inputs.element_bytes


def exchange(
    block: Block,
    name: str,
    module: str,
    group: str,
    forward: tuple[tuple[str, Array], ...],
    backward: tuple[tuple[str, Array], ...],
    picks: Picks | None = None,
) -> Collective:
    """A collective of the layer; it keeps nothing.

        bytes = whole messages, in the convention of `laws.collectives`

    Parameters
    ----------
    block : a kind of layer
    name, module, group : of the exchange; the group is one of those of `Collective`
    forward, backward : operations with their messages, shape (rank shape,) [bytes]
    picks : of tokens that go once to each place that holds experts which they picked; None: to every expert

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: nccl-tests for the convention.
    """
    return Collective(name, module, block.layers, block.inputs.zeros, group, forward, backward, picks)


def visited_places(picks: Picks, places: Array) -> Array:
    """Places (nodes, or ranks) of an expert group that hold at least one of the experts that a token picked.

        reached = n (1 - (1 - g / G)^(G / n))   n <= G;   n g / G   n > G
        visited = reached (1 - (1 - 1 / reached)^k)

    The experts' groups lie side by side over the places; a token picks g of G groups, then k experts inside them,
    evenly. Without groups every place can be reached: of 8 nodes 8 experts meet 5.2.

    Parameters
    ----------
    picks : k, G and g [-]
    places : n, among which the experts are divided, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation, the expectation for independent picks; who sends a token once: DeepEP
    (csrc/kernels/internode.cu, is_token_in_rank and one RDMA message a node); node-limited routing:
    DeepSeek-V3 (arXiv:2412.19437), section 2.1.2.
    """
    n, groups, chosen = np.maximum(places, 1.0), float(picks.groups), float(picks.chosen_groups)
    shared = n * (1.0 - (1.0 - chosen / groups) ** (groups / n))
    reached = np.maximum(np.where(n > groups, n * chosen / groups, shared), 1.0)
    return np.asarray(reached * (1.0 - (1.0 - 1.0 / reached) ** picks.per_token))
