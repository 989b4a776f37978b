"""A resolved service to its estimate: the placement of a replica and the number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.serving.choose import choose
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.space import legal_placements

if TYPE_CHECKING:
    from xe_sizer.serving.resolved import ResolvedService


def size(resolved: ResolvedService) -> ServingEstimate:
    """Choose the placement of a replica and the number of replicas.

    Raises
    ------
    InputError : no placement is legal on the GPUs asked for, or no pair of a prefill and a decode replica fits
    """
    if resolved.fit is not None:
        from xe_sizer.serving.fitting import size_fitting  # most services are asked for a load

        return size_fitting(resolved, _size_once)
    return _size_once(resolved)


def _size_once(resolved: ResolvedService) -> ServingEstimate:
    """The same with the lengths of its requests as they are."""
    if resolved.prefill_replicas is not None:
        return _in_two_pools(resolved)
    placements = legal_placements(resolved.job, resolved.fixed, resolved.most_gpus())
    if not len(placements):
        raise InputError(_no_placement(resolved))
    if resolved.host_cache is not None:
        from xe_sizer.serving.returning import choose_returning  # most services name no cache in host memory

        resolved, choice = choose_returning(resolved, resolved.host_cache, placements)
    else:
        choice = choose(resolved, placements)
    if resolved.requests is not None:
        from xe_sizer.serving.simulation_load import tested  # a service that goes on for ever needs none of it

        choice = tested(resolved, choice)
    return ServingEstimate(resolved, choice, size)


def _in_two_pools(resolved: ResolvedService) -> ServingEstimate:
    """Prompts read on replicas of their own."""
    from xe_sizer.serving.choose_pools import choose_pools  # most services do both on all replicas

    job, most = resolved.job, resolved.most_gpus()
    prefill, decode = (legal_placements(job, fixed, most) for fixed in (resolved.prefill_fixed, resolved.fixed))
    choice = choose_pools(resolved, prefill, decode) if len(prefill) and len(decode) else None
    if choice is None:
        room = f" on {resolved.gpus} GPUs" if resolved.gpus else ""
        message = f"no prefill replica fits beside a decode replica{room}"
        hint = "each holds the whole model: give more GPUs, narrower weights or other sizes of the replicas"
        raise InputError(Problem(message, resolved.given.locate(("serve", "prefill_replicas")), hint))
    return ServingEstimate(resolved, choice, size)


def _no_placement(resolved: ResolvedService) -> Problem:
    fixed = ", ".join(f"{name} {value}" for name, value in resolved.fixed.items())
    message = "no placement is possible" + (f" with {fixed}" if fixed else "")
    message += f" on {resolved.gpus} GPUs" if resolved.gpus else ""
    message += f" with {resolved.spare_replicas} replicas of them spare" if resolved.spare_replicas else ""
    hint = "tp divides heads and stays inside a node, pp is at most the layers, ep divides experts and is tp x dp"
    return Problem(message, resolved.given.locate(("gpus",)), hint)
