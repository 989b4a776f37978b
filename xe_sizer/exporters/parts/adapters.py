"""Modules with adapters, by the names that Hugging Face models have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down", "qkv", "gate_up")
_GROUPS = {"attention": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down")}


def adapted_modules(plan: Plan) -> list[str]:
    """The modules of a plan's adapters; `all-linear` stays as it is, and so do names of modules."""
    targets = [name for target in plan.take("lora.targets") or () for name in _GROUPS.get(target, (target,))]
    return [f"{name}_proj" if name in _PROJECTIONS else name for name in targets]
