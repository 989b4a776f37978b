"""What a scenario asks of groups of ranks, of stages and of recomputation that model and stack cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from xe_sizer.software.relatives import stacks_with

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack


def layout_conflicts(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Each with the place of its key and what to write instead; None stands for what is not known."""
    yield from _split_experts(given, model, stack, problem)


def _split_experts(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """An expert is split over some of the tensor ranks, in models that have experts."""
    layout, key = given.values.layout, "layout.expert_tp"
    ranks = layout.expert_tp
    if ranks is None:
        return
    if model is not None and model.experts is None:
        yield problem(key, f"{model.name} has no experts to split", "leave expert_tp out")
    elif stack is not None and not stack.supports.expert_parallel:
        hint = f"stacks that can: {', '.join(stacks_with('expert_parallel'))}"
        yield problem(key, f"{stack.name} does not place experts apart from the other weights", hint)
    elif layout.tp is not None and layout.tp % ranks:
        hint = f"use a divisor of tp {layout.tp}; 1 leaves experts whole"
        yield problem(key, f"expert_tp {ranks} does not divide tp {layout.tp}", hint)
    elif model is not None and model.experts is not None and model.experts.ffn % ranks:
        yield problem(key, f"expert_tp {ranks} does not divide the {model.experts.ffn} columns of an expert")
