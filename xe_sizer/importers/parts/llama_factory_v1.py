"""LLaMA-Factory's second interface (v1): a model, a training section without stages, and plugins by name.

Keys and defaults: LLaMA-Factory src/llamafactory/v1/config and src/llamafactory/v1/plugins (read in August 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts import hf_arguments, peft
from xe_sizer.importers.parts.deepspeed import read_deepspeed
from xe_sizer.importers.parts.offload import PARAMS
from xe_sizer.importers.parts.optimizers import ADAMW, MUON
from xe_sizer.importers.values import interval, is_on, number, plain, positive
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Keys

_OWN = frozenset(
    {
        "train_dataset", "model_class", "kernel_config", "dist_config", "peft_config", "quant_config", "init_config",
        "batching_strategy", "enable_activation_checkpointing", "sample_backend", "optim_config",
    }
)  # fmt: skip
_FEW = 2
_PREFERENCES = {"orpo": "orpo", "simpo": "simpo"}
_PADDING = {
    "normal": "longest-in-micro-batch", "paddingfree": "none", "dynamicbatching": "longest-in-micro-batch",
    "dynamicpaddingfree": "none",
}  # fmt: skip
_RANK = 8
_EPOCHS = 3


def recognises(keys: Keys) -> bool:
    """Whether keys are of the second interface."""
    tops = {name.partition(".")[0] for name in keys}
    return "model" in keys and len(_OWN & tops) >= _FEW and "base_model" not in keys


def read(draft: Draft, source: Source) -> None:
    """State what a configuration of the second interface says."""
    _job(draft)
    _sharding(draft, source)
    _batches(draft)
    mixed = draft.take("bf16")
    if mixed is not None:
        draft.state("precision", "bf16" if is_on(mixed.value) else "fp32", mixed)
    draft.default("precision", "bf16")
    found = draft.take("enable_activation_checkpointing")
    if found is not None:
        draft.state("layout.recompute", "full" if is_on(found.value) else "none", found)
    draft.default("layout.recompute", "full")
    _optimizer(draft)
    hf_arguments.state_attention(draft, "flash_attn")
    kernels = draft.take("kernel_config.name")
    if kernels is not None and "liger" in plain(kernels.value):
        draft.state("train.fused_kernels", hf_arguments.LIGER_KERNELS, kernels)
        draft.state("loss", "fused", kernels)
    elif kernels is not None and plain(kernels.value) != "auto":
        draft.lose("kernel_config.name", "fuses kernels")
    saved = draft.take("save_steps")
    if saved is not None:
        draft.state("train.checkpoint_every", draft.value(saved, interval), saved)


def _job(draft: Draft) -> None:
    method, loss = draft.take("peft_config.name"), draft.take("pref_loss")
    bits, quantised = draft.take("quant_config.quantization_bit"), draft.on("quant_config.name")
    data = draft.peek("train_dataset")
    word = plain(method.value) if method is not None else "full"
    if loss is not None:
        draft.state("job", _PREFERENCES.get(plain(loss.value), "dpo"), loss)
    elif data is not None and "dpo" in plain(data.value):
        draft.assume("job", "dpo", "from the name of the data set", data.where)
    elif word == peft.LORA:
        draft.state("job", peft.QLORA if quantised or bits else peft.LORA, quantised or method)
    elif method is not None:
        draft.state("job", peft.SFT, method)
    draft.default("job", peft.SFT, "no peft_config: all weights are trained")
    if word == "freeze" and method is not None:
        draft.lose("peft_config.name", "trains some of the layers only; all are counted")
    if word == peft.LORA:
        _adapters(draft)
    if bits is not None:
        draft.state("train.bits", draft.value(bits, positive), bits)
        draft.default("train.quantiser", peft.BITSANDBYTES)


def _adapters(draft: Draft) -> None:
    peft.state_targets(draft, draft.take("peft_config.target_modules"), (peft.ALL_LINEAR,))
    for key, name, read_as, default in (
        ("lora.rank", "peft_config.r", positive, _RANK),
        ("lora.dropout", "peft_config.lora_dropout", number, 0.05),
    ):
        found = draft.take(name)
        draft.state(key, draft.value(found, read_as), found) if found else draft.default(key, default)


def _sharding(draft: Draft, source: Source) -> None:
    name, reshard = draft.take("dist_config.name"), draft.take("dist_config.reshard_after_forward")
    file, offload = draft.take("dist_config.config_file"), draft.on("dist_config.offload_params")
    if name is not None and plain(name.value) == DEEPSPEED:
        draft.state("train.backend", DEEPSPEED, name)
        if file is not None:
            read_deepspeed(draft, file, source)
    elif name is not None:
        kept = reshard is not None and not is_on(reshard.value)
        draft.state("layout.zero", 2 if kept else 3, reshard if kept else name)
    if offload is not None:
        draft.state("layout.offload", PARAMS, offload)
    draft.default("layout.zero", 0, "no dist_config")


def _batches(draft: Draft) -> None:
    strategy, total = draft.take("batching_strategy"), draft.peek("global_batch_size")
    if strategy is not None:
        draft.state("train.padding", _PADDING.get(plain(strategy.value)), strategy)
        if "dynamic" in plain(strategy.value):
            draft.lose("batching_strategy", "fills micro-batches up to a number of tokens")
    draft.default("train.padding", "longest-in-micro-batch")
    if draft.peek("micro_batch_size") is None:
        draft.default("train.micro_batch", 1)
    if total is None:
        draft.default("train.grad_accum", 1, "no global_batch_size")
    draft.default("train.epochs", _EPOCHS) if draft.peek("num_train_epochs") is None else None


def _optimizer(draft: Draft) -> None:
    found = draft.take("optim_config.name")
    if found is not None and plain(found.value) == MUON:
        draft.state("optimizer", MUON, found)
    draft.default("optimizer", ADAMW)
