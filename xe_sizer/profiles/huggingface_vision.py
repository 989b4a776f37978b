"""The encoder of images from the nested `vision_config` of a Hugging Face `config.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.profiles.model import ProjectorSection, VisionSection, VisionWindow, tower_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import VisionTower
    from xe_sizer.profiles.huggingface_config import Config

Values = dict[str, Any]
BIASES = ("qkv", "output", "mlp")
# What processors do with images unless told otherwise (preprocessor_config.json, which a config does not hold).
NATIVE = {"resize": "native", "image_tokens": 2, "min_pixels": 56 * 56, "max_pixels": 28 * 28 * 16384}
LONGEST_TILES = 16  # four along a side


def tower_from(config: Config, kind: str, hidden: int) -> VisionTower | None:
    """The encoder that a multimodal configuration describes; None for types that are not described here.

    Parameters
    ----------
    config : the whole file; its problems grow as keys are read
    kind : its model type
    hidden : width of the language model [-]
    """
    reader = READERS.get(kind)
    vision = config.section("vision_config")
    if reader is None or not vision.data or vision.word("model_type") not in ENCODERS[kind]:
        return None
    values: Values = {"norm": "layernorm", "activation": "gelu", "biases": BIASES} | reader(config, vision, hidden)
    if config.problems:
        return None
    projector = msgspec.convert(values.pop("projector"), ProjectorSection)
    return tower_of(VisionSection(**values, projector=projector, parameters=1))


def _sizes(vision: Config, layers: int, hidden: int, ffn: int, heads: int) -> Values:
    """Widths of a plain encoder, with what its class assumes of those that are absent."""
    return {
        "layers": vision.count("num_hidden_layers", "depth", default=layers),
        "hidden": vision.count("hidden_size", default=hidden),
        "ffn": vision.count("intermediate_size", default=ffn),
        "heads": vision.count("num_attention_heads", "num_heads", default=heads),
    }


def _square(vision: Config, side: int, patch: int) -> tuple[int, int, int]:
    """Side of an image, of a patch, and patches along a side."""
    size, part = vision.count("image_size", default=side), vision.count("patch_size", default=patch)
    return size, part, size // part


def _qwen2_vl(config: Config, vision: Config, hidden: int) -> Values:
    width, merge = vision.count("embed_dim", default=1280), vision.count("spatial_merge_size", default=2)
    sizes = {
        "layers": vision.count("depth", default=32), "hidden": width, "heads": vision.count("num_heads", default=16),
        "ffn": width * vision.count("mlp_ratio", default=4),
    }  # fmt: skip
    return sizes | _qwen(vision, width, merge, hidden, 14) | {"activation": "gelu-quick"}


def _qwen(vision: Config, width: int, merge: int, hidden: int, patch: int) -> Values:
    """What the encoders of Qwen's models share."""
    wide = width * merge**2
    return {
        "fused": ("qkv",), "rotary": True, "patch": vision.count("patch_size", default=patch), "merge": merge,
        "frames": vision.count("temporal_patch_size", default=2), **NATIVE,
        "projector": {"widths": (wide, wide, hidden), "bias": True, "norm": "layernorm"},
    }  # fmt: skip


def _qwen2_5_vl(config: Config, vision: Config, hidden: int) -> Values:
    sizes = _sizes(vision, 32, 1280, 3420, 16)
    values = sizes | _qwen(vision, sizes["hidden"], vision.count("spatial_merge_size", default=2), hidden, 14)
    windowed = sizes["layers"] - len(vision.items("fullatt_block_indexes") or (7, 15, 23, 31))
    side = vision.count("window_size", default=112) // values["patch"]
    projector = values["projector"] | {"norm": "rmsnorm"}
    return values | {
        "norm": "rmsnorm", "activation": "swiglu", "projector": projector,
        "window": VisionWindow(patches=side**2, layers=windowed) if windowed else None,
    }  # fmt: skip


def _qwen3_vl(config: Config, vision: Config, hidden: int) -> Values:
    sizes = _sizes(vision, 27, 1152, 4304, 16)
    values = sizes | _qwen(vision, sizes["hidden"], vision.count("spatial_merge_size", default=2), hidden, 16)
    return values | {
        "learned_positions": vision.count("num_position_embeddings", default=2304),
        "patch_bias": True,
        "further_projectors": len(vision.items("deepstack_visual_indexes") or (8, 16, 24)),
        "min_pixels": 256 * 256,
        "max_pixels": 4096 * 4096,
    }


def _clip(config: Config, vision: Config, hidden: int) -> Values:
    sizes = _sizes(vision, 24, 1024, 4096, 16)
    side, patch, along = _square(vision, 336, 14)
    projector = {
        "widths": (sizes["hidden"], hidden, hidden),
        "bias": config.flag("multimodal_projector_bias", True),
    }
    return sizes | {
        "activation": "gelu-quick", "learned_positions": along**2 + 1, "first_norm": True, "final_norm": True,
        "class_token": True, "patch": patch, "resize": "square", "side": side, "projector": projector,
    }  # fmt: skip


def _siglip(config: Config, vision: Config, hidden: int) -> Values:
    """The encoder of PaliGemma, whose patches become a token each."""
    sizes = _sizes(vision, 27, 1152, 4304, 16)
    side, patch, along = _square(vision, 224, 14)
    return sizes | {
        "learned_positions": along**2, "final_norm": True, "patch_bias": True, "patch": patch, "resize": "square",
        "side": side, "projector": {"widths": (sizes["hidden"], hidden), "bias": True},
    }  # fmt: skip


def _gemma3(config: Config, vision: Config, hidden: int) -> Values:
    values = _siglip(config, vision, hidden)
    along = values["side"] // values["patch"]
    merge = along // max(math.isqrt(config.count("mm_tokens_per_image", default=256)), 1)
    projector = {"widths": (values["hidden"], hidden), "norm": "rmsnorm"}
    return values | {"merge": max(merge, 1), "image_tokens": 2, "projector": projector}


def _idefics3(config: Config, vision: Config, hidden: int) -> Values:
    """Tiles of an image that is brought to four of them along its longest side, and the whole."""
    sizes = _sizes(vision, 12, 1152, 3072, 16)
    side, patch, along = _square(vision, 224, 32)
    scale = config.count("scale_factor", default=2)
    return sizes | {
        "learned_positions": along**2, "final_norm": True, "patch_bias": True, "patch": patch, "merge": scale,
        "resize": "longest", "side": side, "max_tiles": LONGEST_TILES, "row_tokens": 2,
        "projector": {"widths": (sizes["hidden"] * scale**2, hidden)},
    }  # fmt: skip


def _pixtral(config: Config, vision: Config, hidden: int) -> Values:
    sizes = _sizes(vision, 24, 1024, 4096, 16)
    side, patch, _ = _square(vision, 1024, 16)
    bias = config.flag("multimodal_projector_bias", True)
    return sizes | {
        "norm": "rmsnorm", "activation": "swiglu", "biases": (), "rotary": True, "first_norm": True, "patch": patch,
        "resize": "native", "row_tokens": 1, "max_side": side,
        "projector": {"widths": (sizes["hidden"], hidden, hidden), "bias": bias},
    }  # fmt: skip


def _mistral3(config: Config, vision: Config, hidden: int) -> Values:
    values = _pixtral(config, vision, hidden)
    merge, width = config.count("spatial_merge_size", default=2), values["hidden"]
    bias = config.flag("multimodal_projector_bias", False)
    if bias:
        config.fail("a projector with biases is not supported yet", "multimodal_projector_bias")
    projector = {"widths": (width * merge**2, width, hidden, hidden), "norm": "rmsnorm"}
    return values | {"merge": merge, "projector": projector}


def _llava(config: Config, vision: Config, hidden: int) -> Values:
    return (_pixtral if vision.word("model_type") == "pixtral" else _clip)(config, vision, hidden)


READERS: Mapping[str, Callable[[Config, Config, int], Values]] = {
    "qwen2_vl": _qwen2_vl, "qwen2_5_vl": _qwen2_5_vl, "qwen3_vl": _qwen3_vl, "qwen3_vl_moe": _qwen3_vl,
    "llava": _llava, "mistral3": _mistral3, "gemma3": _gemma3, "paligemma": _siglip, "idefics3": _idefics3,
    "smolvlm": _idefics3,
}  # fmt: skip
"""Readers of the model types whose encoders are known."""
ENCODERS: Mapping[str, tuple[str | None, ...]] = {
    "qwen2_vl": ("qwen2_vl", "qwen2_vl_vision", None), "qwen2_5_vl": ("qwen2_5_vl", "qwen2_5_vl_vision", None),
    "qwen3_vl": ("qwen3_vl", "qwen3_vl_vision", None),
    "qwen3_vl_moe": ("qwen3_vl_moe", "qwen3_vl_moe_vision", None),
    "llava": ("clip_vision_model", "pixtral", None), "mistral3": ("pixtral", None),
    "gemma3": ("siglip_vision_model", None),
    "paligemma": ("siglip_vision_model", None), "idefics3": ("idefics3", "idefics3_vision", None),
    "smolvlm": ("smolvlm", "smolvlm_vision", None),
}  # fmt: skip
"""What each calls its encoder; the same class may be put together with others."""
