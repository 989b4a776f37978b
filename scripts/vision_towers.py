"""Writes the section `vision` of model profiles, and profiles of models that are a known one with an encoder of images.

    python scripts/vision_towers.py

Sizes are those of the vision classes of transformers 5.23 with the published configurations; with the language model
they reproduce the number of parameters that the repositories state (tests/profiles/test_vision_profiles.py).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import convert

from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.model import ModelProfile, VisionSection, load_model_profile, shape_of, tower_of
from xe_sizer.profiles.write import lines, write

TARGET = Path(__file__).resolve().parent.parent / "model_profiles"
Values = dict[str, Any]
ALL = ["qkv", "output", "mlp"]
LAYERNORM: Values = {"norm": "layernorm", "activation": "gelu", "biases": ALL}
NATIVE: Values = {"resize": "native", "image_tokens": 2}
TRANSFORMERS = "transformers 5.23, vision classes; configuration of the repository"


def clip(hidden: int) -> Values:
    """CLIP ViT-L/14 at 336 pixels and the projector of LLaVA 1.5."""
    return {
        "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, **LAYERNORM, "learned_positions": 577,
        "first_norm": True, "final_norm": True, "projector": {"widths": [1024, hidden, hidden], "bias": True},
        "patch": 14, "class_token": True, "resize": "square", "side": 336,
    }  # fmt: skip


def siglip(hidden: int) -> Values:
    """SigLIP So400m at 896 pixels, pooled to 256 tokens (Gemma 3)."""
    return {
        "layers": 27, "hidden": 1152, "heads": 16, "ffn": 4304, **LAYERNORM, "learned_positions": 4096,
        "final_norm": True, "projector": {"widths": [1152, hidden], "norm": "rmsnorm"},
        "patch": 14, "merge": 4, "patch_bias": True, "resize": "square", "side": 896, "image_tokens": 2,
    }  # fmt: skip


def qwen2(hidden: int) -> Values:
    return {
        "layers": 32, "hidden": 1280, "heads": 16, "ffn": 5120, **LAYERNORM, "rotary": True,
        "projector": {"widths": [5120, 5120, hidden], "bias": True, "norm": "layernorm"},
        "patch": 14, "merge": 2, "frames": 2, **NATIVE, "min_pixels": 3136, "max_pixels": 12845056,
    }  # fmt: skip


def qwen2_5(hidden: int, ffn: int) -> Values:
    """Windows of 112 pixels in all layers but four."""
    return {
        "layers": 32, "hidden": 1280, "heads": 16, "ffn": ffn, "norm": "rmsnorm", "activation": "swiglu",
        "biases": ALL, "rotary": True, "window": {"patches": 64, "layers": 28},
        "projector": {"widths": [5120, 5120, hidden], "bias": True, "norm": "rmsnorm"},
        "patch": 14, "merge": 2, "frames": 2, **NATIVE, "min_pixels": 3136, "max_pixels": 12845056,
    }  # fmt: skip


def qwen3(hidden: int, layers: int = 27, width: int = 1152, ffn: int = 4304, further: int = 3) -> Values:
    return {
        "layers": layers, "hidden": width, "heads": 16, "ffn": ffn, **LAYERNORM, "learned_positions": 2304,
        "rotary": True, "projector": {"widths": [4 * width, 4 * width, hidden], "bias": True, "norm": "layernorm"},
        "patch": 16, "merge": 2, "frames": 2, "patch_bias": True, "further_projectors": further, **NATIVE,
        "min_pixels": 65536, "max_pixels": 16777216,
    }  # fmt: skip


def pixtral(hidden: int, merges: bool = True) -> Values:
    """Patches of 16 pixels, each a token; from Mistral Small 3.1 on, four of 14 pixels are a token."""
    merging: Values = {"patch": 14, "merge": 2, "max_side": 1540} if merges else {"patch": 16, "max_side": 1024}
    narrow: Values = {"widths": [4096, 1024, hidden, hidden], "norm": "rmsnorm"}
    return {
        "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "norm": "rmsnorm", "activation": "swiglu",
        "rotary": True, "first_norm": True,
        "projector": narrow if merges else {"widths": [1024, hidden, hidden], "bias": True},
        "resize": "native", "row_tokens": 1, **merging,
    }  # fmt: skip


def llama_4(hidden: int) -> Values:
    return {
        "layers": 34, "hidden": 1408, "heads": 16, "ffn": 5632, **LAYERNORM, "learned_positions": 577, "rotary": True,
        "first_norm": True, "final_norm": True, "projector": {"widths": [5632, 4096, 4096, hidden]},
        "patch": 14, "merge": 2, "class_token": True, "resize": "canvas", "side": 336, "max_tiles": 16,
        "row_tokens": 1, "image_tokens": 2,
    }  # fmt: skip


def intern(hidden: int) -> Values:
    """InternViT-300M."""
    return {
        "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, **LAYERNORM, **_intern_tiles(4096, hidden),
    }  # fmt: skip


def intern_6b(hidden: int) -> Values:
    """InternViT-6B."""
    return {
        "layers": 45, "hidden": 3200, "heads": 25, "ffn": 12800, "norm": "rmsnorm", "activation": "gelu",
        "biases": ["output", "mlp"], "qk_norm": "full", **_intern_tiles(12800, hidden),
    }  # fmt: skip


def _intern_tiles(merged: int, hidden: int) -> Values:
    return {
        "learned_positions": 1025,
        "projector": {"widths": [merged, hidden, hidden], "bias": True, "norm": "layernorm", "over": "merged"},
        "patch": 14, "merge": 2, "patch_bias": True, "class_token": True, "layer_scale": True,
        "resize": "closest", "side": 448, "max_tiles": 12, "image_tokens": 2,
    }  # fmt: skip


def moon(hidden: int) -> Values:
    """MoonViT with patches of 14 pixels (Kimi K2.5)."""
    return {
        "layers": 27, "hidden": 1152, "heads": 16, "ffn": 4304, **LAYERNORM, "learned_positions": 4096,
        "rotary": True, "final_norm": True,
        "projector": {"widths": [4608, 4608, hidden], "bias": True, "norm": "layernorm"},
        "patch": 14, "merge": 2, "patch_bias": True, **NATIVE, "max_pixels": 3211264,
    }  # fmt: skip


KNOWN = {
    "gemma-3-4b": siglip(2560), "gemma-3-12b": siglip(3840), "gemma-3-27b": siglip(5376),
    "llama-4-scout-17b-16e": llama_4(5120), "llama-4-maverick-17b-128e": llama_4(5120),
    "ministral-3-3b": pixtral(3072), "ministral-3-8b": pixtral(4096), "ministral-3-14b": pixtral(5120),
    "qwen3.5-9b": qwen3(4096, further=0), "kimi-k2.5": moon(7168),
}  # fmt: skip


class Made(NamedTuple):
    """A model of which a known one is the language model, with what differs in it."""

    base: str
    repository: str
    family: str
    released: str
    vision: Values
    changes: Values


def _qwen2(base: str, size: str, hidden: int) -> Made:
    return Made(base, f"Qwen/Qwen2-VL-{size}-Instruct", "qwen2-vl", "2024-08", qwen2(hidden), {"max_positions": 32768})


def _qwen2_5(base: str, size: str, hidden: int, ffn: int = 3420) -> Made:
    name, changes = f"Qwen/Qwen2.5-VL-{size}-Instruct", {"max_positions": 128000}
    return Made(base, name, "qwen2.5-vl", "2025-01", qwen2_5(hidden, ffn), changes)


def _qwen3(base: str, size: str, vision: Values) -> Made:
    return Made(base, f"Qwen/Qwen3-VL-{size}-Instruct", "qwen3-vl", "2025-10", vision, {"max_positions": 262144})


def _intern(base: str, size: str, vision: Values) -> Made:
    changes = {"vocab": 151674, "max_positions": 32768}
    return Made(base, f"OpenGVLab/InternVL3-{size}", "internvl3", "2025-04", vision, changes)


def _llava(base: str, size: str, hidden: int) -> Made:
    return Made(base, f"llava-hf/llava-1.5-{size}-hf", "llava-1.5", "2023-10", clip(hidden), {"vocab": 32064})


MADE = {
    "qwen2-vl-2b": _qwen2("qwen2-1.5b", "2B", 1536),
    "qwen2-vl-7b": _qwen2("qwen2-7b", "7B", 3584),
    "qwen2-vl-72b": _qwen2("qwen2-72b", "72B", 8192),
    "qwen2.5-vl-3b": _qwen2_5("qwen2.5-3b", "3B", 2048),
    "qwen2.5-vl-7b": _qwen2_5("qwen2.5-7b", "7B", 3584),
    "qwen2.5-vl-32b": _qwen2_5("qwen2.5-32b", "32B", 5120, 3456),
    "qwen2.5-vl-72b": _qwen2_5("qwen2.5-72b", "72B", 8192, 3456),
    "qwen3-vl-2b": _qwen3("qwen3-1.7b", "2B", qwen3(2048, 24, 1024, 4096)),
    "qwen3-vl-4b": _qwen3("qwen3-4b", "4B", qwen3(2560, 24, 1024, 4096)),
    "qwen3-vl-8b": _qwen3("qwen3-8b", "8B", qwen3(4096)),
    "qwen3-vl-32b": _qwen3("qwen3-32b", "32B", qwen3(5120)),
    "qwen3-vl-30b-a3b": _qwen3("qwen3-30b-a3b", "30B-A3B", qwen3(2048)),
    "qwen3-vl-235b-a22b": _qwen3("qwen3-235b-a22b", "235B-A22B", qwen3(4096)),
    "llava-1.5-7b": _llava("llama-2-7b", "7b", 4096),
    "llava-1.5-13b": _llava("llama-2-13b", "13b", 5120),
    "pixtral-12b": Made(
        "mistral-nemo-12b", "mistralai/Pixtral-12B-2409", "pixtral", "2024-09", pixtral(5120, merges=False),
        {"max_positions": 131072},
    ),
    "mistral-small-3.1-24b": Made(
        "mistral-small-24b-2501", "mistralai/Mistral-Small-3.1-24B-Base-2503", "mistral-small-3.1", "2025-03",
        pixtral(5120), {"max_positions": 131072},
    ),
    "internvl3-1b": _intern("qwen2.5-0.5b", "1B", intern(896)),
    "internvl3-2b": _intern("qwen2.5-1.5b", "2B", intern(1536)),
    "internvl3-8b": _intern("qwen2.5-7b", "8B", intern(3584)),
    "internvl3-14b": _intern("qwen2.5-14b", "14B", intern(5120)),
    "internvl3-38b": _intern("qwen2.5-32b", "38B", intern_6b(5120)),
    "internvl3-78b": _intern("qwen2.5-72b", "78B", intern_6b(8192)),
}  # fmt: skip


def counted(vision: Values) -> Values:
    """The section with its number of parameters, in which every default is left out."""
    whole = {key: value for key, value in vision.items() if value}
    tower = tower_of(convert(whole | {"parameters": 1}, VisionSection))
    return whole | {"parameters": vision_parameters(tower)}


def add_to_known(name: str, vision: Values) -> None:
    """Puts the section before the parameters of a profile that is there, in place of the one that it has."""
    path = TARGET / f"{name}.yaml"
    text = re.sub(r"^vision:\n(  .*\n)+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = "vision:\n" + "".join(f"{line}\n" for line in lines(counted(vision), "  "))
    text = text.replace("parameters: {", f"{section}parameters: {{", 1)
    text = text.replace("Text model only; the vision tower is not counted.", "The vision tower is counted apart.")
    path.write_text(text, encoding="utf-8")


def make(name: str, made: Made) -> None:
    """Writes the profile of a language model with an encoder of images."""
    values = yaml.safe_load((TARGET / f"{made.base}.yaml").read_text(encoding="utf-8"))
    kept = {key: value for key, value in values.items() if key not in ("parameters", "source", "notes")}
    said = {"name": name, "family": made.family, "released": made.released, "hugging_face": made.repository}
    profile = kept | said | made.changes | {"vision": counted(made.vision)}
    shape = shape_of(convert(profile | {"parameters": values["parameters"], "source": {"title": "-"}}, ModelProfile))
    count = count_parameters(shape)
    profile["parameters"] = {"total": count.total, "active": count.active}
    profile["notes"] = f"The language model is {made.base}; the vision tower is counted apart."
    profile["source"] = {"title": TRANSFORMERS, "read_on": "2026-11-23"}
    write(TARGET, profile)


def main() -> None:
    for name, vision in KNOWN.items():
        add_to_known(name, vision)
    for name, made in MADE.items():
        make(name, made)
    for name in (*KNOWN, *MADE):
        shape = load_model_profile(TARGET / f"{name}.yaml")
        total = count_parameters(shape).total + (vision_parameters(shape.vision) if shape.vision else 0)
        sys.stdout.write(f"{name}: {total:,}\n")


if __name__ == "__main__":
    main()
