"""AMD's Primus: experiments in YAML, with Megatron-LM, Megatron Bridge, TorchTitan or MaxText underneath.

Defaults: Primus primus/configs/modules and primus/configs/models, which are not among an experiment's files.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.interop.draft import Table
from xe_sizer.interop.huggingface import state_optimizer
from xe_sizer.interop.megatron import TABLE as MEGATRON
from xe_sizer.interop.megatron import Arguments, filled_in, state_megatron
from xe_sizer.interop.readers.documents import resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import is_on, plain, positive, positive_or_open, whole
from xe_sizer.profiles.catalogue import Registry, load_stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys, Written

# TorchTitan's and MaxText's keys in experiments of Primus, with the values that Primus fills in.
#
# Primus primus/configs/modules/{torchtitan,maxtext}/pre_trainer.yaml; MaxText configs/base.yml.

_NODE = 8  # GPUs that the axes of one node share
TORCHTITAN, MAXTEXT = Table(file="primus/torchtitan"), Table(file="primus/maxtext")


def state_torchtitan(draft: Draft) -> None:
    """State what TorchTitan's keys say."""
    draft.apply(TORCHTITAN)
    reshard, shards = (
        draft.take("parallelism.fsdp_reshard_after_forward"),
        draft.take("parallelism.data_parallel_shard_degree"),
    )
    stage = 2 if reshard is not None and plain(reshard.value) == "never" else 3
    if shards is not None and draft.value(shards, positive_or_open) == 1:
        draft.state("layout.zero", 0, shards)
    elif shards is not None:
        draft.state("layout.zero", stage, shards)
    draft.default("layout.zero", stage, "FSDP over all data-parallel ranks")
    found = draft.peek("optimizer.name")
    state_optimizer(draft, "optimizer.name", found)
    draft.default("optimizer", "adamw")
    eight = draft.peek("quantize.linear.float8.filter_fqns", "quantize.linear.mx.filter_fqns")
    if eight is not None:
        draft.state("precision", "fp8", eight)
    draft.default("precision", "bf16", "mixed_precision_param bfloat16")
    draft.default("train.weights_dtype", "fp32", "FSDP keeps float32 weights")
    draft.default("train.padding", "packed", "documents fill every sequence")
    if "train.global_batch" not in draft.facts:
        draft.default("train.grad_accum", 1, "the global batch is one local batch of each rank")


def state_maxtext(draft: Draft) -> None:
    """State what MaxText's keys say; -1 of an axis is what the others leave of a node."""
    draft.apply(MAXTEXT)
    batch = draft.take("per_device_batch_size")
    draft.state("train.micro_batch", draft.value(batch, positive), batch)
    axes = {name: draft.take(f"ici_{name}_parallelism") for name in ("tensor", "expert", "fsdp", "data", "pipeline")}
    sizes = {name: int(str(draft.value(each, whole) or 1)) for name, each in axes.items() if each is not None}
    rest = _NODE
    for size in sizes.values():
        rest //= max(size, 1)
    for name, key in (("tensor", "layout.tp"), ("expert", "layout.ep"), ("pipeline", "layout.pp")):
        written = axes[name]
        if written is not None:
            size = sizes[name]
            note = "what the other axes leave of 8 GPUs" if size < 0 else ""
            draft.state(key, max(rest, 1) if size < 0 else size, written, note)
        draft.default(key, 1)
    sharded = axes["fsdp"]
    if sharded is not None:
        draft.state("layout.zero", 3 if sizes["fsdp"] != 1 else 0, sharded)
    _maxtext_formats(draft)


def _maxtext_formats(draft: Draft) -> None:
    quantised = draft.on("quantization")
    if quantised is not None:
        draft.state("precision", "fp8" if "fp8" in plain(quantised.value) else None, quantised)
    for name, key in (("dtype", "precision"), ("weight_dtype", "train.weights_dtype")):
        written = draft.take(name)
        word = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}.get(plain(written.value)) if written else None
        draft.state(key, word, written)
        draft.default(key, "bf16")
    _remat(draft)
    draft.take("attention")
    draft.default("attention", "flash", "cudnn_flash_te")
    draft.default("optimizer", "adamw")
    draft.default("train.padding", "packed")


def _remat(draft: Draft) -> None:
    """What layers that run again keep: by the name of a policy, or tensor by tensor with `custom`.

    Source: MaxText configs/base.yml (remat_policy and the tensors below it) and layers/decoders.py (get_remat_policy).
    """
    policy, stack = draft.take("remat_policy"), load_stack(_MAXTEXT)
    word = str(policy.value).lower() if policy is not None else "full"
    listed = {name: draft.take(name) for name in stack.supports.recompute_tensors}
    if word in ("full", "none"):
        draft.state("layout.recompute", word, policy)
        draft.default("layout.recompute", "full")
    elif word in stack.recompute_policies:
        draft.state("layout.recompute", "selective", policy)
        draft.state("layout.recompute_policy", word, policy)
    elif word == "custom":
        draft.state("layout.recompute", "selective", policy)
        for key, where in (("recompute_keep", "device"), ("recompute_offload", "offload")):
            names = tuple(name for name, each in listed.items() if each is not None and plain(each.value) == where)
            draft.state(f"layout.{key}", names or None, policy)
    else:
        draft.lose("remat_policy", f"is no policy that is known here; known are {', '.join(stack.recompute_policies)}")


_MAXTEXT = "maxtext"
_MODULE = re.compile(r"modules\.([^.]+)\.framework")
_CARD = re.compile(r"mi\d{3}x", re.IGNORECASE)
_MODELS: Mapping[str, str] = {
    "deepseek-v3-16b": "deepseek-v2-lite", "deepseek-v2-16b": "deepseek-v2-lite", "deepseek-v3-236b": "deepseek-v2",
    "deepseek-v3-671b": "deepseek-v3", "llama4-17bx16e": "llama-4-scout-17b-16e",
    "llama4-17b16e": "llama-4-scout-17b-16e", "llama4-17bx128e": "llama-4-maverick-17b-128e",
    "llama4-17b128e": "llama-4-maverick-17b-128e", "gemma4-26b": "gemma-4-26b-a4b", "llama31-70b": "llama-3.1-70b",
    "llama31-8b": "llama-3.1-8b", "llama31-405b": "llama-3.1-405b", "qwen3-5-35b-a3b": "qwen3.5-35b-a3b",
    "llama2-70b-lora-mxfp4": "llama-2-70b",
}  # fmt: skip
"""Model files of Primus whose names are those of no profile."""
PRETRAINING: Mapping[str, object] = {
    "train_iters": 1000, "micro_batch_size": 2, "global_batch_size": 16, "seq_length": 1024, "bf16": True,
    "use_distributed_optimizer": True, "use_flash_attn": True, "sequence_parallel": True, "hidden_dropout": 0.0,
    "attention_dropout": 0.0, "eval_iters": 0, "data_parallel_sharding_strategy": "no_shard",
}  # fmt: skip
TUNING: Mapping[str, object] = {
    **PRETRAINING, "micro_batch_size": 1, "global_batch_size": 128, "seq_length": 2048, "eval_iters": 10,
    "eval_interval": 50, "save_interval": 100,
}  # fmt: skip
TABLE = Table(file="primus/own", beside=(TORCHTITAN, MAXTEXT, MEGATRON))


def _recognises(source: Source) -> Certainty:
    return 95 if source.kind == "yaml" and any(map(_MODULE.fullmatch, source.keys)) else 0


def _keys(source: Source) -> Keys:
    """The overrides of the first module under their own names, and what chooses them; references are filled in."""
    keys = resolved(source.keys, source.given)
    module = next((match[1] for match in map(_MODULE.fullmatch, keys) if match), "")
    inside = f"modules.{module}."
    found: dict[str, Written] = {}
    for name, written in keys.items():
        if name.startswith(f"{inside}overrides."):
            found[name.removeprefix(f"{inside}overrides.")] = written
        elif name.startswith(inside):
            found[f"_{name.removeprefix(inside)}"] = written
    return {**{name: each for name, each in keys.items() if not name.startswith(inside)}, **found}


def _read(draft: Draft, source: Source) -> None:
    framework = draft.take("_framework")
    word = str(framework.value) if framework is not None else ""
    tuning = "post" in str(getattr(draft.peek("_config"), "value", "")) or "sft" in str(
        getattr(draft.peek("_config"), "value", "")
    )
    draft.state("stack", {"torchtitan": "torchtitan", "maxtext": "maxtext"}.get(word, "primus"), framework)
    _model(draft)
    _job(draft, framework, tuning=tuning)
    if word == "torchtitan":
        file = draft.keys.get("_model")
        if file is not None and "fp8" in str(file.value).lower():  # it converts the linear layers
            draft.state("precision", "fp8", file)
        state_torchtitan(draft)
    elif word == "maxtext":
        state_maxtext(draft)
    elif word in ("megatron", "megatron_bridge"):
        with filled_in(draft, TUNING if tuning else PRETRAINING, "Primus"):
            state_megatron(Arguments(draft))
    elif framework is not None:
        draft.lose("_framework", f"{word} is not read")
    draft.default("train.padding", "longest-in-micro-batch" if tuning else "packed")
    card = _CARD.search(source.path.name) or _CARD.search(source.path.parent.name)
    if card is not None:
        draft.assume("gpu", card[0].lower(), "from the name of the file or its folder")


def _model(draft: Draft) -> None:
    """The model by the name of its file, which Primus has."""
    written = draft.take("_model")
    if written is None:
        draft.miss("model", "no module names one", "--model NAME")
        return
    stem = PurePath(str(written.value)).name.removesuffix(".yaml")
    draft.state("model", catalogue_name(stem), written, f"read from {stem}.yaml")


def catalogue_name(stem: str) -> str:
    """The catalogue's model that a file of Primus is called after, else the name of the file."""
    word = re.sub(r"-(fp8|bf16|mxfp\d)$", "", stem.lower().replace("_", "-"))
    named = _MODELS.get(word, word)
    try:
        return Registry().model(named).name
    except (InputError, OSError):
        return stem


def _job(draft: Draft, framework: Written | None, *, tuning: bool) -> None:
    adapters, kind = draft.on("lora.enabled"), draft.take("peft")
    if kind is not None and is_on(kind.value) and plain(kind.value) != "none":
        adapters = adapters or kind
    if adapters is not None:
        draft.state("job", "lora", adapters)
    draft.state("job", "sft" if tuning else "pretrain", draft.take("_config") or framework)


TOOL = Tool(
    name="primus",
    title="Primus",
    reads="YAML experiments of Megatron-LM, Megatron Bridge, TorchTitan and MaxText",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
