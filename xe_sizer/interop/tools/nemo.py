"""NVIDIA NeMo: configurations of NeMo 1 in YAML, recipes of NeMo 2 in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import recipe_model, state_optimizer
from xe_sizer.interop.megatron import TABLE as ARGUMENTS
from xe_sizer.interop.megatron import Arguments, filled_in, state_megatron, state_model
from xe_sizer.interop.readers.documents import resolved
from xe_sizer.interop.readers.python_values import call_keys
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, is_on, listed, number, plain, positive, positive_or_open, switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys

# Keys of NeMo: configurations of NeMo 1 in YAML and recipes of NeMo 2 in Python.
#
# NeMo 1.20 to 2.5: examples/nlp/language_modeling, nemo/collections/llm/recipes, nemo/lightning.

PREFIXES = (
    "model.", "model.config.", "trainer.strategy.", "trainer.strategy.ddp.", "trainer.", "data.", "optim.config.",
    "optim.", "trainer.plugins.", "model.data.", "",
)  # fmt: skip
PRECISIONS: Mapping[str, tuple[str, str | None]] = {
    "16": ("fp16", None), "16mixed": ("fp16", None), "fp16mixed": ("fp16", None), "bf16": ("bf16", None),
    "bf16mixed": ("bf16", None), "32": ("fp32", None), "32true": ("fp32", None), "fp32": ("fp32", None),
    "bf16withfp8mixed": ("fp8", "delayed"), "fp16withfp8mixed": ("fp8", "delayed"),
    "bf16withfp8currentscalingmixed": ("fp8", "tensorwise"), "bf16withmxfp8mixed": ("fp8", "mxfp8"),
    "bf16withfp8subchannelscalingmixed": ("fp8", "blockwise"), "bf16withnvfp4mixed": ("fp4", None),
    "nemotronhbf16withfp8currentscalingmixed": ("fp8", "tensorwise"),
}  # fmt: skip
"""Precisions of Lightning's trainer and of recipes/precision/mixed_precision.py."""
OWN = Table(file="nemo")
TABLE = Table(beside=(OWN, replace(ARGUMENTS, prefixes=PREFIXES)))


_RECIPE = "_recipe"
_NAME = "_name"
_LIBRARIES = ("nemo.collections.llm", "nemo_run", "nemo.lightning")
_FIRST = ("pretrain_recipe", "finetune_recipe")
_OPEN = "???"
_FSDP = {"full": 3, "hybrid": 3, "grad": 2}
_TARGETS = {
    "attention_qkv": "qkv", "attention_dense": "output", "mlp_fc1": "fc1", "mlp_fc2": "fc2", "linear_qkv": "qkv",
    "linear_proj": "output", "linear_fc1": "fc1", "linear_fc2": "fc2",
}  # fmt: skip
_WHOLE = {"attention": ("qkv", "output"), "mlp": ("fc1", "fc2"), "all": ("all-linear",)}
_RANK = 32
_RECIPES: Mapping[str, object] = {
    "trainer.strategy.ddp.use_distributed_optimizer": True, "model.hidden_dropout": 0.0,
    "model.attention_dropout": 0.0, "model.bf16": True,
}  # fmt: skip
_TUNED: Mapping[str, object] = {
    "data.seq_length": 2048, "data.global_batch_size": 128, "data.micro_batch_size": 1, "trainer.train_iters": 1000,
}  # fmt: skip
"""What `default_finetune_recipe` fills in."""


def _recognises(source: Source) -> Certainty:
    if source.kind == "python":
        named = any(library in source.text for library in _LIBRARIES)
        return 85 if named and source.module is not None and source.module.entries else 0
    keys = source.keys
    groups = {name.partition(".")[0] for name in keys}
    own = "model.micro_batch_size" in keys or "model.tensor_model_parallel_size" in keys
    return 85 if {"trainer", "model"} <= groups and own and "trainer.devices" in keys else 0


def _keys(source: Source) -> Keys:
    """Keys of the YAML with references filled in, or of what the chosen recipe returns."""
    if source.kind != "python":
        return {name: each for name, each in resolved(source.keys, source.given).items() if each.value != _OPEN}
    module = source.module
    if module is None or not module.entries:
        return {}
    chosen = source.given.get("recipe") or next(
        (name for name in _FIRST if name in module.entries), next(iter(module.entries))
    )
    entry = module.entries.get(chosen) or module.entry(chosen)
    keys = {_RECIPE: Written(chosen, entry.where), **call_keys(entry)}
    named = module.names.get("NAME")
    return keys | ({_NAME: named} if named is not None else {})


def _read(draft: Draft, source: Source) -> None:
    arguments = Arguments(draft, PREFIXES)
    recipe = draft.take(_RECIPE)
    draft.state("stack", "nemo", recipe or next(iter(draft.keys.values()), None))
    _model(draft, arguments, recipe)
    tuned = _job(draft, recipe)
    draft.apply(OWN)
    _gpus(draft)
    _precision(draft)
    _evaluations(draft)
    _optimizer(draft)
    draft.take("trainer.accumulate_grad_batches")
    if recipe is not None:
        base = {**_RECIPES, **(_TUNED if tuned else {})}
        open_ones = {name: value for name, value in base.items() if arguments.peek(name.rpartition(".")[2]) is None}
        with filled_in(draft, open_ones, "NeMo"):
            state_megatron(arguments)
    else:
        state_megatron(arguments)
    _padding(draft, tuned=tuned)
    others = [name for name in (source.module.entries if source.module else {}) if recipe and name != recipe.value]
    if others and "recipe" not in source.given:
        draft.lose(_RECIPE, f"the first of {len(others) + 1} recipes is read; --set recipe=NAME chooses one", "none")


def _model(draft: Draft, arguments: Arguments, recipe: Written | None) -> None:
    if recipe is not None:
        named = draft.take(_NAME) or draft.take("model.version") or draft.take("_args_.1", "resume_path")
        text = str(named.value) if named is not None else ""
        draft.state("model", recipe_model(text.rpartition("/")[2]) if named is not None else None, named)
    path = draft.peek("model.restore_from_path", "resume.restore_config.path")
    state_model(arguments)
    if "model" not in draft.facts and not any(key.startswith("model.") for key in draft.facts):
        if path is not None:
            draft.state("model", recipe_model(str(path.value).rpartition("/")[2].removesuffix(".nemo")), path)
        draft.miss("model", "the checkpoint that is restored says it", "--model NAME")


def _job(draft: Draft, recipe: Written | None) -> bool:
    """State the job; whether it fine-tunes."""
    scheme = draft.take("model.peft.peft_scheme")
    adapters = draft.take("peft._target_", "peft")
    tuned = any(name.startswith("model.data.train_ds.") for name in draft.keys)
    if recipe is not None:
        tuned = "finetune" in str(recipe.value) or "sft" in str(recipe.value)
        scheme = draft.take("peft_scheme") or adapters
        draft.state("job", None if scheme else ("sft" if tuned else "pretrain"), recipe)
    word = plain(str(scheme.value).rpartition(".")[2]) if scheme is not None and is_on(scheme.value) else ""
    if word in ("lora", "qlora", "dora", "peftstr2cls") or (scheme is not None and recipe is not None and word):
        draft.state("job", "lora", scheme)
        _adapters(draft)
    elif word == "ptuning":
        draft.state("job", "p-tuning", scheme)
    elif word == "ia3":
        draft.state("job", "sft", scheme)
        draft.state("adapter", word, scheme)
    elif word and word != "none":
        draft.lose("model.peft.peft_scheme", f"{word} is priced as LoRA")
        draft.assume("job", "lora", f"in place of {word}", scheme.where if scheme else None)
    draft.default("job", "sft" if tuned else "pretrain")
    return tuned


def _adapters(draft: Draft) -> None:
    inside = "model.peft.lora_tuning."
    rank = draft.take(f"{inside}adapter_dim", "peft.dim")
    targets = draft.take(f"{inside}target_modules", "peft.target_modules")
    dropout = draft.take(f"{inside}adapter_dropout", "peft.dropout")
    draft.state("lora.rank", draft.value(rank, positive), rank)
    found = [
        part for word in (listed(targets.value) or () if targets else ()) for part in _WHOLE.get(word, (_target(word),))
    ]
    draft.state("lora.targets", tuple(dict.fromkeys(found)) or None, targets)
    draft.state("lora.dropout", draft.value(dropout, number), dropout)
    draft.default("lora.rank", _RANK)
    draft.default("lora.dropout", 0.0)


def _target(word: str) -> str:
    return _TARGETS.get(word, word)


def _gpus(draft: Draft) -> None:
    devices, nodes = draft.take("trainer.devices", "trainer.num_gpus_per_node"), draft.take("trainer.num_nodes")
    each = draft.value(devices, _devices)
    count = draft.value(nodes, positive)
    if isinstance(each, int):
        number_of = count if isinstance(count, int) else 1
        note = f"{number_of} nodes of {each} GPUs" if number_of > 1 else ""
        draft.state("gpus", each * number_of, devices, note)


def _devices(value: object) -> int | None:
    """GPUs of a node as Lightning has them: a number, a list of places, or all that are there."""
    if isinstance(value, list | tuple):
        return len(value) or None
    return None if plain(value) == "auto" else positive_or_open(value)


def _precision(draft: Draft) -> None:
    plugin = draft.take("trainer.plugins._target_", "trainer.plugins")
    found = draft.take("trainer.precision")
    eight = draft.on("model.fp8", "model.config.fp8")
    if eight is not None:
        draft.state("precision", "fp8", eight)
    for written in (plugin, found):
        said = PRECISIONS.get(plain(str(written.value).rpartition(".")[2])) if written is not None else None
        if said is not None:
            draft.state("precision", said[0], written)
            draft.state("train.fp8_recipe", said[1], written)
    half = draft.keys.get("model.megatron_amp_O2")
    if half is not None and switch(half.value) is False:
        draft.take("model.megatron_amp_O2")
        draft.state("train.weights_dtype", "fp32", half, "float32 weights under autocast")
    draft.default("train.weights_dtype", "bf16" if draft.fact("precision") != "fp16" else "fp16", "half of the run")


def _evaluations(draft: Draft) -> None:
    found = draft.take("trainer.val_check_interval")
    steps = draft.value(found, number)
    if isinstance(steps, int) and steps > 1:
        draft.state("train.evaluate_every", steps, found)
    draft.take("trainer.limit_val_batches")


def _optimizer(draft: Draft) -> None:
    """A distributed optimizer shards its states; FSDP shards the rest too."""
    found = draft.peek("model.optim.name")
    if found is not None and "distributed" in str(found.value):
        draft.state("layout.zero", 1, found)
    state_optimizer(draft, "model.optim.name", found)
    fsdp = draft.on("model.fsdp", "trainer.strategy.fsdp")
    if fsdp is not None:
        strategy = draft.take("model.fsdp_sharding_strategy")
        draft.state("layout.zero", _FSDP.get(plain(strategy.value), 3) if strategy is not None else 3, strategy or fsdp)


def _padding(draft: Draft, *, tuned: bool) -> None:
    packed = draft.on("model.data.train_ds.packed_sequence", "packed_sequence", "data.packed_sequence_specs")
    to_length = draft.on("model.data.train_ds.pad_to_max_length", "data.pad_to_max_length")
    if packed is not None or to_length is not None:
        draft.state("train.padding", "packed" if packed is not None else "to-seq-len", packed or to_length)
    draft.default("train.padding", "longest-in-global-batch" if tuned else "packed")


TOOL = Tool(
    name="nemo",
    title="NeMo",
    reads="YAML configurations of NeMo 1 and recipes of NeMo 2 in Python (--set recipe=NAME chooses one)",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
