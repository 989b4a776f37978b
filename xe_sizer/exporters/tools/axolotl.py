"""Axolotl configurations. Keys: axolotl src/axolotl/utils/schemas (read at 0.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import LEARNING_RATE, Added, Exporter, Written
from xe_sizer.exporters.parts.accelerate import FSDP_VERSION, fsdp_settings
from xe_sizer.exporters.parts.adapters import BITS, LORA, QLORA, QLORA_BITS, adapted_modules, adapter_of
from xe_sizer.exporters.parts.deepspeed import deepspeed_settings
from xe_sizer.exporters.parts.trl import OPTIMIZERS

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_PREFERENCES = ("dpo", "kto", "orpo", "simpo", "grpo")
_OPTIMIZERS = OPTIMIZERS | {"adopt": "adopt_adamw", "came": "came_pytorch", "muon": "muon"}
_WEIGHTS = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "fp32": "fp32"}  # by the precision of the run
_SWITCHES = {"fp16": "fp16", "fp8": "fp8", "fp32": "float32"}
_LIGER = {"rotary": "liger_rope", "norm": "liger_rms_norm", "activation": "liger_glu_activation"}
_LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
_CUT_PLUGIN = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
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
        "learning_rate": LEARNING_RATE,
        "max_steps": plan.take("train.steps"),
        "num_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "optimizer": plan.word("optimizer", _OPTIMIZERS),
        "gradient_checkpointing": _recompute(plan),
        "attn_implementation": plan.word("attention", _ATTENTION),
        **_kernels(plan),
        "tensor_parallel_size": _above_one(plan.take("layout.tp")),
        "context_parallel_size": _above_one(plan.take("layout.cp")),
        "dp_shard_size": plan.take("layout.zero_group") or None,
        "save_steps": plan.take("train.checkpoint_every"),
        "eval_steps": plan.take("train.evaluate_every"),
        **_sharding(plan),
    }
    return Written(yaml_text(values), run=_run(plan))


def _job(plan: Plan) -> dict[str, Any]:
    job = plan.take("job")
    adapter = adapter_of(plan)
    values: dict[str, Any] = {"adapter": adapter, "rl": job if job in _PREFERENCES else None}
    if plan.peek("train.reference") == "precomputed":
        plan.said("train.reference")
        values["precompute_ref_log_probs"] = True
    if job == "reward":
        values["reward_model"] = True
    if adapter:
        values |= _adapters(plan)
    bits = plan.peek("train.bits", QLORA_BITS if adapter == QLORA else None)
    if adapter and bits in BITS:
        plan.said("train.bits")
        values |= {"adapter": QLORA if bits == QLORA_BITS else LORA, BITS[bits]: True}
    if job == "pretrain":
        values["pretraining_dataset"] = [{"path": "PATH"}]
    else:
        values["datasets"] = [{"path": "PATH", "type": "chat_template"}]
    return values


def _adapters(plan: Plan) -> dict[str, Any]:
    targets = adapted_modules(plan)
    return {
        "lora_r": plan.take("lora.rank"),
        "lora_alpha": plan.take("lora.alpha"),
        "lora_dropout": plan.take("lora.dropout", 0),
        "lora_target_linear": targets == ["all-linear"] or None,
        "lora_target_modules": None if targets == ["all-linear"] else targets,
        "peft_use_dora": plan.take("lora.dora") or None,
        "lora_modules_to_save": list(plan.take("lora.modules_to_save") or ()) or None,
    }


def _precision(plan: Plan) -> dict[str, Any]:
    """Precision, and with it the type of the weights."""
    word = plan.peek("precision")
    if word in _WEIGHTS:
        plan.said("precision")
    if plan.peek("train.weights_dtype") == _WEIGHTS.get(word):
        plan.said("train.weights_dtype")
    return {"bf16": word == "bf16", **{_SWITCHES[each]: word == each or None for each in ("fp16", "fp8", "fp32")}}


def _kernels(plan: Plan) -> dict[str, Any]:
    """Liger's kernels and loss, or the cut cross-entropy where it is the loss alone that is fused."""
    kernels = plan.peek("train.fused_kernels") or ()
    fused = plan.peek("loss") == "fused"
    if fused:
        plan.said("loss")
    if kernels and all(kind in _LIGER for kind in kernels):
        plan.said("train.fused_kernels")
        chosen = {_LIGER[kind]: True for kind in kernels}
        return {"plugins": [_LIGER_PLUGIN], **chosen, "liger_fused_linear_cross_entropy": fused or None}
    return {"plugins": [_CUT_PLUGIN], "cut_cross_entropy": True} if fused else {}


def _padding(plan: Plan) -> dict[str, Any]:
    word = plan.peek("train.padding")
    known = ("packed", "to-seq-len", "longest-in-micro-batch", "grouped-by-length", "none")
    if word in known:
        plan.said("train.padding")
    return {
        "sample_packing": word == "packed",
        "pad_to_sequence_len": word in ("packed", "to-seq-len"),
        "group_by_length": word == "grouped-by-length" or None,
        "batch_flattening": word == "none" or None,
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


def _sharding(plan: Plan) -> dict[str, Any]:
    fsdp = fsdp_settings(plan)
    if fsdp is None:
        return {"deepspeed": deepspeed_settings(plan)}
    return {"fsdp_version": FSDP_VERSION, "fsdp_config": fsdp}


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
    "layout.zero", "layout.offload", "layout.recompute", "lora.rank", "lora.targets", "lora.alpha", "lora.dropout",
    "lora.dora", "lora.modules_to_save", "train.fused_kernels", "loss", "train.evaluate_every",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="axolotl",
        title="axolotl",
        ending=".yml",
        write=_write,
        says=SAYS,
        added=Added("learning_rate, lr_scheduler, warmup_ratio", "max_steps or num_epochs", "lora_alpha"),
    ),
)
