"""Adapters of peft and quantised weights beneath them, as TRL, LLaMA-Factory and scripts of one's own set them.

Targets of a family: peft src/peft/utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING (0.18).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.table import Loss, names
from xe_sizer.importers.values import UnreadableError, above_zero, listed, plain
from xe_sizer.profiles.convert import show

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

LOSSES = (
    Loss(("layers_to_transform", "layers_pattern"), "gives adapters to some layers only"),
    Loss(("rank_pattern", "rank_pattern.*"), "gives some modules adapters of another rank", harmless=({},)),
    Loss(("trainable_token_indices", "trainable_token_indices.*"), "trains some embeddings beside the adapters"),
    Loss(("exclude_modules",), "leaves modules without adapters"),
    Loss(("use_qalora",), "pools what adapters take in"),
    Loss(("llm_int8_enable_fp32_cpu_offload",), "keeps weights in host memory"),
)
"""Arguments of LoraConfig and BitsAndBytesConfig that change memory or time and have no counterpart."""
SILENT = names("""
    bias inference_mode init_lora_weights fan_in_fan_out base_model_name_or_path peft_type auto_mapping
    alpha_pattern* megatron_* loftq_config* eva_config* corda_config* lora_bias runtime_config* modules_to_transform
    ensure_weight_tying qalora_group_size llm_int8_* quant_method _load_in_*
""")
"""Their arguments that change neither."""
ALL_LINEAR = "all-linear"
BITSANDBYTES = "bitsandbytes"
LORA, QLORA, SFT = "lora", "qlora", "sft"
_ALL = ("all", "alllinear")
_PROJECTION = re.compile(r"(?<![a-z0-9_])(?:[a-z0-9]+_)+proj(?![a-z0-9_])|query_key_value|lm_head|embed_tokens")
_ALTERNATIVES = re.compile(r"\((?:\?:)?([a-z0-9_|]+)\)(_proj)")
_ALPHA = re.compile(r"(^|[._])(lora|peft|lora_tuning)[._](lora_)?alpha$|^lora_alpha$")
_PATTERN = frozenset("^$()|\\*?[]")
_QUERY_VALUE = ("q_proj", "v_proj")
_FUSED, _OLD_GPT = ("query_key_value",), ("c_attn",)
_FAMILIES = {
    "gptneox": _FUSED, "pythia": _FUSED, "falcon": _FUSED, "bloom": _FUSED, "chatglm": _FUSED, "gpt2": _OLD_GPT,
    "gptbigcode": _OLD_GPT, "starcoderbase": _OLD_GPT, "mpt": ("Wqkv",), "codegen": ("qkv_proj",),
    "phi2": ("q_proj", "v_proj", "fc1", "fc2"), "phi1": ("q_proj", "v_proj", "fc1", "fc2"),
}  # fmt: skip
_QUERY_VALUE_FAMILIES = (
    "llama", "mistral", "mixtral", "zephyr", "qwen", "gemma", "stablelm", "opt", "vicuna", "smollm", "yi", "tinyllama",
    "deepseekr1distill",
)  # fmt: skip


def usual_targets(model: object) -> tuple[str, ...] | None:
    """The modules to which peft gives adapters unasked, by the family that a model's name tells; None: not known."""
    name = plain(str(model).rpartition("/")[2])
    for family, targets in _FAMILIES.items():
        if family in name:
            return targets
    return _QUERY_VALUE if any(family in name for family in _QUERY_VALUE_FAMILIES) else None


def targets_of(value: object) -> tuple[str, ...] | None:
    """Modules of a list, of text between commas, or of a pattern of names; `all-linear` for all of them.

    Raises UnreadableError: a pattern that names none.
    """
    if isinstance(value, str) and _PATTERN & set(value):
        parts = [f"{part}{end}" for words, end in _ALTERNATIVES.findall(value) for part in words.split("|")]
        found = tuple(dict.fromkeys((*parts, *_PROJECTION.findall(value))))
        if not found:
            raise UnreadableError(f"{show(value)} names no module that is known here")
        return found
    words = listed(value) or ()
    if any(plain(word) in _ALL for word in words):
        return (ALL_LINEAR,)
    return tuple(dict.fromkeys(word.rpartition(".")[2] for word in words)) or None


def state_targets(draft: Draft, found: Written | None, default: tuple[str, ...] | None, note: str = "") -> None:
    """State the modules with adapters; the default is the tool's own."""
    if found is not None:
        draft.state("lora.targets", draft.value(found, targets_of), found)
    draft.default("lora.targets", default, note)


def state_alpha(draft: Draft) -> None:
    """State the scale of adapters, which all tools know by nearly the same name."""
    for name in draft.keys if "lora.rank" in draft.facts else ():
        if _ALPHA.search(name):
            draft.state("lora.alpha", draft.value(draft.take(name), above_zero), draft.keys[name])


def state_bits(draft: Draft, bits: int, written: Written, quantiser: str = BITSANDBYTES) -> None:
    """State in how many bits frozen weights are held, and which library does it unasked."""
    draft.state("train.bits", bits, written)
    draft.default("train.quantiser", quantiser)


_STORED = {
    "gptq": ("auto-gptq", 4), "awq": ("awq", 4), "bnb4bit": (BITSANDBYTES, 4), "bnb8bit": (BITSANDBYTES, 8),
    "hqq": ("hqq", 4), "aqlm": (BITSANDBYTES, 4),
}  # fmt: skip
_QUANTISERS = {"bnb": BITSANDBYTES, "bitsandbytes": BITSANDBYTES, "hqq": "hqq", "gptq": "auto-gptq", "awq": "awq"}


def quantiser_called(word: object) -> str | None:
    """The library that quantises, by the word that configurations have for it."""
    return _QUANTISERS.get(plain(word))


def quantised_as(model: object) -> tuple[str, int] | None:
    """The library that a checkpoint's name says its weights were quantised by, and in how many bits."""
    name = plain(str(model).rpartition("/")[2])
    return next((told for word, told in _STORED.items() if word in name), None)


def state_name(draft: Draft, model: Written) -> None:
    """State how frozen weights are held where the checkpoint's name says it."""
    told = quantised_as(model.value)
    if told is None:
        return
    if "aqlm" in plain(model.value):
        for key, value in (("train.quantiser", told[0]), ("train.bits", told[1])):
            draft.assume(key, value, "in place of AQLM, which holds about 2 bits", model.where)
    draft.state("train.bits", told[1], model, "from the name of the checkpoint")
    draft.state("train.quantiser", told[0], model, "from the name of the checkpoint")
