"""An accelerator's profile and what software reaches of it, joined into the device that operators are timed on."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import AttentionLaw, DecodeLaw
from xe_sizer.laws.matmul import FLOAT32_TILE, MatmulLaw, grouped_law
from xe_sizer.laws.operator_time import Device
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Accelerator

# Precisions that accelerators multiply in, by the names that profiles give their peaks.

FP32, TF32, BF16, FP16, FP8, FP4, INT8, INT4 = "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"
TRAINED_IN = (FP32, TF32, BF16, FP16, FP8, FP4, INT8)
LOADED_IN = (FP32, BF16, FP16, FP8)  # TF32 multiplies float32 weights, and FP4 casts 16-bit ones
PRECISIONS = (*TRAINED_IN, INT4)
FLOAT32_FORMATS = (FP32, TF32)
SIXTEEN_BIT_FORMATS = (BF16, FP16)


def trained_in() -> tuple[str, ...]:
    """Precisions of training jobs."""
    return TRAINED_IN


def loaded_in() -> tuple[str, ...]:
    """Number formats that a stack may load and keep the weights of a training job in."""
    return LOADED_IN


def gradients_in() -> tuple[str, ...]:
    """Number formats that a stack may keep and exchange gradients in."""
    return (FP32, BF16, FP16)


NO_AUTOCAST = "none"


def autocast_to() -> tuple[str, ...]:
    """What autocast may compute in, or that it is off."""
    return (NO_AUTOCAST, BF16, FP16)


def other_precisions() -> dict[str, str]:
    """Return the precisions by the names that frameworks give them."""
    return {
        "bfloat16": BF16, "bf16-mixed": BF16, "float16": FP16, "half": FP16, "fp16-mixed": FP16, "16-mixed": FP16,
        "float32": FP32, "float": FP32, "fp8-mixed": FP8, "float8": FP8, "nvfp4": FP4,
    }  # fmt: skip


def activation_bytes(precision: str) -> float:
    """Size of an activation's element; narrower precisions than 16 bit cast only the operands of products [bytes]."""
    return FLOAT32 if precision in FLOAT32_FORMATS else SIXTEEN_BIT


def sixteen_bit(peaks: Container[str]) -> str:
    """Choose the 16-bit format of an accelerator with these peaks: bfloat16 where it has it."""
    return BF16 if BF16 in peaks else FP16


# The device.

# Without a kernel of its own family an accelerator runs the next older one; `sdpa` is what PyTorch picks, which is
# FlashAttention-2 but where the profile has another: since 2.10 cuDNN's kernels on compute capability 9.0 and 10.0.
# Older releases of stacks name flash-2 themselves.
OLDER_FAMILY = {"flash-3": "flash-2", "sdpa": "flash-2", "flash-2": "flash-1"}
# PyTorch's attention kernels that take a mask, or float32, are the memory-efficient ones of CUTLASS, about as fast as
# the first FlashAttention (arXiv:2307.08691, figures 4 to 7: xformers beside it).
MEMORY_EFFICIENT = "flash-1"
# cuDNN's take masks themselves, and are then about as fast as FlashAttention-2: Phi-3 mini, whose window is a mask, on
# an H100 (three runs of xe_sizer/evidence/data/measured.jsonl spend 64, 97 and 98 ms a step in them; predicted are 88,
# 123 and 131, and 139, 205 and 214 with the memory-efficient ones).
MASKED_CUDNN = "flash-2"
HEAD = "head"  # the module whose weights nobody quantises
FLOAT32_KERNELS = "float32"  # those that take float32, where they were measured
# In float32 they reach 0.40, 0.28 and 0.17 of the peak of A100, H100 and RTX PRO 6000, forward and backward together:
# fitted to what QLoRA with float32 activations takes beyond LoRA (universal-llm-trainer docs/gpu_test.md).
FLOAT32_ATTENTION = 0.3


class Efficiency(Immutable):
    """Fixed fractions of the peaks in place of the operator laws; all left out keeps the laws.

    `flops` alone is what simple estimators mean by an efficiency: it stands for all that a step loses, so memory
    traffic, exchanges and the host take no time beside it. With `memory` too, every operator is a sharp roofline and
    exchanges are timed. `ideal` is the speed of light: both 1, and every exchange hidden.
    """

    flops: float | None = None
    memory: float | None = None
    ideal: bool = False

    @property
    def fixed(self) -> bool:
        return self.flops is not None or self.memory is not None or self.ideal

    @property
    def hides_exchanges(self) -> bool:
        return self.ideal or (self.flops is not None and self.memory is None)


class LawFactors(Protocol):
    """Factors of a stack or an engine on the accelerator's laws."""

    @property
    def matmul(self) -> float: ...
    @property
    def experts(self) -> float: ...
    @property
    def attention(self) -> float: ...
    @property
    def memory_bound(self) -> float: ...


def supported_precisions(gpu: Accelerator) -> tuple[str, ...]:
    """Precisions that the accelerator has a peak for."""
    return tuple(gpu.peak_flops_per_s)


def _matmul_law(laws: Mapping[str, MatmulLaw], precision: str) -> MatmulLaw:
    return laws.get(precision) or laws[BF16]


def _attention_law(laws: Mapping[str, AttentionLaw], family: str) -> AttentionLaw:
    while family not in laws:
        if family not in OLDER_FAMILY:
            return next(iter(laws.values()))
        family = OLDER_FAMILY[family]
    return laws[family]


def _attention_laws(gpu: Accelerator, family: str, precision: str, factor: float) -> tuple[AttentionLaw, AttentionLaw]:
    """Laws of attention without and with a mask, in fractions of the peak of its precision."""
    laws = gpu.laws.attention
    takes_masks = family == "sdpa" and family in laws
    plain = _attention_law(laws, family)
    masked = _attention_law(laws, MASKED_CUDNN if takes_masks else MEMORY_EFFICIENT)
    if precision in FLOAT32_FORMATS and FLOAT32_KERNELS in laws:
        wide = gpu.peak_flops_per_s[FP32] / gpu.peak_flops_per_s[precision]  # its law is in fractions of that peak
        plain = masked = _at_factor(laws[FLOAT32_KERNELS], wide)
    elif precision in FLOAT32_FORMATS and FP32 in gpu.peak_flops_per_s:
        share = FLOAT32_ATTENTION * gpu.peak_flops_per_s[FP32] / gpu.peak_flops_per_s[precision]
        plain = masked = replace(masked, flops_efficiency=share, backward_flops_efficiency=share)
    return _at_factor(plain, factor), _at_factor(masked, factor)


def _at_factor(law: AttentionLaw, factor: float) -> AttentionLaw:
    return replace(
        law,
        flops_efficiency=law.flops_efficiency * factor,
        backward_flops_efficiency=law.backward_flops_efficiency * factor,
    )


def _at_fraction(matmul: MatmulLaw, chosen: Efficiency) -> tuple[MatmulLaw, AttentionLaw]:
    """The laws of a plain roofline at fixed fractions: no floors, a sharp knee."""
    flops = 1.0 if chosen.ideal else chosen.flops or matmul.effective_flops_efficiency
    memory = 1.0 if chosen.ideal else chosen.memory or math.inf
    sharp = MatmulLaw(0.0, flops, memory, math.inf, source=f"fixed fractions {flops:g} and {memory:g}")
    return sharp, AttentionLaw(0.0, flops, 0.0, memory, flops, source=sharp.source, sharpness=math.inf)


def device(
    gpu: Accelerator,
    precision: str,
    attention_family: str,
    factors: LawFactors,
    chosen: Efficiency,
    wide_adapters: bool,
    wide_activations: bool = False,
) -> Device:
    """Build the device at one precision, as software with these factors drives it; attention runs in 16 bit, or wider.

    wide_activations : all but the products with linear weights of the layers is float32
    """
    peaks = gpu.peak_flops_per_s
    # Attention and scans have the precision of the products, but never below 16 bit.
    at_least_16_bit = precision in (*FLOAT32_FORMATS, *SIXTEEN_BIT_FORMATS)
    beside = precision if at_least_16_bit else sixteen_bit(peaks)
    if wide_activations and FP32 in peaks:
        beside = FP32
    adapters = FP32 if wide_adapters and FP32 in peaks else beside
    matmul, adapter = _matmul_law(gpu.laws.matmul, precision), _matmul_law(gpu.laws.matmul, adapters)
    scan = _matmul_law(gpu.laws.matmul, beside)
    attention, masked = _attention_laws(gpu, attention_family, beside, factors.attention)
    eager = _at_factor(_attention_law(gpu.laws.attention, attention_family), factors.attention)
    if beside in FLOAT32_FORMATS and FLOAT32_KERNELS in gpu.laws.attention:
        eager = attention  # its efficiencies are those of float32
    decode = gpu.laws.decode
    memory_bound, floor_s = gpu.laws.memory_bound_efficiency, gpu.laws.memory_bound_floor_s
    if chosen.fixed:
        matmul, attention = _at_fraction(matmul, chosen)
        experts, adapter, scan, masked, eager = matmul, matmul, matmul, attention, attention
        memory_bound, floor_s = matmul.memory_efficiency, 0.0
        decode = DecodeLaw(0.0, matmul.memory_efficiency, source=matmul.source)
    else:
        experts = grouped_law(matmul).scaled(factors.matmul * factors.experts)
        matmul, adapter, scan = (law.scaled(factors.matmul) for law in (matmul, adapter, scan))
        adapter = replace(adapter, tile=FLOAT32_TILE) if adapters == FP32 else adapter
        memory_bound *= factors.memory_bound
    return Device(
        matmul=matmul,
        peak_flops_per_s=peaks[precision],
        attention=attention,
        masked_attention=masked,
        eager_attention=eager,
        attention_peak_flops_per_s=peaks[beside],
        narrow_attention_peak_flops_per_s=peaks.get(FP8, peaks[beside]),
        adapter_matmul=adapter,
        adapter_peak_flops_per_s=peaks[adapters],
        adapter_element_bytes=float(FLOAT32) if adapters == FP32 else None,
        expert_matmul=experts,
        scan_matmul=scan,
        bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        memory_bound_efficiency=memory_bound,
        memory_bound_floor_s=floor_s,
        memory_bound_error=gpu.laws.memory_bound_error,
        element_bytes=activation_bytes(beside if wide_activations else precision),
        decode=decode,
        wide_modules=frozenset({HEAD}) if wide_activations else frozenset(),
        scan_law_holds=not chosen.fixed,
    )
