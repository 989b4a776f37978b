"""Server profiles: what a YAML file may hold, how it becomes a `Server`, and what its ranks talk over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from xe_sizer.errors import InputError, Problem
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Network,
)
from xe_sizer.laws.collectives import CollectiveLaw as Law
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.profiles.gpu import name_problems, pcie_bytes_per_s
from xe_sizer.profiles.gpu_schema import GbPerS, Pcie, Positive, Source
from xe_sizer.profiles.source import Document, convert, load_yaml
from xe_sizer.units import BARE_SERVER, BITS_PER_BYTE, GIGA

ScaleUpKind = Literal[
    "nvswitch",
    "nvlink-mesh",
    "nvlink-cube-mesh",
    "nvlink-pairs",
    "xgmi-mesh",
    "roce-mesh",
    "neuronlink",
    "ici",
    "pcie",
    "none",
]
Fabric = Literal["infiniband", "roce", "efa", "ethernet", "omni-path"]

# Share of the line rate that large messages reach between nodes, and the latency of one step. Measured:
# 46 to 48 of 50 GB/s a NIC on NDR InfiniBand; on EFA 194 of 200 Gbit/s (v3) and rings at 382 of 400 GB/s a node (v4);
# 75 % on 8 x 100G RoCE in 2021 (newer RoCE is near InfiniBand). Latency: 46 us for a small all-reduce over
# two nodes on InfiniBand, 60 us on EFA.
FABRIC_EFFICIENCY: dict[str, float] = {
    "infiniband": 0.92, "roce": 0.85, "efa": 0.95, "ethernet": 0.85, "omni-path": 0.85,
}  # fmt: skip
FABRIC_ALPHA_S: dict[str, float] = {
    "infiniband": 20e-6, "roce": 25e-6, "efa": 40e-6, "ethernet": 40e-6, "omni-path": 40e-6,
}  # fmt: skip

# Share of the link's one-way rate that a ring reaches on large messages (bus bandwidth of nccl-tests).
# Measured: 8 x A100 0.78, 8 x H200 0.80, 8 x B200 0.76, 8 x MI300X 0.70; other fabrics take the lowest.
RING_FACTOR: dict[str, float] = {"nvlink3": 0.78, "nvlink4": 0.80, "nvlink5": 0.76, "xgmi": 0.70}
OTHER_RING_FACTOR = 0.70
# In-network reduction lifts an all-reduce over a switched node above the ring (8 x H200, 8 x B200).
SWITCH_REDUCTION_FACTOR: dict[str, float] = {"nvlink4": 1.07, "nvlink5": 0.93}
SWITCH_REDUCTION_RANKS = 8
# Point to point: 274 of 300 GB/s on A100, 376 of 450 on H100, 746 of 900 on GB200.
SEND_FACTOR = 0.83

RANKS = (2, 4, 8)
# NCCL's small all-reduce over NVLink takes 9, 13 and 21 us on 2, 4 and 8 A100; over PCIe 6, 12 and 23 us.
LINK_ALPHA_S = (9e-6, 13e-6, 21e-6)
PCIE_ALPHA_S = (6e-6, 12e-6, 24e-6)
# Share of the PCIe rate by ranks. Peer to peer: measured on RTX PRO 6000, untuned (0.60 to 0.66 when tuned).
# Through host memory each byte crosses the bus twice and all cards share the host's memory.
PEER_TO_PEER_FACTOR = (0.60, 0.41, 0.39)
THROUGH_HOST_FACTOR = (0.35, 0.30, 0.25)
# Links of one V100 that lead to the other members of a group of 2, 4 (a quad) and 8, out of its six.
CUBE_MESH_SHARE = (2 / 6, 4 / 6, 1.0)

NODE_ACCELERATORS = 8
RACK_ACCELERATORS = 72  # GB200 and GB300: one NVLink domain a rack


class ScaleUp(Struct, frozen=True, forbid_unknown_fields=True):
    """Fabric inside the node; the rate is one direction, all lanes of one accelerator together."""

    kind: ScaleUpKind
    one_way_gb_per_s: GbPerS | None = None


class ScaleOut(Struct, frozen=True, forbid_unknown_fields=True):
    """Network of the node: `nics` of `gbit_per_s` each, one direction."""

    gbit_per_s: GbPerS
    nics: Annotated[int, Meta(gt=0, le=10_000)] = 1
    fabric: Fabric | None = None


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    memory_gb: Positive | None = None
    max_memory_gb: Positive | None = None
    cpu: str | None = None
    vcpus: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    per_hour: Positive
    currency: str = "USD"
    kind: str | None = None
    date: str | None = None


class ServerProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu_profiles/servers/<name>.yaml`."""

    name: str
    vendor: str
    gpu: str
    gpus: Annotated[int, Meta(gt=0, le=100_000)]
    scale_up: ScaleUp
    source: Source
    scale_out: ScaleOut | None = None
    pcie: Pcie | None = None
    host: Host = Host()
    power_kw: Positive | None = None
    power_supplies_kw: Positive | None = None
    rack_units: Positive | None = None
    price: Price | None = None
    assumed: tuple[str, ...] = ()
    notes: str | None = None


def load_server_profile(path: Path) -> tuple[ServerProfile, Document]:
    """Read one server profile; the document tells where its keys stand.

    Raises
    ------
    InputError    with every problem: syntax, types, ranges, a name that is not the file's, one
                  accelerator with a fabric or several with none
    """
    document = load_yaml(path)
    profile = convert(document.value, ServerProfile, document.locate)
    problems = name_problems(profile.name, document)
    if (profile.gpus == 1) != (profile.scale_up.kind == "none"):
        where = document.locate(("scale_up", "kind"))
        kinds = ", ".join(kind for kind in get_args(ScaleUpKind) if kind != "none")
        hint = "one accelerator has scale_up {kind: none}, several have one of " + kinds
        problems.append(Problem(f"scale_up '{profile.scale_up.kind}' with gpus: {profile.gpus}", where, hint))
    if problems:
        raise InputError(problems)
    return profile, document


def server(profile: ServerProfile, gpu: Accelerator) -> Server:
    """The server in SI units; what its profile leaves out is filled with what is usual, and marked."""
    scale_out, assumptions = profile.scale_out, list(profile.assumed)
    if scale_out is None:
        scale_out = usual_scale_out(gpu, profile.gpus, profile.scale_up.kind)
        assumptions.append(f"network: {_words(scale_out)}, as is usual for such a node")
    pcie = pcie_bytes_per_s(profile.pcie) if profile.pcie else gpu.pcie_bytes_per_s
    stated, fabric = profile.scale_up.one_way_gb_per_s, scale_out.fabric
    scale_up_rate = stated * GIGA if stated else _fabric_rate(gpu, profile.scale_up.kind, pcie)
    return Server(
        name=profile.name,
        accelerator=gpu,
        accelerators=profile.gpus,
        scale_up=profile.scale_up.kind,
        scale_up_one_way_bytes_per_s=scale_up_rate,
        pcie_bytes_per_s=pcie,
        scale_out_bytes_per_s=scale_out.nics * scale_out.gbit_per_s * GIGA / BITS_PER_BYTE,
        host_memory_bytes=profile.host.memory_gb * GIGA if profile.host.memory_gb else None,
        power_w=profile.power_kw * 1000.0 if profile.power_kw else None,
        price_per_hour=profile.price.per_hour if profile.price else None,
        price_currency=profile.price.currency if profile.price else "USD",
        assumptions=tuple(assumptions),
        source=profile.source.title,
        scale_out_efficiency=FABRIC_EFFICIENCY[fabric] if fabric else 0.88,
        scale_out_alpha_s=FABRIC_ALPHA_S[fabric] if fabric else 25e-6,
    )


def _words(scale_out: ScaleOut) -> str:
    return f"{scale_out.nics} x {scale_out.gbit_per_s:g} Gbit/s"


def _fabric_rate(gpu: Accelerator, scale_up: str, pcie: float) -> float:
    return gpu.link.one_way_bytes_per_s if gpu.link and scale_up not in ("pcie", "none") else pcie


def usual_scale_out(gpu: Accelerator, accelerators: int, scale_up: str) -> ScaleOut:
    """NICs of a node whose profile names none: one a GPU in a switched or meshed node, else one a node."""
    if scale_up in ("pcie", "nvlink-pairs", "nvlink-cube-mesh", "none"):
        return ScaleOut(gbit_per_s=100.0 if accelerators > 1 else 10.0)
    gbit_per_s = {"volta": 100.0, "ampere": 200.0, "cdna2": 200.0, "trainium": 100.0}.get(gpu.generation, 400.0)
    return ScaleOut(gbit_per_s=gbit_per_s, nics=accelerators)


def bare_server(gpu: Accelerator, accelerators: int | None = None) -> Server:
    """A node around a bare accelerator, for scenarios that name a GPU and no server.

    Parts with a native fabric (SXM, OAM and the like) come as the usual node of theirs, cards eight to a
    PCIe host, or as few as `accelerators` says; bridges between pairs of cards are not assumed.
    """
    scale_up, node = _usual_node(gpu)
    if scale_up == "pcie" and accelerators is not None:
        node = min(max(accelerators, 1), node)
    if node == 1:
        scale_up = "none"
    profile = ServerProfile(
        name=f"{BARE_SERVER}{node}x-{gpu.name}",
        vendor=gpu.vendor,
        gpu=gpu.name,
        gpus=node,
        scale_up=ScaleUp(scale_up),
        source=Source(gpu.source),
        assumed=(f"no server named: {node} accelerators a node, fabric {scale_up}",),
    )
    return server(profile, gpu)


def _usual_node(gpu: Accelerator) -> tuple[ScaleUpKind, int]:
    kind = gpu.link.kind if gpu.link else "none"
    if kind.startswith("nvlink") and "bridge" not in kind:
        if gpu.name.startswith("gh200"):
            return "none", 1
        if gpu.name in ("gb200", "gb300"):
            return "nvswitch", RACK_ACCELERATORS
        return "nvlink-cube-mesh" if kind == "nvlink2" else "nvswitch", NODE_ACCELERATORS
    meshes: dict[str, tuple[ScaleUpKind, int]] = {
        "xgmi": ("xgmi-mesh", NODE_ACCELERATORS),
        "roce": ("roce-mesh", NODE_ACCELERATORS),
        "neuronlink": ("neuronlink", 16),
        "ici": ("ici", NODE_ACCELERATORS),
    }
    return meshes.get(kind, ("pcie", NODE_ACCELERATORS))


def network(node: Server) -> Network:
    """What the ranks of a job on such nodes talk over.

    Inside the node: the accelerator's measured collectives where the node's fabric is the one they were
    measured on, else bus bandwidth = link rate x factor (constants above). In a mesh of n a group of r sees
    (r - 1) of (n - 1) links. Between nodes: the NICs shared by all accelerators of the node.
    """
    return Network(
        node_ranks=node.accelerators,
        scale_up=_scale_up_laws(node),
        scale_out_bytes_per_s=node.scale_out_bytes_per_s * node.scale_out_efficiency / node.accelerators,
        scale_out_alpha_s=node.scale_out_alpha_s,
    )


def _scale_up_laws(node: Server) -> dict[str, Law]:
    measured = dict(node.accelerator.laws.collectives)
    laws = _pcie_laws(node) if node.scale_up in ("pcie", "none", "nvlink-pairs") else _link_laws(node)
    if node.scale_up == "nvlink-pairs":
        return {operation: _paired(law, node) for operation, law in laws.items()}
    link = node.accelerator.link
    if node.scale_up in ("pcie", "none"):
        return laws | measured if link is None else laws  # a linked part was measured over its link
    if link is None or node.scale_up_one_way_bytes_per_s < 0.99 * link.one_way_bytes_per_s:
        return laws
    if node.scale_up == "nvlink-mesh":  # measured behind a switch, where every pair has the full rate
        return laws | {operation: _meshed(law, node) for operation, law in measured.items()}
    return laws | measured


def _link_laws(node: Server) -> dict[str, Law]:
    """Laws derived from the link's rate."""
    link = node.accelerator.link
    kind = link.kind.split("-")[0] if link else ""
    ring = RING_FACTOR.get(kind, OTHER_RING_FACTOR)
    rate = node.scale_up_one_way_bytes_per_s
    source = f"link rate x {ring:g} (measured on 8-GPU nodes)"
    laws = {operation: _flat(ring * rate, source) for operation in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)}
    reduction = SWITCH_REDUCTION_FACTOR.get(kind, ring) if node.scale_up == "nvswitch" else ring
    bus = tuple((reduction if r >= SWITCH_REDUCTION_RANKS else ring) * rate for r in RANKS)
    laws[ALL_REDUCE] = Law(RANKS, LINK_ALPHA_S, bus, (0.0, 0.0, 0.0), source=source)
    laws[POINT_TO_POINT] = _flat(SEND_FACTOR * rate, f"link rate x {SEND_FACTOR:g}")
    if node.scale_up == "nvlink-cube-mesh":
        return {operation: _scaled(law, CUBE_MESH_SHARE) for operation, law in laws.items()}
    if node.scale_up.endswith("-mesh"):
        return {operation: _meshed(law, node) for operation, law in laws.items()}
    return laws


def _pcie_laws(node: Server) -> dict[str, Law]:
    """Laws of a node whose accelerators meet on PCIe only."""
    peer_to_peer = node.accelerator.peer_to_peer
    factors = PEER_TO_PEER_FACTOR if peer_to_peer else THROUGH_HOST_FACTOR
    rate = node.pcie_bytes_per_s
    path = "peer to peer" if peer_to_peer else "through host memory"
    bus = tuple(factor * rate for factor in factors)
    law = Law(RANKS, PCIE_ALPHA_S, bus, (0.0, 0.0, 0.0), source=f"PCIe rate x measured shares, {path}")
    send = _flat(factors[0] * rate, law.source)
    return dict.fromkeys((ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL), law) | {POINT_TO_POINT: send}


def _flat(bus_bytes_per_s: float, source: str) -> Law:
    return Law(RANKS, LINK_ALPHA_S, (bus_bytes_per_s,) * 3, (0.0, 0.0, 0.0), source=source)


def _paired(law: Law, node: Server) -> Law:
    """Two ranks on a bridged pair, more over PCIe."""
    link = node.accelerator.link
    factor = RING_FACTOR.get(link.kind.split("-")[0] if link else "", OTHER_RING_FACTOR)
    bus = (factor * node.scale_up_one_way_bytes_per_s, *law.bus_bytes_per_s[1:])
    alpha = (LINK_ALPHA_S[0], *law.alpha_s[1:])
    source = f"pairs over a bridge; more: {law.source}"
    return Law(law.ranks, alpha, bus, law.root_s_per_sqrt_byte, source=source)


def _meshed(law: Law, node: Server) -> Law:
    """A group smaller than the mesh uses only its members' direct links."""
    others = node.accelerators - 1
    if law.ranks == (2,):
        return _scaled(law, (1 / others,))
    return _scaled(law, tuple(min(1.0, (ranks - 1) / others) for ranks in law.ranks))


def _scaled(law: Law, shares: Sequence[float]) -> Law:
    bus = tuple(rate * share for rate, share in zip(law.bus_bytes_per_s, shares, strict=True))
    return Law(
        law.ranks,
        law.alpha_s,
        bus,
        law.root_s_per_sqrt_byte,
        law.median_error,
        law.p90_error,
        law.source,
    )
