"""Power of servers at load, and the energy of what runs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.units import HOUR_S, WATT_PER_KW

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Server

KWH_J = 3.6e6  # defined: joules of a kilowatt-hour
# Share of the thermal design power that an accelerator draws in training; assumed. Below what it draws at its most: an
# H100 of 700 W draws 668 W in gpu-burn (Vercellino et al., arXiv 2604.07345).
TRAINING_POWER_SHARE = 0.85
ON_THE_BUS = ("single", "host", "pairs")  # topologies of nodes whose accelerators are cards


@frozen
class RestOfNode:
    """What the rest of a node draws at load, as a share of the design power of its accelerators [-], and who says so.

    What it is made of: processors, memory, NICs, switches, fans, and what the power supplies lose.
    """

    share: float
    basis: str


# Measured: 8 x H100 in training, air-cooled: 7.92 kW, the median with Llama 2 13B (Latif et al., IEEE Access 13, 2025,
# arXiv 2412.08602; at most 8.48), and 7.75 kW, 76 % of 10.2 (Newkirk et al., arXiv 2506.14551). Of their mean 4.76 kW
# are the GPUs at TRAINING_POWER_SHARE: 3.08 of 5.6 kW are left. Nodes of 8 x A100 agree: idle, without any fan at
# work, they and their network draw 1.90 kW (Luccioni et al., arXiv 2211.02001: 256,646 kWh beside 1,082,990
# GPU-hours), about 0.47 of 3.2 kW without the idle GPUs.
AIR_COOLED = RestOfNode(0.55, "as measured on 8 x H100 in training")
# Measured: 4 x RTX 4090 at 450 W each in a Supermicro SYS-741GE-TNRT draw 2,160 W with all cores of both Xeons at work,
# 2,080 W with idle ones (IPMI; server-gear.com, rtx4090x4_gpu_burn).
CARDS = RestOfNode(0.20, "as measured on 4 x RTX 4090")
# Assumed: no measurement was found. The maker's 120 kW of a GB200 NVL72 leave 33.6 kW beside 72 GPUs of 1.2 kW; of what
# the maker's 10.2 kW leave on 8 x H100, the measured nodes draw 0.67.
LIQUID_COOLED = RestOfNode(0.26, "assumed from the maker's figures for a liquid-cooled rack")


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
    tdp_w = server.accelerator.tdp_w
    return None if tdp_w is None else server.accelerators * tdp_w * (power_share + rest_of_node(server).share)


def energy_kwh(server: Server, gpu_hours: float, power_share: float = TRAINING_POWER_SHARE) -> float | None:
    """Energy of accelerators with their share of the servers that they are in.

        E = GPU-hours x node power / accelerators of a node

    Parameters
    ----------
    server : that the accelerators are in
    gpu_hours : accelerators times hours [h]
    power_share : share of the design power that accelerators draw [-]

    Returns
    -------
    float [kWh]; None where no design power is known

    Source: definition; the power is that of `node_power_w`.
    """
    power_w = node_power_w(server, power_share)
    return None if power_w is None else gpu_hours * HOUR_S * power_w / server.accelerators / KWH_J


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
