"""How reinforcement learning writes its answers: keys of the section `rollout` that tools state as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.values import is_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.values import Converter

Stated = tuple[tuple[str, ...], "Converter", object]
"""What a tool calls a setting, how its value is read, and what it is where nobody says; None: nothing."""


def state_rollout(draft: Draft, settings: Mapping[str, Stated]) -> None:
    """State each setting of the rollout that the files have, or the tool's default.

    settings : key of the section `rollout` -> how the tool has it
    """
    for key, (names, read, usual) in settings.items():
        found = draft.take(*names)
        if found is not None:
            draft.state(f"rollout.{key}", draft.value(found, read), found)
        elif draft.unread.keys().isdisjoint(names) and usual is not None:
            draft.default(f"rollout.{key}", usual)


def state_reference(draft: Draft, names: Sequence[str], usual: bool) -> None:
    """State whether a reference stands beside the policy: where one of the switches or weights is on.

    usual : whether one does where nobody says
    """
    found = [written for name in names if (written := draft.take(name)) is not None]
    on = next((written for written in found if is_on(written.value)), None)
    adapters = draft.fact("lora.rank") is not None
    kept = "adapters-off" if adapters else "copy"
    if on is not None:
        draft.state("train.reference", kept, on)
    elif found:
        draft.state("train.reference", "none", found[0])
    else:
        draft.default("train.reference", kept if usual else "none")
