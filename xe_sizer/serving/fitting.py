"""The questions how long sequences may be and how many of them fit: what is looked for, and the service with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.result.serving import Fit
from xe_sizer.serving.cases import cases_of, replicas_of
from xe_sizer.serving.longest import longest_context, sessions_held
from xe_sizer.serving.space import legal_placements

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.resolved import ResolvedService

CONTEXT, SESSIONS = "context", "sessions"
FOUND = "fit"  # origin of what was looked for
Sized = Callable[["ResolvedService"], "ServingEstimate"]


def size_fitting(resolved: ResolvedService, size_once: Sized) -> ServingEstimate:
    """The service with the longest sequences, or the most of them, that fit the GPUs.

    Without a number of GPUs those are meant that one replica needs at least.
    """
    placements = legal_placements(resolved.job, resolved.fixed, resolved.most_gpus())
    shortest = replace(resolved.traffic, inputs=1.0) if _context(resolved) else resolved.traffic
    least = replace(resolved, traffic=shortest)
    fitting = cases_of(least, placements).fitting if len(placements) else np.zeros(0, dtype=bool)
    if not np.any(fitting):
        return size_once(resolved)
    placements = placements[fitting]
    gpus = resolved.gpus or int(placements.gpus.min())
    on_them = replace(resolved, gpus=gpus)
    placements = placements[placements.gpus <= (on_them.most_gpus() or gpus)]
    return _longest(on_them, placements, size_once) if _context(resolved) else _most(on_them, placements, size_once)


def _context(resolved: ResolvedService) -> bool:
    return resolved.fit == CONTEXT


def _longest(resolved: ResolvedService, placements: ReplicaLayouts, size_once: Sized) -> ServingEstimate:
    job, outputs = resolved.job, resolved.traffic.outputs
    replicas = np.minimum(replicas_of(resolved, placements), resolved.amount)
    found = longest_context(job, placements, np.ceil(resolved.amount / replicas), outputs, _bound(resolved))
    best = float(found.max())
    if best <= 0:
        return size_once(resolved)
    traffic = replace(resolved.traffic, inputs=best - outputs)
    asked = replace(resolved, traffic=traffic, fixed=_sizes(placements, found))
    return size_once(_told(asked, {"serve.input_tokens": best - outputs}))


def _most(resolved: ResolvedService, placements: ReplicaLayouts, size_once: Sized) -> ServingEstimate:
    job, traffic = resolved.job, resolved.traffic
    limit = job.engine.batching.max_sequences * job.groups(placements)
    each = np.minimum(sessions_held(job, placements, traffic.inputs, traffic.outputs), limit)
    found = each * (1.0 if resolved.load == "batch" else replicas_of(resolved, placements))
    best = float(found.max())
    if best < 1:
        return size_once(resolved)
    asked = replace(resolved, amount=best, fixed=_sizes(placements, found))
    return size_once(_told(asked, {f"serve.{resolved.load}": int(best)}))


def _sizes(placements: ReplicaLayouts, found: Array) -> dict[str, int]:
    """The smallest placement of those that come furthest."""
    place = int(np.argmax(found))
    return {name: int(getattr(placements, name)[place]) for name in ("tp", "pp", "ep", "dp")}


def _bound(resolved: ResolvedService) -> int | None:
    """The longest sequence that model or user allow [tokens]; None: none is known."""
    known = (resolved.job.model.max_positions, resolved.given.values.serve.max_model_len)
    return min((one for one in known if one), default=None)


def _told(resolved: ResolvedService, found: dict[str, object]) -> ResolvedService:
    """With what was found as the value of its key."""
    values, origin = {**resolved.values, **found}, {**resolved.origin, **dict.fromkeys(found, FOUND)}
    return replace(resolved, values=values, origin=origin)


def fit_of(sized: ServingEstimate) -> Fit | None:
    """What was looked for as the result shows it; None where nothing was, or nothing fits."""
    resolved = sized.resolved
    if resolved.fit is None or not sized.fits:
        return None
    job, traffic, asked = resolved.job, resolved.traffic, resolved.given.values.serve.max_model_len
    tokens, working = int(traffic.inputs + traffic.outputs), 1 if resolved.load == "batch" else sized.working_replicas
    held = float(sessions_held(job, sized.placement, traffic.inputs, traffic.outputs)[0])
    bound, limit = "memory", job.engine.batching.max_sequences * float(job.groups(sized.placement)[0])
    if resolved.fit == SESSIONS and held > limit:
        bound = "max_sequences"
    if resolved.fit == CONTEXT and tokens == _bound(resolved):
        bound = "max_model_len" if tokens == asked else "positions"
    return Fit(
        question=resolved.fit,
        tokens=tokens,
        input_tokens=int(traffic.inputs),
        output_tokens=int(traffic.outputs),
        sessions=int(resolved.amount),
        sessions_per_replica=int(np.ceil(resolved.amount / working)),
        bound=bound,
    )


def what_fits(sized: ServingEstimate) -> tuple[float, str]:
    """The most of what was looked for, and its unit."""
    resolved = sized.resolved
    if _context(resolved):
        return resolved.traffic.inputs + resolved.traffic.outputs, "tokens"
    return resolved.amount, "sessions"
