"""Profiles of fabrics: what ranks reach over a link, inside a node, and between nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from xe_sizer.errors import InputError, Problem, Where, place_of
from xe_sizer.laws.hardware import BusShares, LinkShares, NodeFabric, Topology
from xe_sizer.profiles.convert import Error, Gpus, Microseconds, NotNegative, Source
from xe_sizer.profiles.finder import Finder, read_profile
from xe_sizer.profiles.yaml_reader import Document
from xe_sizer.units import MEGA

Share = Annotated[float, Meta(gt=0, le=2)]  # of a link's rate; a switch that reduces lifts an all-reduce above 1
Shares = tuple[Share, Share, Share]  # at 2, 4 and 8 ranks
Latencies = tuple[Microseconds, Microseconds, Microseconds]
FindFabric = Callable[[str, Where], "FabricProfile"]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class UsualLinkNode(_Part, frozen=True):
    """The node that accelerators with the link usually come in, and the network between such nodes."""

    scale_up: str
    gpus: Gpus
    network: str | None = None


class LinkSection(_Part, frozen=True):
    """Over an accelerator's own link; shares are of its one-way rate."""

    ring_share: Share
    send_share: Share
    latency_us: Latencies
    usual_node: UsualLinkNode
    switch_all_reduce_share: Share | None = None


class BusSection(_Part, frozen=True):
    """On the host's bus, peer to peer or through host memory; shares are of its one-way rate."""

    peer_to_peer_share: Shares
    through_host_share: Shares
    latency_us: Latencies
    send_latency_us: Latencies


class NodeSection(_Part, frozen=True):
    """Inside a node; what each key means stands at `laws.hardware.NodeFabric`."""

    topology: Topology
    nics: Literal["per-gpu", "per-node"]
    bus: BusSection | None = None
    links: Annotated[int, Meta(ge=1, le=1000)] | None = None
    links_in_group: tuple[NotNegative, NotNegative, NotNegative] | None = None
    reduces: bool = False
    measured_behind_switch: bool = False
    custom_all_reduce: bool = False


class NetworkSection(_Part, frozen=True):
    """Between nodes: the share of the line rate that large messages reach, and the latency of one step.

    stall_us, stall_per_node_us : what accelerators wait in every collective that their hosts send for them, whatever
    they compute beside it, as `laws.collectives.stall_s` says
    p90_error : of both on collectives that their fit had not seen, where they were measured
    """

    rate_share: Annotated[float, Meta(gt=0, le=1)]
    latency_us: Microseconds
    stall_us: Microseconds = 0.0
    stall_per_node_us: Microseconds = 0.0
    p90_error: Error | None = None


class FabricProfile(_Part, frozen=True):
    """`gpu_profiles/fabrics/<name>.yaml`: a link, what joins a node, a network between nodes, or several of these.

    default : stands for links, networks or (the single accelerator) nodes of which nothing is stated
    """

    name: str
    describes: str
    source: Source
    parent: str | None = None
    default: bool = False
    link: LinkSection | None = None
    node: NodeSection | None = None
    network: NetworkSection | None = None
    assumed: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    def link_shares(self) -> LinkShares:
        """In SI units. The profile has a link."""
        link = self.link
        assert link is not None
        in_switch = link.switch_all_reduce_share or link.ring_share
        return LinkShares(link.ring_share, in_switch, link.send_share, _seconds(link.latency_us))

    def node_fabric(self) -> NodeFabric:
        """In SI units. The profile has a node."""
        node = self.node
        assert node is not None
        links, in_group, bus = node.links, node.links_in_group, node.bus
        return NodeFabric(
            name=self.name,
            topology=node.topology,
            nic_per_accelerator=node.nics == "per-gpu",
            bus=BusShares(
                bus.peer_to_peer_share, bus.through_host_share, _seconds(bus.latency_us), _seconds(bus.send_latency_us)
            )
            if bus
            else None,
            group_shares=tuple(count / links for count in in_group) if links and in_group else (),
            reduces=node.reduces,
            measured_behind_switch=node.measured_behind_switch,
            custom_all_reduce=node.custom_all_reduce,
        )


def _seconds(latencies_us: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(latency_us / MEGA for latency_us in latencies_us)


def load_fabric_profile(path: Path, finder: Finder) -> FabricProfile:
    """Read one fabric.

    Raises
    ------
    InputError    with every problem: syntax, types, ranges, a file without a link, a node or a network, a topology
                  without the figures that it needs
    """
    return read_profile("fabric", FabricProfile, path, finder, _problems)


def _problems(profile: FabricProfile, document: Document, _: Finder) -> Iterator[Problem]:
    node = profile.node
    if not (profile.link or node or profile.network):
        yield Problem("a fabric has a 'link', a 'node' or a 'network'", document.locate(()))
    if node and (node.topology in ("single", "host", "pairs")) != (node.bus is not None):
        hint = "topologies single, host and pairs have a 'bus', the others none"
        yield Problem(f"topology {node.topology} and 'bus'", document.locate(("node", "topology")), hint)
    if node and (node.topology == "groups") != (node.links is not None and node.links_in_group is not None):
        hint = "topology groups has 'links' and 'links_in_group', the others neither"
        yield Problem(f"topology {node.topology} and 'links'", document.locate(("node", "topology")), hint)


def fabric_with(section: str, name: str, find: FindFabric, where: Where) -> FabricProfile:
    """The fabric of a name, which has that section: link, node or network. Raises InputError."""
    profile = find(name, where)
    if getattr(profile, section) is None:
        has = " and ".join(f"a '{each}'" for each in ("link", "node", "network") if getattr(profile, each))
        raise InputError(Problem(f"the fabric '{name}' has no '{section}'", place_of(where), f"it has {has}"))
    return profile
