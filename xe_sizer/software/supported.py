"""Which optimizers a stack has: those of its own list, and those whose files name it or what it builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.optimizer import load_optimizer, optimizer_names
from xe_sizer.software.stack import load_stack

if TYPE_CHECKING:
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.software.stack import Stack


def has_optimizer(stack: Stack, name: str, finder: Finder | None = None) -> bool:
    """Whether a stack has an optimizer of that name; the files of others are read only where its own list lacks it."""
    return name in stack.supports.optimizers or name in optimizers_of(stack, finder)


def optimizers_of(stack: Stack, finder: Finder | None = None) -> tuple[str, ...]:
    """Every optimizer that a stack has, those of its own list first.

    The root of all stacks has every optimizer that ships, for it is no software of its own. A stack whose list is that
    of its parent builds on the parent's software.
    """
    own = stack.supports.optimizers
    if stack.parent is None:
        return (*own, *(name for name in optimizer_names() if name not in own))
    line = _builds_on(stack, finder)
    shipped = (name for name in optimizer_names() if name not in own)
    return (*own, *(name for name in shipped if line & set(load_optimizer(name).stacks)))


def _builds_on(stack: Stack, finder: Finder | None) -> set[str]:
    """The names of a stack and of those whose optimizers it has too; releases are of the same name."""
    line, each = {stack.name}, stack
    while each.parent is not None:
        parent = load_stack(each.parent, finder=finder)
        if parent.parent is None or parent.supports.optimizers != stack.supports.optimizers:
            break
        line.add(parent.name)
        each = parent
    return line
