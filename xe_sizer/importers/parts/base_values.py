"""Arguments that a tool fills in itself, before Megatron's own defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xe_sizer.errors import Location
from xe_sizer.importers.draft import TOOL_DEFAULT, Fact
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft


@contextmanager
def filled_in(draft: Draft, base: Mapping[str, object], source: str) -> Iterator[None]:
    """Inside, the draft has these arguments where a file does not; what they state are defaults of the tool.

    source : where the tool has them, for what is said of their facts
    """
    here = Location(source)
    added = {name: Written(value, here) for name, value in base.items() if _is_open(draft, name)}
    before = {name: draft.keys.get(name) for name in added}
    draft.keys.update(added)
    try:
        yield
    finally:
        for key, fact in draft.facts.items():
            if fact.where is here:
                draft.replace(key, Fact(fact.value, TOOL_DEFAULT, None, fact.note))
        draft.ignored = [each for each in draft.ignored if each.where is not here]
        for name, written in before.items():
            if written is None:
                del draft.keys[name]
            else:
                draft.keys[name] = written


def _is_open(draft: Draft, name: str) -> bool:
    return name not in draft.keys and name not in draft.unread
