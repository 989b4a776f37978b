"""The configuration of accelerate for a plan.

Keys: accelerate src/accelerate/commands/config/config_args.py and utils/dataclasses.py, ParallelismConfig (1.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.parts.deepspeed import deepspeed_settings, kept_in_host_memory
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

FSDP_VERSION = 2
_GRADIENTS, _ALL = 2, 3  # ZeRO stages that FSDP has
_OFFLOADS = ("optimizer", "params")  # that FSDP or DeepSpeed has


def accelerate_configuration(plan: Plan) -> dict[str, Any]:
    """Processes, precision and sharding: FSDP where it has the stage, DeepSpeed for the others."""
    nodes, gpus = plan.take("nodes", 1), plan.take("gpus", 1)
    plan.said("gpus_per_node")
    word = plan.peek("precision")
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "num_machines": nodes,
        "num_processes": gpus,
        "machine_rank": 0,
        "mixed_precision": word if word in ("bf16", "fp16") else "no",
    }
    fsdp = fsdp_settings(plan)
    zero, offload, backend = plan.take("layout.zero", 0), plan.peek("layout.offload"), plan.take("train.backend")
    if fsdp is not None:
        settings = {"fsdp_version": FSDP_VERSION, **{f"fsdp_{name}": value for name, value in fsdp.items()}}
        return values | {"distributed_type": "FSDP", "fsdp_config": settings, **_parallel(plan, zero)}
    if zero or offload in _OFFLOADS or backend == DEEPSPEED:
        return values | {"distributed_type": "DEEPSPEED", "deepspeed_config": _deepspeed(plan, zero)}
    return values | {"distributed_type": "MULTI_GPU" if gpus > 1 else "NO"}


def fsdp_settings(plan: Plan) -> dict[str, Any] | None:
    """FSDP of a plan, in the names of accelerate without their prefix; None where it runs on something else.

    FSDP shards gradients and optimizer states, or all states; it offloads weights and states together.
    """
    zero, offload = plan.peek("layout.zero", 0), plan.peek("layout.offload")
    if zero not in (_GRADIENTS, _ALL) or offload == "optimizer" or plan.peek("train.backend") == DEEPSPEED:
        return None
    plan.said("layout.zero")
    plan.said("train.backend")
    if offload == "params":
        plan.said("layout.offload")
    return {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": zero == _ALL,
        "offload_params": offload == "params",
        "state_dict_type": "SHARDED_STATE_DICT",
    }


def trainer_sharding(plan: Plan) -> dict[str, Any]:
    """How the Trainer of transformers shards: FSDP where it has the stage, DeepSpeed for the others.

    Keys: transformers src/transformers/training_args.py (read at 4.57 and 5.24). The words of `fsdp` say to releases
    before 5 what later ones read from `fsdp_config`.
    """
    fsdp = fsdp_settings(plan)
    if fsdp is None:
        return {"deepspeed": deepspeed_settings(plan)}
    offload = fsdp.pop("offload_params")
    words = ["full_shard" if fsdp["reshard_after_forward"] else "shard_grad_op", "auto_wrap", *(["offload"] * offload)]
    settings = {"version": FSDP_VERSION, **fsdp, "cpu_offload": offload}
    return {"fsdp": " ".join(words), "fsdp_config": settings}


def _deepspeed(plan: Plan, zero: int) -> dict[str, Any]:
    """A stage and what host memory keeps."""
    states, weights = ("cpu" if kept else "none" for kept in kept_in_host_memory(plan))
    return {"zero_stage": zero, "offload_optimizer_device": states, "offload_param_device": weights}


def _parallel(plan: Plan, zero: int) -> dict[str, Any]:
    """Tensor and context parallelism and replicas of the shards, all of which accelerate has with FSDP alone."""
    tp, cp = plan.take("layout.tp", 1), plan.peek("layout.cp", 1)
    if zero == _ALL:
        plan.said("layout.cp")
    ranks = max(1, plan.peek("gpus", 1) // (tp * cp))
    group = max((plan.take("layout.zero_group") or ranks * cp) // cp, 1)
    if (tp, cp, group) == (1, 1, ranks):
        return {}
    prefix = "parallelism_config_"
    sizes = {"dp_replicate_size": ranks // group, "dp_shard_size": group, "tp_size": tp, "cp_size": cp}
    return {
        "parallelism_config": {f"{prefix}{name}": size for name, size in sizes.items()},
    }
