"""Which shipped stacks can do what one cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.stack import load_stack, stack_names

if TYPE_CHECKING:
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.software.stack import Stack


def stacks_with(way: str) -> tuple[str, ...]:
    """Shipped stacks that support one of the parallel ways, such as tensor_parallel."""
    return tuple(name for name in stack_names() if getattr(load_stack(name).supports, way))


def stacks_with_schedule(schedule: str) -> tuple[str, ...]:
    """Shipped stacks that run pipelines in this order."""
    return tuple(name for name in stack_names() if schedule in _piped(load_stack(name)))


def _piped(stack: Stack) -> tuple[str, ...]:
    return stack.supports.schedules if stack.supports.pipeline_parallel else ()


def relative_on_several_gpus(stack: Stack, finder: Finder) -> str | None:
    """The nearest stack above in the chain of parents that trains on several GPUs; None where there is none."""
    while stack.parent is not None:
        stack = load_stack(stack.parent, finder=finder)
        if stack.supports.several_gpus:
            return stack.name
    return None
