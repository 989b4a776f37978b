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
from xe_sizer.serving.sizing import Served, size
from xe_sizer.serving.step import FORMULAS, StepTime
from xe_sizer.serving.uncertainty import Quantity, span
from xe_sizer.serving.warnings import warnings_of
from xe_sizer.units import GIB, HOUR_S, rounded

MILLION = 1e6
# Share of the thermal design power that an accelerator draws in serving, assumed: prompts come near all of it, decoding
# waits for memory at about half to two thirds (arXiv:2308.12908, arXiv:2311.18677).
INFERENCE_POWER_SHARE = 0.7


def summarise(served: Served) -> ServeResult:
    """Everything about a sized service but the advice."""
    question = served.question
    memory, throughput, cost = serve_memory(served), throughput_of(served), cost_of(served)
    limits = _limits(served, memory, cost)
    reasons = tuple(_reasons(served, memory, limits))
    placement, node = served.placement, question.job.server.accelerators
    nodes = math.ceil(served.gpus / node)
    return ServeResult(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=_scenario(served),
        verdict=Verdict(
            fits=served.fits,
            meets_limits=all(limit.ok for limit in limits) and not overloaded(served),
            reasons=reasons,
            limits=limits,
            margin=margin(served, memory),
        ),
        gpus=Gpus(
            count=served.gpus,
            nodes=nodes,
            gpus_per_node=min(served.gpus, node),
            minimum_that_fits=_minimum(served),
        ),
        layout=ReplicaLayout(**{name: int(getattr(placement, name)[0]) for name in ReplicaLayout.__struct_fields__}),
        memory=memory,
        latency=_latency(served),
        throughput=throughput,
        kv_cache=_kv_cache(served, memory),
        replicas=_replicas(served, nodes),
        cost=cost,
        phases=Phases(prefill=_phase(served.point.prefill), decode=_phase(served.point.decode)),
        warnings=(*question.warnings, *warnings_of(served)),
        sources=tuple(_sources(served)),
    )


def _minimum(served: Served) -> int | None:
    """Fewest GPUs on which a replica fits, also where those that were asked for are too few."""
    question = served.question
    if served.minimum is not None or question.gpus is None:
        return served.minimum
    try:
        return size(replace(question, gpus=None)).minimum
    except InputError:  # the sizes that the user fixed leave no placement
        return None


def overloaded(served: Served) -> bool:
    """Whether requests come faster than the replicas take them, so that they wait ever longer."""
    return served.fits and not math.isfinite(served.point.ttft_s)


def judged(served: Served) -> tuple[float, float, float]:
    """Time to the first token, per token and of a request that limits are compared with [s].

    At the percentile asked for where requests arrive by chance, else in the mean; infinite where nothing fits.
    """
    point = served.point
    if not served.fits:
        return math.inf, math.inf, math.inf
    return point.percentiles.get(served.question.percentile, (point.ttft_s, point.tpot_s, point.request_s))


def meets(served: Served) -> bool:
    """Whether the service fits, takes its load and keeps every limit."""
    result = summarise(served)
    return result.verdict.ok


def _scenario(served: Served) -> dict[str, Any]:
    """Resolved keys with their origin; the formats are those that are used, whichever way they were said."""
    question = served.question
    job = question.job
    nested = resolved_scenario(question.resolved, question.origin, job.model, job.server)
    origin, serve = nested["origin"], nested.setdefault("serve", {})
    formats = {"weights": job.scheme.weights, "activations": job.scheme.activations, "kv_cache": job.scheme.cache}
    for name, used in formats.items():
        serve[name] = used.name
        origin.setdefault(f"serve.{name}", origin.get("serve.scheme", "default"))
    asked = question.given.values.job == INFERENCE
    nested["job"], origin["job"] = INFERENCE, question.given.origin["job"] if asked else "default"
    return nested


def _latency(served: Served) -> Latency:
    point, question = served.point, served.question
    expected = (point.ttft_s, point.tpot_s, point.request_s) if served.fits else (math.inf,) * 3
    quantities: tuple[Quantity, ...] = ("ttft", "tpot", "request")
    spans = {
        f"{quantity}_s": _span(served, quantity, value) for quantity, value in zip(quantities, expected, strict=True)
    }
    basis = span(question, "request")
    percentiles = point.percentiles if served.fits else {}
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


def _span(served: Served, quantity: Quantity, expected: float) -> Span:
    if not math.isfinite(expected):
        return Span(low=None, expected=None, high=None)
    found = span(served.question, quantity).around(expected)
    return Span(low=found.low, expected=found.expected, high=found.high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def throughput_of(served: Served) -> Throughput:
    traffic = served.question.traffic
    rate = served.requests_per_s if served.fits else 0.0
    if overloaded(served):
        rate = min(rate, HIGHEST_LOAD * served.full_rate * served.working_replicas)
    return Throughput(
        output_tokens_per_s=rate * traffic.outputs,
        total_tokens_per_s=rate * (traffic.inputs + traffic.outputs),
        requests_per_s=rate,
        tokens_per_s_per_user=1.0 / served.point.tpot_s if served.fits and served.point.tpot_s else 0.0,
        output_tokens_per_s_per_gpu=rate * traffic.outputs / served.gpus,
    )


def _kv_cache(served: Served, memory: ServeMemory) -> KvCache:
    job, traffic, placement = served.question.job, served.question.traffic, served.placement
    ranks = int(placement.dp[0]) * (int(placement.pp[0]) if job.engine.pipelined else 1)
    return KvCache(
        bytes_per_token=token_bytes(job.model, job.scheme.cache),
        pool_bytes=cache_bytes(served, memory) * int(placement.gpus[0]),
        pool_tokens=served.holds * (traffic.inputs + traffic.outputs),
        max_concurrency=min(served.holds, float(job.engine.batching.max_sequences * ranks)),
    )


def _replicas(served: Served, nodes: int) -> Replicas:
    return Replicas(
        count=served.replicas,
        spare=served.question.spare_replicas,
        gpus=served.gpus,
        nodes=nodes,
        utilisation=served.utilisation if served.fits else 0.0,
        max_requests_per_s=served.top_rate * served.working_replicas if served.fits else 0.0,
        running_requests=served.point.running if served.fits else 0.0,
    )


def cost_of(served: Served) -> ServeCost:
    """Price and energy of all GPUs by the tokens that they process, idle and spare ones included."""
    question, hourly, throughput = served.question, served.cost_per_hour, throughput_of(served)
    traffic, requests = question.traffic, throughput.requests_per_s * HOUR_S
    shares = (served.prefill_share, traffic.inputs), (1.0 - served.prefill_share, traffic.outputs)
    prices = [
        None if hourly is None or not requests else hourly * share / (requests * tokens) * MILLION
        for share, tokens in shares
    ]
    energy = energy_kwh(question.job.server.accelerator, float(served.gpus), INFERENCE_POWER_SHARE)
    millions = throughput.total_tokens_per_s * HOUR_S / MILLION
    return ServeCost(
        per_hour=hourly,
        per_million_input_tokens=prices[0],
        per_million_output_tokens=prices[1],
        energy_kwh_per_million_tokens=None if energy is None or not millions else energy / millions,
        currency=question.currency,
    )


def _limits(served: Served, memory: ServeMemory, cost: ServeCost) -> tuple[Limit, ...]:
    limits = served.question.given.values.limits
    ttft_s, tpot_s, _ = judged(served)
    price = cost.per_million_output_tokens
    return limits_of((
        ("max_ttft_s", limits.max_ttft_s, ttft_s, 1),
        ("max_tpot_s", limits.max_tpot_s, tpot_s, 1),
        ("max_cost_per_million_tokens", limits.max_cost_per_million_tokens, price, 1),
        ("max_gpus", limits.max_gpus, float(served.gpus), 1),
        ("min_headroom_gib", limits.min_headroom_gib, memory.headroom_bytes / GIB, -1),
    ))  # fmt: skip


def _reasons(served: Served, memory: ServeMemory, limits: tuple[Limit, ...]) -> Iterator[Reason]:
    if not served.fits:
        yield shortage(served, memory)
    elif overloaded(served):
        yield _overload(served)
    known = limits if served.fits else tuple(limit for limit in limits if limit.value is not None)
    yield from missed(known)


def _overload(served: Served) -> Reason:
    asked, replicas, gpus = served.question.amount, served.working_replicas, int(served.placement.gpus[0])
    if not served.full_rate:
        message = "the cache of a replica holds less than one request, as long as they vary to be"
        return Reason(code=OVERLOADED, message=message)
    shape = f"{gpus} GPU{'s' if gpus > 1 else ''}"
    words = f"{replicas} replicas of {shape} take" if replicas > 1 else f"one replica of {shape} takes"
    most = rounded(HIGHEST_LOAD * served.full_rate * replicas, down=True)
    message = f"{asked:,.6g} requests/s are more than the {most:g} that {words}"
    return Reason(code=OVERLOADED, message=message)


def _phase(step: StepTime) -> Phase:
    seconds = {name: float(value[0]) for name, value in step.parts.items()}
    whole = sum(seconds.values())
    return Phase(
        seconds=whole,
        components=tuple(
            TimeComponent(
                name=name, seconds=value, share=value / whole, formula=FORMULAS[name][0], source=FORMULAS[name][1]
            )
            for name, value in seconds.items()
            if value > 0
        ),
        modules=tuple(PhaseModule(name=name, seconds=float(value[0])) for name, value in step.modules.items()),
    )


def _sources(served: Served) -> Iterator[Source]:
    job = served.question.job
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
