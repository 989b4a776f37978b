"""Optimizers by the names that transformers, TRL and others give to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.values import plain, text
from xe_sizer.profiles.finder import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

ADAMW, ADAFACTOR, MUON = "adamw", "adafactor", "muon"

NEAREST: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("dion", "dion2"), (MUON, "a momentum that is made orthogonal in a low rank")),
    "sinkgd": (ADAMW, "other states than those of AdamW"),
}
"""Names of optimizers that no file describes: what is taken in their place, and how they differ."""


def state_optimizer(draft: Draft, name: str, written: Written | None) -> None:
    """State the optimizer that a key names; one that is not modelled is lost, and the nearest is assumed.

    name : the foreign key; it counts as read
    """
    word = text(written.value) if written else None
    if written is None or word is None:
        return
    called = BUILT_IN.called("optimizer", word.strip().lower())
    if called in BUILT_IN.names("optimizer"):
        draft.take(name)
        draft.state("optimizer", called, written)
        return
    nearest, how = NEAREST.get(plain(word), (ADAMW, "an optimizer that is not known here"))
    draft.lose(name, f"{word} has {how}; {nearest} is assumed in its place")
    draft.assume("optimizer", nearest, f"in place of {word}", written.where)
