"""Megatron Bridge: recipes and performance recipes in Python, and configurations in YAML that were saved from them.

Defaults: src/megatron/bridge/recipes/common.py, perf_recipes/_common.py and the recipes that others start from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import parse_recipe, recipe_model
from xe_sizer.interop.megatron import TABLE as ARGUMENTS
from xe_sizer.interop.megatron import Arguments, filled_in, state_megatron, state_model
from xe_sizer.interop.readers.python_values import call_keys
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, is_on, listed, number, plain, positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Recipe
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys

PREFIXES = (
    "model.", "train.", "ddp.", "optimizer.", "dataset.", "comm_overlap.", "mixed_precision.", "checkpoint.",
    "validation.", "dist.", "tokenizer.", "scheduler.", "rng.", "logger.", "profiling.", "",
)  # fmt: skip
_RECIPE = "_recipe"
_LIBRARY = "megatron.bridge"
_PRECISIONS: Mapping[str, tuple[str, str | None]] = {
    "bf16": ("bf16", None), "bf16mixed": ("bf16", None), "fp16mixed": ("fp16", None), "fp16": ("fp16", None),
    "fp8cs": ("fp8", "tensorwise"), "fp8": ("fp8", None), "fp8ds": ("fp8", "delayed"), "fp8mx": ("fp8", "mxfp8"),
    "mxfp8": ("fp8", "mxfp8"), "fp8sc": ("fp8", "blockwise"), "nvfp4": ("fp4", None),
    "bf16withfp8delayedscalingmixed": ("fp8", "delayed"), "bf16withfp8currentscalingmixed": ("fp8", "tensorwise"),
    "bf16withmxfp8mixed": ("fp8", "mxfp8"), "bf16withfp8subchannelscalingmixed": ("fp8", "blockwise"),
    "bf16withnvfp4mixed": ("fp4", None),
}  # fmt: skip
"""Precisions by the names of recipes, of `_perf_precision`, and of mixed_precision.py."""
_LONG = ("llama3", "llama31", "llama32", "nemotronh", "nemotron_3_super", "nemotron_3_nano", "nemotron_3_ultra")
_TUNING = ("sft", "peft", "lora", "dora", "finetune")
_BASE: Mapping[str, object] = {
    "ddp.use_distributed_optimizer": True, "model.bf16": True, "model.hidden_dropout": 0.0,
    "model.attention_dropout": 0.0, "validation.eval_iters": 0,
}  # fmt: skip
_LAYOUT = "model.pipeline_model_parallel_layout."
_LORA_RANK = 32
TABLE = Table(
    file="megatron_bridge", beside=(replace(ARGUMENTS, prefixes=PREFIXES),),
)  # fmt: skip


def _recognises(source: Source) -> Certainty:
    if source.kind == "python":
        return 90 if _LIBRARY in source.text and source.module is not None and _entries(source) else 0
    groups = {name.partition(".")[0] for name in source.keys}
    return 75 if {"model", "train", "ddp", "mixed_precision"} <= groups or {"model", "train", "ddp"} <= groups else 0


def _entries(source: Source) -> Mapping[str, Written]:
    return source.module.entries if source.module is not None else {}


def _keys(source: Source) -> Keys:
    """The configuration that the chosen recipe returns, by dotted key; its name stands under `_recipe`."""
    if source.kind != "python":
        return source.keys
    entries = _entries(source)
    chosen = source.given.get("recipe") or next(
        (name for name in entries if "_config" in name), next(iter(entries), "")
    )
    if not chosen or source.module is None:
        return {}
    entry = entries.get(chosen) or source.module.entry(chosen)
    return {_RECIPE: Written(chosen, entry.where), **_joined(call_keys(entry))}


def _joined(keys: Keys) -> Keys:
    """The stages of a written layout, which have keys of their own, as one list."""
    stages = {name: each for name, each in keys.items() if name.startswith(_LAYOUT)}
    if not stages:
        return keys
    written = Written([each.value for each in stages.values()], next(iter(stages.values())).where)
    return {**{name: each for name, each in keys.items() if name not in stages}, _LAYOUT.rstrip("."): written}


def _read(draft: Draft, source: Source) -> None:
    arguments = Arguments(draft, PREFIXES)
    named = draft.take(_RECIPE)
    recipe = _recipe(draft, named)
    draft.state("stack", "megatron-bridge", named or next(iter(draft.keys.values()), None))
    _model(draft, arguments, recipe, named)
    _job(draft, recipe, named)
    if named is not None:
        draft.state("gpu", recipe.gpu, named)
        draft.state("gpus", recipe.gpus, named)
    _precision(draft, recipe, named)
    _checkpoints(draft)
    tuned = recipe.job in _TUNING
    words = [str(each.value).rpartition(".")[2].lstrip("_") for each in (named, draft.peek("_target_")) if each]
    long = any(word.startswith(f"{family}_") for word in words for family in _LONG)
    length = 2048 if tuned else 8192 if long else 4096
    steps = 50 if "perf_recipes" in source.text else 1_000_000
    base = {**_BASE, "model.seq_length": length, "train.train_iters": steps}
    with filled_in(draft, _open(draft, base), "Megatron Bridge"):
        state_megatron(arguments)
    draft.default("train.padding", "packed")
    others = [name for name in _entries(source) if named is not None and name != named.value]
    if others and "recipe" not in source.given and named is not None:
        draft.lose(_RECIPE, f"the first of {len(others) + 1} recipes is read; --set recipe=NAME chooses one", "none")


def _recipe(draft: Draft, named: Written | None) -> Recipe:
    """What the recipe's name says, and where that says nothing, the name of the one that it starts from."""
    own = parse_recipe(str(named.value) if named is not None else "")
    base = draft.peek("_target_")
    return own if own.job or base is None else parse_recipe(str(base.value))


def _open(draft: Draft, base: Mapping[str, object]) -> dict[str, object]:
    """Values that no group of the configuration states."""

    def stated(name: str) -> bool:
        last = name.rpartition(".")[2]
        return any(f"{prefix}{last}" in draft.keys for prefix in PREFIXES)

    return {name: value for name, value in base.items() if not stated(name)}


def _model(draft: Draft, arguments: Arguments, recipe: Recipe, named: Written | None) -> None:
    hub = draft.peek("model._args_.0", "model.hf_model_id", "tokenizer.tokenizer_model", "hf_path")
    if named is not None:
        draft.state("model", recipe.model, named)
        return
    state_model(arguments)
    if "model" not in draft.facts and not any(key.startswith("model.") for key in draft.facts) and hub is not None:
        draft.state("model", recipe_model(str(hub.value)), hub)


def _job(draft: Draft, recipe: Recipe, named: Written | None) -> None:
    adapters = draft.peek("peft._target_", "peft")
    if (adapters is not None and is_on(adapters.value)) or recipe.job in ("peft", "lora", "dora"):
        draft.state("job", "lora", adapters or named)
        rank, targets = draft.take("peft.dim", "peft.lora_dim"), draft.take("peft.target_modules")
        draft.state("lora.rank", draft.value(rank, positive), rank)
        draft.state("lora.targets", draft.value(targets, listed), targets)
        dropout = draft.take("peft.dropout")
        draft.state("lora.dropout", draft.value(dropout, number), dropout)
        draft.default("lora.rank", _LORA_RANK)
        draft.default("lora.targets", ("all-linear",), "qkv, proj, fc1 and fc2")
        draft.default("lora.dropout", 0.0)
    elif recipe.job:
        draft.state("job", "sft" if recipe.job in _TUNING else "pretrain", named)
    draft.default("job", "pretrain")


def _precision(draft: Draft, recipe: Recipe, named: Written | None) -> None:
    """A name of mixed_precision.py, or what `_perf_precision` is called with; else what the recipe's name says."""
    found = draft.take("mixed_precision", "mixed_precision._args_.0") or draft.take("mixed_precision._target_")
    word = str(found.value).rpartition(".")[2] if found is not None else ""
    if plain(word) not in _PRECISIONS:
        word, found = recipe.precision or "", named
    said = _PRECISIONS.get(plain(word))
    if said is not None:
        draft.state("precision", said[0], found)
        draft.state("train.fp8_recipe", said[1], found)
        draft.default("train.weights_dtype", "bf16", "weights have the type of the run")
        whole = draft.peek("mixed_precision")  # its grad_reduce_in_fp32 takes the place of that of ddp
        if whole is not None and plain(whole.value).endswith("mixed"):
            kept = "fp16" if said[0] == "fp16" else "fp32"
            draft.state("train.gradient_dtype", kept, whole, f"grad_reduce_in_fp32 of {whole.value}")


def _checkpoints(draft: Draft) -> None:
    saved = draft.keys.get("checkpoint.save")
    if saved is not None and saved.value is None:
        draft.take("checkpoint.save_interval")
        draft.keys.pop("checkpoint.save_interval", None)


TOOL = Tool(
    name="megatron-bridge",
    title="Megatron Bridge",
    reads="recipes and performance recipes in Python (--set recipe=NAME chooses one), and their YAML",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
