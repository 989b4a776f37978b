"""Names of recipes, `llama3_8b_pretrain_8gpu_gb300_bf16_config`: the model, the job and the hardware in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.frozen import frozen
from xe_sizer.profiles.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

_RECIPE = re.compile(
    r"_*(?P<model>[a-z0-9_]+?)_(?P<job>pretrain|sft|peft|lora|dora|finetune|qat|quantize)(?:_(?P<rest>[a-z0-9_]+))?"
)
_GPUS = re.compile(r"(?:^|_)(\d+)gpus?(?:_|$)")
_CARD = re.compile(r"(?:^|_)((?:gb|vr|b|h|a|r|l|mi)\d{2,3}[a-z]?)(?:_|$)")
_PRECISION = re.compile(r"(?:^|_)(bf16|fp16|fp8[a-z]{0,2}|nvfp4|mxfp8|mxfp4)(?:_|$)")
_LENGTH = re.compile(r"[-_](\d+)k$")
_VERSIONS = (
    (re.compile(r"^llama(\d)(\d)-"), r"llama-\1.\2-"),
    (re.compile(r"^qwen35-(?:vl|text)-"), "qwen3.5-"),
    (re.compile(r"^qwen(\d)(5)-"), r"qwen\1.\2-"),
    (re.compile(r"^glm(\d)(\d)\b"), r"glm-\1.\2"),
    (re.compile(r"^nemotronh-"), "nemotron-h-"),
    (re.compile(r"-([1-9])00m\b"), r"-0.\1b"),
    (re.compile(r"(\d)p(\d)"), r"\1.\2"),
)
_OTHERS: Mapping[str, str] = {
    "llama4-e16": "llama-4-scout-17b-16e", "llama4-e128": "llama-4-maverick-17b-128e",
    "glm-4.5-355b": "glm-4.5-355b-a32b", "glm-4.5-air-106b": "glm-4.5-air-106b-a12b",
    "moonlight-16b": "moonlight-16b-a3b", "qwen3-next-80b": "qwen3-next-80b-a3b", "olmoe-7b": "olmoe-1b-7b",
    "llama-3.1-nemotron-70b": "llama-3.1-70b", "llama-3.1-nemotron-nano-8b": "llama-3.1-8b",
}  # fmt: skip
"""Models whose recipes are called otherwise."""


@frozen
class Recipe:
    """What the name of a recipe says; None and empty where it says nothing.

    job : pretrain, sft, lora and the like, as the name has it
    """

    model: str
    job: str = ""
    gpus: int | None = None
    gpu: str | None = None
    precision: str | None = None


def recipe_of(name: str) -> Recipe:
    """The parts of a recipe's name; all of it is the model where it names no job."""
    bare = name.rpartition(".")[2].removesuffix("_config").removesuffix("_recipe")
    match = _RECIPE.fullmatch(bare)
    if match is None:
        return Recipe(model_of(bare))
    rest = match["rest"] or ""
    gpus, card, precision = (pattern.search(rest) for pattern in (_GPUS, _CARD, _PRECISION))
    return Recipe(
        model_of(match["model"]),
        match["job"],
        int(gpus[1]) if gpus else None,
        card[1] if card else None,
        precision[1] if precision else None,
    )


def model_of(name: str) -> str:
    """The catalogue's model that a recipe is called after, else the name as it is."""
    word = _LENGTH.sub("", name.lower().replace("_", "-"))
    for pattern, meant in _VERSIONS:
        word = pattern.sub(meant, word)
    try:
        return Registry().model(_OTHERS.get(word, word)).name
    except (InputError, OSError):
        return name
