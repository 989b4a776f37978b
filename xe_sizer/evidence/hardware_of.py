"""Accelerator and node of a record: names looked up, and what it says about its links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xe_sizer.evidence.names import look_up, names
from xe_sizer.frozen import frozen
from xe_sizer.profiles.gpu_schema import Source
from xe_sizer.profiles.server import (
    ScaleOut,
    ScaleUp,
    ServerProfile,
    server,
    usual_scale_out,
)

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.registry import Registry

VENDOR_WORDS = re.compile(r"\b(nvidia|amd|instinct|geforce|tesla|intel)\b")
NICS = re.compile(r"(\d+)\s*x\s*(?:[^,;:\d]|\d(?!\d*\s*g))*?(\d+)\s*g(?:b|be|bps|bit)\b", re.IGNORECASE)
LINE_RATE = re.compile(r"(\d+)\s*g(?:b|be|bps|bit)?(?:/s(?:ec)?)?\b", re.IGNORECASE)
PER_GPU = re.compile(r"(?:\b(?:per|each|every)[\s-]+|/\s*)(?:gpu|rank|accelerator|device|card|gcd)\b")
LEAST_NIC_GBIT_PER_S = 25.0  # slower ports manage the node
CUBE_MESH_QUAD = 4
RACK_ACCELERATORS = 72  # GB200 and GB300: one NVLink domain a rack


@frozen
class Hardware:
    """A node of a record's, and what was assumed about it. `key` tells nodes apart."""

    key: str
    server: Server
    assumed: tuple[str, ...]


def hardware_of(record: Record, registry: Registry) -> Hardware:
    """The node that a record ran on.

    With one node the usual one of its kind stands for it; with several, `gpus_per_node` and `interconnect` do.

    Raises
    ------
    InputError : an accelerator that nothing here describes
    """
    gpu, assumed = _accelerator(record.gpu or "", registry)
    text = _link_text(record.interconnect)
    scale_up = _scale_up(text["intra"], gpu, registry)
    usual = registry.bare_server(gpu, record.gpus_per_node or record.gpus or 8)
    per_node = record.gpus_per_node
    rack = usual.accelerators >= RACK_ACCELERATORS
    several = record.gpus is not None and per_node is not None and record.gpus > per_node and not rack
    count = per_node if several and per_node else usual.accelerators
    fabric = _fabric(text["inter"])
    scale_out = _scale_out(text["inter"], count, fabric) if several else None
    if several and scale_out is None:
        assumed = (*assumed, "network between nodes not stated: the usual one of such nodes")
    if count == usual.accelerators and scale_up is None and scale_out is None and fabric is None:
        return Hardware(f"{usual.name}", usual, assumed)
    kind = scale_up or usual.scale_up
    network = scale_out or _of_fabric(usual_scale_out(gpu, count, registry.fabric(kind).node_fabric()), fabric)
    node = _node(gpu, count, kind, network, registry)
    words = f"{network.nics}x {network.gbit_per_s:g} Gbit per s {network.fabric or ''}".strip()
    return Hardware(f"{count}x {gpu.name}, {node.scale_up}, {words}", node, assumed)


def _accelerator(name: str, registry: Registry) -> tuple[Accelerator, tuple[str, ...]]:
    table = names()
    bare = VENDOR_WORDS.sub("", name.lower()).strip(" -_")
    half = look_up(table.half_gpus, bare)
    if half:
        return _half(registry.accelerator(half), bare), ()
    alias = look_up(table.gpus, bare)
    if alias is not None:
        return registry.accelerator(alias), (f"gpu '{name}' read as {alias}",)
    return registry.accelerator(bare), ()


def _half(gpu: Accelerator, name: str) -> Accelerator:
    """One of the two devices that a module shows to software."""
    peaks = {precision: peak / 2 for precision, peak in gpu.peak_flops_per_s.items()}
    return replace(
        gpu,
        name=name,
        memory_bytes=gpu.memory_bytes / 2,
        memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s / 2,
        peak_flops_per_s=peaks,
        tdp_w=gpu.tdp_w / 2 if gpu.tdp_w else None,
        link=replace(gpu.link, one_way_bytes_per_s=gpu.link.one_way_bytes_per_s / 2) if gpu.link else None,
    )


def _link_text(interconnect: Any) -> dict[str, str]:
    """What the record says about links inside and between nodes, in lower case."""
    if isinstance(interconnect, Mapping):
        return {key: f" {interconnect.get(key) or ''} ".lower() for key in ("intra", "inter")}
    return {"intra": f" {interconnect or ''} ".lower(), "inter": ""}


def _scale_up(text: str, gpu: Accelerator, registry: Registry) -> str | None:
    """Fabric inside the node where the record's words differ from what is usual for the accelerator."""
    nodes = names().nodes
    linked = nodes.link_word in text and f"no {nodes.link_word}" not in text
    if nodes.bus_word in text and not linked:
        return nodes.bus
    if linked and gpu.link is not None and _bridged(gpu.link.kind, registry):
        return nodes.bridged
    return None


def _bridged(link: str, registry: Registry) -> bool:
    """Whether a link joins pairs of cards, which nodes are not assumed to have."""
    section = registry.fabric(link).link
    return section is not None and registry.fabric(section.usual_node.scale_up).node_fabric().bus is not None


def _fabric(text: str) -> str | None:
    return next((name for name, words in names().networks.items() if any(word in text for word in words)), None)


def _of_fabric(network: ScaleOut, fabric: str | None) -> ScaleOut:
    """The usual rate over the fabric that is stated."""
    return ScaleOut(gbit_per_s=network.gbit_per_s, nics=network.nics, fabric=fabric) if fabric else network


def _scale_out(text: str, gpus: int, fabric: str | None) -> ScaleOut | None:
    """NICs of a node from words: '8x HDR 200Gb/s InfiniBand', '1600 Gbps node-node (RoCE)', '400 Gb/s per GPU'.

    Of several sets of NICs the fastest carries the job. A rate is the node's unless it is said to be each GPU's. None
    where no rate is stated.
    """
    sets = [
        (int(found[1]) * (gpus if int(found[1]) < gpus and _is_per_gpu(text, found) else 1), float(found[2]))
        for found in NICS.finditer(text)
        if float(found[2]) >= LEAST_NIC_GBIT_PER_S
    ]
    if not sets and "gb/s;" not in text:
        sets = [(gpus if _is_per_gpu(text, found) else 1, float(found[1])) for found in LINE_RATE.finditer(text)]
    if not sets:
        return None
    nics, rate = max(sets, key=lambda pair: pair[0] * pair[1])
    return ScaleOut(gbit_per_s=rate, nics=nics, fabric=fabric)


def _is_per_gpu(text: str, rate: re.Match[str]) -> bool:
    """Whether the words behind a rate, up to the next figure, or those before it in its clause say 'per GPU'."""
    behind = re.split(r"[\d;]", text[rate.end() :], maxsplit=1)[0]
    before = re.split(r"[\d,;()]", text[: rate.start()])[-1]
    return PER_GPU.search(behind) is not None or PER_GPU.search(before) is not None


def _node(gpu: Accelerator, count: int, scale_up: str, scale_out: ScaleOut, registry: Registry) -> Server:
    """A node of so many accelerators; four V100 are all joined with each other, eight are not."""
    nodes, kind = names().nodes, scale_up
    if count == 1:
        kind = nodes.single
    elif kind == nodes.single:
        kind = nodes.bus
    elif count <= CUBE_MESH_QUAD:
        kind = nodes.quads.get(kind, kind)
    profile = ServerProfile(
        name=f"record-{count}x-{gpu.name}",
        vendor=gpu.vendor,
        gpu=gpu.name,
        gpus=count,
        scale_up=ScaleUp(kind),
        source=Source(gpu.source),
        scale_out=scale_out,
    )
    return server(profile, gpu, registry.fabric)
