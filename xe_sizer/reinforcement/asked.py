"""Whether a scenario asks for reinforcement learning: every estimate wants to know, so little is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.methods import METHODS

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given


def reinforces(given: Given) -> bool:
    """Whether a scenario's job learns from answers that the model itself writes."""
    kind = METHODS.get(given.values.job or "")
    return kind is not None and kind.rollout is not None
