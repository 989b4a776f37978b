"""A sized service as the result that users read: the JSON contract filled in, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from xe_sizer import __version__
from xe_sizer.errors import InputError
from xe_sizer.laws.energy import energy_kwh
from xe_sizer.result.common import SCHEMA_VERSION, Gpus, Limit, Reason, Source, TimeComponent, Verdict
from xe_sizer.result.serving import (
    OVERLOADED,
    KvCache,
    Latency,
    LatencyAt,
    Phase,
    PhaseModule,
    Phases,
    ReplicaLayout,
    Replicas,
    ServeCost,
    ServeMemory,
    ServeResult,
    Span,
    Throughput,
)
from xe_sizer.scenario.limits import limits_of, missed
from xe_sizer.scenario.provenance import resolved_scenario
from xe_sizer.scenario.read import INFERENCE
from xe_sizer.serving.kv_cache import token_bytes
from xe_sizer.serving.ledger import cache_bytes, margin, serve_memory, shortage
from xe_sizer.serving.queueing import HIGHEST_LOAD
from xe_sizer.serving.sizing import ServingEstimate, size
from xe_sizer.serving.step import STEP_PARTS, StepTime
from xe_sizer.serving.uncertainty import Quantity, span
from xe_sizer.serving.warnings import warnings_of
from xe_sizer.units import GIB, HOUR_S, rounded

MILLION = 1e6
# Share of the thermal design power that an accelerator draws in serving, assumed: prompts come near all of it, decoding
# waits for memory at about half to two thirds (arXiv:2308.12908, arXiv:2311.18677).
INFERENCE_POWER_SHARE = 0.7


def summarise(sized: ServingEstimate) -> ServeResult:
    """Everything about a sized service but the advice."""
    resolved = sized.resolved
    memory, throughput, cost = serve_memory(sized), throughput_of(sized), cost_of(sized)
    limits = _limits(sized, memory, cost)
    reasons = tuple(_reasons(sized, memory, limits))
    placement, node = sized.placement, resolved.job.server.accelerators
    nodes = math.ceil(sized.gpus / node)
    return ServeResult(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=_scenario(sized),
        verdict=Verdict(
            fits=sized.fits,
            meets_limits=all(limit.ok for limit in limits) and not overloaded(sized),
            reasons=reasons,
            limits=limits,
            margin=margin(sized, memory),
        ),
        gpus=Gpus(
            count=sized.gpus,
            nodes=nodes,
            gpus_per_node=min(sized.gpus, node),
            minimum_that_fits=_minimum(sized),
        ),
        layout=ReplicaLayout(**{name: int(getattr(placement, name)[0]) for name in ReplicaLayout.__struct_fields__}),
        memory=memory,
        latency=_latency(sized),
        throughput=throughput,
        kv_cache=_kv_cache(sized, memory),
        replicas=_replicas(sized, nodes),
        cost=cost,
        phases=Phases(prefill=_phase(sized.point.prefill), decode=_phase(sized.point.decode)),
        warnings=(*resolved.warnings, *warnings_of(sized)),
        sources=tuple(_sources(sized)),
    )


def _minimum(sized: ServingEstimate) -> int | None:
    """Fewest GPUs on which a replica fits, also where those that were asked for are too few."""
    resolved = sized.resolved
    if sized.minimum is not None or resolved.gpus is None:
        return sized.minimum
    try:
        return size(replace(resolved, gpus=None)).minimum
    except InputError:  # the sizes that the user fixed leave no placement
        return None


def overloaded(sized: ServingEstimate) -> bool:
    """Whether requests come faster than the replicas take them, so that they wait ever longer."""
    return sized.fits and not math.isfinite(sized.point.ttft_s)


def judged(sized: ServingEstimate) -> tuple[float, float, float]:
    """Time to the first token, per token and of a request that limits are compared with [s].

    At the percentile asked for where requests arrive by chance, else in the mean; infinite where nothing fits.
    """
    point = sized.point
    if not sized.fits:
        return math.inf, math.inf, math.inf
    return point.percentiles.get(sized.resolved.percentile, (point.ttft_s, point.tpot_s, point.request_s))


def meets(sized: ServingEstimate) -> bool:
    """Whether the service fits, takes its load and keeps every limit."""
    result = summarise(sized)
    return result.verdict.ok


def _scenario(sized: ServingEstimate) -> dict[str, Any]:
    """Resolved keys with their origin; the formats are those that are used, whichever way they were said."""
    resolved = sized.resolved
    job = resolved.job
    nested = resolved_scenario(resolved.values, resolved.origin, job.model, job.server)
    origin, serve = nested["origin"], nested.setdefault("serve", {})
    formats = {"weights": job.scheme.weights, "activations": job.scheme.activations, "kv_cache": job.scheme.cache}
    for name, used in formats.items():
        serve[name] = used.name
        origin.setdefault(f"serve.{name}", origin.get("serve.scheme", "default"))
    asked = resolved.given.values.job == INFERENCE
    nested["job"], origin["job"] = INFERENCE, resolved.given.origin["job"] if asked else "default"
    return nested


def _latency(sized: ServingEstimate) -> Latency:
    point, resolved = sized.point, sized.resolved
    expected = (point.ttft_s, point.tpot_s, point.request_s) if sized.fits else (math.inf,) * 3
    quantities: tuple[Quantity, ...] = ("ttft", "tpot", "request")
    spans = {
        f"{quantity}_s": _span(sized, quantity, value) for quantity, value in zip(quantities, expected, strict=True)
    }
    basis = span(resolved, "request")
    percentiles = point.percentiles if sized.fits else {}
    return Latency(
        **spans,
        percentiles=tuple(
            LatencyAt(
                percentile=percentile, ttft_s=_finite(values[0]), tpot_s=_finite(values[1]),
                request_s=_finite(values[2]),
            )
            for percentile, values in percentiles.items()
        ),
        evidence=basis.evidence,
        calibrated=basis.calibrated,
    )  # fmt: skip


def _span(sized: ServingEstimate, quantity: Quantity, expected: float) -> Span:
    if not math.isfinite(expected):
        return Span(low=None, expected=None, high=None)
    found = span(sized.resolved, quantity).around(expected)
    return Span(low=found.low, expected=found.expected, high=found.high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def throughput_of(sized: ServingEstimate) -> Throughput:
    traffic = sized.resolved.traffic
    rate = sized.requests_per_s if sized.fits else 0.0
    if overloaded(sized):
        rate = min(rate, HIGHEST_LOAD * sized.full_rate * sized.working_replicas)
    return Throughput(
        output_tokens_per_s=rate * traffic.outputs,
        total_tokens_per_s=rate * (traffic.inputs + traffic.outputs),
        requests_per_s=rate,
        tokens_per_s_per_user=1.0 / sized.point.tpot_s if sized.fits and sized.point.tpot_s else 0.0,
        output_tokens_per_s_per_gpu=rate * traffic.outputs / sized.gpus,
    )


def _kv_cache(sized: ServingEstimate, memory: ServeMemory) -> KvCache:
    job, traffic, placement = sized.resolved.job, sized.resolved.traffic, sized.placement
    ranks = int(placement.dp[0]) * (int(placement.pp[0]) if job.engine.pipelined else 1)
    return KvCache(
        bytes_per_token=token_bytes(job.model, job.scheme.cache),
        pool_bytes=cache_bytes(sized, memory) * int(placement.gpus[0]),
        pool_tokens=sized.holds * (traffic.inputs + traffic.outputs),
        max_concurrency=min(sized.holds, float(job.engine.batching.max_sequences * ranks)),
    )


def _replicas(sized: ServingEstimate, nodes: int) -> Replicas:
    return Replicas(
        count=sized.replicas,
        spare=sized.resolved.spare_replicas,
        gpus=sized.gpus,
        nodes=nodes,
        utilisation=sized.utilisation if sized.fits else 0.0,
        max_requests_per_s=sized.top_rate * sized.working_replicas if sized.fits else 0.0,
        running_requests=sized.point.running if sized.fits else 0.0,
    )


def cost_of(sized: ServingEstimate) -> ServeCost:
    """Price and energy of all GPUs by the tokens that they process, idle and spare ones included."""
    resolved, hourly, throughput = sized.resolved, sized.cost_per_hour, throughput_of(sized)
    traffic, requests = resolved.traffic, throughput.requests_per_s * HOUR_S
    shares = (sized.prefill_share, traffic.inputs), (1.0 - sized.prefill_share, traffic.outputs)
    prices = [
        None if hourly is None or not requests else hourly * share / (requests * tokens) * MILLION
        for share, tokens in shares
    ]
    energy = energy_kwh(resolved.job.server.accelerator, float(sized.gpus), INFERENCE_POWER_SHARE)
    millions = throughput.total_tokens_per_s * HOUR_S / MILLION
    return ServeCost(
        per_hour=hourly,
        per_million_input_tokens=prices[0],
        per_million_output_tokens=prices[1],
        energy_kwh_per_million_tokens=None if energy is None or not millions else energy / millions,
        currency=resolved.currency,
    )


def _limits(sized: ServingEstimate, memory: ServeMemory, cost: ServeCost) -> tuple[Limit, ...]:
    limits = sized.resolved.given.values.limits
    ttft_s, tpot_s, _ = judged(sized)
    price = cost.per_million_output_tokens
    return limits_of((
        ("max_ttft_s", limits.max_ttft_s, ttft_s, 1),
        ("max_tpot_s", limits.max_tpot_s, tpot_s, 1),
        ("max_cost_per_million_tokens", limits.max_cost_per_million_tokens, price, 1),
        ("max_gpus", limits.max_gpus, float(sized.gpus), 1),
        ("min_headroom_gib", limits.min_headroom_gib, memory.headroom_bytes / GIB, -1),
    ))  # fmt: skip


def _reasons(sized: ServingEstimate, memory: ServeMemory, limits: tuple[Limit, ...]) -> Iterator[Reason]:
    if not sized.fits:
        yield shortage(sized, memory)
    elif overloaded(sized):
        yield _overload(sized)
    known = limits if sized.fits else tuple(limit for limit in limits if limit.value is not None)
    yield from missed(known)


def _overload(sized: ServingEstimate) -> Reason:
    asked, replicas, gpus = sized.resolved.amount, sized.working_replicas, int(sized.placement.gpus[0])
    if not sized.full_rate:
        message = "the cache of a replica holds less than one request, as long as they vary to be"
        return Reason(code=OVERLOADED, message=message)
    shape = f"{gpus} GPU{'s' if gpus > 1 else ''}"
    words = f"{replicas} replicas of {shape} take" if replicas > 1 else f"one replica of {shape} takes"
    most = rounded(HIGHEST_LOAD * sized.full_rate * replicas, down=True)
    message = f"{asked:,.6g} requests/s are more than the {most:g} that {words}"
    return Reason(code=OVERLOADED, message=message)


def _phase(step: StepTime) -> Phase:
    seconds = {name: float(value[0]) for name, value in step.parts.items()}
    whole = sum(seconds.values())
    return Phase(
        seconds=whole,
        components=tuple(
            TimeComponent(name=name, seconds=value, share=value / whole, formula=part.formula, source=part.source)
            for part, (name, value) in zip(STEP_PARTS, seconds.items(), strict=True)
            if value > 0
        ),
        modules=tuple(PhaseModule(name=name, seconds=float(value[0])) for name, value in step.modules.items()),
    )


def _sources(sized: ServingEstimate) -> Iterator[Source]:
    job = sized.resolved.job
    gpu, server = job.server.accelerator, job.server
    named = {
        f"accelerator {gpu.name}": gpu.source,
        f"server {server.name}": server.source,
        "matrix products": job.device.matmul.source,
        "attention of prompts": job.device.attention.source,
        "attention of decoding": job.device.decode.source,
        f"engine {job.engine.name}": job.engine.source,
        **{f"collective {name}": law.source for name, law in job.network.scale_up.items()},
    }
    yield from (Source(name=name, source=source) for name, source in named.items() if source)
