"""How far off the figures of an inference service may be: from the residuals of published runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import INFERENCE_POWER_SHARE, INFERENCE_SHARE_ERROR, power_error
from xe_sizer.serving.job import ReplicaLayouts, untuned
from xe_sizer.software.speculation import kept_tokens
from xe_sizer.software.uncertainty import (
    EXACT,
    TABLES,
    Evidence,
    Spread,
    around,
    from_residuals,
    inverse,
    of_announced,
    of_fixed,
    of_kind,
    published,
    seen,
    widened,
)

if TYPE_CHECKING:
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.software.uncertainty import Uncertainty

TABLE = TABLES / "serving.json"
SEEN = TABLES / "serving-seen.json"
ENCODING: Literal["encoding"] = "encoding"
Quantity = Literal["ttft", "tpot", "request", "encoding", "throughput"]
QUANTITIES: Mapping[str, Quantity] = {"ttft_s": "ttft", "tpot_s": "tpot", "answered_s": "request"}
# Contexts, workspaces, captured graphs and buffers differ by about 2 GiB between releases of one engine: assumed.
MEMORY_ERROR_SHARE = 0.03
MEMORY_SPREAD = Spread(1.0 - MEMORY_ERROR_SHARE, 1.0 + MEMORY_ERROR_SHARE)


class Tested(Immutable, eq=True):
    """What is known of the test that a figure is compared with; a user's service is what the user says.

    lengths, requests, release : whether they are stated
    saturated : whether more requests came at once than were answered together
    forwards : whether a script called the model, and no service was asked
    """

    lengths: bool = True
    requests: bool = True
    release: bool = True
    saturated: bool = False
    forwards: bool = False


STATED = Tested()


def conditions(resolved: ResolvedService, tested: Tested) -> tuple[str, ...]:
    """What the error of a latency or a rate turns on, the gravest first.

    Where lengths are a guess, the test was another one; how many requests it had makes waits of clients that start
    together; beyond saturation figures turn on the queue. Engines get faster with every release. Grouped kernels of
    experts run with tables that are tuned for few cards and shapes. Of embeddings and scores little is published: a
    forward alone lacks what a service adds, which is most of a short text's time.
    """
    engine = resolved.job.engine
    known = tested.release and (engine.release is not None or not engine.releases)
    lengths = "lengths stated" if tested.lengths else "lengths guessed"
    if not resolved.job.answers:
        return "forwards alone" if tested.forwards else "a service", lengths
    return (
        lengths,
        "requests stated" if tested.requests else "requests guessed",
        "on AMD" if resolved.job.server.accelerator.vendor == "AMD" else "not on AMD",
        "saturated" if tested.saturated else "below saturation",
        "release known" if known else "release guessed",
        _experts(resolved),
    )


def _experts(resolved: ResolvedService) -> str:
    """The condition on experts; where the layout is left open, a rank counts as holding them all, whole."""
    job, fixed = resolved.job, resolved.fixed
    if not job.model.experts:
        return "dense"
    ranks = {name: fixed.get(name, 1) for name in ("tp", "pp", "ep", "dp")}
    return "experts without a tuned kernel" if untuned(job, ReplicaLayouts.of(**ranks))[0] else "experts"


def span(resolved: ResolvedService, quantity: Quantity, tested: Tested = STATED) -> Uncertainty:
    """Range of a latency or rate as factors on what is expected; 80 % of unseen measurements should lie inside.

    A request takes most of its time token by token, and has the range of that. Where nothing is written, times of
    requests and the rate, as the time to the next one, have the range of measured encoding alone.
    """
    engine = resolved.job.engine
    if fixed := of_fixed(resolved.job.efficiency, engine.uncertainty):
        return fixed
    kind, table = "tpot" if quantity == "request" else quantity, seen(SEEN)
    if not resolved.job.answers:
        kind, table = ENCODING, of_kind(table, ENCODING)
    kin = tuple(dict.fromkeys(one for one in (engine.name, engine.measured_as or "", engine.parent_name) if one))
    evidence = Evidence(table, kin, "comparable measurements", "other measurements", alike=False)
    told = from_residuals(published(TABLE), kind, conditions(resolved, tested), kind, evidence)
    if kind == ENCODING and quantity == "throughput":
        told = inverse(told)
    if (ends := resolved.assumed_drafting) and kind != "ttft":
        gained = resolved.traffic.tokens_per_step
        slower, faster = (gained / kept_tokens(one) for one in ends)
        low, high = (faster, slower) if kind == "tpot" else (1.0 / slower, 1.0 / faster)
        told = widened(told, low, high, "for drafts whose acceptance is assumed")
    return of_announced(told) if resolved.job.server.accelerator.announced else told


def find_spread(resolved: ResolvedService, of: str) -> Spread | None:
    """Factors on a quantity that a limit bounds, or on the peak of memory for what is left; None for a bound."""
    if of == "gpus":
        return EXACT
    if of == "power_kw":
        return around(power_error(resolved.job.server, INFERENCE_POWER_SHARE, INFERENCE_SHARE_ERROR))
    if of == "headroom_gib":
        return MEMORY_SPREAD
    if of == "cost_per_million_tokens":
        return span(resolved, "throughput").of_inverse
    return span(resolved, QUANTITIES.get(of, "tpot")).spread


def allowed_latencies(resolved: ResolvedService) -> tuple[float | None, float | None]:
    """Expected time to the first token and per token that keep their limits with the confidence asked for [s].

    Requests without answers end where the first token would come.
    """
    limits = resolved.limits
    first, of = (limits.max_ttft_s, "ttft_s") if resolved.job.answers else (limits.max_request_s, "answered_s")
    asked = (first, of), (limits.max_tpot_s, "tpot_s")
    if limits.confidence is None:
        return first, limits.max_tpot_s
    spreads = [(limit, find_spread(resolved, of)) for limit, of in asked]
    ttft_s, tpot_s = (
        limit if limit is None or spread is None else limit / spread.quantile(limits.confidence)
        for limit, spread in spreads
    )
    return ttft_s, tpot_s
