"""The DeepSpeed configuration of a plan. Keys: deepspeed.ai/docs/config-json; `auto` leaves a value to the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.units import GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

BACKEND = "deepspeed"
"""What scenarios call its engine, in `train.backend`."""
_ALL_SHARDED = 3
_GATHERING = {
    "layout.prefetch_elements": "stage3_prefetch_bucket_size",
    "layout.live_elements": "stage3_max_live_parameters",
    "layout.reuse_elements": "stage3_max_reuse_distance",
    "layout.persistent_elements": "stage3_param_persistence_threshold",
}


def deepspeed_settings(plan: Plan) -> dict[str, Any] | None:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer; None where it takes no part."""
    shared_out = plan.take("layout.zero", 0) or plan.peek("train.backend") == BACKEND
    return deepspeed_configuration(plan) if shared_out else None


def deepspeed_configuration(plan: Plan) -> dict[str, Any]:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer.

    An offload that the stage does not allow stays to be said: optimizer states from stage 1 on, weights in stage 3.
    """
    zero, wanted = plan.take("layout.zero", 0), plan.peek("layout.offload")
    section: dict[str, Any] = {"stage": zero}
    if plan.peek("train.backend") == BACKEND:
        plan.said("train.backend")
    bucket_gib = plan.take("layout.bucket_gib")
    if bucket_gib is not None:
        section["reduce_bucket_size"] = round(bucket_gib * GIB / SIXTEEN_BIT)
    if zero == _ALL_SHARDED:
        told = {word: plan.take(key) for key, word in _GATHERING.items()}
        section |= {word: round(elements) for word, elements in told.items() if elements is not None}
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
