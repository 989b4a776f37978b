"""The DeepSpeed configuration of a plan. Keys: deepspeed.ai/docs/config-json; `auto` leaves a value to the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan


def deepspeed_settings(plan: Plan) -> dict[str, Any] | None:
    """ZeRO stage and offload of a plan, batches and precision left to the trainer; None where neither is needed."""
    zero, wanted = plan.take("layout.zero", 0), plan.peek("layout.offload", "none")
    if zero == 0 and not {"optimizer", "params"} & set(wanted.split("+")):
        return None
    offload = plan.take("layout.offload", "none")
    host = {"device": "cpu", "pin_memory": True}
    section: dict[str, Any] = {"stage": zero}
    if "optimizer" in offload or "params" in offload:
        section["offload_optimizer"] = host
    if "params" in offload:
        section["offload_param"] = host
    return {
        "zero_optimization": section,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
