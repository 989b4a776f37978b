"""Server profiles: what a YAML file may hold, and how it becomes a `Server`."""

from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem, place_of
from xe_sizer.laws.hardware import Accelerator, Capex, NodeFabric, Offer, PriceKind, Server
from xe_sizer.profiles.convert import GbPerS, Gpus, Locate, Positive, Source, convert
from xe_sizer.profiles.fabric import FindFabric, fabric_with
from xe_sizer.profiles.finder import default_name
from xe_sizer.profiles.gpu import Cooling, Pcie, pcie_bytes_per_s
from xe_sizer.profiles.yaml_reader import Document, check_name, load_yaml
from xe_sizer.units import BARE_SERVER, BITS_PER_BYTE, GIGA, MEGA


class ScaleUp(Struct, frozen=True, forbid_unknown_fields=True):
    """Fabric inside the node; the rate is one direction, all lanes of one accelerator together."""

    kind: str
    one_way_gb_per_s: GbPerS | None = None


class ScaleOut(Struct, frozen=True, forbid_unknown_fields=True):
    """Network of the node: `nics` of `gbit_per_s` each, one direction."""

    gbit_per_s: GbPerS
    nics: Annotated[int, Meta(gt=0, le=10_000)] = 1
    fabric: str | None = None


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    memory_gb: Positive | None = None
    max_memory_gb: Positive | None = None
    cpu: str | None = None
    vcpus: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None


DAY = r"^\d{4}-\d{2}(-\d{2})?$"


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """Of the whole server. date : when it was published or read; region : where it holds; source : who says so."""

    per_hour: Positive
    currency: str = "USD"
    kind: PriceKind | None = None
    date: Annotated[str, Meta(pattern=DAY)] | None = None
    region: str | None = None
    source: str | None = None


class Bought(Struct, frozen=True, forbid_unknown_fields=True):
    """What the whole server costs to buy. date : when that was published or offered; source : who says so."""

    price: Positive
    currency: str = "USD"
    date: Annotated[str, Meta(pattern=DAY)] | None = None
    source: str | None = None


class ServerProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu_profiles/servers/<name>.yaml`.

    default : assumed where a file of another tool names no hardware
    cooling : as usual for the accelerator where the profile does not say
    """

    name: str
    vendor: str
    gpu: str
    gpus: Gpus
    scale_up: ScaleUp
    source: Source
    aliases: tuple[str, ...] = ()
    scale_out: ScaleOut | None = None
    pcie: Pcie | None = None
    host: Host = Host()
    power_kw: Positive | None = None
    power_supplies_kw: Positive | None = None
    rack_units: Positive | None = None
    cooling: Cooling | None = None
    price: Price | None = None
    capex: Bought | None = None
    assumed: tuple[str, ...] = ()
    default: bool = False
    notes: str | None = None


def load_server_profile(path: Path) -> tuple[ServerProfile, Document]:
    """Read one server profile; the document tells where its keys stand.

    Raises
    ------
    InputError    with every problem: syntax, types, ranges, a name that is not the file's
    """
    document = load_yaml(path)
    profile = convert(document.value, ServerProfile, document.locate)
    check_name(profile.name, document)
    return profile, document


def server(profile: ServerProfile, gpu: Accelerator, fabrics: FindFabric, locate: Locate | None = None) -> Server:
    """The server in SI units; what its profile leaves out is filled with what is usual, and marked.

    Raises
    ------
    InputError    a fabric that is not known or not of that use, one accelerator with a fabric or several with none
    """
    node = _node_fabric(profile, fabrics, locate)
    scale_out = profile.scale_out or usual_scale_out(gpu, profile.gpus, node)
    usual = () if profile.scale_out else (f"network: {_words(scale_out)}, usual for such a node",)
    pcie = pcie_bytes_per_s(profile.pcie) if profile.pcie else gpu.pcie_bytes_per_s
    linked = gpu.link.one_way_bytes_per_s if gpu.link and node.topology not in ("host", "single") else pcie
    stated = profile.scale_up.one_way_gb_per_s
    price, capex, has_gb, most_gb = profile.price, profile.capex, profile.host.memory_gb, profile.host.max_memory_gb
    where = partial(locate, ("scale_out", "fabric")) if locate else None
    between = fabric_with("network", scale_out.fabric or default_name("fabric", "network:"), fabrics, where).network
    assert between is not None
    host = gpu.usual_node.host
    return Server(
        name=profile.name,
        accelerator=gpu,
        accelerators=profile.gpus,
        fabric=node,
        scale_up_one_way_bytes_per_s=stated * GIGA if stated else linked,
        pcie_bytes_per_s=pcie,
        scale_out_bytes_per_s=scale_out.nics * scale_out.gbit_per_s * GIGA / BITS_PER_BYTE,
        scale_out_efficiency=between.rate_share,
        scale_out_alpha_s=between.latency_us / MEGA,
        scale_out_error=between.p90_error,
        stall_s=between.stall_us / MEGA,
        stall_per_node_s=between.stall_per_node_us / MEGA,
        host_memory_bytes=has_gb * GIGA if has_gb else (host.memory_bytes if host else None),
        host_accelerators=None if has_gb or host is None else host.accelerators,
        price_per_hour=price.per_hour if price else None,
        price_currency=price.currency if price else "USD",
        offer=Offer(price.kind, price.date, price.region, price.source) if price else Offer(),
        capex=Capex(capex.price, capex.currency, capex.date, capex.source) if capex else None,
        assumptions=profile.assumed,
        network_assumptions=usual,
        source=profile.source.title,
        host_most_bytes=most_gb * GIGA if has_gb and most_gb and most_gb > has_gb else None,  # that can be ordered
        liquid_cooled=gpu.usual_node.liquid_cooled if profile.cooling is None else profile.cooling == "liquid",
    )


def _node_fabric(profile: ServerProfile, fabrics: FindFabric, locate: Locate | None) -> NodeFabric:
    kind = profile.scale_up.kind
    where = partial(locate, ("scale_up", "kind")) if locate else None
    node = fabric_with("node", kind, fabrics, where).node_fabric()
    if (profile.gpus == 1) != (node.topology == "single"):
        hint = "one accelerator has scale_up {kind: none}; several have a fabric, see 'xe-sizer profiles list fabric'"
        raise InputError(Problem(f"scale_up '{kind}' with gpus: {profile.gpus}", place_of(where), hint))
    return node


def _words(scale_out: ScaleOut) -> str:
    return f"{scale_out.nics} x {scale_out.gbit_per_s:g} Gbit/s"


def usual_scale_out(gpu: Accelerator, accelerators: int, node: NodeFabric) -> ScaleOut:
    """NICs of a node whose profile names none: one a GPU in a switched or meshed node, else one a node."""
    if not node.nic_per_accelerator:
        return ScaleOut(gbit_per_s=100.0 if accelerators > 1 else 10.0)
    return ScaleOut(gpu.usual_node.nic_gbit_per_s, accelerators, gpu.usual_node.network)


def bare_server(gpu: Accelerator, fabrics: FindFabric, accelerators: int | None = None) -> Server:
    """A node around a bare accelerator, for scenarios that name a GPU and no server.

    Parts with a native fabric (SXM, OAM and the like) come as the usual node of theirs, cards eight to a
    PCIe host, or as few as `accelerators` says; bridges between pairs of cards are not assumed.
    """
    scale_up, count = gpu.usual_node.scale_up, gpu.usual_node.accelerators
    if accelerators is not None and fabric_with("node", scale_up, fabrics, None).node_fabric().topology == "host":
        count = min(max(accelerators, 1), count)
    if count == 1:
        scale_up = default_name("fabric", "node:")
    profile = ServerProfile(
        name=f"{BARE_SERVER}{count}x-{gpu.name}",
        vendor=gpu.vendor,
        gpu=gpu.name,
        gpus=count,
        scale_up=ScaleUp(scale_up),
        source=Source(gpu.source),
    )
    node = "1 GPU per node" if count == 1 else f"{count} GPUs per node on {scale_up}"
    told = f"no server named: assuming {node}"
    return replace(server(profile, gpu, fabrics), fabric_assumptions=(told,))
