"""The parts of a serving GPU's memory with their numbers put in: sums of products of what they are computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.laws.parts import Factor, product_of
from xe_sizer.serving.memory import (
    SAMPLED_TOGETHER,
    cache,
    communicators,
    cuda_context,
    cuda_graphs,
    logits,
    weights,
    workspaces,
)
from xe_sizer.serving.weights import rank_weight_bytes
from xe_sizer.units import FLOAT32, GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.laws.parts import Terms
    from xe_sizer.serving.estimate import ServingEstimate

NEAR = 1e-9  # share by which a sum in another order may differ [-]
HALF = 0.5


def terms_of(estimate: ServingEstimate, name: str, size_bytes: float) -> Terms:
    """The part of that name as a sum of products; empty where it is no such sum.

        bytes = sum of products of factors

    Parameters
    ----------
    estimate : a service, with the placement of its replicas
    name : of a part of its memory
    size_bytes : what the part comes to [bytes]

    Returns
    -------
    tuple of terms, each a tuple of factors; their products sum to `size_bytes`

    Source: the functions of `serving.memory`, whose quantities these are.
    """
    terms = _WAYS[name](estimate) if name in _WAYS else ()
    held = tuple(term for term in terms if product_of(term))
    return held if abs(sum(map(product_of, held)) - size_bytes) <= NEAR * size_bytes else ()


def _weights(estimate: ServingEstimate) -> Terms:
    """Elements in the format and elements in 16 bit, told apart by what they take in a format of half the size."""
    job, placement = estimate.resolved.job, estimate.placement
    scheme, each = job.scheme, job.scheme.weights.element_bytes
    whole = float(rank_weight_bytes(job.model, scheme, placement)[0])
    if each >= SIXTEEN_BIT:
        return ((Factor(whole / each, "elements"), Factor(each, "B")),)
    halved = replace(scheme, weights=replace(scheme.weights, element_bytes=HALF * each))
    narrow = (whole - float(rank_weight_bytes(job.model, halved, placement)[0])) / (HALF * each)
    wide = (whole - narrow * each) / SIXTEEN_BIT
    return (
        (Factor(narrow, f"elements in {scheme.weights.name}"), Factor(each, "B")),
        (Factor(wide, "elements in 16 bit"), Factor(SIXTEEN_BIT, "B")),
    )


def _cache(estimate: ServingEstimate) -> Terms:
    """A share of the card less all other parts; or the cache of the requests that are held."""
    job = estimate.resolved.job
    engine, parts = job.engine.memory, estimate.memory_parts
    if not estimate.grows and estimate.fits:
        card = (Factor(engine.utilization, ""), Factor(job.server.accelerator.memory_bytes, "B of the card"))
        others = (name for name in parts if name not in (cache.name, cuda_graphs.name))
        return (card, *((Factor(-parts[name], f"B of {name}"),) for name in others))
    each = estimate.request_bytes
    requests = estimate.sequences / float(estimate.placement.dp[0]) if estimate.grows else 1.0
    copies = engine.cache_copies if estimate.grows else 1.0
    return ((Factor(copies, "copies"), Factor(requests, "requests"), Factor(each, "B a request")),)


def _logits(estimate: ServingEstimate) -> Terms:
    job = estimate.resolved.job
    rows = float(min(job.engine.batching.max_sequences, SAMPLED_TOGETHER))
    each = job.element_bytes + FLOAT32
    return ((Factor(rows, "sequences"), Factor(float(job.model.vocab), "vocabulary"), Factor(each, "B")),)


def _everywhere(name: str) -> Callable[[ServingEstimate], Terms]:
    """A size that the engine's file states."""

    def stated(estimate: ServingEstimate) -> Terms:
        return ((Factor(getattr(estimate.resolved.job.engine.memory, name), "GiB"), Factor(GIB, "")),)

    return stated


_WAYS: dict[str, Callable[[ServingEstimate], Terms]] = {
    weights.name: _weights,
    cache.name: _cache,
    logits.name: _logits,
    cuda_graphs.name: _everywhere("graphs_gib"),
    cuda_context.name: _everywhere("context_gib"),
    communicators.name: _everywhere("communicator_gib"),
    workspaces.name: _everywhere("workspace_gib"),
}
