"""Accelerators, servers and clusters in SI units: what the cost functions are given.

Profiles (YAML) are turned into these once, by `xe_sizer.profiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xe_sizer.cost.attention import AttentionLaw
from xe_sizer.cost.collectives import CollectiveLaw
from xe_sizer.cost.matmul import MatmulLaw


@dataclass(frozen=True)
class Link:
    """The accelerator's own scale-up link; one direction, all lanes of one accelerator together."""

    kind: str
    one_way_bytes_per_s: float


@dataclass(frozen=True)
class Laws:
    """Operator laws of one accelerator; `assumed` names the accelerator they were borrowed from."""

    matmul: Mapping[str, MatmulLaw] = field(default_factory=dict)
    attention: Mapping[str, AttentionLaw] = field(default_factory=dict)
    collectives: Mapping[str, CollectiveLaw] = field(default_factory=dict)
    memory_bound_efficiency: float = 0.85
    assumed: str | None = None


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Server:
    """One node: accelerators, how they are joined, and what leads out of the node.

    `scale_up` is the kind of fabric inside the node: nvswitch, nvlink-mesh, nvlink-cube-mesh, nvlink-pairs,
    xgmi-mesh, roce-mesh, neuronlink, ici, pcie or none (a single accelerator).
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
