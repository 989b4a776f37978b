"""Seconds of the exchanges inside the layers: joins the graph's collectives with the laws of the network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.exchanges import visited_places
from xe_sizer.graph.operators import Collective, group_sizes, stacked
from xe_sizer.laws.collectives import collective_time_s

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator, Picks, RankShape
    from xe_sizer.laws.collectives import Network

_Exchange = tuple[str, "Picks | None"]  # operation, and who picks experts in it


def inner_ranks(rank: RankShape) -> dict[str, Array]:
    """Ranks that lie between two neighbours of each group: tp innermost, then cp or ep.

        inner = product of the sizes of the groups further in

    Parameters
    ----------
    rank : of shape (rank shape,) [-]

    Returns
    -------
    dict of the groups of `group_sizes`, shape (rank shape,) [-]

    Source: Megatron-LM's order of ranks (core/parallel_state.py, tp-cp-ep-dp-pp).
    """
    return {
        "tp": np.ones(1), "cp": rank.tp * rank.head_ranks, "ep": rank.expert_tp, "dp": rank.tp, "etp": np.ones(1),
        "heads": rank.tp,
    }  # fmt: skip


def exchange_times(
    operators: Iterable[Operator], rank: RankShape, network: Network, efficiency: float, backward: bool = True
) -> dict[str, tuple[Array, Array]]:
    """Seconds of the collectives inside the layers by parallel group, over all layers; nothing is hidden.

        t = sum over collectives of layers x collective_time_s / efficiency

    Parameters
    ----------
    operators : of one rank and one micro-batch; those that are no collectives are passed over
    rank : sizes of the groups, shape (rank shape,) [-]
    network : laws of the node's fabric and what leads out of the node
    efficiency : factor on the rates that the network's laws state [-]
    backward : whether the collectives of the backward are timed too, else zero

    Returns
    -------
    dict of the groups of `group_sizes` -> (forward, backward), shape (rank shape,), seconds [s]

    Source: laws of collectives; ranks lie tp, then cp or ep, from the innermost outwards (Megatron-LM), which says how
    many of a group share a node.
    """
    sizes, inner = group_sizes(rank), inner_ranks(rank)
    collectives = [op for op in operators if isinstance(op, Collective)]
    total = {}
    for group, ranks in sizes.items():
        sides = (np.zeros(rank.tp.shape), np.zeros(rank.tp.shape))
        members = [op for op in collectives if op.group == group]
        if members and np.any(ranks != 1):
            per_node = np.clip(network.node_ranks // inner[group], 1, ranks)
            sides = _group_times(members, ranks, per_node, network, backward)
        total[group] = (sides[0] / efficiency, sides[1] / efficiency)
    return total


def _leaving_share(picks: Picks, ranks: Array, per_node: Array) -> Array:
    """Messages to other nodes over messages to ranks, where a token crosses once per node and goes on from there."""
    nodes = ranks / per_node
    return (1.0 - 1.0 / nodes) * visited_places(picks, nodes) / visited_places(picks, ranks)


def _group_times(
    members: Sequence[Collective], ranks: Array, per_node: Array, network: Network, backward: bool
) -> tuple[Array, Array]:
    """Seconds of one group's collectives, forward and backward; messages of one operation are timed in one array."""
    messages: dict[_Exchange, list[Array]] = {}
    places: list[tuple[int, float, list[tuple[_Exchange, int]]]] = []
    for op in members:
        for side, exchanges in enumerate((op.forward, op.backward if backward else ())):
            rows = []
            for operation, message in exchanges:
                if np.any(message):  # not such as those of sequence parallelism where it is off
                    alike = messages.setdefault((operation, op.picks), [])
                    rows.append(((operation, op.picks), len(alike)))
                    alike.append(message)
            places.append((side, op.layers, rows))
    seconds = {
        (operation, picks): collective_time_s(
            operation,
            stacked(alike, ranks.shape),
            ranks,
            per_node,
            network,
            None if picks is None else _leaving_share(picks, ranks, per_node),
        )
        for (operation, picks), alike in messages.items()
    }
    sides = [np.zeros(ranks.shape), np.zeros(ranks.shape)]
    for side, layers, rows in places:
        sides[side] = sides[side] + layers * sum((seconds[alike][row] for alike, row in rows), np.zeros(1))
    return sides[0], sides[1]
