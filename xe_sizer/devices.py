"""An accelerator's profile and a stack's habits, joined into the device that prices operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xe_sizer.cost.attention import AttentionLaw
from xe_sizer.cost.matmul import MatmulLaw
from xe_sizer.hardware import Accelerator
from xe_sizer.pricing import Device
from xe_sizer.stacks.stack import Stack

SIXTEEN_BIT_BYTES = 2.0
# Without a kernel of its own family an accelerator runs the next older one.
OLDER_FAMILY = {"flash-3": "flash-2", "flash-2": "flash-1"}


@dataclass(frozen=True)
class Efficiency:
    """Fixed fractions of the peaks in place of the operator laws; None keeps the laws. Both 1 is the speed of light."""

    flops: float | None = None
    memory: float | None = None

    @property
    def fixed(self) -> bool:
        return self.flops is not None or self.memory is not None


def supported_precisions(gpu: Accelerator) -> tuple[str, ...]:
    """Precisions that the accelerator has a peak for."""
    return tuple(gpu.peak_flops_per_s)


def _matmul_law(laws: Mapping[str, MatmulLaw], precision: str) -> MatmulLaw:
    return laws.get(precision) or laws["bf16"]


def _attention_law(laws: Mapping[str, AttentionLaw], family: str) -> AttentionLaw:
    while family not in laws:
        if family not in OLDER_FAMILY:
            return next(iter(laws.values()))
        family = OLDER_FAMILY[family]
    return laws[family]


def _at_fraction(
    matmul: MatmulLaw, attention: AttentionLaw, chosen: Efficiency
) -> tuple[MatmulLaw, AttentionLaw]:
    """The laws of a plain roofline at fixed fractions: no floors, a sharp knee."""
    flops = chosen.flops if chosen.flops is not None else 1.0
    memory = chosen.memory if chosen.memory is not None else 1.0
    sharp = MatmulLaw(0.0, flops, memory, float("inf"), source=f"fixed fractions {flops:g} and {memory:g}")
    return sharp, AttentionLaw(0.0, flops, 0.0, memory, flops, source=sharp.source)


def device_of(gpu: Accelerator, stack: Stack, precision: str, chosen: Efficiency) -> Device:
    """The device at one precision under one stack.

    Attention and adapters run in 16 bit (or float32 when the job does) whatever the precision of the base products.
    """
    peaks = gpu.peak_flops_per_s
    narrow = "bf16" if "bf16" in peaks else "fp16"
    beside = precision if precision in ("fp32", "tf32", "fp16", "bf16") else narrow
    matmul, adapter = _matmul_law(gpu.laws.matmul, precision), _matmul_law(gpu.laws.matmul, beside)
    attention = _attention_law(gpu.laws.attention, stack.kernels.attention_family)
    memory_bound, floor_s = gpu.laws.memory_bound_efficiency, gpu.laws.memory_bound_floor_s
    if chosen.fixed:
        matmul, attention = _at_fraction(matmul, attention, chosen)
        adapter, memory_bound, floor_s = matmul, matmul.memory_efficiency, 0.0
    else:
        matmul, adapter = (_scaled(law, stack.efficiency.matmul) for law in (matmul, adapter))
        attention = replace(
            attention,
            flops_efficiency=attention.flops_efficiency * stack.efficiency.attention,
            backward_flops_efficiency=attention.backward_flops_efficiency * stack.efficiency.attention,
        )
        memory_bound *= stack.efficiency.memory_bound
    size = 4.0 if precision in ("fp32", "tf32") else SIXTEEN_BIT_BYTES
    return Device(
        matmul, peaks[precision], attention, peaks[beside], adapter, peaks[beside],
        gpu.memory_bandwidth_bytes_per_s, memory_bound, floor_s, size, size,
    )  # fmt: skip


def _scaled(law: MatmulLaw, factor: float) -> MatmulLaw:
    sustained = law.sustained_flops_efficiency
    return replace(
        law,
        flops_efficiency=law.flops_efficiency * factor,
        sustained_flops_efficiency=None if sustained is None else sustained * factor,
    )
