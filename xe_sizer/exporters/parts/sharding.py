"""Sharding of tools that shard weights, gradients and optimizer states alike, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_ALL = 3


def is_replicated(plan: Plan, title: str) -> bool:
    """Whether each rank holds the whole model; otherwise FSDP shards all of it.

    Raises
    ------
    InputError : whole models beside models that are split over GPUs, which the tool shards in any case
    """
    zero = plan.peek("layout.zero", _ALL)
    whole = all(plan.peek(f"layout.{key}", 1) == 1 for key in ("tp", "pp", "cp", "ep"))
    if zero == 0 and not whole:
        hint = "fix layout.zero to 3"
        raise InputError(Problem(f"{title} shards models that are split over GPUs", Location("--to"), hint))
    if zero in (0, _ALL):
        plan.said("layout.zero")
    return bool(zero == 0)


def shard_sizes(plan: Plan) -> tuple[int, int] | None:
    """Replicas of sharded states, and data-parallel ranks that share each; None where all of them share one.

    Context-parallel ranks share states too, which these tools do not count.
    """
    group = plan.take("layout.zero_group")
    if not group:
        return None
    context = plan.peek("layout.cp", 1)
    ranks = plan.peek("gpus", 1) // (plan.peek("layout.tp", 1) * plan.peek("layout.pp", 1) * context)
    shards = max(group // context, 1)
    return max(ranks // shards, 1), shards
