"""What TRL's trainers are told of a plan. Keys: trl/trainer/*_config.py and model_config.py (read at 1.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.exporter import LEARNING_RATE, Added
from xe_sizer.exporters.parts.adapters import BITS, adapted_modules, adapter_of

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_TRAINERS = {"sft": "sft", "lora": "sft", "qlora": "sft", "dpo": "dpo", "kto": "kto", "reward": "reward"}
_REFERENCES = {"precomputed": "precompute_ref_log_probs", "none": "reference_free"}
_LOSSES: dict[str, dict[str, Any]] = {
    "dpo": {"loss_type": "sigmoid"},
    "kto": {"desirable_weight": 1.0},
    "reward": {"center_rewards_coefficient": 0.0},
}
OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_8bit",
    "adamw-4bit": "adamw_torch_4bit", "adamw-anyprecision": "adamw_anyprecision", "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit", "adafactor": "adafactor", "sgd": "sgd", "adagrad": "adagrad",
    "lion": "lion_32bit", "lion-8bit": "lion_8bit", "paged-lion": "paged_lion_32bit",
    "paged-lion-8bit": "paged_lion_8bit", "ademamix": "ademamix", "ademamix-8bit": "ademamix_8bit",
    "paged-ademamix": "paged_ademamix_32bit", "paged-ademamix-8bit": "paged_ademamix_8bit", "rmsprop": "rmsprop",
    "rmsprop-8bit": "rmsprop_bnb_8bit", "lomo": "lomo", "adalomo": "adalomo", "grokadamw": "grokadamw",
    "schedule-free-adamw": "schedule_free_adamw", "schedule-free-sgd": "schedule_free_sgd",
    "stable-adamw": "stable_adamw",
}  # fmt: skip
"""Words of `optim` in transformers, training_args.py, OptimizerNames."""
_ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
KERNELS = {"rotary", "norm", "activation"}  # that Liger has all of

SAYS = (
    "model", "job", "precision", "optimizer", "attention", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "train.checkpoint_every", "train.evaluate_every", "train.bits",
    "train.weights_dtype", "train.fused_kernels", "layout.recompute", "layout.offload", "lora.rank", "lora.targets",
    "lora.alpha", "lora.dropout", "lora.dora", "lora.modules_to_save",
)  # fmt: skip
"""Scenario keys that the settings state."""
ADDED = Added("learning_rate, lr_scheduler_type, warmup_ratio", "max_steps or num_train_epochs", "lora_alpha")
"""What trainers of transformers call what the user has to add."""


def trainer_of(plan: Plan) -> str:
    """What TRL calls the trainer of a plan's job: the command after `trl`, and its script; `sft` where it has none."""
    return _TRAINERS.get(plan.peek("job"), "sft")


def trl_settings(plan: Plan) -> dict[str, Any]:
    """The arguments of a TRL trainer, without those that share out the GPUs."""
    return {
        "model_name_or_path": plan.take("model"),
        **_weights(plan),
        "attn_implementation": plan.word("attention", _ATTENTION),
        **_job(plan),
        "dataset_name": "DATASET",
        "max_length": plan.take("train.seq_len"),
        **_padding(plan),
        "per_device_train_batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum"),
        "learning_rate": LEARNING_RATE,
        "max_steps": plan.take("train.steps"),
        "num_train_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        **_precision(plan),
        **_activations(plan),
        "optim": plan.word("optimizer", OPTIMIZERS),
        **_kernels(plan),
        **saved_and_evaluated(plan),
        "output_dir": "output",
    }


def saved_and_evaluated(plan: Plan) -> dict[str, Any]:
    """When the Trainer of transformers saves and evaluates; where the plan saves nowhere, at the end of an epoch."""
    saved, evaluated = plan.take("train.checkpoint_every"), plan.take("train.evaluate_every")
    return {
        "save_strategy": "steps" if saved else "epoch",
        "save_steps": saved,
        "eval_strategy": "steps" if evaluated else None,
        "eval_steps": evaluated,
    }


def _job(plan: Plan) -> dict[str, Any]:
    """Adapters, and the loss by which a file tells its trainer."""
    job = plan.peek("job")
    if job in _TRAINERS:
        plan.said("job")
    values = dict(_LOSSES.get(job, {}))
    if adapter_of(plan) or plan.peek("lora.rank"):
        targets = adapted_modules(plan)
        values |= {
            "use_peft": True,
            "lora_r": plan.take("lora.rank"),
            "lora_target_modules": "all-linear" if targets == ["all-linear"] else targets or None,
            "lora_alpha": plan.take("lora.alpha"),
            "lora_dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
            "lora_modules_to_save": list(plan.take("lora.modules_to_save") or ()) or None,
        }
    return values | _reference(plan)


def _reference(plan: Plan) -> dict[str, Any]:
    """Where the log-probabilities of a reference come from; TRL has a copy, or adapters off, by itself."""
    chosen = plan.peek("train.reference")
    usual = "adapters-off" if adapter_of(plan) else "copy"
    if chosen in (*_REFERENCES, usual):
        plan.said("train.reference")
    return {_REFERENCES[chosen]: True} if chosen in _REFERENCES else {}


def _weights(plan: Plan) -> dict[str, Any]:
    """The format in which weights are loaded, and the bits of frozen ones."""
    values: dict[str, Any] = {"dtype": plan.word("train.weights_dtype", _DTYPES)}
    bits = plan.peek("train.bits", 4 if plan.peek("job") == "qlora" else None)
    if bits in BITS:
        plan.said("train.bits")
        values[BITS[bits]] = True
    return values


def _padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    if word in ("packed", "none", "longest-in-micro-batch", "grouped-by-length"):
        plan.said("train.padding")
    return {
        "packing": True if word == "packed" else None,
        "padding_free": True if word == "none" else None,
        "train_sampling_strategy": "group_by_length" if word == "grouped-by-length" else None,
    }


def _precision(plan: Plan) -> dict[str, Any]:
    word = plan.peek("precision")
    if word in ("bf16", "fp16", "fp32"):
        plan.said("precision")
    return {"bf16": word not in ("fp16", "fp32"), "fp16": True if word == "fp16" else None}


def _activations(plan: Plan) -> dict[str, Any]:
    """All layers recomputed or none; activations may go to host memory."""
    word, moved = plan.peek("layout.recompute"), plan.peek("layout.offload") == "activations"
    if word in ("full", "none"):
        plan.said("layout.recompute")
    if moved:
        plan.said("layout.offload")
    return {"gradient_checkpointing": word == "full", "activation_offloading": True if moved else None}


def _kernels(plan: Plan) -> dict[str, Any]:
    """Liger's kernels; the losses of TRL never hold all logits, with or without them."""
    if plan.peek("loss") == "fused":
        plan.said("loss")
    if set(plan.peek("train.fused_kernels") or ()) != KERNELS:
        return {}
    plan.said("train.fused_kernels", "loss")
    return {"use_liger_kernel": True}
