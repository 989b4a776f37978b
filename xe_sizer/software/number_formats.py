"""Number formats of weights, activations and the KV cache, and schemes such as w4a16k8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xe_sizer.errors import InputError, Problem, did_you_mean

SIXTEEN_BIT = 2.0
SCHEME = re.compile(r"^w(\d+)(?:a(\d+))?(?:k(\d+))?$")


@dataclass(frozen=True)
class Format:
    """One number format.

    element_bytes : of an element with its share of scales and zero points [bytes]
    peak : the precision of the accelerator's peak when both operands have the format; None: it is only stored in it
    blocked : scaled in blocks, so that products cannot hide loading behind computing
    experts_only : checkpoints in this format keep all but the experts in 16 bit
    source : where the size of the scales comes from
    """

    name: str
    element_bytes: float
    peak: str | None
    experts_only: bool = False
    blocked: bool = False
    source: str = ""


_LIST = (
    Format("fp32", 4.0, "fp32"),
    Format("bf16", 2.0, "bf16"),
    Format("fp16", 2.0, "fp16"),
    Format("fp8", 1.0, "fp8", source="a scale per tensor"),
    Format(
        "fp8-block", 1.0 + 4 / 128**2, "fp8", blocked=True, source="a float32 scale per 128 x 128 block (DeepSeek-V3)"
    ),
    Format("int8", 1.0, "int8", source="a scale per output channel"),
    Format("int4", 0.5 + 2.5 / 128, None, source="16-bit scale and 4-bit zero per 128 (GPTQ)"),
    Format("awq", 0.5 + 2.5 / 128, None, source="16-bit scale and 4-bit zero per 128; kernels of their own"),
    Format("int4-plain", 0.5, "int4", source="a scale per output channel"),
    Format("nf4", 0.5 + 1 / 64 + 4 / (64 * 256), None, source="8-bit scale per 64, doubly quantised (QLoRA)"),
    Format("nf4-single", 0.5 + 4 / 64, None, source="float32 scale per 64 (bitsandbytes default)"),
    Format("nvfp4", 0.5 + 1 / 16, "fp4", source="8-bit scale per 16"),
    Format("mxfp4", 0.5 + 1 / 32, "fp4", experts_only=True, source="8-bit scale per 32 (OCP MX); gpt-oss"),
)
FORMATS: Mapping[str, Format] = {one.name: one for one in _LIST}
ALIASES = {"fp4": "nvfp4", "gptq": "int4", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}


@dataclass(frozen=True)
class Scheme:
    """Formats of a served model. `compute` is the precision of the peak that linear layers run at."""

    weights: Format
    activations: Format
    cache: Format
    compute: str

    @property
    def text(self) -> str:
        return f"weights {self.weights.name}, activations {self.activations.name}, KV cache {self.cache.name}"

    @property
    def weight_only(self) -> bool:
        """Whether weights are stored narrower than what they are multiplied in."""
        return self.weights.element_bytes < self.activations.element_bytes


def format_of(name: str) -> Format:
    """The format of a name or of one of its other names. Raises InputError."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in FORMATS:
        hint = did_you_mean(name, FORMATS) or f"known: {', '.join(FORMATS)}"
        raise InputError(Problem(f"no number format is called '{name}'", None, hint))
    return FORMATS[known]


def parse_scheme(text: str, wide: str, peaks: Mapping[str, float]) -> tuple[str, str, str]:
    """Names of the formats of weights, activations and cache in a scheme such as w4a16k8.

    wide : the 16-bit format; peaks : of the accelerator, which decide between fp8 and int8, nvfp4 and int4.
    Raises InputError for a scheme that is not of this form or a width that no format has.
    """
    found = SCHEME.match(text.lower().replace("-", "").replace("_", ""))
    if found is None:
        raise InputError(Problem(f"'{text}' is no scheme", None, "write wXaYkZ, for example w4a16k8: bits of each"))
    weights, activations, cache = (int(part) if part else 16 for part in found.groups())
    eight = "fp8" if "fp8" in peaks else "int8"
    four = "nvfp4" if "fp4" in peaks else "int4-plain"
    names = {16: wide, 8: eight, 4: four, 32: "fp32"}
    for bits in (weights, activations, cache):
        if bits not in names:
            raise InputError(Problem(f"'{text}': no format of {bits} bits", None, "4, 8, 16 or 32"))
    stored = "int4-plain" if weights == 4 and activations > 4 else names[weights]
    return stored, names[activations], "int4-plain" if cache == 4 else names[cache]


def scheme(weights: Format, activations: Format, cache: Format, peaks: Mapping[str, float]) -> Scheme:
    """The scheme, with what the linear layers compute in: the wider of weights and activations that has a peak.

    An accelerator without a peak for a narrow format multiplies in 16 bit, after widening the weights in the kernel.
    """
    wide = "bf16" if "bf16" in peaks else "fp16"
    wider = max(weights, activations, key=lambda one: one.element_bytes)
    compute = wider.peak if wider.peak in peaks and activations.peak in peaks else wide
    if compute in ("bf16", "fp16") and activations.element_bytes < SIXTEEN_BIT:
        activations = FORMATS[wide]
    return Scheme(weights, activations, cache, compute or wide)
