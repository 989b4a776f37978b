"""Prompts on replicas of their own as the result shows them, beside the same service with all on all replicas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.result.serving import AGGREGATED, ALIKE, DISAGGREGATED, Aggregated, Disaggregation, ReplicaLayout

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.layout import ReplicaLayouts

WORTH_SAYING = 1.05  # times the GPUs or the requests of the other, from which one of two is the better


def disaggregation(sized: ServingEstimate) -> Disaggregation | None:
    """The replicas that only read prompts, what a first token waits for, and the answer without them."""
    prefills = sized.choice.prefills
    if prefills is None:
        return None
    without = sized.resized(prefill_replicas=None, prefill_fixed={})
    by = "gpus" if sized.resolved.gpus is None and sized.resolved.load is not None else "max_requests_per_s"
    stages = prefills.stages_s
    return Disaggregation(
        prefill_replicas=prefills.replicas,
        prefill_gpus=int(prefills.placement.gpus[0]),
        prefill_layout=layout_of(prefills.placement),
        decode_replicas=sized.replicas,
        utilisation=prefills.utilisation,
        link_utilisation=prefills.link_utilisation,
        queue_s=stages["queue"] if not sized.overloaded else None,
        prefill_s=stages["prefill"],
        transfer_s=stages["transfer"],
        decode_s=stages["decode"],
        transfer_bytes=prefills.transfer_bytes,
        path="node" if prefills.same_node else "network",
        aggregated=None if without is None else _aggregated(without),
        better=DISAGGREGATED if without is None else _better(sized, without, by),
        by=by,
    )


def layout_of(placement: ReplicaLayouts) -> ReplicaLayout:
    """The sizes of one placement."""
    return ReplicaLayout(**{name: int(getattr(placement, name)[0]) for name in ReplicaLayout.__struct_fields__})


def _aggregated(without: ServingEstimate) -> Aggregated:
    bounded = [value if math.isfinite(value) else None for value in (without.ttft_s, without.tpot_s)]
    return Aggregated(
        gpus=without.gpus,
        replicas=without.replicas,
        layout=layout_of(without.placement),
        meets_limits=without.ok,
        ttft_s=bounded[0],
        tpot_s=bounded[1],
        max_requests_per_s=without.most_per_s if without.fits else 0.0,
    )


def _better(sized: ServingEstimate, without: ServingEstimate, by: str) -> str:
    """What keeps the limits where one alone does; else what takes fewer GPUs, or more requests on a GPU."""
    if sized.ok != without.ok:
        return DISAGGREGATED if sized.ok else AGGREGATED
    if by == "gpus":
        gain = without.gpus / sized.gpus
    else:
        gain = (sized.most_per_s / sized.gpus) / max(without.most_per_s / without.gpus, 1e-12)
    if gain >= WORTH_SAYING:
        return DISAGGREGATED
    return AGGREGATED if gain * WORTH_SAYING <= 1.0 else ALIKE
