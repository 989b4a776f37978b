"""Accelerators, servers and clusters in SI units: what the cost functions are given.

Profiles (YAML) are turned into these once, by `xe_sizer.profiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xe_sizer.laws.attention import AttentionLaw, DecodeLaw
from xe_sizer.laws.collectives import CollectiveLaw
from xe_sizer.laws.matmul import MatmulLaw

# Where no accelerator of the kind was measured: between the kernels of A100 and H100.
DEFAULT_DECODE = DecodeLaw(10e-6, 0.85, source="between the kernels of A100 and H100; assumed")


@dataclass(frozen=True, eq=False)
class Link:
    """The accelerator's own scale-up link; one direction, all lanes of one accelerator together."""

    kind: str
    one_way_bytes_per_s: float


@dataclass(frozen=True, eq=False)
class Laws:
    """Operator laws of one accelerator; `assumed` names the accelerator they were borrowed from."""

    matmul: Mapping[str, MatmulLaw] = field(default_factory=dict)
    attention: Mapping[str, AttentionLaw] = field(default_factory=dict)
    collectives: Mapping[str, CollectiveLaw] = field(default_factory=dict)
    memory_bound_efficiency: float = 0.85
    memory_bound_floor_s: float = 3e-6
    decode: DecodeLaw = DEFAULT_DECODE
    assumed: str | None = None


@dataclass(frozen=True, eq=False)
class Accelerator:
    """One accelerator. `memory_bytes` is what the driver reports as total, not what the box says."""

    name: str
    vendor: str
    generation: str
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    tdp_w: float | None
    pcie_bytes_per_s: float
    link: Link | None
    laws: Laws
    assumptions: tuple[str, ...] = ()
    source: str = ""
    peer_to_peer: bool = True  # False: copies between two cards pass through host memory (GeForce drivers)


@dataclass(frozen=True, eq=False)
class Server:
    """One node: accelerators, how they are joined, and what leads out of the node.

    `scale_up` is the kind of fabric inside the node: nvswitch, nvlink-mesh, nvlink-cube-mesh, nvlink-pairs,
    xgmi-mesh, roce-mesh, neuronlink, ici, pcie or none (a single accelerator). `scale_out_bytes_per_s` is the
    line rate of all NICs of the node together, one direction; `scale_out_efficiency` the share that large
    messages reach, `scale_out_alpha_s` the latency of one step between nodes.
    """

    name: str
    accelerator: Accelerator
    accelerators: int
    scale_up: str
    scale_up_one_way_bytes_per_s: float
    pcie_bytes_per_s: float
    scale_out_bytes_per_s: float
    host_memory_bytes: float | None
    power_w: float | None
    price_per_hour: float | None
    price_currency: str
    assumptions: tuple[str, ...] = ()
    source: str = ""
    scale_out_efficiency: float = 0.88
    scale_out_alpha_s: float = 25e-6
