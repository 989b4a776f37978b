"""LLaMA-Factory configurations. Keys: LLaMA-Factory src/llamafactory/hparams (read in August 2026)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import LEARNING_RATE, Exporter, Written
from xe_sizer.exporters.parts.accelerate import trainer_sharding
from xe_sizer.exporters.parts.adapters import QLORA, adapted_modules, adapter_of
from xe_sizer.exporters.parts.trl import ADDED, KERNELS, OPTIMIZERS, saved_and_evaluated

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_STAGES = {"pretrain": "pt", "reward": "rm", "ppo": "ppo", "dpo": "dpo", "kto": "kto", "orpo": "dpo", "simpo": "dpo"}
_JOBS = ("sft", "lora", "qlora", *_STAGES)
_SWITCHES = {
    "muon": ("muon", None), "adam-mini": ("adam_mini", None), "apollo": ("apollo", None),
    "galore-adamw": ("galore", None), "galore-adamw-8bit": ("galore", "adamw_8bit"),
    "galore-adafactor": ("galore", "adafactor"),
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
        "learning_rate": LEARNING_RATE,
        "max_steps": plan.take("train.steps"),
        "num_train_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        **_precision(plan),
        **_recompute(plan),
        **_optimizer(plan),
        "flash_attn": plan.word("attention", _ATTENTION),
        **_kernels(plan),
        **saved_and_evaluated(plan),
        **trainer_sharding(plan),
        "output_dir": "saves",
    }
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
            "lora_alpha": plan.take("lora.alpha"),
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
    """Precision; what learns is kept in float32 unless the run is one in pure bfloat16, what is frozen in its type."""
    word = plan.peek("precision")
    if word in ("bf16", "fp16", "fp8"):
        plan.said("precision")
    pure = word == "bf16" and plan.peek("train.weights_dtype") == "bf16" and not adapter_of(plan)
    frozen = word if word in ("bf16", "fp16") else "bf16"
    kept = "bf16" if pure else frozen if adapter_of(plan) else "fp32"
    if plan.peek("train.weights_dtype") == kept or plan.peek("job") == QLORA:
        plan.said("train.weights_dtype")
    return {
        "pure_bf16": pure or None,
        "bf16": (word in ("bf16", "fp8") and not pure) or None,
        "fp16": word == "fp16" or None,
        "fp8": word == "fp8" or None,
    }


def _optimizer(plan: Plan) -> dict[str, Any]:
    """The optimizer: a switch of its own where LLaMA-Factory brings it along."""
    name = plan.peek("optimizer", "")
    switch = _SWITCHES.get(str(name).removesuffix("-layerwise"))
    if switch is None:
        return {"optim": plan.word("optimizer", OPTIMIZERS)}
    kind, optim = switch
    plan.said("optimizer")
    return {
        f"use_{kind}": True,
        f"{kind}_layerwise": True if name.endswith("-layerwise") else None,
        f"{kind}_rank": plan.take("train.optimizer_rank"),
        "optim": optim,
    }


def _kernels(plan: Plan) -> dict[str, Any]:
    """Liger's kernels, with which the loss is fused where the stage needs no logits."""
    if set(plan.peek("train.fused_kernels") or ()) != KERNELS:
        return {}
    plan.said("train.fused_kernels")
    if plan.peek("loss") == "fused" and plan.peek("job") in ("pretrain", "sft", "lora", "qlora"):
        plan.said("loss")
    return {"enable_liger_kernel": True}


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
            "lora.alpha",
            "lora.modules_to_save",
            "optimizer",
            "train.padding",
            "train.checkpoint_every",
            "train.evaluate_every",
            "train.fused_kernels",
        ),
        added=ADDED,
    ),
)
