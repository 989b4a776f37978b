"""A sized service as the result that users read: the JSON contract filled in, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.laws.hardware import energy_kwh, energy_words
from xe_sizer.result.common import SCHEMA_VERSION, Gpus, Reason, Source, TimeComponent
from xe_sizer.result.serving import (
    OVERLOADED,
    QUEUES,
    TOO_LONG,
    KvCache,
    Latency,
    LatencyAt,
    PerReplica,
    Phase,
    PhaseModule,
    Phases,
    Replicas,
    ServeCost,
    ServeResult,
    Span,
    Throughput,
)
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.scenario.provenance import resolved_scenario
from xe_sizer.scenario.schema import INFERENCE
from xe_sizer.serving.adapters_shown import adapters_of
from xe_sizer.serving.benchmark import benchmark_of
from xe_sizer.serving.compare_pools import disaggregation, layout_of
from xe_sizer.serving.day import day
from xe_sizer.serving.fitting import fit_of
from xe_sizer.serving.images import images_in
from xe_sizer.serving.kv_cache import token_bytes
from xe_sizer.serving.ledger import serve_memory, shortage
from xe_sizer.serving.load_curve import load_curve
from xe_sizer.serving.returning import session_cache
from xe_sizer.serving.step import STEP_PARTS
from xe_sizer.serving.traffic import HIGHEST_LOAD
from xe_sizer.serving.uncertainty import span
from xe_sizer.serving.warnings import cautions, misread, warnings_of
from xe_sizer.units import HOUR_S, MEGA, rounded
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.step import StepTime
    from xe_sizer.serving.uncertainty import Quantity

# Share of the thermal design power that an accelerator draws in serving, assumed: prompts come near all of it, decoding
# waits for memory at about half to two thirds (arXiv:2308.12908, arXiv:2311.18677).
INFERENCE_POWER_SHARE = 0.7


def summarise(sized: ServingEstimate, details: bool = True) -> ServeResult:
    """Everything about an estimate but the advice.

    details : with what only a full report shows: the minimum of GPUs, the curve over the load, and sources
    """
    resolved = sized.resolved
    node, nodes = resolved.job.server.accelerators, sized.nodes
    return ServeResult(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=_scenario(sized),
        verdict=verdict_of(sized, sized.confidence, sized.keeps_limits, _reasons(sized)),
        gpus=Gpus(
            count=sized.gpus,
            nodes=nodes,
            gpus_per_node=min(sized.gpus, node),
            minimum_that_fits=sized.minimum if details else None,
        ),
        layout=layout_of(sized.placement),
        memory=serve_memory(sized, details),
        latency=_latency(sized),
        throughput=throughput_of(sized),
        kv_cache=_kv_cache(sized),
        replicas=_replicas(sized, nodes),
        per_replica=_per_replica(sized),
        cost=cost_of(sized),
        phases=Phases(prefill=_phase(sized.point.prefill), decode=_phase(sized.point.decode)),
        images=images_in(sized) if sized.fits else None,
        test=benchmark_of(sized) if sized.choice.test else None,
        load_curve=tuple(load_curve(sized)) if details and not sized.choice.test else (),
        day=day(sized) if details else None,
        disaggregation=disaggregation(sized) if details else None,
        adapters=adapters_of(sized),
        session_cache=session_cache(sized),
        fit=fit_of(sized),
        cautions=tuple(cautions(sized)),
        misread=tuple(misread(resolved)),
        read_from_name=resolved.read_from_name,
        warnings=tuple(dict.fromkeys((*misread(resolved), *resolved.warnings, *warnings_of(sized)))),
        sources=tuple(_sources(sized)) if details else (),
    )


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
        basis=basis.basis,
        calibrated=basis.calibrated,
    )  # fmt: skip


def _span(sized: ServingEstimate, quantity: Quantity, expected: float) -> Span:
    if not math.isfinite(expected):
        return Span(low=None, expected=None, high=None)
    found = span(sized.resolved, quantity).around(expected)
    return Span(low=sized.no_faster(quantity, found.low, expected), expected=found.expected, high=found.high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def throughput_of(sized: ServingEstimate) -> Throughput:
    traffic, rate = sized.resolved.traffic, sized.taken_per_s
    return Throughput(
        output_tokens_per_s=rate * traffic.outputs,
        total_tokens_per_s=rate * (traffic.inputs + traffic.outputs),
        requests_per_s=rate,
        tokens_per_s_per_user=1.0 / sized.point.tpot_s if sized.fits and sized.point.tpot_s else 0.0,
        output_tokens_per_s_per_gpu=rate * traffic.outputs / sized.gpus,
        requests_in_flight=_finite(sized.in_flight),
    )


def _per_replica(sized: ServingEstimate) -> PerReplica:
    replicas, rate = sized.working_replicas, sized.taken_per_s
    return PerReplica(
        gpus=int(sized.placement.gpus[0]),
        requests_per_s=rate / replicas,
        concurrency=_finite(sized.in_flight / replicas),
        running_requests=sized.point.running if sized.fits else 0.0,
        output_tokens_per_s=rate * sized.resolved.traffic.outputs / replicas,
    )


def _kv_cache(sized: ServingEstimate) -> KvCache:
    job, traffic, placement = sized.resolved.job, sized.resolved.traffic, sized.placement
    ranks = int(placement.dp[0]) * (int(placement.pp[0]) if job.engine.pipelined else 1)
    return KvCache(
        bytes_per_token=token_bytes(job.model, job.scheme.cache),
        pool_bytes=sized.cache_bytes * int(placement.gpus[0]),
        pool_tokens=sized.choice.holds * (traffic.inputs + traffic.outputs),
        max_concurrency=min(sized.choice.holds, float(job.engine.batching.max_sequences * ranks)),
    )


def _replicas(sized: ServingEstimate, nodes: int) -> Replicas:
    return Replicas(
        count=sized.replicas,
        spare=sized.resolved.spare_replicas,
        gpus=sized.gpus,
        nodes=nodes,
        utilisation=sized.utilisation if sized.fits else 0.0,
        max_requests_per_s=sized.most_per_s if sized.fits else 0.0,
        running_requests=sized.point.running if sized.fits else 0.0,
        max_load=sized.choice.top_load * sized.working_replicas if sized.fits and sized.resolved.load else None,
    )


def cost_of(sized: ServingEstimate) -> ServeCost:
    """Price and energy of all GPUs by the tokens that they process, idle and spare ones included."""
    server = sized.resolved.job.server
    energy = energy_kwh(server, float(sized.gpus), INFERENCE_POWER_SHARE)
    millions = throughput_of(sized).total_tokens_per_s * HOUR_S / MEGA
    return ServeCost(
        per_hour=sized.cost,
        per_million_input_tokens=sized.cost_per_million_input_tokens,
        per_million_output_tokens=sized.cost_per_million_tokens,
        energy_kwh_per_million_tokens=None if energy is None or not millions else energy / millions,
        currency=sized.resolved.tariff.currency,
        energy_formula=energy_words(server, INFERENCE_POWER_SHARE),
        per_million_tokens=sized.cost_per_million_of_both,
        billed_gpus=None if sized.cost is None else sized.billed_gpus,
        hourly_price=sized.resolved.tariff.hourly(server),
    )


def _reasons(sized: ServingEstimate) -> Iterator[Reason]:
    if not sized.fits:
        yield shortage(sized)
    elif sized.too_long:
        yield _too_long(sized)
    elif sized.overloaded:
        yield _overload(sized)
    elif sized.queues:
        running = math.floor(sized.choice.places) * sized.working_replicas
        message = (
            f"{running:,} of the {sized.in_flight:,.0f} requests in flight run at once, the others wait in the queue"
        )
        yield Reason(code=QUEUES, message=message)
    known = sized.limits if sized.fits else tuple(limit for limit in sized.limits if limit.value is not None)
    yield from memory_doubt(sized, sized.confidence)
    yield from missed(known, sized.resolved.given.caller, confidence=sized.confidence)


def _too_long(sized: ServingEstimate) -> Reason:
    resolved = sized.resolved
    asked, positions = resolved.given.values.serve.max_model_len or 0, resolved.job.model.max_positions
    whose = f"max_model_len {asked:,} is more than the {positions:,} positions of {resolved.job.model.name}"
    return Reason(code=TOO_LONG, message=f"{whose}: {resolved.job.engine.name} refuses to start")


def _overload(sized: ServingEstimate) -> Reason:
    asked, replicas, gpus = sized.resolved.amount, sized.working_replicas, int(sized.placement.gpus[0])
    if not sized.choice.full_rate:
        message = "the KV cache of a replica is too small for the longest of requests that vary this much"
        return Reason(code=OVERLOADED, message=message)
    shape, prefills = f"{gpus} GPU{'s' if gpus > 1 else ''}", sized.choice.prefills
    words = f"{replicas} replicas of {shape} sustain" if replicas > 1 else f"one replica of {shape} sustains"
    if prefills:
        words = f"{prefills.replicas} prefill and {replicas} decode replicas sustain"
    most = rounded(HIGHEST_LOAD * sized.choice.full_rate * replicas, down=True)
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


def with_operators(result: ServeResult, sized: ServingEstimate) -> ServeResult:
    """The result with both kinds of step operator by operator."""
    phases, point = result.phases, sized.point
    decode, prefill = _in_full(phases.decode, point.decode), _in_full(phases.prefill, point.prefill)
    return replace(result, phases=Phases(prefill=prefill, decode=decode))


def _in_full(phase: Phase, step: StepTime) -> Phase:
    from xe_sizer.scenario.trials import operator_rows
    from xe_sizer.serving.operator_costs import operator_costs

    return replace(phase, operators=operator_rows(operator_costs(step), phase.seconds))


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
