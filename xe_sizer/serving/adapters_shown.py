"""The LoRA adapters of a sized service as the result shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.result.serving import Adapters
from xe_sizer.serving.adapters import adapter_bytes, distinct
from xe_sizer.serving.step import adapter_products

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate


def adapters_of(sized: ServingEstimate) -> Adapters | None:
    """What they take of a GPU and of a decode step; None where the service has none."""
    job, placement = sized.resolved.job, sized.placement
    adapters = job.adapters
    if adapters is None:
        return None
    decode = {name: float(seconds[0]) for name, seconds in sized.point.decode.parts.items()}
    held_bytes = float(adapter_bytes(job.model, adapters, placement)[0])
    sequences = max(sized.point.running, 1.0) / float(job.groups(placement)[0])
    return Adapters(
        count=adapters.count,
        held=adapters.held,
        rank=max(adapters.ranks.values()),
        bytes=held_bytes,
        adapter_bytes=held_bytes / adapters.held * int(placement.gpus[0]),
        distinct=float(distinct(adapters, sequences)),
        seconds=decode[adapter_products.name],
        share=decode[adapter_products.name] / sum(decode.values()),
    )
