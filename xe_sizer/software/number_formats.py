"""Number formats of weights, activations and the KV cache, schemes such as w4a16k8, and recipes of narrow products."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.graph.inputs import CASTS, FOUR_BIT, INTEGERS
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP4, FP8, FP16, FP32, INT4, INT8, SIXTEEN_BIT_FORMATS, sixteen_bit
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Casts
    from xe_sizer.software.stack import Stack

# Recipes: how a stack multiplies in 8 and 4 bit, by precision and accelerator.


def recipes_of(stack: Stack) -> tuple[str, ...]:
    """Recipes of products in 8 bit that the stack's kernels have."""
    return tuple(name for name in CASTS[stack.kernels.casts] if name not in (FOUR_BIT, INTEGERS))


def recipe_of(stack: Stack, precision: str, peaks: Container[str]) -> str | None:
    """How operands are scaled on an accelerator with these peaks; None: they stay 16 bit or wider."""
    if precision in (FP4, INT8):
        return FOUR_BIT if precision == FP4 else INTEGERS
    if precision != FP8:
        return None
    return (stack.defaults.block_scaled_recipe if FP4 in peaks else None) or stack.defaults.fp8_recipe


def casts_of(stack: Stack, precision: str, peaks: Container[str]) -> Casts | None:
    """What it takes to narrow operands so; None: they stay as they are, or the stack has no such kernels."""
    recipe = recipe_of(stack, precision, peaks)
    return CASTS[stack.kernels.casts].get(recipe) if recipe else None


# Formats, and schemes made of three of them.

GGUF, EXL2, MLC = "gguf", "exl2", "mlc"
MIXED = (GGUF, EXL2)  # families of which a checkpoint mixes widths
SCHEME = re.compile(r"^w(\d+)(?:a(\d+))?(?:k(\d+))?$")


class Format(Immutable, eq=True):
    """One number format.

    element_bytes : of an element with its share of scales and zero points [bytes]
    peak : the precision of the accelerator's peak when both operands have the format; None: it is only stored in it
    blocked : scaled in blocks, so that products cannot hide loading behind computing
    experts_only : checkpoints in this format keep all but the experts in 16 bit
    spares_attention : those of mixtures of experts keep attention and state-space layers in 16 bit
    caches : keys and values may be cached in it
    family : of formats that the same kernels read, whatever their bits
    everywhere : embedding and head are stored in it too, or in one that is counted in its mean
    source : where the size of the scales comes from
    """

    name: str
    element_bytes: float
    peak: str | None
    blocked: bool = False
    experts_only: bool = False
    spares_attention: bool = False
    caches: bool = False
    family: str = ""
    everywhere: bool = False
    source: str = ""

    @property
    def element(self) -> tuple[str | None, float]:
        """What a kernel has to know: the precision of its products, and the size of an element [bytes]."""
        return self.peak, self.element_bytes

    @property
    def bits(self) -> int:
        """Bits of an element without its scales: 4, 8, 16 or 32; of mixtures of widths the whole bits of their mean."""
        mean = 8.0 * self.element_bytes
        return int(mean) if self.family in MIXED else int(2 ** math.floor(math.log2(mean)))


TORCH_TYPES = {FP32: "float32", BF16: "bfloat16", FP16: "float16"}
"""Formats of 16 and 32 bit as PyTorch and engines call them."""
E4M3 = Format("fp8", 1.0, FP8, caches=True, source="a scale per tensor")
E4M3_BLOCKS = Format(
    "fp8-block", 1.0 + 4 / 128**2, FP8, blocked=True, source="a float32 scale per 128 x 128 block (DeepSeek-V3)"
)
GPTQ = Format("int4", 0.5 + 2.5 / 128, None, source="16-bit scale and 4-bit zero per 128 (GPTQ)")
AWQ = Format("awq", 0.5 + 2.5 / 128, None, source="16-bit scale and 4-bit zero per 128; kernels of their own")
GPTQ8 = Format("gptq-int8", 1.0 + 3.0 / 128, None, source="16-bit scale and 8-bit zero per 128 (GPTQ)")
INT4_EXPERTS = Format(
    "int4-experts", 0.5 + 2 / 32, None, experts_only=True, source="16-bit scale per 32 (compressed-tensors); Kimi K2.5"
)
PLAIN_INT4 = Format("int4-plain", 0.5, INT4, caches=True, source="a scale per output channel")
NF4 = Format("nf4", 0.5 + 1 / 64 + 4 / (64 * 256), None, source="8-bit scale per 64, doubly quantised (QLoRA)")
NF4_SINGLE = Format("nf4-single", 0.5 + 4 / 64, None, source="float32 scale per 64 (bitsandbytes default)")
MXFP4 = Format("mxfp4", 0.5 + 1 / 32, FP4, experts_only=True, source="8-bit scale per 32 (OCP MX); gpt-oss")
NVFP4 = Format(
    "nvfp4", 0.5 + 1 / 16, FP4, spares_attention=True, caches=True,
    source="8-bit scale per 16, a float32 per tensor; exclude_modules of nvidia's DeepSeek-R1-NVFP4 and GLM-4.7-NVFP4",
)  # fmt: skip
NVFP4_EXPERTS = Format(
    "nvfp4-experts", NVFP4.element_bytes, FP4, experts_only=True, source="8-bit scale per 16, a float32 per tensor"
)
MXFP8 = Format("mxfp8", 1.0 + 1 / 32, FP8, source="8-bit scale per 32 (OCP MX)")
# Bits of a weight in whole files of Llama 3.1 8B, head and embedding among them; the blocks of one type have fewer
# (q4_0: 18 bytes for 32 weights, q4_k: 144 for 256).
_GGUF_BITS = {
    "q2_k": 3.16, "q3_k_s": 3.64, "q3_k_m": 4.0, "q3_k_l": 4.3, "iq4_xs": 4.46, "q4_0": 4.64, "q4_k_s": 4.67,
    "iq4_nl": 4.68, "q4_k_m": 4.89, "q4_1": 5.12, "q5_0": 5.57, "q5_k_s": 5.57, "q5_k_m": 5.7, "q5_1": 6.03,
    "q6_k": 6.56, "q8_0": 8.5,
}  # fmt: skip
# Mean bits of the layers' weights, as checkpoints are published; the head has 6 bits, or 8 from 6 on.
_EXL2_BITS = (2.25, 2.4, 2.5, 2.65, 2.75, 3.0, 3.25, 3.5, 3.75, 4.0, 4.25, 4.5, 4.65, 4.85, 5.0, 5.5, 6.0, 6.5, 8.0)


def _gguf(name: str, bits: float) -> Format:
    return Format(name, bits / 8.0, None, family=GGUF, everywhere=True, source="llama.cpp, tools/quantize/README.md")


def _exl2(bits: float) -> Format:
    return Format(
        f"{EXL2}-{bits:g}", bits / 8.0, None, family=EXL2, everywhere=True, source="the mean that its name says"
    )


_LIST = (
    Format("fp32", FLOAT32, FP32, caches=True),
    Format("bf16", SIXTEEN_BIT, BF16, caches=True),
    Format("fp16", SIXTEEN_BIT, FP16, caches=True),
    E4M3,
    E4M3_BLOCKS,
    Format("int8", 1.0, INT8, caches=True, source="a scale per output channel"),
    GPTQ,
    GPTQ8,
    AWQ,
    INT4_EXPERTS,
    PLAIN_INT4,
    NF4,
    NF4_SINGLE,
    NVFP4,
    NVFP4_EXPERTS,
    MXFP4,
    MXFP8,
    Format("q4f16_1", 0.5 + 2 / 32, None, family=MLC, everywhere=True, source="16-bit scale per 32 (MLC LLM)"),
    *(_gguf(name, bits) for name, bits in _GGUF_BITS.items()),
    *(_exl2(bits) for bits in _EXL2_BITS),
)
FORMATS: Mapping[str, Format] = {one.name: one for one in _LIST}
ALIASES = {
    "fp4": "nvfp4", "gptq": "int4", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
    "float8": "fp8", "fp8-e4m3": "fp8", "fp8-e4m3fn": "fp8", "q4f16": "q4f16_1",
    **{f"q{bits}_k": f"q{bits}_k_m" for bits in (3, 4, 5)},
}  # fmt: skip
_EXL2_WORD = re.compile(r"(\d(?:[._]\d+)?)\s*-?bpw|exl2[-_ ](\d(?:[._]\d+)?)", re.IGNORECASE)
_TOLD: tuple[tuple[tuple[str, ...], Format | None], ...] = (
    (("i?q[2-8]",), None),
    (("gguf|ggml|exl[23]|mlx|aqlm|quip|hqq",), None),
    (("awq",), AWQ),
    (("gptq", "int8|8bit"), GPTQ8),
    (("gptq", "int[23]|[23]bit"), None),
    (("gptq",), GPTQ),
    (("mxfp4",), MXFP4),
    (("mxfp8",), MXFP8),
    (("nvfp4|fp4",), NVFP4),
    (("bnb", "4bit"), NF4),
    (("bnb", "8bit"), FORMATS[INT8]),
    (("nf4",), NF4),
    (("fp8", "block"), E4M3_BLOCKS),
    (("fp8",), E4M3),
    (("w4a16|int4",), GPTQ),
    (("w8a8|w8a16|int8|8bit",), FORMATS[INT8]),
    (("[2-6]bit|w[2-8]a[0-9]+|quantized|quant",), None),
    (("bf16",), FORMATS[BF16]),
    (("fp16",), FORMATS[FP16]),
)
"""Words that all stand in the name of a checkpoint, the telling ones first, and the format that they say: None where it
is none of these. As publishers on the Hugging Face Hub and Ollama write them; GPTQ and bitsandbytes without a width are
4 bit, as published most."""


class Told(Immutable, eq=True):
    """What the name of a checkpoint says of its weights: in its words, and as a format; None where it is not known."""

    words: str
    format: Format | None

    @property
    def bits(self) -> int | None:
        """Bits of an element; None where the name does not say them."""
        if self.format is not None:
            return self.format.bits
        width = re.search(r"(?<!exl)[2-8]", self.words, re.IGNORECASE)
        return int(width[0]) if width else None

    @property
    def nearest(self) -> Format:
        """A format that takes as much memory or a little more: 4 bit, or 8 bit for more than 4."""
        return FORMATS[INT8] if (self.bits or 4) > 4 else GPTQ


def told_by(name: str) -> Told | None:
    """What the name of a model says of the format of its weights, by its words; None where it says nothing."""
    last = name.rstrip("/").rpartition("/")[2]
    if (mixed := _mixed(last)) is not None:
        return mixed
    words = re.findall(r"[A-Za-z0-9]+", last)
    for wanted, found in _TOLD:
        said = [next((word for word in words if re.fullmatch(one, word, re.IGNORECASE)), None) for one in wanted]
        if all(said):
            return Told("-".join(filter(None, said)), found)
    return None


def quantised_in(name: str) -> str | None:
    """The format narrower than 16 bit that a checkpoint's name says, as `serve.weights` has it, else None.

    `Qwen/Qwen3-32B-AWQ` gives `awq`, `unsloth/Llama-3.2-1B-bnb-4bit` gives `nf4`. A name that says a format whose size
    is not known gives None: `told_by` has its words.
    """
    told = told_by(name)
    found = told.format if told else None
    return found.name if found and found.element_bytes < SIXTEEN_BIT else None


def _mixed(name: str) -> Told | None:
    """What a name says of a mixture of widths: the type of a GGUF file, or bits per weight; None where neither."""
    words = re.split(r"[^A-Za-z0-9_]+", name)
    for word in words:
        known = ALIASES.get(word.lower(), word.lower())
        if known in _GGUF_BITS:
            return Told(word, FORMATS[known])
    if found := _EXL2_WORD.search(name):
        bits = (found[1] or found[2]).replace("_", ".")
        return Told(found[0], exl2_near(float(bits)))
    return None


def exl2_near(bits: float) -> Format:
    """The published width nearest to a mean of bits per weight."""
    return FORMATS[f"{EXL2}-{min(_EXL2_BITS, key=lambda one: abs(one - bits)):g}"]


def format_names() -> tuple[str, ...]:
    """Names of all formats."""
    return tuple(FORMATS)


def other_formats() -> Mapping[str, str]:
    """What engines and checkpoints call the formats."""
    return ALIASES


def cache_format_names() -> tuple[str, ...]:
    """Names of the formats that keys and values may be cached in."""
    return tuple(one.name for one in _LIST if one.caches)


def plain_format(precision: str) -> Format | None:
    """The format that a precision stands for where it is named alone, the first that is multiplied in it."""
    return next((one for one in _LIST if one.peak == precision), None)


def narrow_formats(peaks: Container[str]) -> tuple[Format, Format]:
    """8 bit and 4 bit: what an accelerator of these peaks multiplies in, else what weights are stored in."""
    eight = FORMATS[FP8 if FP8 in peaks else INT8]
    return eight, (plain_format(FP4) if FP4 in peaks else None) or GPTQ


class Scheme(Immutable, eq=True):
    """Formats of a served model. `compute` is the precision of the peak that linear layers run at.

    mixture : the model has experts, which some checkpoints narrow alone
    """

    weights: Format
    activations: Format
    cache: Format
    compute: str
    mixture: bool = False

    @property
    def text(self) -> str:
        return f"weights {self.weights.name}, activations {self.activations.name}, KV cache {self.cache.name}"

    @property
    def weight_only(self) -> bool:
        """Whether weights are stored narrower than what they are multiplied in."""
        return self.weights.element_bytes < self.activations.element_bytes

    @property
    def widens(self) -> bool:
        """Whether kernels widen the weights for their products; tensor cores multiply fp4 with fp8 as they are."""
        return self.weight_only and not (self.weights.peak == FP4 and self.activations.peak == FP8)


def format_of(name: str) -> Format:
    """The format of a name or of one of its other names. Raises InputError."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in FORMATS:
        plain = ", ".join(one.name for one in _LIST if not one.family)
        hint = did_you_mean(name, FORMATS) or f"known: {plain}; and mixtures such as q4_k_m and exl2-4.65"
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
    eight, four = narrow_formats(peaks)
    names = {16: wide, 8: eight.name, 4: four.name if four.peak in peaks else PLAIN_INT4.name, 32: FP32}
    for bits in (weights, activations, cache):
        if bits not in names:
            raise InputError(Problem(f"'{text}': no format of {bits} bits", None, "4, 8, 16 or 32"))
    stored = PLAIN_INT4.name if weights == 4 and activations > 4 else names[weights]
    return stored, names[activations], PLAIN_INT4.name if cache == 4 else names[cache]


def scheme(weights: Format, activations: Format, cache: Format, peaks: Mapping[str, float]) -> Scheme:
    """The scheme, with what the linear layers compute in: the wider of weights and activations that has a peak.

    An accelerator without a peak for a narrow format multiplies in 16 bit, after widening the weights in the kernel.
    """
    wide = sixteen_bit(peaks)
    wider = max(weights, activations, key=lambda one: one.element_bytes)
    compute = wider.peak if wider.peak in peaks and activations.peak in peaks else wide
    if compute in SIXTEEN_BIT_FORMATS and activations.element_bytes < SIXTEEN_BIT:
        activations = FORMATS[wide]
    return Scheme(weights, activations, cache, compute or wide)
