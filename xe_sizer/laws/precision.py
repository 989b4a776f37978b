"""Precisions that accelerators multiply in, by the names that profiles give their peaks."""

from __future__ import annotations

from collections.abc import Container

from xe_sizer.units import FLOAT32, SIXTEEN_BIT

FP32, TF32, BF16, FP16, FP8, FP4, INT8, INT4 = "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"
TRAINED_IN = (FP32, TF32, BF16, FP16, FP8, FP4)
LOADED_IN = (FP32, BF16, FP16, FP8)  # TF32 multiplies float32 weights, and FP4 casts 16-bit ones
PRECISIONS = (*TRAINED_IN, INT8, INT4)
FLOAT32_FORMATS = (FP32, TF32)
SIXTEEN_BIT_FORMATS = (BF16, FP16)


def trained_in() -> tuple[str, ...]:
    """Precisions of training jobs."""
    return TRAINED_IN


def loaded_in() -> tuple[str, ...]:
    """Number formats that a stack may load and keep the weights of a training job in."""
    return LOADED_IN


def other_precisions() -> dict[str, str]:
    """What frameworks call the precisions."""
    return {
        "bfloat16": BF16, "bf16-mixed": BF16, "float16": FP16, "half": FP16, "fp16-mixed": FP16, "16-mixed": FP16,
        "float32": FP32, "float": FP32, "fp8-mixed": FP8, "float8": FP8, "nvfp4": FP4,
    }  # fmt: skip


def activation_bytes(precision: str) -> float:
    """Size of an activation's element; narrower precisions than 16 bit cast only the operands of products [bytes]."""
    return FLOAT32 if precision in FLOAT32_FORMATS else SIXTEEN_BIT


def sixteen_bit(peaks: Container[str]) -> str:
    """The 16-bit format of an accelerator with these peaks: bfloat16 where it has it."""
    return BF16 if BF16 in peaks else FP16
