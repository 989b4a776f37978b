"""Collectives inside the layers: into and out of tensor-parallel regions, and any other exchange of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import Collective, group_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.operators import Array, Picks

    Messages = tuple[tuple[str, Array], ...]  # operations with what they exchange


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


def context_exchanges(block: Block, keys_and_values: Array) -> Iterator[Collective]:
    """What ranks that share sequences exchange around attention.

        all-gather, ring = keys and values of the whole sequence; backward once more, and their gradients
        heads = element tokens (heads + kv_heads) head sizes of queries, keys and values; then of the output
                kv_heads at least one for each of the ranks that share heads out

    A gather ends before attention starts; a ring passes one rank's part on behind attention to the one before. For
    heads every rank sends its part of the sequence of all heads, and gets the whole sequence of its own.

    Parameters
    ----------
    block : a kind of layer
    keys_and_values : of the heads of a rank and the whole sequences, shape (rank shape,) [bytes]

    Returns
    -------
    iterator of Collective; messages of shape (rank shape,) [bytes]

    Source: Llama 3 (arXiv:2407.21783, section 3.3.2) for gathers; Ring Attention (arXiv:2310.01889); DeepSpeed-Ulysses
    (arXiv:2309.14509); both together: USP (arXiv:2405.07719), cp_comm_type a2a+p2p of Transformer Engine.
    """
    inputs, rank, model = block.inputs, block.inputs.rank, block.inputs.model
    forward: Messages = (("all_gather", keys_and_values),)
    backward: Messages = (*forward, ("reduce_scatter", keys_and_values))
    if inputs.kernels.context in ("ring", "hybrid"):
        forward, backward = (("ring", keys_and_values),), (("ring", 2.0 * keys_and_values),)
    yield exchange(block, "context exchange", "attention", "cp", forward, backward)
    shared = rank.head_ranks * rank.ones
    if np.any(shared > 1):
        kv_heads = np.maximum(model.kv_heads / rank.tp, shared)
        queries, keys, values = (
            rank.tokens * heads * size * inputs.element_bytes
            for heads, size in (
                (model.heads / rank.tp, model.qk_head_dim),
                (kv_heads, model.qk_head_dim),
                (kv_heads, model.v_head_dim),
            )
        )
        output = rank.tokens * model.heads / rank.tp * model.v_head_dim * inputs.element_bytes
        there = (("all_to_all", queries + keys + values),)
        back = (("all_to_all", output),)
        yield exchange(block, "sequence for heads", "attention", "heads", there, there)
        yield exchange(block, "heads for sequence", "attention", "heads", back, back)


def exchange(
    block: Block,
    name: str,
    module: str,
    group: str,
    forward: tuple[tuple[str, Array], ...],
    backward: tuple[tuple[str, Array], ...],
    picks: Picks | None = None,
) -> Collective:
    """A collective of the layer; it keeps nothing, and exchanges nothing where its group is a single rank.

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
    several = group_sizes(block.inputs.rank)[group] != 1.0
    sent, sent_back = (
        tuple((operation, np.where(several, message, 0.0)) for operation, message in side)
        for side in (forward, backward)
    )
    return Collective(name, module, block.layers, block.inputs.zeros, group, sent, sent_back, picks)


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
