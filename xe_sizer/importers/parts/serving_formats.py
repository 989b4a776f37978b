"""Number formats of weights and caches by the names that inference engines give to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.values import UnreadableError, plain
from xe_sizer.profiles.convert import show

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO = ("auto", "none", "null", "")

_WEIGHTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("fp8", "w8a8_fp8", "modelopt", "modelopt_fp8", "fbgemm_fp8", "ptpc_fp8", "fp8_per_tensor", "fp8_per_channel",
         "fp8_rowwise", "fp8_per_channel_per_token"),
        "fp8",
    ),
    **dict.fromkeys(("fp8_per_block", "fp8_block_scales", "deepseek_v4_fp8", "blockwise_fp8"), "fp8-block"),
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq", "w4a16_awq"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin", "gptq_marlin_24", "auto_gptq", "w4a16", "w4a16_gptq", "int4"), "int4"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4", "nvfp4_per_token", "fp4", "petit_nvfp4", "modelopt_nvfp4"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4", "w4a8_mxfp4_fp8", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"), "mxfp4"),
    **dict.fromkeys(("mxfp8", "modelopt_mxfp8"), "mxfp8"),
    **dict.fromkeys(
        ("w8a8_int8", "int8_per_channel_weight_only", "experts_int8", "int8", "w8a16", "tpu_int8", "blockwise_int8"),
        "int8",
    ),
    **dict.fromkeys(("bitsandbytes", "bnb"), "nf4"),
    **dict.fromkeys(
        ("compressed-tensors", "quark", "torchao", "inc", "moe_wna16", "humming", "modelopt_mixed", "online", "gguf",
         "hqq", "aqlm", "marlin", "unquant", "quark_int4fp8_moe", "qoq", "auto-round", "w4afp8"),
        "",
    ),
}  # fmt: skip
"""Methods of quantisation by the names of engines; an empty format is one that only the checkpoint says."""
_PLAIN_WIDTHS: Mapping[str, str] = {
    "bf16": "bf16", "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "fp16": "fp16", "float": "fp32",
    "float32": "fp32", "fp32": "fp32",
}  # fmt: skip
_CACHES: Mapping[str, str] = {
    **_PLAIN_WIDTHS,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head"), "fp8"),
    **dict.fromkeys(("int8", "int8_per_token_head"), "int8"),
    **dict.fromkeys(("int4_per_token_head", "int4"), "int4-plain"),
}  # fmt: skip
_READ_WEIGHTS = {plain(name): ours for name, ours in {**_WEIGHTS, **_PLAIN_WIDTHS}.items()}
_READ_CACHES = {plain(name): ours for name, ours in _CACHES.items()}


def weights_format(value: object) -> str | None:
    """The format of weights that a method of quantisation or a type stands for; None where the checkpoint decides.

    Raises UnreadableError: the method says no format, or is not known here.
    """
    return _format(value, _READ_WEIGHTS, "a format of weights")


def cache_format(value: object) -> str | None:
    """The format of the KV cache; None where it is that of the model.

    Raises UnreadableError: it is not known here.
    """
    return _format(value, _READ_CACHES, "a format of the KV cache")


def plain_width(value: object) -> str | None:
    """The 16- or 32-bit type that a word names; None for any other word."""
    return _PLAIN_WIDTHS.get(str(value).lower())


def _format(value: object, names: Mapping[str, str], what: str) -> str | None:
    word = str(value).strip().lower()
    if value is None or word in AUTO:
        return None
    if plain(word) in names:
        return names[plain(word)] or None
    raise UnreadableError(f"{show(value)} is not known here as {what}")
