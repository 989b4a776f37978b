"""Axolotl configurations. Keys: axolotl src/axolotl/utils/schemas (read at 0.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.adapters import QLORA, adapted_modules, adapter_of
from xe_sizer.exporters.parts.deepspeed import deepspeed_settings

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_PREFERENCES = ("dpo", "kto", "orpo", "simpo", "grpo")
_OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit",
    "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit", "adafactor": "adafactor", "sgd": "sgd", "muon": "muon",
}  # fmt: skip
_ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}


def _write(plan: Plan) -> Written:
    values: dict[str, Any] = {
        "base_model": plan.take("model"),
        **_job(plan),
        **_precision(plan),
        "sequence_len": plan.take("train.seq_len"),
        **_padding(plan),
        "micro_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "max_steps": plan.take("train.steps"),
        "num_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "optimizer": _OPTIMIZERS.get(plan.take("optimizer"), "adamw_torch"),
        "gradient_checkpointing": _recompute(plan),
        "attn_implementation": _ATTENTION.get(plan.take("attention")),
        "tensor_parallel_size": _above_one(plan.take("layout.tp")),
        "context_parallel_size": _above_one(plan.take("layout.cp")),
        "save_steps": plan.take("train.checkpoint_every"),
        "deepspeed": deepspeed_settings(plan),
    }
    return Written(yaml_text(values), run=_run(plan))


def _job(plan: Plan) -> dict[str, Any]:
    job = plan.take("job")
    adapter = adapter_of(plan)
    values: dict[str, Any] = {"adapter": adapter, "rl": job if job in _PREFERENCES else None}
    if job == "reward":
        values["reward_model"] = True
    if adapter:
        values |= _adapters(plan)
    if adapter == QLORA:
        values["load_in_4bit"] = True
        plan.said("train.bits", "train.quantiser")
    if job == "pretrain":
        values["pretraining_dataset"] = [{"path": "PATH"}]
    else:
        values["datasets"] = [{"path": "PATH", "type": "chat_template"}]
    return values


def _adapters(plan: Plan) -> dict[str, Any]:
    targets = adapted_modules(plan)
    return {
        "lora_r": plan.take("lora.rank"),
        "lora_dropout": plan.take("lora.dropout", 0),
        "lora_target_linear": targets == ["all-linear"] or None,
        "lora_target_modules": None if targets == ["all-linear"] else targets,
        "peft_use_dora": plan.take("lora.dora") or None,
        "lora_modules_to_save": plan.take("lora.modules_to_save"),
    }


def _precision(plan: Plan) -> dict[str, Any]:
    word = plan.take("precision")
    plan.said("train.weights_dtype")
    return {"bf16": word == "bf16", "fp16": word == "fp16" or None, "fp8": word == "fp8" or None}


def _padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    known = ("packed", "to-seq-len", "longest-in-micro-batch", "grouped-by-length")
    if word in known:
        plan.said("train.padding")
    return {
        "sample_packing": word == "packed",
        "pad_to_sequence_len": word in ("packed", "to-seq-len"),
        "group_by_length": word == "grouped-by-length" or None,
    }


def _recompute(plan: Plan) -> bool | str:
    """All of the activations or none; with full recomputation the kept inputs may go to host memory."""
    full = bool(plan.peek("layout.recompute") == "full")
    if plan.peek("layout.recompute") in ("full", "none"):
        plan.said("layout.recompute")
    if full and plan.peek("layout.offload") == "activations":
        plan.said("layout.offload")
        return "offload"
    return full


def _above_one(ranks: int | None) -> int | None:
    return ranks if ranks and ranks > 1 else None


def _run(plan: Plan) -> str:
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"--num-machines {nodes} " if nodes > 1 else ""
    return (
        f"axolotl train FILE --launcher accelerate -- {machines}--num-processes {plan.peek('gpus', nodes * per_node)}"
    )


SAYS = (
    "model", "job", "precision", "optimizer", "attention", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "train.checkpoint_every", "layout.tp", "layout.cp",
    "layout.zero", "layout.offload", "layout.recompute", "lora.rank", "lora.targets", "lora.dropout", "lora.dora",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="axolotl",
        title="axolotl",
        ending=".yml",
        write=_write,
        says=SAYS,
    ),
)
