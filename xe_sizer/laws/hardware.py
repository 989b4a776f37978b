"""Accelerators and servers in SI units, as the laws are given them, and what servers draw and cost.

Profiles (YAML) are turned into these once, by `xe_sizer.profiles`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import field
from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import DecodeLaw
from xe_sizer.units import BARE_SERVER, GIB, HOUR_S, WATT_PER_KW, YEAR_H

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.attention import AttentionLaw
    from xe_sizer.laws.collectives import CollectiveLaw
    from xe_sizer.laws.matmul import MatmulLaw

# Where no accelerator of the kind was measured: between the kernels of A100 and H100.
DEFAULT_DECODE = DecodeLaw(10e-6, 0.85, source="between the kernels of A100 and H100; assumed")
# What the operating system and the process that trains take of a host's memory before anything is offloaded: assumed.
HOST_RESERVE_BYTES = 4.0 * GIB
Topology = Literal["single", "host", "pairs", "mesh", "groups", "switch"]
"""How a node joins its accelerators: one alone; over the host's bus; in bridged pairs, over the bus beyond them; each
to each other one; by links that lead to groups of 2, 4 and 8; through switches, or as if."""


class BusShares(Immutable, eq=True):
    """What 2, 4 and 8 ranks reach on a host's bus: shares of its one-way rate [-], and latencies [s]."""

    peer_to_peer: tuple[float, ...]
    through_host: tuple[float, ...]
    latency_s: tuple[float, ...]
    send_latency_s: tuple[float, ...]


class NodeFabric(Immutable, eq=True):
    """What joins the accelerators of a node.

    bus : where ranks meet on the host's bus
    group_shares : of an accelerator's links, that lead to the others of a group of 2, 4 and 8 [-]
    nic_per_accelerator : such nodes usually have a NIC for each accelerator, else one in all
    reduces : the switch reduces
    measured_behind_switch : collectives of its accelerators were measured with every pair at full rate
    custom_all_reduce : an inference engine's own all-reduce works on it
    """

    name: str
    topology: Topology
    nic_per_accelerator: bool
    bus: BusShares | None = None
    group_shares: tuple[float, ...] = ()
    reduces: bool = False
    measured_behind_switch: bool = False
    custom_all_reduce: bool = False


class LinkShares(Immutable, eq=True):
    """What ranks reach over an accelerator's own link: shares of its one-way rate [-], latencies at 2, 4 and 8 [s].

    `switch_all_reduce` is for 8 ranks and more behind a switch that reduces.
    """

    ring: float
    switch_all_reduce: float
    send: float
    latency_s: tuple[float, ...]


class UsualHost(Immutable, eq=True):
    """One of the hosts of a node that has several: accelerators of the node beside it, and its memory [bytes]."""

    accelerators: int
    memory_bytes: float


class UsualNode(Immutable, eq=True):
    """The node that an accelerator usually comes in: fabric by name, accelerators, rate of a NIC [Gbit/s], cooling.

    host : where several hosts share its accelerators, one of them
    network : fabric between such nodes by name; None: the default one
    """

    scale_up: str
    accelerators: int
    nic_gbit_per_s: float
    liquid_cooled: bool = False
    host: UsualHost | None = None
    network: str | None = None


class Link(Immutable):
    """The accelerator's own scale-up link; one direction, all lanes of one accelerator together.

    axes : of the torus that the lanes lead along, as many along each
    chip_ranks : devices that share a chip and its lanes
    """

    kind: str
    one_way_bytes_per_s: float
    axes: int = 1
    chip_ranks: int = 1


class MeasuredHere(Immutable, eq=True):
    """Laws that were measured on the user's own accelerator.

    date : YYYY-MM-DD; laws : which, such as matmul.bf16; each has the errors of its fit
    """

    date: str
    laws: tuple[str, ...]


class Laws(Immutable):
    """Operator laws of one accelerator; `assumed` names the accelerator they were borrowed from.

    launch_s : from one small kernel to the next, started from Python on the host at hand; None: nobody measured it
    """

    matmul: Mapping[str, MatmulLaw] = field(default_factory=dict)
    attention: Mapping[str, AttentionLaw] = field(default_factory=dict)
    collectives: Mapping[str, CollectiveLaw] = field(default_factory=dict)
    memory_bound_efficiency: float = 0.85  # streaming kernels reach 0.8 to 0.9
    memory_bound_floor_s: float = 3e-6  # assumed
    memory_bound_error: float | None = None  # what nine in ten such kernels are closer than; None: no fit
    decode: DecodeLaw = DEFAULT_DECODE
    launch_s: float | None = None
    assumed: str | None = None


class Slice(Immutable, eq=True):
    """A part of an accelerator that a program sees as one.

    count : of them in an accelerator; compute, memory : shares of its multiprocessors, and of its memory, each with its
    rate [-]; bandwidth : of its memory bandwidth, where that is another share
    turn : times that a kernel takes to start, where the parts take turns [-]
    """

    name: str
    count: int
    compute: float
    memory: float
    bandwidth: float | None = None
    turn: float = 1.0


# Published: of what one program makes of an accelerator, what several make together. Turns: four engines took 38
# requests/s of an A100 where one took 45 (Llama 3.1 8B, damionas.com, time-slicing vs MIG). Shared: two with 0.6 of the
# multiprocessors each wrote 0.93 of what two accelerators did (Qwen3-4B-FP8 on A100, gopebble.com, MPS case study).
IN_TURNS, SHARED = 0.84, 0.93
PARTS = re.compile(r"(time-slicing|mps)-([2-9]|[1-5]\d|6[0-4])")


def find_slice(gpu: Accelerator, name: str) -> Slice | None:
    """The slice of a name: one of the hardware's, or so many programs that share it in software; None: there is none.

        share = efficiency / programs        all of them busy

    Programs that take turns have the whole accelerator in their turn and wait for it otherwise, so that every kernel
    takes as many times as long; under MPS kernels run beside each other. Memory is divided by whoever starts them.

    Parameters
    ----------
    gpu : the accelerator
    name : such as 1g.10gb, time-slicing-4 or mps-2

    Returns
    -------
    Slice, or None [-]

    Source: NVIDIA MIG user guide (supported profiles); Kubernetes device plugin (sharing.timeSlicing and sharing.mps).
    """
    if name in gpu.slices:
        return gpu.slices[name]
    found = PARTS.fullmatch(name)
    if found is None:
        return None
    count, turns = int(found[2]), found[1] != "mps"
    share = (IN_TURNS if turns else SHARED) / count
    return Slice(name, count, share, 1.0 / count, share, 1.0 / share if turns else 1.0)


def sliced(server: Server, part: Slice) -> Server:
    """A server whose accelerators are cut into slices, of which each runs one program.

        peak = compute share x peak,  bandwidth = bandwidth share x bandwidth,  memory = memory share x memory
        start of a kernel = turn x start

    Slices have no links to each other.

    Parameters
    ----------
    server : with whole accelerators
    part : share of each [-]

    Returns
    -------
    Server, of as many whole accelerators; `accelerator` is one slice, but for its design power

    Source: definition; laws are shares of peaks, which slices reach as the whole does.
    """
    gpu, laws = server.accelerator, server.accelerator.laws
    bandwidth = part.memory if part.bandwidth is None else part.bandwidth
    slower = replace(
        laws,
        matmul={name: replace(law, floor_s=part.turn * law.floor_s) for name, law in laws.matmul.items()},
        attention={name: replace(law, floor_s=part.turn * law.floor_s) for name, law in laws.attention.items()},
        decode=replace(laws.decode, floor_s=part.turn * laws.decode.floor_s),
        memory_bound_floor_s=part.turn * laws.memory_bound_floor_s,
    )
    one = replace(
        gpu,
        memory_bytes=part.memory * gpu.memory_bytes,
        memory_bandwidth_bytes_per_s=bandwidth * gpu.memory_bandwidth_bytes_per_s,
        peak_flops_per_s={name: part.compute * peak for name, peak in gpu.peak_flops_per_s.items()},
        clocks_per_s=gpu.clocks_per_s and part.compute * gpu.clocks_per_s,
        laws=slower,
    )
    return replace(server, accelerator=one, part=part)


class Accelerator(Immutable):
    """One accelerator. `memory_bytes` is what the driver reports as total, not what the box says.

    runtime_apart : contexts, communicators and libraries take nothing of `memory_bytes`
    unified_share : of the machine's memory, which it may use where it has none of its own; None: it has its own
    clocks_per_s : of all its multiprocessors together; None where it has none, or nobody says how many
    announced : its figures are what its maker says, and nobody has published measurements
    serving_only : training on it is refused
    slices : of the hardware, by name
    """

    name: str
    vendor: str
    generation: str
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    tdp_w: float | None
    pcie_bytes_per_s: float
    link: Link | None
    link_shares: LinkShares  # of a link that nobody measured, where it has none
    usual_node: UsualNode
    laws: Laws
    assumptions: tuple[str, ...] = ()
    source: str = ""
    segment: str = "data-centre"  # or desktop: who buys it
    peer_to_peer: bool = True  # False: copies between two cards pass through host memory (GeForce drivers)
    runtime_apart: bool = False
    unified_share: float | None = None
    serving_only: bool = False
    clocks_per_s: float | None = None
    measured: MeasuredHere | None = None
    announced: bool = False
    slices: Mapping[str, Slice] = field(default_factory=dict)


PriceKind = Literal["on-demand", "spot", "reserved", "capacity-block"]


class Offer(Immutable, eq=True):
    """How a price is meant: the kind of contract, the day it was published, where it holds, and who says so."""

    kind: PriceKind | None = None
    date: str | None = None
    region: str | None = None
    source: str | None = None


class Capex(Immutable, eq=True):
    """What a server costs to buy, the day that was published, and who says so."""

    price: float
    currency: str
    date: str | None = None
    source: str | None = None


class Server(Immutable):
    """One node: accelerators, how they are joined, and what leads out of the node.

    `scale_out_bytes_per_s` is the line rate of all NICs of the node together, one direction; `scale_out_efficiency`
    the share that large messages reach, `scale_out_alpha_s` the latency of one step between nodes, `scale_out_error`
    what nine in ten collectives are closer than to what these say [-], where they were measured. `stall_s` and
    `stall_per_node_s`: what accelerators wait in every collective between nodes, whatever they compute.
    `host_memory_bytes` is of the node, or of a host with `host_accelerators` of them where the node has several.
    `host_most_bytes` is what the server can be ordered with, where its host memory is one configuration of several.
    part : of an accelerator that `accelerator` is; None: it is a whole one
    What is assumed of the fabric matters to several accelerators, what is assumed of the network to several nodes.
    """

    name: str
    accelerator: Accelerator
    accelerators: int
    fabric: NodeFabric
    scale_up_one_way_bytes_per_s: float
    pcie_bytes_per_s: float
    scale_out_bytes_per_s: float
    host_memory_bytes: float | None
    price_per_hour: float | None
    price_currency: str
    scale_out_efficiency: float
    scale_out_alpha_s: float
    assumptions: tuple[str, ...] = ()
    fabric_assumptions: tuple[str, ...] = ()
    network_assumptions: tuple[str, ...] = ()
    source: str = ""
    host_most_bytes: float | None = None
    host_accelerators: int | None = None
    liquid_cooled: bool = False
    offer: Offer = Offer()
    capex: Capex | None = None
    scale_out_error: float | None = None
    stall_s: float = 0.0
    stall_per_node_s: float = 0.0
    part: Slice | None = None

    @property
    def slices(self) -> int:
        """Programs on each accelerator: one, or as many as it has slices."""
        return self.part.count if self.part else 1

    @property
    def bare(self) -> bool:
        """Whether it stands for a GPU that was named alone."""
        return self.name.startswith(BARE_SERVER)

    def with_host_memory(self, memory_gib: float) -> Server:
        """The server with the host memory that it is said to have, of which its accelerator may have a share [GiB]."""
        gpu = self.accelerator
        if gpu.unified_share:
            gpu = replace(gpu, memory_bytes=gpu.unified_share * memory_gib * GIB)
        return replace(self, accelerator=gpu, host_memory_bytes=memory_gib * GIB, host_most_bytes=None)

    @property
    def host_apart(self) -> bool:
        """Whether the host has memory of its own: what goes there leaves the accelerator's."""
        return self.accelerator.unified_share is None

    @property
    def host_usable_bytes(self) -> float | None:
        """Memory of the host that offloading may fill [bytes]; None where nobody knows how much it has."""
        return None if self.host_memory_bytes is None else max(self.host_memory_bytes - HOST_RESERVE_BYTES, 0.0)

    @property
    def scale_up(self) -> str:
        """Name of the fabric inside the node."""
        return self.fabric.name


# Power of servers at load, energy, and what both cost.

KWH_J = 3.6e6  # defined: joules of a kilowatt-hour
# Share of the thermal design power that an accelerator draws in training; assumed. Below what it draws at its most: an
# H100 of 700 W draws 668 W in gpu-burn (Vercellino et al., arXiv 2604.07345).
TRAINING_POWER_SHARE = 0.85
# The same in serving, assumed: prompts come near all of it, decoding waits for memory at about half to two thirds
# (arXiv:2308.12908, arXiv:2311.18677).
INFERENCE_POWER_SHARE = 0.7
# How far off these shares may be, 80 % [-]; chosen: in training so that nodes of 8 x H100 draw at most what they did
# with any job (8.48 of 7.84 kW) though nothing else were unknown; in serving from decoding alone to prompts alone.
TRAINING_SHARE_ERROR, INFERENCE_SHARE_ERROR = 0.08, 0.2
ON_THE_BUS = ("single", "host", "pairs")  # topologies of nodes whose accelerators are cards


class RestOfNode(Immutable):
    """What the rest of a node draws at load, as a share of the design power of its accelerators [-], and who says so.

    What it is made of: processors, memory, NICs, switches, fans, and what the power supplies lose.

    error : how far off the share may be in another node than those that were measured, 80 % [-]; chosen
    """

    share: float
    basis: str
    error: float


# Measured: 8 x H100 in training, air-cooled: 7.92 kW, the median with Llama 2 13B (Latif et al., IEEE Access 13, 2025,
# arXiv 2412.08602; at most 8.48), and 7.75 kW, 76 % of 10.2 (Newkirk et al., arXiv 2506.14551). Of their mean 4.76 kW
# are the GPUs at TRAINING_POWER_SHARE: 3.08 of 5.6 kW are left. Nodes of 8 x A100 agree: idle, without any fan at
# work, they and their network draw 1.90 kW (Luccioni et al., arXiv 2211.02001: 256,646 kWh beside 1,082,990
# GPU-hours), about 0.47 of 3.2 kW without the idle GPUs.
AIR_COOLED = RestOfNode(0.55, "as measured on 8 x H100 in training", 0.15)
# Measured: 4 x RTX 4090 at 450 W each in a Supermicro SYS-741GE-TNRT draw 2,160 W with all cores of both Xeons at work,
# 2,080 W with idle ones (IPMI; server-gear.com, rtx4090x4_gpu_burn).
CARDS = RestOfNode(0.20, "as measured on 4 x RTX 4090", 0.10)
# Assumed: no measurement was found. The maker's 120 kW of a GB200 NVL72 leave 33.6 kW beside 72 GPUs of 1.2 kW; of what
# the maker's 10.2 kW leave on 8 x H100, the measured nodes draw 0.67.
LIQUID_COOLED = RestOfNode(0.26, "assumed from the maker's figures for a liquid-cooled rack", 0.15)


def rest_of_node(server: Server) -> RestOfNode:
    """What the rest of such a server draws: cards on a host's bus, modules on a board, cooled by air or by liquid."""
    if server.fabric.topology in ON_THE_BUS:
        return CARDS
    return LIQUID_COOLED if server.liquid_cooled else AIR_COOLED


def node_power_w(server: Server, power_share: float = TRAINING_POWER_SHARE) -> float | None:
    """Power of a server at load.

        P = accelerators x design power x (power_share + share of the rest of the node)

    Parameters
    ----------
    server : with its accelerators and their thermal design power [W]
    power_share : share of the design power that accelerators draw [-]; the rest of the node does not follow it

    Returns
    -------
    float [W]; None where no design power is known

    Source: measured nodes, see `AIR_COOLED` and `CARDS`; liquid-cooled racks are assumed.
    """
    power_w = servers_power_w(server, server.accelerators, power_share)
    return None if power_w is None else float(power_w)


def servers_power_w(
    server: Server, gpus: Array | float, power_share: float = TRAINING_POWER_SHARE, servers: Array | float | None = None
) -> Array | float | None:
    """Power at load of the servers that hold so many accelerators, which run whole though part of one is at work.

        P = design power x (gpus x power_share + servers x accelerators of one x share of the rest of the node)

    A GPU that was named alone has its share of a node, and no more.

    Parameters
    ----------
    server : with its accelerators and their thermal design power [W]
    gpus : accelerators at work [-]
    power_share : share of the design power that accelerators draw [-]
    servers : that hold the accelerators [-]; None: as few as can

    Returns
    -------
    ndarray of float, shape of gpus [W]; None where no design power is known

    Source: as `node_power_w`.
    """
    tdp_w, rest = server.accelerator.tdp_w, rest_of_node(server)
    fewest = -(-gpus // server.accelerators) if servers is None else servers
    whole = gpus if server.bare else fewest * server.accelerators
    return None if tdp_w is None else tdp_w * (gpus * power_share + whole * rest.share)


def power_error(server: Server, power_share: float, share_error: float) -> float:
    """How far off the power of a server at load may be, 80 % of what it is, in either direction [-].

        error = sqrt(share_error^2 + rest_error^2) / (power_share + share of the rest of the node)

    Parameters
    ----------
    server : which decides what the rest of the node draws
    power_share, share_error : share of the design power that accelerators draw, and how far off it may be [-]

    Returns
    -------
    float [-]

    Source: errors of two independent parts: 12 % in training on air-cooled nodes, 15 % on liquid-cooled ones.
    """
    rest = rest_of_node(server)
    return math.hypot(share_error, rest.error) / (power_share + rest.share)


def capital_per_hour(capex: float, years: float, utilisation: float) -> float:
    """Capital cost of a server for an hour in which it has work, straight-line and without interest or resale.

        capital = capex / (years x 8766 h x utilisation)

    Parameters
    ----------
    capex : what the server costs to buy [currency]
    years : for which it is used [a]
    utilisation : share of its hours in which it has work [-]

    Returns
    -------
    float [currency / h]

    Source: definition.
    """
    return capex / (years * YEAR_H * utilisation)


def break_even_utilisation(capital: float, rest: float, rent: float, utilisation: float) -> float:
    """Share of their hours from which servers that are owned do the same work for less than a rent.

        capital at use u = capital x utilisation / u
        u = capital x utilisation / (rent - rest)

    Parameters
    ----------
    capital, rest : of the work at `utilisation`, where `rest` does not depend on it: electricity [currency]
    rent : of hardware that does the same work [currency]
    utilisation : share of their hours in which the servers have work [-]

    Returns
    -------
    float [-], above 1 where the rent is less at any use, infinite where it is less than the rest

    Source: definition.
    """
    return capital * utilisation / (rent - rest) if rent > rest else math.inf


def electricity_cost(energy: Array | float, kwh_price: float, pue: float) -> Array | float:
    """Cost of the electricity for servers and what cools them.

        cost = energy x PUE x price of a kilowatt-hour

    Parameters
    ----------
    energy : of the servers [kWh], a number or an array
    kwh_price : of a kilowatt-hour [currency / kWh]
    pue : power usage effectiveness, of the whole data centre over that of what computes [-]

    Returns
    -------
    ndarray of float, shape of energy [currency]

    Source: definition of power usage effectiveness (ISO/IEC 30134-2).
    """
    return energy * pue * kwh_price


def energy_kwh(
    server: Server, gpu_hours: float, power_share: float = TRAINING_POWER_SHARE, gpus: int | None = None
) -> float | None:
    """Energy of accelerators and of the servers that they are in.

        E = GPU-hours x power of the servers / GPUs

    Parameters
    ----------
    server : that the accelerators are in
    gpu_hours : accelerators times hours [h]
    power_share : share of the design power that accelerators draw [-]
    gpus : accelerators at work at a time, whose servers nobody else uses; None: others use the rest of the servers [-]

    Returns
    -------
    float [kWh]; None where no design power is known

    Source: definition; the power is that of `servers_power_w`.
    """
    gpus = gpus or server.accelerators
    power_w = servers_power_w(server, gpus, power_share)
    return None if power_w is None else gpu_hours * HOUR_S * float(power_w) / gpus / KWH_J


def energy_words(server: Server, power_share: float = TRAINING_POWER_SHARE) -> str:
    """What the energy of `energy_kwh` counts, in words; empty where no design power is known.

        P = accelerators x design power x (power_share + share of the rest of the node)

    Parameters
    ----------
    server : that the accelerators are in
    power_share : share of the design power that accelerators draw [-]

    Returns
    -------
    str

    Source: the terms of `node_power_w`.
    """
    power_w, tdp_w = node_power_w(server, power_share), server.accelerator.tdp_w
    if power_w is None or tdp_w is None:
        return ""
    rest, count = rest_of_node(server), server.accelerators
    gpus = f"{count} GPUs" if count > 1 else "1 GPU"
    drawn, beside = (count * tdp_w * share / WATT_PER_KW for share in (power_share, rest.share))
    parts = f"{gpus} at {100.0 * power_share:.0f} % of design power ({drawn:.3g} kW)"
    return f"{power_w / WATT_PER_KW:.3g} kW a server: {parts}, {beside:.3g} kW for the rest of it, {rest.basis}"
