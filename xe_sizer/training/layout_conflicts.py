"""What a scenario asks of groups of ranks, of stages and of recomputation that model and stack cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from xe_sizer.graph.recompute import RECOMPUTE_MODULES, modules_of
from xe_sizer.software.stack import stacks_with
from xe_sizer.training.space import ENDS

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack


def layout_conflicts(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Each with the place of its key and what to write instead; None stands for what is not known."""
    yield from _split_experts(given, model, stack, problem)
    if stack is not None:
        yield from _context_kind(given, model, stack, problem)
        yield from _groups(given, stack, problem)
    yield from _modules(given, model, stack, problem)
    yield from _stages(given, model, stack, problem)
    yield from _ends(given, stack, problem)


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


def _context_kind(given: Given, model: ModelShape | None, stack: Stack, problem: Any) -> Iterator[Problem]:
    """What context-parallel ranks exchange is what the stack has; those that share out heads have some each."""
    layout, supports = given.values.layout, stack.supports
    kind = layout.cp_kind or stack.kernels.context
    if layout.cp_kind is not None and not supports.context_parallel:
        hint = f"stacks that do: {', '.join(stacks_with('context_parallel'))}"
        yield problem("layout.cp_kind", f"{stack.name} does not split sequences over GPUs, {kind} or otherwise", hint)
    elif kind not in supports.context_kinds:
        hint = f"it has {', '.join(supports.context_kinds)}"
        yield problem("layout.cp_kind", f"{stack.name} has no context parallelism of the kind {kind}", hint)
    elif kind == "ulysses" and model is not None and layout.cp and layout.cp > 1:
        ranks = (layout.tp or 1) * layout.cp
        if model.heads % ranks:
            words = f"cp {layout.cp}" if (layout.tp or 1) == 1 else f"tp x cp = {ranks}"
            others = " and ".join(other for other in supports.context_kinds if other != kind)
            advice = f"each GPU gets whole heads; {others} split sequences alone" if others else None
            yield problem("layout.cp", f"{words} does not divide the {model.heads} heads of {model.name}", advice)


def _modules(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Modules that run again are part of selective recomputation, of the stack, and of the model."""
    layout, key = given.values.layout, "layout.recompute_modules"
    if layout.recompute_modules is None:
        return
    if layout.recompute not in (None, "selective"):
        hint = f"leave one of them out, or write {given.caller.setting('layout.recompute', 'selective')}"
        yield problem(key, f"recompute_modules is selective recomputation, not {layout.recompute}", hint)
    known = stack.supports.recompute_modules if stack is not None else RECOMPUTE_MODULES
    if stack is not None and not known:
        hint = f"stacks that can: {', '.join(stacks_with('recompute_modules'))}"
        yield problem(key, f"{stack.name} does not recompute by module", hint)
        return
    has = known if model is None else modules_of(model)
    for module in layout.recompute_modules:
        if stack is not None and module not in known:
            yield problem(key, f"{stack.name} cannot recompute {module} alone", f"it can {', '.join(known)}")
        elif model is not None and module not in has:
            yield problem(key, f"{model.name} has no {module}", f"it has {', '.join(has)}")


def _stages(given: Given, model: ModelShape | None, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Stages that are all given hold all layers, are as many as pp, and leave nothing to say about the ends."""
    layout, key = given.values.layout, "layout.stages"
    if layout.stages is None:
        return
    count, held = len(layout.stages), sum(layout.stages)
    if layout.pp not in (None, count):
        yield problem(key, f"{count} stages are given, and pp is {layout.pp}", "give only one of the two")
    for end in ("first_stage_layers", "last_stage_layers"):
        if getattr(layout, end) is not None:
            yield problem(f"layout.{end}", f"{end} is given, and the layers of every stage too", "give one of them")
    if model is not None and held != model.layers:
        more = "more" if held > model.layers else "fewer"
        yield problem(key, f"the stages hold {held} layers, {more} than the {model.layers} of {model.name}")
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield problem(key, f"{stack.name} does not support pipelines", hint)


def _ends(given: Given, stack: Stack | None, problem: Any) -> Iterator[Problem]:
    """Ends that take a layer's place do so where layers are spread evenly over the stages of a pipeline."""
    layout = given.values.layout
    counting = next((f"account_for_{end}" for end in ENDS if getattr(layout, f"account_for_{end}")), None)
    if counting is None:
        return
    for key in ("first_stage_layers", "last_stage_layers", "stages"):
        if getattr(layout, key) is not None:
            yield problem(f"layout.{key}", f"{key} is given, and {counting} spreads the layers", "give one of them")
    if stack is not None and not stack.supports.pipeline_parallel:
        hint = f"stacks that support it: {', '.join(stacks_with('pipeline_parallel'))}"
        yield problem(f"layout.{counting}", f"{stack.name} does not support pipelines", hint)


def _groups(given: Given, stack: Stack, problem: Any) -> Iterator[Problem]:
    """Groups that share a copy of sharded states each, which are whole parts of the replicas."""
    layout, key = given.values.layout, "layout.zero_group"
    if not layout.zero_group:
        return
    ranks = layout.dp * (layout.cp or 1) if layout.dp else None
    if not stack.supports.hybrid_sharding and ranks != layout.zero_group:
        hint = f"leave {given.caller.setting(key)} out, or choose another stack"
        yield problem(key, f"{stack.name} shares states over all replicas alone", hint)
    elif ranks is not None and ranks % layout.zero_group:
        words = f"dp {layout.dp}" if ranks == layout.dp else f"dp x cp = {ranks}"
        yield problem(key, f"zero_group {layout.zero_group} does not divide {words}", "use a divisor")
    elif layout.zero == 0:
        yield problem(key, "without ZeRO there are no states to share", "use zero 1, 2 or 3, or leave zero_group out")
