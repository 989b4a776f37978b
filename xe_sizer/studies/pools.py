"""How a candidate of reinforcement learning splits its GPUs, and the keys that ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.summary import pools_of

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate

SIZES = ("tp", "pp", "ep")


def pools_and_way(sized: TrainingEstimate) -> dict[str, Any]:
    """Fields of a candidate: the pools, and whether answers are written on the GPUs that train."""
    if not isinstance(sized, ReinforcementEstimate):
        return {}
    return {"pools": tuple(pools_of(sized)), "colocated": sized.iteration.colocated}


def rollout_flags(sized: TrainingEstimate) -> dict[str, object]:
    """The scenario keys that ask for the replicas of an estimate."""
    if not isinstance(sized, ReinforcementEstimate):
        return {}
    one = sized.iteration
    sizes = {f"rollout.{name}": int(getattr(one.rollout.placement, name)[0]) for name in SIZES}
    if one.colocated:
        return {**sizes, "rollout.colocated": True}
    return {**sizes, "rollout.gpus": one.rollout.gpus}
