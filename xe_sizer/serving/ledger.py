"""Memory of a GPU that serves, as reports show it: what it is made of, what is available, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.result.common import MemoryComponent, Reason
from xe_sizer.result.serving import ServeMemory
from xe_sizer.serving.memory import ALLOCATED_PARTS, BATCH_PARTS, SHORT_PARTS, cache, left_free, weights
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE
from xe_sizer.units import GIB, three_digits

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.memory import Held


def serve_memory(estimate: ServingEstimate) -> ServeMemory:
    """The ledger of the fullest GPU [bytes]."""
    at_work = f"{_held(estimate)} at their peak" if estimate.grows else "as allocated"
    return ServeMemory(
        peak_bytes=estimate.peak_bytes,
        usable_bytes=estimate.usable_bytes,
        headroom_bytes=estimate.headroom_bytes,
        phase=at_work if estimate.grows or estimate.fits else "one request",
        gpu="fullest pipeline stage" if int(estimate.placement.pp[0]) > 1 else "all alike",
        components=tuple(
            MemoryComponent(name=part.name, bytes=size, formula=part.formula, source=part.source)
            for part, size in zip(_parts(estimate), estimate.memory_parts.values(), strict=True)
        ),
        error_share=MEMORY_ERROR_SHARE,
    )


def _parts(estimate: ServingEstimate) -> tuple[Held, ...]:
    """What the ledger lists, in its order."""
    if estimate.grows:
        return BATCH_PARTS
    return ALLOCATED_PARTS if estimate.fits else SHORT_PARTS


def shortage(estimate: ServingEstimate) -> Reason:
    """Why it does not fit: needed, available and missing memory of a GPU, and what takes it."""
    sizes = estimate.memory_parts
    weight, kept, reserved = sizes[weights.name], sizes[cache.name], sizes.get(left_free.name, 0.0)
    rest = estimate.peak_bytes - weight - kept - reserved
    free = f", {left_free.name} {_gib(reserved)}" if reserved else ""
    message = (
        f"needs {_gib(estimate.peak_bytes)} GiB per GPU, {_gib(estimate.usable_bytes)} GiB available, "
        f"{_gib(-estimate.headroom_bytes)} GiB missing (weights {_gib(weight)}, "
        f"KV cache of {_held(estimate)} {_gib(kept)}{free}, the rest {_gib(rest)} GiB)"
    )
    return Reason(code="out-of-memory", message=message)


def _gib(size_bytes: float) -> str:
    return three_digits(size_bytes / GIB)


def _held(estimate: ServingEstimate) -> str:
    requests = estimate.sequences if estimate.grows else 1.0
    return "one request" if requests < 1.5 else f"{requests:,.0f} requests"
