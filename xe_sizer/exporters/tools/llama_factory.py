"""LLaMA-Factory configurations. Keys: LLaMA-Factory src/llamafactory/hparams (read in August 2026)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.adapters import QLORA, adapted_modules, adapter_of
from xe_sizer.exporters.parts.deepspeed import deepspeed_settings

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_STAGES = {"pretrain": "pt", "reward": "rm", "ppo": "ppo", "dpo": "dpo", "kto": "kto", "orpo": "dpo", "simpo": "dpo"}
_JOBS = ("sft", "lora", "qlora", *_STAGES)
_OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw-8bit": "adamw_bnb_8bit", "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit", "adafactor": "adafactor", "sgd": "sgd",
}  # fmt: skip
_ATTENTION = {"flash": "fa2", "sdpa": "sdpa", "eager": "disabled"}


def _write(plan: Plan) -> Written:
    values: dict[str, Any] = {
        "model_name_or_path": plan.take("model"),
        **_job(plan),
        "do_train": True,
        "dataset": "DATASET",
        "template": "default",
        "cutoff_len": plan.take("train.seq_len"),
        **_padding(plan),
        "per_device_train_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "max_steps": plan.take("train.steps"),
        "num_train_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        **_precision(plan),
        **_recompute(plan),
        "optim": _OPTIMIZERS.get(plan.peek("optimizer"), "adamw_torch"),
        "use_muon": plan.peek("optimizer") == "muon" or None,
        "flash_attn": _ATTENTION.get(plan.take("attention")),
        "save_steps": plan.take("train.checkpoint_every"),
        "deepspeed": deepspeed_settings(plan),
        "output_dir": "saves",
    }
    plan.said("optimizer")
    return Written(yaml_text(values), run=_run(plan))


def _job(plan: Plan) -> dict[str, Any]:
    """Stage and method; a job without adapters trains all weights."""
    job = plan.peek("job")
    if job in _JOBS:
        plan.said("job")
    values: dict[str, Any] = {"stage": _STAGES.get(job, "sft"), "finetuning_type": "full"}
    if job in ("orpo", "simpo"):
        values["pref_loss"] = job
    adapter = adapter_of(plan)
    if adapter:
        targets = adapted_modules(plan)
        values |= {
            "finetuning_type": "lora",
            "lora_rank": plan.take("lora.rank"),
            "lora_target": "all" if targets == ["all-linear"] else ",".join(targets) or None,
            "lora_dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
            "additional_target": ",".join(plan.take("lora.modules_to_save") or ()) or None,
        }
    if adapter == QLORA:
        values["quantization_bit"] = plan.take("train.bits", 4)
        plan.said("train.quantiser")
    return values


def _padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    if word in ("packed", "longest-in-micro-batch", "grouped-by-length"):
        plan.said("train.padding")
    return {"packing": word == "packed", "group_by_length": word == "grouped-by-length" or None}


def _precision(plan: Plan) -> dict[str, Any]:
    word = plan.peek("precision")
    if word in ("bf16", "fp16", "fp8"):
        plan.said("precision")
    plan.said("train.weights_dtype")
    return {"bf16": word in ("bf16", "fp8"), "fp16": word == "fp16" or None, "fp8": word == "fp8" or None}


def _recompute(plan: Plan) -> dict[str, Any]:
    """All of the activations or none; with full recomputation the kept inputs may go to host memory."""
    word = plan.peek("layout.recompute")
    if word in ("full", "none"):
        plan.said("layout.recompute")
    moved = word == "full" and plan.peek("layout.offload") == "activations"
    if moved:
        plan.said("layout.offload")
    return {"disable_gradient_checkpointing": word == "none", "use_unsloth_gc": moved or None}


def _run(plan: Plan) -> str:
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    return f"FORCE_TORCHRUN=1 NNODES={nodes} NPROC_PER_NODE={per_node} llamafactory-cli train FILE"


EXPORTERS = (
    Exporter(
        name="llama-factory",
        title="LLaMA-Factory",
        ending=".yaml",
        write=_write,
        says=(
            "model",
            "job",
            "precision",
            "attention",
            "train.seq_len",
            "train.micro_batch",
            "train.grad_accum",
            "train.steps",
            "train.epochs",
            "layout.zero",
            "layout.offload",
            "layout.recompute",
            "lora.rank",
            "lora.targets",
            "lora.dropout",
            "lora.dora",
        ),
    ),
)
