"""NeMo AutoModel recipes. Keys: nemo_automodel/components/{training,distributed,_peft} (0.5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import LEARNING_RATE, Added, Exporter, Written
from xe_sizer.exporters.parts.adapters import adapted_modules
from xe_sizer.exporters.parts.sharding import is_replicated, shard_sizes

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_JOBS = ("sft", "lora", "qlora", "pretrain")
_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW", "adamw-8bit": "bitsandbytes.optim.AdamW8bit", "adafactor": "torch.optim.Adafactor",
    "paged-adamw": "bitsandbytes.optim.PagedAdamW", "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "sgd": "torch.optim.SGD",
}  # fmt: skip
_ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}
_SCHEDULES = {"1f1b": "1f1b", "1f1b-interleaved": "interleaved1f1b", "gpipe": "gpipe", "zb-v": "ZBVZeroBubble"}
_CHECKPOINTING = {"none": False, "full": True, "selective": "selective"}
_TITLE = "NeMo AutoModel"
_LOSSES = {"fused": "linear_ce.FusedLinearCrossEntropy", "eager": "masked_ce.MaskedCrossEntropy"}


def _write(plan: Plan) -> Written:
    job = plan.peek("job")
    if job in _JOBS:
        plan.said("job")
    if plan.peek("precision") == "bf16":
        plan.said("precision")
    values: dict[str, Any] = {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "step_scheduler": _steps(plan),
        "model": {
            "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
            "pretrained_model_name_or_path": plan.take("model"),
            "torch_dtype": "bfloat16",
            "attn_implementation": plan.word("attention", _ATTENTION),
        },
        "distributed": _layout(plan),
        "loss_fn": _loss(plan),
        **_data(plan),
        **_adapters(plan),
        "optimizer": {"_target_": _optimizer(plan), "lr": LEARNING_RATE},
    }
    if plan.peek("train.weights_dtype") == "bf16":
        plan.said("train.weights_dtype")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"torchrun --nnodes {nodes} --nproc-per-node {each} -m nemo_automodel.cli.app FILE"
    return Written(yaml_text(values), run=machines if nodes > 1 else f"automodel FILE --nproc-per-node {each}")


def _steps(plan: Plan) -> dict[str, Any]:
    """Batches and length of the run; with a pipeline the local batch is that of all its micro-batches."""
    micro, accumulated = plan.take("train.micro_batch", 1), plan.take("train.grad_accum", 1)
    piped = plan.peek("layout.pp", 1) > 1
    return {
        "global_batch_size": plan.take("train.global_batch"),
        "local_batch_size": micro * accumulated if piped else micro,
        "max_steps": plan.take("train.steps"),
        "num_epochs": None if plan.peek("train.steps") else plan.take("train.epochs"),
        "ckpt_every_steps": plan.take("train.checkpoint_every"),
        "val_every_steps": plan.peek("train.evaluate_every"),
    }


def _layout(plan: Plan) -> dict[str, Any]:
    """FSDP2, which shards all, or data parallelism alone."""
    alone, piped = is_replicated(plan, _TITLE), plan.take("layout.pp", 1)
    values: dict[str, Any] = {
        "strategy": "ddp" if alone else "fsdp2",
        **{f"{key}_size": plan.take(f"layout.{key}", 1) for key in ("tp", "cp", "ep")},
        "pp_size": piped,
        "sequence_parallel": plan.take("layout.sequence_parallel") or False,
        "activation_checkpointing": _CHECKPOINTING[plan.take("layout.recompute", "none")],
    }
    if (sizes := shard_sizes(plan)) is not None and not alone:
        values |= {"dp_replicate_size": sizes[0], "dp_size": sizes[0] * sizes[1]}
    if plan.peek("layout.offload") == "params" and not alone:
        plan.said("layout.offload")
        values["offload_policy"] = {"_target_": "torch.distributed.fsdp.CPUOffloadPolicy"}
    if piped > 1:
        layers, chunks = plan.shape.layers, plan.peek("layout.vpp", 1)
        each = math.ceil(layers / (piped * chunks))
        if math.ceil(layers / (piped * each)) == chunks:  # otherwise no number of layers makes as many chunks
            plan.said("layout.vpp")
        values["pipeline"] = {
            "pp_schedule": plan.word("layout.schedule", _SCHEDULES) or _SCHEDULES["1f1b"],
            "layers_per_stage": each if chunks > 1 else None,
            "pp_microbatch_size": plan.peek("train.micro_batch", 1),
        }
    return values


def _loss(plan: Plan) -> dict[str, Any] | None:
    found = _LOSSES.get(plan.peek("loss"))
    if found is not None:
        plan.said("loss")
    return {"_target_": f"nemo_automodel.components.loss.{found}"} if found else None


def _data(plan: Plan) -> dict[str, Any]:
    """A data set in place of one's own, of the plan's length, and how its samples are padded."""
    length, padding = plan.take("train.seq_len"), plan.peek("train.padding")
    folder = "nemo_automodel.components.datasets.llm"
    evaluated = plan.take("train.evaluate_every")
    if plan.peek("job") == "pretrain":
        if padding == "packed":
            plan.said("train.padding")
        data = {"_target_": f"{folder}.megatron_dataset.MegatronPretraining", "paths": "PATH", "seq_length": length}
        return {"dataset": data, "validation_dataset": data if evaluated else None}
    if padding in ("packed", "to-seq-len", "longest-in-micro-batch"):
        plan.said("train.padding")
    data = {
        "_target_": f"{folder}.chat_dataset.ChatDataset",
        "path_or_dataset_id": "PATH",
        "seq_length": length,
        "padding": "max_length" if padding == "to-seq-len" else "do_not_pad",
    }
    packed = {"packed_sequence_size": length if padding == "packed" else 0}
    return {"dataset": data, "validation_dataset": data if evaluated else None, "packed_sequence": packed}


def _adapters(plan: Plan) -> dict[str, Any]:
    job = plan.peek("job")
    if job not in ("lora", "qlora"):
        return {}
    targets = adapted_modules(plan)
    every = targets == ["all-linear"]
    values: dict[str, Any] = {
        "peft": {
            "_target_": "nemo_automodel.components._peft.lora.PeftConfig",
            "match_all_linear": every or None,
            "target_modules": None if every else [f"*{name}" for name in targets],
            "dim": plan.take("lora.rank"),
            "alpha": plan.take("lora.alpha"),
            "dropout": plan.take("lora.dropout", 0),
            "use_dora": plan.take("lora.dora") or None,
        }
    }
    if job == "qlora":
        plan.said("train.bits", "train.quantiser")
        values["quantization"] = {"load_in_4bit": True}
    return values


def _optimizer(plan: Plan) -> str:
    found = _OPTIMIZERS.get(plan.peek("optimizer", "adamw"))
    if found is not None:
        plan.said("optimizer")
    return found or _OPTIMIZERS["adamw"]


SAYS = (
    "model", "job", "precision", "optimizer", "attention", "loss", "train.seq_len", "train.padding",
    "train.micro_batch", "train.global_batch", "train.steps", "train.epochs", "layout.tp", "layout.pp", "layout.cp",
    "layout.ep", "layout.vpp", "layout.schedule", "train.checkpoint_every", "train.evaluate_every", "layout.zero",
    "layout.offload", "layout.recompute", "lora.rank", "lora.targets", "lora.alpha", "lora.dropout",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="nemo",
        aliases=("nemo-automodel", "automodel"),
        title=_TITLE,
        ending=".yaml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler", "step_scheduler.max_steps or num_epochs", "peft.alpha"),
    ),
)
