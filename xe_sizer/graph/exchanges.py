"""Collectives inside the layers: into and out of tensor-parallel regions, and any other exchange of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.operators import Collective

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.operators import Array


def enter_parallel(block: Block, name: str, module: str, share: Array | float = 1.0, readers: int = 1) -> Collective:
    """Into a tensor-parallel region: all-gather under sequence parallelism; else all-reduce of the gradient.

        message = share x tokens hidden element

    The backward of the gather is a reduce-scatter; a learning weight gathers its sharded input once more.

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]
    readers : products that are not fused; each reduces its own gradient of the shared input [-]

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    regathered = sharded * float(block.inputs.learning.base)
    backward = (("reduce_scatter", sharded), *[("all_reduce", message - sharded)] * readers, ("all_gather", regathered))
    return exchange(block, f"{name} input", module, "tp", (("all_gather", sharded),), backward)


def leave_parallel(block: Block, name: str, module: str, share: Array | float = 1.0) -> Collective:
    """Out of a tensor-parallel region: reduce-scatter under sequence parallelism, else all-reduce.

        message = share x tokens hidden element

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    forward = (("reduce_scatter", sharded), ("all_reduce", message - sharded))
    return exchange(block, f"{name} output", module, "tp", forward, (("all_gather", sharded),))


def _message_bytes(block: Block) -> Array:
    return block.inputs.rank.tokens * block.inputs.model.hidden * block.inputs.element_bytes


def exchange(
    block: Block,
    name: str,
    module: str,
    group: str,
    forward: tuple[tuple[str, Array], ...],
    backward: tuple[tuple[str, Array], ...],
) -> Collective:
    """A collective of the layer; it keeps nothing.

        bytes = whole messages, in the convention of `laws.collectives`

    Parameters
    ----------
    block : a kind of layer
    name, module, group : of the exchange; the group is tp, cp or ep
    forward, backward : operations with their messages, shape (rank shape,) [bytes]

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: nccl-tests for the convention.
    """
    return Collective(name, module, block.layers, block.inputs.zeros, group, forward, backward)
