"""The DeepSpeed configuration of a plan. Keys: deepspeed.ai/docs/config-json; `auto` leaves a value to the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_ALL_SHARDED = 3


def deepspeed_settings(plan: Plan) -> dict[str, Any] | None:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer; None where neither is needed."""
    return deepspeed_configuration(plan) if plan.take("layout.zero", 0) else None


def deepspeed_configuration(plan: Plan) -> dict[str, Any]:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer.

    An offload that the stage does not allow stays to be said: optimizer states from stage 1 on, weights in stage 3.
    """
    zero, wanted = plan.take("layout.zero", 0), plan.peek("layout.offload")
    section: dict[str, Any] = {"stage": zero}
    host = {"device": "cpu", "pin_memory": True}
    if (wanted == "optimizer" and zero) or (wanted == "params" and zero == _ALL_SHARDED):
        plan.said("layout.offload")
        section["offload_optimizer"] = host
    if wanted == "params" and zero == _ALL_SHARDED:
        section["offload_param"] = host
    return {
        "zero_optimization": section,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
