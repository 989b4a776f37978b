"""How a stack multiplies in 8 and 4 bit: the recipe by precision and accelerator, and its casts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.casts import CASTS, FOUR_BIT
from xe_sizer.laws.precision import FP4, FP8

if TYPE_CHECKING:
    from collections.abc import Container

    from xe_sizer.graph.casts import Casts
    from xe_sizer.software.stack import Stack


def recipes_of(stack: Stack) -> tuple[str, ...]:
    """Recipes of products in 8 bit that the stack's kernels have."""
    return tuple(name for name in CASTS[stack.kernels.casts] if name != FOUR_BIT)


def recipe_of(stack: Stack, precision: str, peaks: Container[str]) -> str | None:
    """How operands are scaled on an accelerator with these peaks; None: they stay 16 bit or wider."""
    if precision == FP4:
        return FOUR_BIT
    if precision != FP8:
        return None
    return (stack.defaults.block_scaled_recipe if FP4 in peaks else None) or stack.defaults.fp8_recipe


def casts_of(stack: Stack, precision: str, peaks: Container[str]) -> Casts | None:
    """What it takes to narrow operands so; None: they stay as they are, or the stack has no such kernels."""
    recipe = recipe_of(stack, precision, peaks)
    return CASTS[stack.kernels.casts].get(recipe) if recipe else None
