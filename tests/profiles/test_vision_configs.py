"""Encoders of images from `config.json`: as many parameters as the classes of transformers 5.23 have.

Totals are of models with two layers in the language model, counted on PyTorch's meta device.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.errors import InputError
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.vision import seen_image, vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.huggingface import model_from_config

SO400M = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16,
}  # fmt: skip


def _text(kind: str, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": 2, "hidden_size": hidden, "intermediate_size": ffn,
        "vocab_size": vocab, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, **more,
    }  # fmt: skip


QWEN = _text("qwen2_vl_text", 3584, 18944, 28, 4, 152064)
CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    "qwen2_vl": ({"text_config": QWEN, "vision_config": {"embed_dim": 1280, "depth": 32}}, 2_231_873_024),
    "qwen2_5_vl": ({"text_config": QWEN, "vision_config": {"hidden_size": 1280, "depth": 32}}, 2_232_664_064),
    "qwen3_vl": (
        {
            "text_config": _text("qwen3_vl_text", 4096, 12288, 32, 8, 151936, head_dim=128),
            "vision_config": {"hidden_size": 1152, "depth": 27, "out_hidden_size": 4096},
        },
        2_206_945_008,
    ),
    "llava": (
        {
            "text_config": _text("llama", 4096, 11008, 32, 32, 32064),
            "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        },
        991_926_272,
    ),
    "gemma3": (
        {
            "text_config": _text("gemma3_text", 2560, 10240, 8, 4, 262208, head_dim=256, sliding_window=1024),
            "vision_config": {**SO400M, "image_size": 896, "patch_size": 14},
            "mm_tokens_per_image": 256,
        },
        1_279_836_528,
    ),
    "paligemma": (
        {
            "text_config": _text("gemma", 2048, 16384, 8, 1, 257216, head_dim=256),
            "vision_config": {**SO400M, "image_size": 224, "patch_size": 14},
        },
        1_161_793_264,
    ),
    "idefics3": (
        {
            "text_config": _text("llama", 4096, 14336, 32, 8, 128259, tie_word_embeddings=False),
            "vision_config": {**SO400M, "model_type": "idefics3", "image_size": 364, "patch_size": 14},
            "scale_factor": 2,
        },
        1_918_726_384,
    ),
    "mistral3": (
        {
            "text_config": _text("mistral", 5120, 32768, 32, 8, 131072, head_dim=128, tie_word_embeddings=False),
            "vision_config": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
            "spatial_merge_size": 2,
        },
        2_892_651_520,
    ),
    "smolvlm": (
        {
            "text_config": _text("llama", 2048, 8192, 32, 32, 49155, tie_word_embeddings=False),
            "vision_config": {**SO400M, "model_type": "smolvlm_vision", "image_size": 384, "patch_size": 14},
            "scale_factor": 3,
        },
        769_787_760,
    ),
}


def read(folder: Path, kind: str, config: dict[str, Any]) -> tuple[ModelShape, tuple[str, ...]]:
    path = folder / "model.json"
    path.write_text(json.dumps({"model_type": kind, **config}), encoding="utf-8")
    return model_from_config(path)


@pytest.mark.parametrize("kind", CONFIGS)
def test_parameters_are_those_of_the_class(tmp_path: Path, kind: str) -> None:
    config, total = CONFIGS[kind]
    model, assumed = read(tmp_path, kind, config)
    assert model.vision is not None
    assert count_parameters(model).total + vision_parameters(model.vision) == total
    assert not any("left out" in text for text in assumed)


@pytest.mark.parametrize(("kind", "tokens"), [("qwen2_vl", 1371), ("llava", 576), ("gemma3", 258), ("paligemma", 256)])
def test_tokens_of_an_image(tmp_path: Path, kind: str, tokens: int) -> None:
    """1024 x 1024 pixels: 37 x 37 merged patches and two around; squares; 16 x 16 and two around; 16 x 16."""
    tower = read(tmp_path, kind, CONFIGS[kind][0])[0].vision
    assert tower is not None
    assert seen_image(tower, 1024, 1024).tokens == tokens


@pytest.mark.parametrize(("size", "pieces"), [((1024, 1024), 17), ((1000, 500), 9), ((100, 400), 5)])
def test_tiles_along_the_longest_side(tmp_path: Path, size: tuple[int, int], pieces: int) -> None:
    """Four tiles along the longest side, as many along the other as its share of that needs, and the whole."""
    tower = read(tmp_path, "idefics3", CONFIGS["idefics3"][0])[0].vision
    assert tower is not None
    assert seen_image(tower, *size).pieces == pieces


def test_llava_s_class_with_the_encoder_of_pixtral(tmp_path: Path) -> None:
    """Pixtral 12B as transformers has it: an encoder of 434,957,312 parameters with its projector."""
    text = _text("mistral", 5120, 14336, 32, 8, 131072, head_dim=128, tie_word_embeddings=False)
    vision = {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}
    model, _ = read(tmp_path, "llava", {"text_config": text, "vision_config": vision})
    assert model.vision is not None
    assert count_parameters(model).total + vision_parameters(model.vision) == 2_322_419_712


def test_an_encoder_that_is_not_known_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    config = {**CONFIGS["llava"][0], "vision_config": {"model_type": "dinov2"}}
    model, assumed = read(tmp_path, "llava", config)
    assert model.vision is None
    assert any("left out" in text for text in assumed)


def test_a_mistake_in_the_encoder_is_found(tmp_path: Path) -> None:
    config = {**CONFIGS["qwen2_vl"][0], "vision_config": {"depth": "many"}}
    with pytest.raises(InputError, match="depth"):
        read(tmp_path, "qwen2_vl", config)
