"""The network between the ranks of a job: its laws, and the seconds of exchanges inside the layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import visited_places
from xe_sizer.graph.operators import Collective, group_sizes, stacked
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Network,
    collective_time_s,
    links_along_axes,
)
from xe_sizer.laws.collectives import CollectiveLaw as Law

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator, Picks, RankShape
    from xe_sizer.laws.hardware import BusShares, Server

# Seconds of the exchanges inside the layers.

_Exchange = tuple[str, "Picks | None", float | None]  # operation, who picks experts in it, and how it starts


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
                    alike = messages.setdefault((operation, op.picks, op.start_s), [])
                    rows.append(((operation, op.picks, op.start_s), len(alike)))
                    alike.append(message)
            places.append((side, op.layers, rows))
    seconds = {
        (operation, picks, start_s): collective_time_s(
            operation,
            stacked(alike, ranks.shape),
            ranks,
            per_node,
            network,
            None if picks is None else _leaving_share(picks, ranks, per_node),
            start_s,
            links_along_axes(per_node, network),
        )
        for (operation, picks, start_s), alike in messages.items()
    }
    sides = [np.zeros(ranks.shape), np.zeros(ranks.shape)]
    for side, layers, rows in places:
        sides[side] = sides[side] + layers * sum((seconds[alike][row] for alike, row in rows), np.zeros(1))
    return sides[0], sides[1]


# The network of a server: its laws from rates, fabrics and measurements.

RANKS = (2, 4, 8)  # chosen: of which fabrics state shares and latencies
# Measured, all-reduces on 8 H200 and 8 B200: from so many ranks on a switch reduces, 4 still run a ring.
SWITCH_REDUCTION_RANKS = 8
AS_FAST = 0.99  # chosen: share of a link's rate from which a node's fabric counts as the link itself


def network(node: Server) -> Network:
    """Build the network between the ranks of a job on such nodes.

    Inside the node: the accelerator's measured collectives where the node's fabric is the one they were
    measured on, else bus bandwidth = link rate x share (profiles of fabrics). In a mesh of n a group of r sees
    (r - 1) of (n - 1) links. Between nodes: the NICs shared by all accelerators of the node.
    """
    link = node.accelerator.link
    return Network(
        node_ranks=node.accelerators,
        scale_up=_scale_up_laws(node),
        scale_out_bytes_per_s=node.scale_out_bytes_per_s * node.scale_out_efficiency / node.accelerators,
        scale_out_alpha_s=node.scale_out_alpha_s,
        scale_out_error=node.scale_out_error,
        stall_s=node.stall_s,
        stall_per_node_s=node.stall_per_node_s,
        axes=link.axes if link else 1,
        chip_ranks=link.chip_ranks if link else 1,
    )


def _scale_up_laws(node: Server) -> dict[str, Law]:
    fabric, link = node.fabric, node.accelerator.link
    measured = dict(node.accelerator.laws.collectives)
    laws = _bus_laws(node, fabric.bus) if fabric.bus else _link_laws(node)
    if fabric.topology == "pairs":
        return {operation: _paired(law, node) for operation, law in laws.items()}
    if fabric.bus:
        return laws | measured if link is None else laws  # a linked part was measured over its link
    if link is None or node.scale_up_one_way_bytes_per_s < AS_FAST * link.one_way_bytes_per_s:
        return laws
    if fabric.measured_behind_switch:
        return laws | {operation: _meshed(law, node) for operation, law in measured.items()}
    return laws | measured


def _link_laws(node: Server) -> dict[str, Law]:
    """Laws derived from the link's rate."""
    shares, rate = node.accelerator.link_shares, node.scale_up_one_way_bytes_per_s
    source = f"link rate x {shares.ring:g} (measured on 8-GPU nodes)"
    ring = (shares.ring * rate,) * len(RANKS)
    laws = {operation: _law(shares.latency_s, ring, source) for operation in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)}
    # In-network reduction lifts an all-reduce over a whole switched node above the ring.
    in_switch = shares.switch_all_reduce if node.fabric.reduces else shares.ring
    rates = tuple((in_switch if ranks >= SWITCH_REDUCTION_RANKS else shares.ring) * rate for ranks in RANKS)
    laws[ALL_REDUCE] = _law(shares.latency_s, rates, source)
    send = (shares.send * rate,) * len(RANKS)
    laws[POINT_TO_POINT] = _law(shares.latency_s, send, f"link rate x {shares.send:g}")
    if node.fabric.topology == "groups":
        return {operation: _scaled(law, node.fabric.group_shares) for operation, law in laws.items()}
    if node.fabric.topology == "mesh":
        return {operation: _meshed(law, node) for operation, law in laws.items()}
    return laws


def _bus_laws(node: Server, shares: BusShares) -> dict[str, Law]:
    """Laws of a node whose accelerators meet on the host's bus."""
    direct = node.accelerator.peer_to_peer
    of_rate = shares.peer_to_peer if direct else shares.through_host
    rate = node.pcie_bytes_per_s
    path = "peer to peer" if direct else "through host memory"
    bus = tuple(share * rate for share in of_rate)
    law = _law(shares.latency_s, bus, f"PCIe rate x measured shares, {path}")
    send = _law(shares.send_latency_s, (of_rate[0] * rate,) * len(RANKS), law.source)
    return dict.fromkeys((ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL), law) | {POINT_TO_POINT: send}


def _law(latency_s: Sequence[float], bus_bytes_per_s: Sequence[float], source: str) -> Law:
    return Law(RANKS, tuple(latency_s), tuple(bus_bytes_per_s), (0.0,) * len(RANKS), source=source)


def _paired(law: Law, node: Server) -> Law:
    """Two ranks on a bridged pair, more over the bus."""
    shares = node.accelerator.link_shares
    bus = (shares.ring * node.scale_up_one_way_bytes_per_s, *law.bus_bytes_per_s[1:])
    alpha = (shares.latency_s[0], *law.alpha_s[1:])
    return replace(law, alpha_s=alpha, bus_bytes_per_s=bus, source=f"pairs over a bridge; more: {law.source}")


def _meshed(law: Law, node: Server) -> Law:
    """A group smaller than the mesh uses only its members' direct links."""
    others = node.accelerators - 1
    return _scaled(law, tuple(min(1.0, (ranks - 1) / others) for ranks in law.ranks))


def _scaled(law: Law, shares: Sequence[float]) -> Law:
    bus = tuple(rate * share for rate, share in zip(law.bus_bytes_per_s, shares, strict=True))
    return replace(law, bus_bytes_per_s=bus)
