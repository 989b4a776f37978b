"""What the ranks of a job on a server talk over: laws of collectives from rates, fabrics and measurements."""

from collections.abc import Sequence
from dataclasses import replace

from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Network,
)
from xe_sizer.laws.collectives import CollectiveLaw as Law
from xe_sizer.laws.hardware import BusShares, Server

RANKS = (2, 4, 8)  # chosen: of which fabrics state shares and latencies
# Measured, all-reduces on 8 H200 and 8 B200: from so many ranks on a switch reduces, 4 still run a ring.
SWITCH_REDUCTION_RANKS = 8
AS_FAST = 0.99  # chosen: share of a link's rate from which a node's fabric counts as the link itself


def network(node: Server) -> Network:
    """What the ranks of a job on such nodes talk over.

    Inside the node: the accelerator's measured collectives where the node's fabric is the one they were
    measured on, else bus bandwidth = link rate x share (profiles of fabrics). In a mesh of n a group of r sees
    (r - 1) of (n - 1) links. Between nodes: the NICs shared by all accelerators of the node.
    """
    return Network(
        node_ranks=node.accelerators,
        scale_up=_scale_up_laws(node),
        scale_out_bytes_per_s=node.scale_out_bytes_per_s * node.scale_out_efficiency / node.accelerators,
        scale_out_alpha_s=node.scale_out_alpha_s,
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
    laws[ALL_REDUCE] = _law(shares.latency_s, _all_reduce_rates(node, rate), source)
    send = (shares.send * rate,) * len(RANKS)
    laws[POINT_TO_POINT] = _law(shares.latency_s, send, f"link rate x {shares.send:g}")
    if node.fabric.topology == "groups":
        return {operation: _scaled(law, node.fabric.group_shares) for operation, law in laws.items()}
    if node.fabric.topology == "mesh":
        return {operation: _meshed(law, node) for operation, law in laws.items()}
    return laws


def _all_reduce_rates(node: Server, rate: float) -> tuple[float, ...]:
    """In-network reduction lifts an all-reduce over a whole switched node above the ring."""
    shares = node.accelerator.link_shares
    in_switch = shares.switch_all_reduce if node.fabric.reduces else shares.ring
    return tuple((in_switch if ranks >= SWITCH_REDUCTION_RANKS else shares.ring) * rate for ranks in RANKS)


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
