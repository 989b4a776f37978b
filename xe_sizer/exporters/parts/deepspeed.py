"""The DeepSpeed configuration of a plan. Keys: deepspeed.ai/docs/config-json; `auto` leaves a value to the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.software.stack import DEEPSPEED
from xe_sizer.units import GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_ALL_SHARDED = 3
_GATHERING = {
    "layout.prefetch_elements": "stage3_prefetch_bucket_size",
    "layout.live_elements": "stage3_max_live_parameters",
    "layout.reuse_elements": "stage3_max_reuse_distance",
    "layout.persistent_elements": "stage3_param_persistence_threshold",
}


def deepspeed_settings(plan: Plan) -> dict[str, Any] | None:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer; None where it takes no part."""
    shared_out = plan.take("layout.zero", 0) or plan.peek("train.backend") == DEEPSPEED
    return deepspeed_configuration(plan) if shared_out else None


def deepspeed_configuration(plan: Plan) -> dict[str, Any]:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer."""
    zero = plan.take("layout.zero", 0)
    section: dict[str, Any] = {"stage": zero}
    if plan.peek("train.backend") == DEEPSPEED:
        plan.said("train.backend")
    bucket_gib = plan.take("layout.bucket_gib")
    if bucket_gib is not None:
        section["reduce_bucket_size"] = round(bucket_gib * GIB / SIXTEEN_BIT)
    if zero == _ALL_SHARDED:
        told = {word: plan.take(key) for key, word in _GATHERING.items()}
        section |= {word: round(elements) for word, elements in told.items() if elements is not None}
    host = {"device": "cpu", "pin_memory": True}
    states, weights = kept_in_host_memory(plan)
    section |= {"offload_optimizer": host} if states else {}
    section |= {"offload_param": host} if weights else {}
    return {
        "zero_optimization": section,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


def kept_in_host_memory(plan: Plan) -> tuple[bool, bool]:
    """Whether host memory keeps the optimizer's states, from stage 1 on, and with them the weights, in stage 3.

    An offload that the stage of the plan does not allow stays to be said.
    """
    zero, offload = plan.peek("layout.zero", 0), plan.peek("layout.offload")
    weights = offload == "params" and zero == _ALL_SHARDED
    states = weights or (offload == "optimizer" and zero > 0)
    if states:
        plan.said("layout.offload")
    return states, weights
