"""Memory of a GPU that serves, as reports show it: what it is made of, what is available, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.result.common import Factor, MemoryComponent, Reason
from xe_sizer.result.serving import ServeMemory
from xe_sizer.serving.memory import ALLOCATED_PARTS, BATCH_PARTS, SHORT_PARTS, adapters, cache, left_free, weights
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE
from xe_sizer.units import GIB, three_digits, whole_parts

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.memory import Held


def serve_memory(estimate: ServingEstimate, details: bool = True) -> ServeMemory:
    """The ledger of the fullest GPU [bytes]; with the numbers of the formulas as a detail."""
    at_work = f"{_held(estimate)} at their peak" if estimate.grows else "as allocated"
    sizes = estimate.memory_parts
    components = tuple(
        MemoryComponent(
            name=part.name,
            bytes=size,
            formula=part.formula,
            source=part.source,
            terms=_terms(estimate, part.name, sizes[part.name]) if details else (),
        )
        for part, size in zip(_parts(estimate), whole_parts(sizes.values()), strict=True)
    )
    peak, usable = sum(part.bytes for part in components), float(round(estimate.usable_bytes))
    return ServeMemory(
        peak_bytes=peak,
        usable_bytes=usable,
        headroom_bytes=usable - peak,
        phase=at_work if estimate.grows or estimate.fits else "one request",
        gpu="fullest pipeline stage" if int(estimate.placement.pp[0]) > 1 else "all alike",
        components=components,
        error_share=MEMORY_ERROR_SHARE,
    )


def _terms(estimate: ServingEstimate, name: str, size_bytes: float) -> tuple[tuple[Factor, ...], ...]:
    """A part as a sum of products, with its numbers."""
    from xe_sizer.serving.memory_terms import terms_of

    return tuple(
        tuple(Factor(value=one.value, name=one.name, divides=one.divides) for one in term)
        for term in terms_of(estimate, name, size_bytes)
    )


def _parts(estimate: ServingEstimate) -> tuple[Held, ...]:
    """What the ledger lists, in its order."""
    if estimate.grows:
        return BATCH_PARTS
    parts = ALLOCATED_PARTS if estimate.fits else SHORT_PARTS
    return tuple(one for one in parts if one is not adapters or estimate.resolved.job.adapters)


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
    requests, asked = estimate.sequences if estimate.grows else 1.0, estimate.resolved.asked_len
    if asked is not None and not estimate.grows:
        return f"one sequence of {estimate.resolved.must_hold:,.0f} tokens"
    return "one request" if requests < 1.5 else f"{requests:,.0f} requests"
