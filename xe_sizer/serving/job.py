"""A model on an engine and its hardware, with everything resolved but the placement and the load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.vision import VISION
from xe_sizer.laws.device import FP8
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.vision import Seen
    from xe_sizer.laws.collectives import Network
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.serving.adapters import ServedAdapters
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme

WIDE_MODULES = frozenset({"head", "router", "embedding", VISION})


@frozen(eq=True)
class Images:
    """Images of every request.

    each : of a request [-]; seen : what becomes of one; prompt_tokens : of a request, with those of its images
    """

    each: int
    seen: Seen
    prompt_tokens: float


@frozen
class ServingJob:
    """What serves: `device` is one accelerator, `network` what joins them.

    images : of every request; None: none, though the encoder of a model that sees is loaded
    adapters : beside the weights; None: none
    fetch_s : that the mean request waits for its cache from host memory [s]
    """

    model: ModelShape
    engine: Engine
    scheme: Scheme
    server: Server
    device: Device
    network: Network
    efficiency: Efficiency
    images: Images | None = None
    adapters: ServedAdapters | None = None
    fetch_s: float = 0.0

    def groups(self, placements: ReplicaLayouts) -> Array:
        """Groups that the sequences of a replica are in: attention ranks, and stages that work at the same time [-]."""
        return as_array(placements.dp * (placements.pp if self.engine.pipelined else 1))

    @property
    def cached_element_bytes(self) -> float:
        """Size that reading an element of the cache counts with [bytes].

        Accelerators without products in the cache's format convert it in each step, which takes what reading it saves:
        16 bit then.

        Source: vLLM 0.11 documentation, quantized KV cache: no lower latency without hardware that converts.
        """
        cache = self.scheme.cache
        converts = cache.peak == FP8 and FP8 not in self.server.accelerator.peak_flops_per_s
        return max(cache.element_bytes, SIXTEEN_BIT) if converts else cache.element_bytes

    @property
    def element_bytes(self) -> float:
        """Size of an activation element between the products."""
        return self.device.element_bytes

    @property
    def request_s(self) -> float:
        """Time that the host takes to take in a request; fixed efficiencies time the accelerator alone [s]."""
        return self.fetch_s + (0.0 if self.efficiency.fixed else self.engine.request_s)


def reserves(engine: Engine, scheme: Scheme, gpu: Accelerator) -> bool:
    """Whether the engine has grouped products that run over reserved rows on the accelerator, in the scheme."""
    kernels = engine.kernels
    return bool(kernels.reserved_below) and scheme.activations.blocked and gpu.generation in kernels.reserved_on


def wide_modules(scheme: Scheme) -> frozenset[str]:
    """Modules whose weights stay in 16 bit: head, router and embedding; in expert-only formats all but the experts.

    Formats that are stored everywhere leave the router alone.
    """
    if scheme.weights.element_bytes >= SIXTEEN_BIT:
        return frozenset()
    if scheme.weights.everywhere:
        return frozenset({"router"})
    rest = {"qkv", "output_projection", "attention", "mlp", "state_space"} if scheme.weights.experts_only else set()
    return WIDE_MODULES | rest
