"""The number format of published weights, from the `quantization_config` of a Hugging Face `config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.laws.device import FP8, INT8
from xe_sizer.software.number_formats import (
    AWQ,
    E4M3,
    E4M3_BLOCKS,
    FORMATS,
    GPTQ,
    GPTQ8,
    INT4_EXPERTS,
    MXFP4,
    MXFP8,
    NF4,
    NF4_SINGLE,
    NVFP4,
    NVFP4_EXPERTS,
)

if TYPE_CHECKING:
    from xe_sizer.profiles.huggingface_config import Config
    from xe_sizer.software.number_formats import Format

# By the method, where that alone says it; gptq and awq by their bits.
_METHODS = {("gptq", 4): GPTQ, ("gptq", 8): GPTQ8, (AWQ.name, 4): AWQ, (MXFP4.name, 4): MXFP4, ("fbgemm_fp8", 8): E4M3}
# By type, bits and elements of a block of weights; None: of any.
_GROUPS = {
    ("float", 8, 32): MXFP8, ("float", 8, None): E4M3, ("float", 4, 16): NVFP4, ("float", 4, 32): MXFP4,
    ("int", 8, None): FORMATS[INT8], ("int", 4, None): GPTQ,
}  # fmt: skip
_OF_EXPERTS = {GPTQ: INT4_EXPERTS, NVFP4: NVFP4_EXPERTS}


def checkpoint_format(whole: Config, text: Config, mixture: bool) -> str | None:
    """The format that a configuration says its weights are in; None: 16 bit. What cannot be read is an assumption.

    mixture : whether the model has experts
    """
    part = whole if whole.has("quantization_config") else text
    own = part.section("quantization_config")
    if not own.data:
        return None
    found = _of_method(own) or _of_groups(own)
    attention = "self_attn" in " ".join(str(name) for name in own.items("ignore") or ()) or own.has("moe_quant_algo")
    if found in _OF_EXPERTS and attention:
        found = _OF_EXPERTS[found] if mixture else found
        if not mixture:
            part.assume(f"attention, which is published in 16 bit, is taken to be in {found.name} like the rest")
    narrow = whole.has("expert_dtype") or own.has("expert_dtype") or own.data.get("store_dtype") == MXFP4.name
    if found is E4M3_BLOCKS and narrow:
        found = MXFP4  # DeepSeek-V4, MiMo-V2.6: experts are narrower than the rest
    if found is None:
        method = own.data.get("quant_algo") or own.data.get("quant_method")
        part.assume(f"weights are taken to be in 16 bit: how '{method}' keeps them is not read; say it with --weights")
    return found.name if found else None


def _of_method(own: Config) -> Format | None:
    """What the name of the method says, with what single methods say beside it."""
    method = str(own.data.get("quant_method"))
    if own.has("config_groups", "quant_algo"):
        return None
    if method == FP8:
        return E4M3_BLOCKS if own.has("weight_block_size") else E4M3
    if own.data.get("load_in_4bit") is True:
        return NF4 if own.data.get("bnb_4bit_use_double_quant") is True else NF4_SINGLE
    if own.data.get("load_in_8bit") is True:
        return FORMATS[INT8]
    widths = {name: bits for name, bits in _METHODS if name == method}
    return _METHODS.get((method, own.count("bits", "w_bit", default=widths.get(method, 4))))


def _of_groups(own: Config) -> Format | None:
    """What compressed-tensors and ModelOpt say of groups of weights; several groups are several formats."""
    groups = own.section("config_groups").data
    if len(groups) != 1:
        return {"NVFP4": NVFP4, "FP8": E4M3}.get(str(own.data.get("quant_algo"))) if not groups else None
    weights = own.section("config_groups").section(next(iter(groups))).section("weights")
    kind, bits = str(weights.data.get("type")), weights.count("num_bits", default=16)
    if (kind, bits, weights.data.get("strategy")) == ("float", 8, "block"):
        return E4M3_BLOCKS
    size = weights.optional_count("group_size")
    return _GROUPS.get((kind, bits, size)) or _GROUPS.get((kind, bits, None))
