"""Torchtune configurations. Keys: torchtune recipes/*.py and models/*/_model_builders.py (0.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import LEARNING_RATE, Added, Exporter, Written
from xe_sizer.exporters.parts.adapters import adapted_modules
from xe_sizer.exporters.parts.sharding import is_replicated, shard_sizes
from xe_sizer.profiles.registry import Registry

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_TITLE = "torchtune"
_FAMILIES = {
    "gemma": ("gemma", ("2b", "7b")), "gemma-2": ("gemma2", ("2b", "9b", "27b")),
    "llama-2": ("llama2", ("7b", "13b", "70b")), "llama-3": ("llama3", ("8b", "70b")),
    "llama-3.1": ("llama3_1", ("8b", "70b", "405b")), "llama-3.2": ("llama3_2", ("1b", "3b")),
    "llama-3.3": ("llama3_3", ("70b",)), "phi-4": ("phi4", ("14b",)), "qwen2": ("qwen2", ("0.5b", "1.5b", "7b")),
    "qwen2.5": ("qwen2_5", ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b")),
    "qwen3": ("qwen3", ("0.6b", "1.7b", "4b", "8b", "14b", "32b")),
}  # fmt: skip
_BOTH = ("qwen2_5_1_5b", "qwen2_5_7b", "qwen2_5_14b", "qwen2_5_32b", "qwen2_5_72b", "qwen3_0_6b", "qwen3_1_7b",
         "qwen3_4b", "qwen3_8b", "qwen3_14b")  # fmt: skip
_OTHERS = {"mistral-7b-v0.1": "mistral.mistral_7b", "phi-3-mini-4k": "phi3.phi3_mini"}
_BUILDERS = _OTHERS | {
    f"{family}-{size}": f"{module}.{module}_{size.replace('.', '_')}"
    for family, (module, sizes) in _FAMILIES.items()
    for size in sizes
}
_TOKENIZERS = {"qwen3": "qwen3", "qwen2_5": "qwen2_5", "qwen2": "qwen2", "mistral": "mistral", "phi4": "phi4"}
_OPTIMIZERS = {
    "adamw": "torch.optim.AdamW", "adamw-8bit": "bitsandbytes.optim.AdamW8bit", "sgd": "torch.optim.SGD",
    "paged-adamw": "bitsandbytes.optim.PagedAdamW", "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit",
}  # fmt: skip
_OFFLOAD = {"params": (True, False), "activations": (False, True), "params+activations": (True, True)}
_MODULES = {"o_proj": "output_proj"}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def _write(plan: Plan) -> Written:
    job = plan.take("job")
    if job not in ("sft", "lora", "qlora"):
        raise InputError(Problem(f"{_TITLE} is written for sft, lora and qlora, not for {job}", Location("--to")))
    for key in ("precision", "train.weights_dtype"):
        if plan.peek(key) == "bf16":
            plan.said(key)
    gpus, builder = plan.take("gpus", 1), _builder(plan, job)
    one = gpus == 1
    name = f"{'full' if job == 'sft' else 'lora'}_{'single_device' if one else 'distributed'}"
    values: dict[str, Any] = {
        "output_dir": f"OUTPUT/{name}",
        "model": {"_component_": builder, **_adapters(plan, job)},
        "tokenizer": {
            "_component_": f"torchtune.models.{_tokenizer(builder)}_tokenizer",
            "path": "PATH",
            "max_seq_len": plan.take("train.seq_len"),
        },
        **_data(plan),
        "batch_size": plan.take("train.micro_batch"),
        "gradient_accumulation_steps": plan.take("train.grad_accum", 1),
        "epochs": 1 if plan.peek("train.steps") else plan.take("train.epochs"),
        "max_steps_per_epoch": plan.take("train.steps"),
        "save_every_n_steps": plan.take("train.checkpoint_every"),
        "enable_async_checkpointing": plan.take("train.async_checkpoint"),
        "run_val_every_n_steps": plan.take("train.evaluate_every"),
        "optimizer": {"_component_": _optimizer(plan), "lr": LEARNING_RATE},
        "loss": {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"},
        **_layout(plan, one=one),
        "dtype": "bf16",
        "device": "cuda",
    }
    plan.said("loss")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    machines = f"--nnodes {nodes} " if nodes > 1 else ""
    flags = "" if one else f"{machines}--nproc_per_node {each} "
    recipe = name.replace("_", "_finetune_", 1)
    return Written(yaml_text(values), run=f"tune run {flags}{recipe} --config FILE")


def _builder(plan: Plan, job: str) -> str:
    """The builder of the model. Raises InputError: torchtune has none."""
    named = plan.take("model")
    try:
        known = _BUILDERS.get(Registry().model(str(named)).name)
    except InputError:
        known = None
    if known is None:
        raise InputError(Problem(f"{_TITLE} has no builder for {named}", Location("--to")))
    module, _, name = known.partition(".")
    prefix = "" if job == "sft" else f"{job}_"
    return f"torchtune.models.{module}.{prefix}{name}{'_base' if name in _BOTH else ''}"


def _tokenizer(builder: str) -> str:
    module = builder.split(".")[2]
    if module == "phi3":
        return "phi3.phi3_mini"
    start = "llama3" if module.startswith("llama3") else module.removesuffix("2") if module == "gemma2" else module
    return f"{start}.{_TOKENIZERS.get(start, start)}"


def _adapters(plan: Plan, job: str) -> dict[str, Any]:
    if job == "sft":
        return {}
    targets = [_MODULES.get(name, name) for name in adapted_modules(plan)] or ["all-linear"]
    every = targets == ["all-linear"]
    plan.said("train.bits", "train.quantiser")
    return {
        "lora_attn_modules": list(_ATTENTION) if every else [name for name in targets if name in _ATTENTION],
        "apply_lora_to_mlp": every or any(name in _MLP for name in targets),
        "lora_rank": plan.take("lora.rank"),
        "lora_alpha": plan.take("lora.alpha"),
        "lora_dropout": plan.take("lora.dropout", 0),
        "use_dora": plan.take("lora.dora") or None,
    }


def _data(plan: Plan) -> dict[str, Any]:
    packed = plan.peek("train.padding") == "packed"
    if plan.peek("train.padding") in ("packed", "longest-in-micro-batch"):
        plan.said("train.padding")
    data = {"_component_": "torchtune.datasets.chat_dataset", "source": "PATH", "packed": packed}
    return {"dataset": data}


def _optimizer(plan: Plan) -> str:
    found = _OPTIMIZERS.get(plan.peek("optimizer", "adamw"))
    if found is not None:
        plan.said("optimizer")
    return found or _OPTIMIZERS["adamw"]


def _layout(plan: Plan, *, one: bool) -> dict[str, Any]:
    """Parallelism, recomputation and offload. Raises InputError: unsharded weights on several GPUs."""
    if is_replicated(plan, _TITLE) and not one:
        raise InputError(
            Problem(f"{_TITLE} shards weights over several GPUs", Location("--to"), "fix layout.zero to 3")
        )
    if plan.peek("layout.recompute") in ("none", "full"):
        plan.said("layout.recompute")
    if plan.peek("attention") == "sdpa":
        plan.said("attention")
    weights, activations = _OFFLOAD.get(plan.peek("layout.offload"), (False, False))
    allowed = (plan.peek("layout.recompute") == "full" or not activations) and not (one and weights)
    if allowed and (weights or activations):
        plan.said("layout.offload")
    values: dict[str, Any] = {
        "enable_activation_checkpointing": plan.peek("layout.recompute") == "full",
        "enable_activation_offloading": allowed and activations,
    }
    if one:
        return values
    tp, cp = plan.take("layout.tp", 1), plan.take("layout.cp", 1)
    copies, shards = shard_sizes(plan) or (1, -1)
    degrees = {
        "tensor_parallel_dim": tp, "context_parallel_dim": cp, "data_parallel_replicate_dim": copies,
        "data_parallel_shard_dim": shards,
    }  # fmt: skip
    return values | degrees | {"fsdp_cpu_offload": allowed and weights}


SAYS = (
    "model", "job", "precision", "optimizer", "train.seq_len", "train.padding", "train.micro_batch",
    "train.grad_accum", "train.steps", "train.epochs", "layout.tp", "layout.cp", "layout.zero", "layout.offload",
    "layout.recompute", "lora.rank", "lora.dropout", "lora.alpha", "train.checkpoint_every", "train.evaluate_every",
    "train.async_checkpoint",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="torchtune",
        title=_TITLE,
        ending=".yaml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler", "max_steps_per_epoch or epochs", "model.lora_alpha"),
    ),
)
