"""TorchTitan's TOML files. Keys: torchtitan/config/job_config.py (0.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.exporter import LEARNING_RATE, Added, Exporter, Written
from xe_sizer.exporters.parts.sharding import is_replicated, shard_sizes
from xe_sizer.profiles.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.exporters.plan import Plan

_TITLE = "TorchTitan"
_FLAVORS = {
    **{f"llama-3.1-{size}": ("llama3", size.upper()) for size in ("8b", "70b", "405b")},
    **{f"qwen3-{size}": ("qwen3", size.upper()) for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"), "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "llama-4-scout-17b-16e": ("llama4", "17bx16e"), "llama-4-maverick-17b-128e": ("llama4", "17bx128e"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"), "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"), "gpt-oss-20b": ("gpt_oss", "20b"), "gpt-oss-120b": ("gpt_oss", "120b"),
}  # fmt: skip
_GRADIENTS = 2  # the stage of sharding that keeps gathered weights
_EAGER = "torchtitan-eager"
_ROTATIONS = {"all-gather": "allgather", "ring": "alltoall"}


def _write(plan: Plan) -> Written:
    if plan.take("job") != "pretrain":
        raise InputError(Problem(f"{_TITLE} is written for pretrain alone", Location("--to")))
    for key, value in (("precision", "bf16"), ("train.weights_dtype", "fp32"), ("train.padding", "packed"),
                       ("optimizer", "adamw"), ("attention", "sdpa")):  # fmt: skip
        if plan.peek(key) == value:
            plan.said(key)
    if plan.steps is None:
        hint = "give --steps, or --epochs and --samples"
        raise InputError(Problem(f"{_TITLE} counts steps, and the scenario does not", Location("--to"), hint))
    plan.said("train.steps", "train.epochs")
    family, flavor = _model(plan)
    micro, accumulated = plan.take("train.micro_batch", 1), plan.take("train.grad_accum", 1)
    piped, replicated = plan.take("layout.pp", 1), is_replicated(plan, _TITLE)
    offload = plan.peek("layout.offload") == "params" and not replicated
    if offload:
        plan.said("layout.offload")
    kept = plan.peek("layout.zero") == _GRADIENTS
    if kept:
        plan.said("layout.zero")
    copies, shards = shard_sizes(plan) or ((plan.peek("gpus", 1), 1) if replicated else (1, -1))
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": family, "flavor": flavor},
        "optimizer": {"name": "AdamW", "lr": LEARNING_RATE},
        "training": {
            "local_batch_size": micro * accumulated if piped > 1 else micro,
            "global_batch_size": plan.take("train.global_batch"),
            "seq_len": plan.take("train.seq_len"),
            "steps": plan.steps,
            "enable_cpu_offload": offload,
        },
        "parallelism": {
            "data_parallel_replicate_degree": copies,
            "data_parallel_shard_degree": shards,
            "fsdp_reshard_after_forward": "never" if kept else "always",
            **{f"{name}_parallel_degree": plan.take(f"layout.{key}", 1)
               for key, name in (("tp", "tensor"), ("cp", "context"), ("ep", "expert"))},
            "expert_tensor_parallel_degree": plan.take("layout.expert_tp") or None,
            "context_parallel_rotate_method": _ROTATIONS.get(plan.take("layout.cp_kind")),
            "pipeline_parallel_degree": piped,
            "pipeline_parallel_microbatch_size": micro if piped > 1 else None,
        },
        "activation_checkpoint": {"mode": plan.take("layout.recompute", "none")},
        "compile": {"enable": plan.peek("stack") != _EAGER},
    }  # fmt: skip
    plan.said("layout.sequence_parallel")
    nodes, each = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    machines = f"--nnodes {nodes} " if nodes > 1 else ""
    run = f"torchrun {machines}--nproc_per_node {each} -m torchtitan.train --job.config_file FILE"
    return Written("\n".join(_section(name, values) for name, values in sections.items()), run=run)


def _model(plan: Plan) -> tuple[str, str]:
    """Name and flavour of the model. Raises InputError: TorchTitan has none."""
    named = plan.take("model")
    try:
        return _FLAVORS[Registry().model(str(named)).name]
    except (InputError, KeyError):
        raise InputError(Problem(f"{_TITLE} has no flavour for {named}", Location("--to"))) from None


def _section(name: str, values: Mapping[str, Any]) -> str:
    """A section of TOML; numbers, switches and plain text are written as in JSON."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


SAYS = (
    "model", "job", "precision", "train.seq_len", "train.micro_batch", "train.global_batch", "train.steps",
    "layout.tp", "layout.pp", "layout.cp", "layout.cp_kind", "layout.zero", "layout.zero_group", "layout.offload",
    "layout.recompute", "layout.expert_tp",
)  # fmt: skip
EXPORTERS = (
    Exporter(
        name="torchtitan",
        title=_TITLE,
        ending=".toml",
        write=_write,
        says=SAYS,
        added=Added("optimizer.lr, lr_scheduler"),
    ),
)
