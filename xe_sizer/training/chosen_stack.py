"""The stack as a scenario has it: what the user chose over what the stack does by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.laws.device import FP8
from xe_sizer.software.number_formats import recipe_of
from xe_sizer.software.stack import Objective

if TYPE_CHECKING:
    from xe_sizer.graph.operators import ContextKind
    from xe_sizer.graph.recompute import RecomputeModule
    from xe_sizer.laws.hardware import Server
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.schema import ScenarioFile
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Method


def as_chosen(
    stack: Stack, provenance: Provenance, values: ScenarioFile, precision: str, server: Server, method: Method
) -> Stack:
    """The stack with kernels, exchanges, reduction and recipe as the user chose, or as it has them by itself."""
    if method.objective is Objective.NEXT_TOKEN:
        stack = _with_loss(stack, provenance.settle("loss", stack.kernels.loss, "stack"))
    stack = _with_dropout(stack, values.train.dropout)
    stack = _with_context(stack, values.layout.cp_kind)
    stack = _with_modules(stack, values.layout.recompute_modules)
    stack = _with_reduction(stack, values.train.reduce_every_micro_batch)
    stack = _with_bucket(stack, values.layout.bucket_gib)
    return _with_recipe(stack, provenance, precision, server)


def _with_loss(stack: Stack, loss: Any) -> Stack:
    """The stack with the cross-entropy kernel that the user chose."""
    kernels = msgspec.structs.replace(stack.kernels, loss=loss)
    return msgspec.structs.replace(stack, kernels=kernels)


def _with_dropout(stack: Stack, rate: float | None) -> Stack:
    """The stack that draws dropout masks or none, as the user chose, or as it does by itself."""
    if rate is None:
        return stack
    return msgspec.structs.replace(stack, kernels=msgspec.structs.replace(stack.kernels, dropout=rate > 0))


def _with_context(stack: Stack, kind: ContextKind | None) -> Stack:
    """The stack whose context-parallel ranks exchange what the user chose, or what they do by themselves."""
    if kind is None:
        return stack
    return msgspec.structs.replace(stack, kernels=msgspec.structs.replace(stack.kernels, context=kind))


def _with_modules(stack: Stack, modules: tuple[RecomputeModule, ...] | None) -> Stack:
    """The stack whose selective recomputation runs the modules again that the user chose, or its own set."""
    if modules is None:
        return stack
    return msgspec.structs.replace(stack, kernels=msgspec.structs.replace(stack.kernels, selective=modules))


def _with_reduction(stack: Stack, every_micro_batch: bool | None) -> Stack:
    """The stack that reduces gradients as often as the user chose, or as its default has it."""
    if every_micro_batch is None:
        return stack
    defaults = msgspec.structs.replace(stack.defaults, reduces_every_micro_batch=every_micro_batch)
    return msgspec.structs.replace(stack, defaults=defaults)


def _with_bucket(stack: Stack, bucket_gib: float | None) -> Stack:
    """The stack that reduces gradients in a buffer of the size that the user chose, or of its own."""
    if bucket_gib is None:
        return stack
    return msgspec.structs.replace(stack, memory=msgspec.structs.replace(stack.memory, bucket_gib=bucket_gib))


def _with_recipe(stack: Stack, provenance: Provenance, precision: str, server: Server) -> Stack:
    """The stack that scales operands in 8 bit as the user chose, or as it does by itself."""
    usual = recipe_of(stack, precision, server.accelerator.peak_flops_per_s)
    if precision != FP8 or usual is None:
        return stack
    recipe = provenance.settle("train.fp8_recipe", usual, "stack")
    defaults = msgspec.structs.replace(stack.defaults, fp8_recipe=recipe, block_scaled_recipe=None)
    return msgspec.structs.replace(stack, defaults=defaults)
