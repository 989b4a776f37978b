"""Modules with adapters, by the names that Hugging Face models have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

LORA, QLORA = "lora", "qlora"
QLORA_BITS = 4  # of a weight, as the tools mean by the name
BITS = {4: "load_in_4bit", 8: "load_in_8bit"}
"""Switches of transformers for weights in so many bits."""
_PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down", "qkv", "gate_up")
_GROUPS = {"attention": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down")}


def adapted_modules(plan: Plan) -> list[str]:
    """The modules of a plan's adapters; `all-linear` stays as it is, and so do names of modules."""
    targets = [name for target in plan.take("lora.targets") or () for name in _GROUPS.get(target, (target,))]
    return [f"{name}_proj" if name in _PROJECTIONS else name for name in targets]


def adapter_of(plan: Plan) -> str | None:
    """The adapters that a plan's job is named after, or those beside it: LoRA's name, or QLoRA's with 4-bit weights.

    None without such adapters.
    """
    job = plan.peek("job")
    named = job if job in (LORA, QLORA) else plan.peek("adapter")
    if named not in (LORA, QLORA):
        return None
    plan.said("adapter")
    return QLORA if named == QLORA or plan.peek("train.bits") == QLORA_BITS else LORA
