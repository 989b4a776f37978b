"""A sized service as the result that users read: the JSON contract filled in, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from xe_sizer.laws.hardware import INFERENCE_POWER_SHARE, energy_words
from xe_sizer.result.common import SCHEMA_VERSION, Factor, Gpus, MemoryComponent, Reason, Source, TimeComponent
from xe_sizer.result.serving import (
    AGGREGATED,
    ALIKE,
    DISAGGREGATED,
    OVERLOADED,
    QUEUES,
    REJECTED,
    TOO_LONG,
    Adapters,
    Aggregated,
    ApiComparison,
    Benchmark,
    BenchmarkLatency,
    Day,
    DayHour,
    Disaggregation,
    ExpertsApart,
    GpuSlice,
    ImageEncoders,
    KeptLoad,
    KvCache,
    Latency,
    LatencyAt,
    LoadPoint,
    PerReplica,
    Phase,
    PhaseModule,
    Phases,
    ReplicaLayout,
    Replicas,
    ServeCost,
    ServedExperts,
    ServeMemory,
    ServeResult,
    Span,
    Speculation,
    Throughput,
)
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.scenario.options import SERVE_OPTIONS
from xe_sizer.scenario.provenance import joining_assumptions, resolved_scenario
from xe_sizer.scenario.schema import INFERENCE
from xe_sizer.scenario.schema import LOADS as LOAD_KEYS
from xe_sizer.scenario.tariff import what_is_paid
from xe_sizer.serving.job import FULL, HIGHEST_LOAD, Allocated, ReplicaLayouts, untuned
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import (
    ALLOCATED_PARTS,
    ALONE_PARTS,
    BATCH_PARTS,
    IMAGES,
    READING_PARTS,
    SHORT_PARTS,
    Cached,
    absent_parts,
    adapter_bytes,
    cache,
    distinct,
    drafter,
    host_layer_bytes,
    largest_step,
    left_free,
    ngram_table_bytes,
    pool,
    state_bytes,
    token_bytes,
    weights,
    worst_moment,
)
from xe_sizer.serving.queueing import rate_within
from xe_sizer.serving.resolve import INTERACTIVE, images_in
from xe_sizer.serving.search import build_fit, host_cache_warnings, session_cache, session_turns
from xe_sizer.serving.step_time import STEP_PARTS, adapter_products, drafting, waiting_for_experts
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE, span
from xe_sizer.software.speculation import METHODS, kept_tokens
from xe_sizer.units import (
    DAY_S,
    GIB,
    GIGA,
    HOUR_S,
    MEGA,
    WATT_PER_KW,
    rounded,
    three_digits,
    whole_parts,
    whole_percent,
)
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.job import ReplicaLayouts
    from xe_sizer.serving.memory import Alone, Held
    from xe_sizer.serving.queueing import Latencies
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation import Outcome
    from xe_sizer.serving.step_time import StepTime
    from xe_sizer.serving.uncertainty import Quantity

# A day, on replicas that are started and stopped with its load.

# What a server reads of a model as it starts: assumed, as much as the usual network storage gives.
READ_BYTES_PER_S = 2 * GIGA
# From the start of an engine to its first answer, beside reading the weights: measured once, 59 s with graphs compiled
# before (https://github.com/vllm-project/vllm/issues/20264); minutes more where they are compiled first.
ENGINE_START_S = 60.0
# Of the peak, what an hour without load is sized for: assumed, so that one replica stays for whoever comes.
LEAST_SHARE = 1e-3


def start_s(estimate: ServingEstimate) -> float:
    """Time from starting a replica to its first answer.

        start = weights of a server / read rate + start of the engine

    Parameters
    ----------
    estimate : the service with the placement of its replicas

    Returns
    -------
    float, shape (), seconds [s]

    Source: own derivation; the user's `replica_start_s` where there is one.
    """
    asked_s = estimate.resolved.scenario.values.serve.replica_start_s
    if asked_s is not None:
        return float(asked_s)
    of_gpu = float(estimate.memory.fixed[weights.name][0])
    read_bytes = of_gpu * min(int(estimate.placement.gpus[0]), estimate.resolved.job.server.accelerators)
    return read_bytes / READ_BYTES_PER_S + ENGINE_START_S


def day(estimate: ServingEstimate) -> Day | None:
    """Size every hour of a day with the replicas that it needs, beside as many as the peak needs all day.

        load(h) = load x value(h) / max of the values
        GPU hours = sum of GPUs(h) + (GPUs started) x start / 3600

    Every hour is sized as a question of its own, with the placement of the peak. What an hour has more than the one
    before is started so early that it serves from the hour's beginning; the day repeats.

    Parameters
    ----------
    estimate : the service at its peak

    Returns
    -------
    Day, shape (24 hours,), seconds [s] and hours [h]; None where nobody gives the hours' load, or where no replica fits

    Source: own derivation.
    """
    values = estimate.resolved.scenario.values.serve.hourly_load
    if values is None or not estimate.fits:
        return None
    known: dict[float, ServingEstimate] = {}
    at = [_at_share(estimate, max(value / max(values), LEAST_SHARE), known) for value in values]
    hours = tuple(_hour(place, values[place] / max(values), one) for place, one in enumerate(at))
    before = (at[-1], *at[:-1])
    started = [max(now.gpus - then.gpus, 0) for now, then in zip(at, before, strict=True)]
    starts_h = sum(started) * start_s(estimate) / HOUR_S
    costs = [one.cost for one in at]
    cost = None
    if estimate.cost is not None and estimate.billed_gpus:
        extra = starts_h * estimate.cost / estimate.billed_gpus
        cost = sum(each for each in costs if each is not None) + extra
    return Day(
        hours=hours,
        requests=sum(hour.requests_per_s for hour in hours) * HOUR_S,
        gpu_hours=sum(one.gpus for one in at) + starts_h,
        peak_gpu_hours=float(len(hours) * estimate.gpus),
        cost=cost,
        peak_cost=None if estimate.cost is None else len(hours) * estimate.cost,
        currency=estimate.resolved.tariff.currency,
        replica_start_s=start_s(estimate),
        meets_limits=all(hour.meets_limits for hour in hours),
    )


def _at_share(estimate: ServingEstimate, share: float, known: dict[float, ServingEstimate]) -> ServingEstimate:
    """The service at a share of its load, on as few replicas as keep it, and on no more than at the peak."""
    if share not in known:
        resolved, placement = estimate.resolved, estimate.placement
        fixed = {name: int(getattr(placement, name)[0]) for name in ("tp", "pp", "ep", "dp")}
        amount = resolved.amount * share
        if resolved.load == "concurrency":
            amount = max(math.floor(amount), 1.0)
        fewer = estimate.resized(amount=amount, gpus=None, fixed=fixed)
        if fewer is None or fewer.gpus > estimate.gpus:
            fewer = estimate.resized(amount=amount, gpus=estimate.gpus, fixed=fixed) or estimate
        known[share] = fewer
    return known[share]


def _hour(place: int, share: float, one: ServingEstimate) -> DayHour:
    ttft_s, tpot_s, _ = one.judged_s
    return DayHour(
        hour=place,
        share=share,
        load=one.resolved.amount if share >= LEAST_SHARE else 0.0,
        requests_per_s=one.taken_per_s if share >= LEAST_SHARE else 0.0,
        replicas=one.replicas,
        gpus=one.gpus,
        ttft_s=ttft_s if math.isfinite(ttft_s) else None,
        tpot_s=tpot_s if math.isfinite(tpot_s) else None,
        meets_limits=one.keeps_limits,
    )


# Tests, as a benchmark tool prints them.

PERCENTILES = (50.0, 90.0, 95.0, 99.0)  # that benchmark tools print


def build_benchmark(estimate: ServingEstimate) -> Benchmark | None:
    """Build the test of a service; None where none was asked for, or nothing fits.

        tokens per second = requests per second x mean tokens, over the whole test with its beginning and its end
        requests in flight = sum of the times of all requests / duration
        goodput = requests per second x share of the requests that keep the user's limits

    Requests are given to the replicas in turn, so that each replica sees the same test.

    Parameters
    ----------
    estimate : a service with the outcome of one replica's requests

    Returns
    -------
    Benchmark, seconds [s] and rates [1/s], or None

    Source: definitions of `vllm bench serve` (vllm/benchmarks/serve.py, calculate_metrics), of SGLang's bench_serving
    and of GenAI-Perf.
    """
    test, resolved = estimate.choice.test, estimate.resolved
    if test is None or not estimate.fits:
        return None
    requests, rate = resolved.requests or 0, estimate.requests_per_s
    low, high = factors = _rates(estimate, rate)
    inputs, outputs = (float(each.mean()) for each in (test.inputs, test.outputs))
    return Benchmark(
        arrivals=_arrivals(resolved),
        requests=requests,
        concurrency=int(resolved.amount) if resolved.load == "concurrency" else None,
        request_rate=resolved.amount if resolved.load == "request_rate" else None,
        duration_s=_between(test.duration_s, (1.0 / high, 1.0 / low)),
        input_tokens=round(inputs * requests),
        output_tokens=round(outputs * requests),
        requests_per_s=_between(rate, factors),
        output_tokens_per_s=_between(rate * outputs, factors),
        total_tokens_per_s=_between(rate * (inputs + outputs), factors),
        mean_concurrency=rate * float(test.request_s.mean()),
        goodput_per_s=_goodput(resolved, test, rate),
        ttft_s=_benchmark_latency(estimate, "ttft", test.ttft_s),
        tpot_s=_benchmark_latency(estimate, "tpot", test.tpot_s[test.outputs > 1.0]),
        itl_s=_gaps(estimate, test),
        e2e_latency_s=_benchmark_latency(estimate, "request", test.request_s),
        preemptions=test.preempted,
    )


def _arrivals(resolved: ResolvedService) -> str:
    """How requests come: closed-loop, trace, all-at-once, or at a rate as the user says."""
    if resolved.load == "concurrency":
        return "closed-loop"
    if resolved.trace:
        return "trace"
    return resolved.arrivals if resolved.load == "request_rate" else "all-at-once"


def _goodput(resolved: ResolvedService, test: Outcome, rate: float) -> float | None:
    """Requests per second that keep the user's limits; None where there are none [1/s]."""
    limits = resolved.scenario.values.limits
    if limits.max_ttft_s is None and limits.max_tpot_s is None:
        return None
    return rate * test.goodput(limits.max_ttft_s, limits.max_tpot_s) / test.requests_per_s


def _rates(estimate: ServingEstimate, rate: float) -> tuple[float, float]:
    """Factors on the rate of a test, lowest and highest.

    Requests that come at a rate are no faster than that, and as fast while the replicas take more than comes.
    """
    resolved, found = estimate.resolved, span(estimate.resolved, "throughput")
    if resolved.load != "request_rate" or not rate:
        return found.low, found.high
    most = max(estimate.choice.full_rate * estimate.working_replicas, rate)
    return min(1.0, found.low * most / rate), max(1.0, min(found.high, resolved.amount / rate))


def _between(expected: float, factors: tuple[float, float]) -> Span:
    return Span(low=expected * factors[0], expected=expected, high=expected * factors[1])


def _around(estimate: ServingEstimate, quantity: Quantity, expected: float) -> Span:
    """A latency with its range, in which nothing is faster than the hardware could be."""
    found = span(estimate.resolved, quantity).around(expected)
    return Span(low=estimate.no_faster(quantity, found.low, expected), expected=expected, high=found.high)


def _benchmark_latency(estimate: ServingEstimate, quantity: Quantity, seconds: Array) -> BenchmarkLatency:
    """Mean with its range, median and percentiles of one figure of all requests; zeros where no request has it."""
    values = seconds if seconds.size else np.zeros(1)
    median, p90, p95, p99 = (float(value) for value in np.percentile(values, PERCENTILES))
    mean = _around(estimate, quantity, float(values.mean()))
    return BenchmarkLatency(mean=mean, median=median, p90=p90, p95=p95, p99=p99)


def _gaps(estimate: ServingEstimate, test: Outcome) -> BenchmarkLatency:
    """Times between two tokens of a request, of all requests together."""
    median, p90, p95, p99 = (test.gap_at_s(percentile) for percentile in PERCENTILES)
    return BenchmarkLatency(mean=_around(estimate, "tpot", test.mean_gap_s), median=median, p90=p90, p95=p95, p99=p99)


# Two pools, beside the same service with all on all replicas.

WORTH_SAYING = 1.05  # times the GPUs or the requests of the other, from which one of two is the better


def disaggregation(estimate: ServingEstimate) -> Disaggregation | None:
    """The replicas that only read prompts, what a first token waits for, and the answer without them."""
    prefills = estimate.choice.prefills
    if prefills is None:
        return None
    without = estimate.resized(prefill_replicas=None, prefill_fixed={})
    by = "gpus" if estimate.resolved.gpus is None and estimate.resolved.load is not None else "max_requests_per_s"
    stages = prefills.stages_s
    return Disaggregation(
        prefill_replicas=prefills.replicas,
        prefill_gpus=int(prefills.placement.gpus[0]),
        prefill_layout=build_layout(prefills.placement),
        decode_replicas=estimate.replicas,
        utilisation=prefills.utilisation,
        link_utilisation=prefills.link_utilisation,
        queue_s=stages["queue"] if not estimate.overloaded else None,
        prefill_s=stages["prefill"],
        transfer_s=stages["transfer"],
        decode_s=stages["decode"],
        transfer_bytes=prefills.transfer_bytes,
        path="node" if prefills.same_node else "network",
        aggregated=None if without is None else _aggregated(without),
        better=DISAGGREGATED if without is None else better_words(estimate, without, by),
        by=by,
    )


def build_encoders(estimate: ServingEstimate, details: bool = True) -> ImageEncoders | None:
    """Build what is said of GPUs that only encode images; None where there are none.

    details : with the service whose replicas encode their own
    """
    found = estimate.choice.encoders
    if found is None:
        return None
    other = estimate.resized(encode_replicas=None) if details else None
    return ImageEncoders(
        replicas=found.replicas,
        utilisation=min(found.utilisation, 1.0),
        queue_s=found.queue_s if found.utilisation < HIGHEST_LOAD else None,
        encode_s=found.encode_s,
        transfer_s=found.sent_s,
        embedding_bytes=found.embedding_bytes,
        memory=_held_alone(estimate, IMAGES, details=True),
        path="node" if found.same_node else "network",
        otherwise_gpus=other.gpus if other else None,
        otherwise_ttft_s=_finite(other.ttft_s) if other else None,
    )


def build_layout(placement: ReplicaLayouts) -> ReplicaLayout:
    """Build the sizes of one placement."""
    return ReplicaLayout(**{name: int(getattr(placement, name)[0]) for name in ReplicaLayout.__struct_fields__})


def _aggregated(without: ServingEstimate) -> Aggregated:
    bounded = [value if math.isfinite(value) else None for value in (without.ttft_s, without.tpot_s)]
    return Aggregated(
        gpus=without.gpus,
        replicas=without.replicas,
        layout=build_layout(without.placement),
        meets_limits=without.ok,
        ttft_s=bounded[0],
        tpot_s=bounded[1],
        max_requests_per_s=without.most_per_s if without.fits else 0.0,
    )


def better_words(estimate: ServingEstimate, without: ServingEstimate, by: str) -> str:
    """What keeps the limits where one alone does; else what takes fewer GPUs, or more requests on a GPU."""
    if estimate.ok != without.ok:
        return DISAGGREGATED if estimate.ok else AGGREGATED
    if by == "gpus":
        gain = without.gpus / estimate.gpus
    else:
        gain = (estimate.most_per_s / estimate.gpus) / max(without.most_per_s / without.gpus, 1e-12)
    if gain >= WORTH_SAYING:
        return DISAGGREGATED
    return AGGREGATED if gain * WORTH_SAYING <= 1.0 else ALIKE


# Memory of a GPU that serves, as reports show it: what it is made of, what is available, and what is missing.


def serve_memory(estimate: ServingEstimate, details: bool = True) -> ServeMemory:
    """The ledger of the fullest GPU [bytes]; with the numbers of the formulas as a detail."""
    job, placement = estimate.resolved.job, estimate.placement
    at_work = f"{_held(estimate)} at their peak" if estimate.grows else "as allocated"
    if estimate.short:
        return _held_alone(estimate, estimate.short, details)
    terms = _terms(estimate, _parts(estimate)) if details else {}
    alike = "those of attention alike" if placement.apart else "all alike"
    return _ledger(
        estimate,
        _parts(estimate),
        estimate.memory_parts,
        terms,
        phase=at_work if estimate.grows or estimate.fits or job.allocated else "one request",
        gpu="fullest pipeline stage" if int(placement.pp[0]) > 1 else alike,
    )


def _held_alone(estimate: ServingEstimate, alone: Alone, details: bool) -> ServeMemory:
    """The same of a GPU that holds a part of the model alone."""
    job, placement, in_front = estimate.resolved.job, estimate.placement, estimate.choice.encoders
    if alone == IMAGES and in_front is not None:
        held = in_front.held
    else:
        held = largest_step(job, placement, estimate.resolved.traffic.inputs)
    held, parts = replace(held, alone=alone), ALONE_PARTS[alone]
    terms = _factors({part.name: part.terms(held, 0) for part in parts}) if details else {}
    return _ledger(estimate, parts, estimate.apart[alone], terms, "as allocated", f"those of {alone} alike")


_Terms = Mapping[str, tuple[tuple[Factor, ...], ...]]


def _ledger(
    estimate: ServingEstimate, parts: tuple[Held, ...], sizes: Mapping[str, float], terms: _Terms, phase: str, gpu: str
) -> ServeMemory:
    components = tuple(
        MemoryComponent(
            name=part.name,
            bytes=size,
            formula=part.formula,
            source=part.source,
            terms=terms.get(part.name, ()),
        )
        for part, size in zip(parts, whole_parts(sizes.values()), strict=True)
    )
    peak, usable = sum(part.bytes for part in components), float(round(estimate.usable_bytes))
    return ServeMemory(
        peak_bytes=peak,
        usable_bytes=usable,
        headroom_bytes=usable - peak,
        phase=phase,
        gpu=gpu,
        components=components,
        error_share=MEMORY_ERROR_SHARE,
    )


def _terms(estimate: ServingEstimate, parts: tuple[Held, ...]) -> _Terms:
    """The parts as sums of products, with their numbers."""
    job, placement, traffic = estimate.resolved.job, estimate.placement, estimate.resolved.traffic
    if estimate.grows:
        held, cached = worst_moment(job, placement, estimate.sequences, traffic.inputs, traffic.outputs)
    else:
        held = largest_step(job, placement, traffic.inputs)
        kept = job.allocated or Allocated(1, estimate.resolved.must_hold)
        cached = Cached(job, placement, kept.sequences, kept.tokens)
    found: dict[str, Any] = {}
    for part in parts:
        inputs: Any = estimate.card if part in (pool, left_free) else cached if part is cache else held
        found[part.name] = part.terms(inputs, 0)
    return _factors(found)


def _factors(terms: Mapping[str, Any]) -> _Terms:
    return {name: tuple(tuple(Factor(*one) for one in term) for term in found) for name, found in terms.items()}


def _parts(estimate: ServingEstimate) -> tuple[Held, ...]:
    """What the ledger lists, in its order."""
    if estimate.short:
        return ALONE_PARTS[estimate.short]
    if estimate.grows:
        parts = BATCH_PARTS if estimate.resolved.job.answers else READING_PARTS
    else:
        parts = ALLOCATED_PARTS if estimate.fits else SHORT_PARTS
    absent = absent_parts(estimate.resolved.job)
    return tuple(one for one in parts if one.name not in absent)


def shortage(estimate: ServingEstimate) -> Reason:
    """Why it does not fit: needed, available and missing memory of a GPU, and what takes it."""
    sizes = estimate.memory_parts
    weight, kept, reserved = sizes[weights.name], sizes.get(cache.name), sizes.get(left_free.name, 0.0)
    rest = estimate.peak_bytes - weight - (kept or 0.0) - reserved
    held = "" if kept is None else f", KV cache of {_held(estimate)} {_gib(kept)}"
    free = f", {left_free.name} {_gib(reserved)}" if reserved else ""
    alone = f" of {estimate.short}" if estimate.short else ""
    message = (
        f"needs {_gib(estimate.peak_bytes)} GiB per GPU{alone}, {_gib(estimate.usable_bytes)} GiB available, "
        f"{_gib(-estimate.headroom_bytes)} GiB missing (weights {_gib(weight)}"
        f"{held}{free}, the rest {_gib(rest)} GiB)"
    )
    return Reason(code="out-of-memory", message=message)


def _gib(size_bytes: float) -> str:
    return three_digits(size_bytes / GIB)


def _held(estimate: ServingEstimate) -> str:
    requests, asked = estimate.sequences if estimate.grows else 1.0, estimate.resolved.asked_len
    if not estimate.resolved.job.answers:
        return "one text" if requests < 1.5 else f"{requests:,.0f} texts in a step"
    if (kept := estimate.resolved.job.allocated) is not None:
        each = f"of {kept.tokens:,.0f} tokens"
        return f"a context {each}" if kept.sequences == 1 else f"{kept.sequences:,.0f} contexts {each}"
    if asked is not None and not estimate.grows:
        return f"one sequence of {estimate.resolved.must_hold:,.0f} tokens"
    return "one request" if requests < 1.5 else f"{requests:,.0f} requests"


# Latencies over the load, as a capacity planner plots them.


def load_curve(estimate: ServingEstimate) -> Iterator[LoadPoint]:
    """Evaluate the placement and the replicas of an estimate under other loads, ascending; none for a batch.

        load of the service = load of a replica x working replicas

    Source: own derivation: `Load.served` at loads that nobody asked for, as a picture needs them.
    """
    resolved, found = estimate.resolved, estimate.choice.curve
    if found is None or not estimate.fits:
        return
    load, working = LOADS[resolved.load], estimate.working_replicas
    each = load.along(resolved, found)
    rates, (mean, at_percentile) = load.served(resolved, found, each, None, resolved.percentile)
    rates = np.broadcast_to(rates, each.shape)
    judged = at_percentile if load.by_chance else None
    for place in range(len(each)):
        ttft_s, tpot_s, request_s = _at_load(mean, place)
        if math.isfinite(request_s) and rates[place, 0] > 0:
            at = LatencyAt(resolved.percentile, *_at_load(judged, place)) if judged else None
            yield LoadPoint(
                float(each[place, 0]) * working, float(rates[place, 0]) * working, ttft_s, tpot_s, request_s, at
            )


AT_ONCE_S = 1.0  # what people call at once: a first token within a second


def kept_load(estimate: ServingEstimate) -> KeptLoad | None:
    """Find the load that a service without one would keep: a first token within 1 s, else the default objectives.

        rate = working replicas x max of the rates with ttft <= limit and tpot <= limit at the percentile

    Parameters
    ----------
    estimate : a service for which nobody gives a load

    Returns
    -------
    KeptLoad, shape (), requests per second [1/s]; None where there is a load, a limit, or no replica that fits

    Source: `queueing.rate_within`.
    """
    resolved, found = estimate.resolved, estimate.choice.curve
    free = resolved.load is None and resolved.requests is None and not resolved.limits_latency
    if not free or found is None or not estimate.fits or INTERACTIVE.max_ttft_s is None or not INTERACTIVE.max_tpot_s:
        return None
    rate, ttft_s = 0.0, AT_ONCE_S
    for ttft_s in (AT_ONCE_S, INTERACTIVE.max_ttft_s):
        kept = rate_within(found, resolved.traffic, ttft_s, INTERACTIVE.max_tpot_s, resolved.percentile)
        if rate := float(kept[0]) * estimate.working_replicas:
            break
    return KeptLoad(
        max_ttft_s=ttft_s,
        max_tpot_s=INTERACTIVE.max_tpot_s,
        percentile=resolved.percentile,
        requests_per_s=rate,
    )


def _at_load(found: Latencies, place: int) -> tuple[float, float, float]:
    """Of the one placement, at a load."""
    ttft_s, tpot_s, request_s = np.broadcast_arrays(found.ttft_s, found.tpot_s, found.request_s)
    return float(ttft_s[place, 0]), float(tpot_s[place, 0]), float(request_s[place, 0])


# Warnings: assumptions, what is left over, and what has no effect.

SATURATED = 0.9
CHANCE = ("request_rate", "users")
USED = frozenset(SERVE_OPTIONS.values()) | {"job", "cost.currency"}
PARTLY_USED = ("layout", "limits", "cost", "efficiency", "serve", "lora")


def find_warnings(estimate: ServingEstimate) -> Iterator[str]:
    """Warnings that need the answer, and those about keys that inference does not read."""
    resolved, traffic = estimate.resolved, estimate.resolved.traffic
    yield from joining_assumptions(resolved.job.server, int(estimate.placement.gpus[0]))
    yield from _assumed_lengths(resolved)
    if resolved.load is None and resolved.requests is None:
        loads = f"{', '.join(LOAD_KEYS[:-1])} or {LOAD_KEYS[-1]}"
        yield f"no load is given: each replica runs at {whole_percent(FULL)} of its capacity ({loads})"
    yield from cautions(estimate)
    if untuned(resolved.job, estimate.placement)[0]:
        engine, gpu = resolved.job.engine.name, resolved.job.server.accelerator.name
        yield f"{engine} has no tuned kernel for experts of this size on {gpu}: they are slower, by a share that varies"
    yield from _shared(resolved)
    yield from _saturated(estimate)
    yield from host_cache_warnings(estimate)
    if cpu := resolved.job.cpu:
        held = host_layer_bytes(resolved.job, resolved.amount or 1.0, traffic.inputs + traffic.outputs) / GIB
        rate, key = resolved.values.serve.host_memory_gb_per_s, "serve.host_memory_gb_per_s"
        known = ", as two modules of DDR5-5600" if resolved.origins.get(key) == "default" else ""
        layers = f"{cpu.layers} of {resolved.job.model.layers} layers and the head are on the CPU"
        yield f"{layers}: {three_digits(held)} GiB of host memory, read at {rate:g} GB/s at most{known}"
    tables = resolved.job.model.ngram_tables
    if tables and tables.on_host:
        held = ngram_table_bytes(resolved.job.model, resolved.job.scheme) / GIB
        yield f"each replica has its tables of n-grams in host memory: {three_digits(held)} GiB (serve.ngram_tables)"
    yield from _drafts(estimate)
    yield from _formats(estimate)
    if resolved.gpus is not None and estimate.fits and resolved.gpus > estimate.gpus:
        left, size = resolved.gpus - estimate.gpus, int(estimate.placement.gpus[0])
        yield f"{left} of the {resolved.gpus} GPUs stay idle: replicas have {size}"
    if estimate.cost is not None:
        paid, server = (estimate.billed_gpus, estimate.gpus), resolved.job.server
        yield from what_is_paid(resolved.tariff, *paid, server, resolved.scenario.caller, estimate.nodes)
    ignored = sorted(_ignored(resolved.scenario, resolved.values.serve.engine or ""))
    if ignored:
        yield f"no effect on inference: {', '.join(ignored)}"


def _drafts(estimate: ServingEstimate) -> Iterator[str]:
    """What is supposed of drafts: how often they are kept, and what proposes them."""
    resolved = estimate.resolved
    if not resolved.traffic.draft_tokens:
        return
    name, ends = resolved.values.serve.speculative, resolved.assumed_drafting
    if name is None:
        keys = ", ".join(METHODS)
        yield f"neither memory nor time of a draft model is counted: speculative says what drafts ({keys})"
    elif ends is not None:
        kept = [f"{kept_tokens(one):.2f}" for one in (ends[0], resolved.traffic.acceptance, ends[1])]
        rates = ", ".join(f"{one:.2f}" for one in resolved.traffic.acceptance)
        words = f"how often drafts are kept is assumed: {rates} by position, {kept[1]} tokens a step"
        source = f"published are {kept[0]} to {kept[2]}: {METHODS[name].source}"
        yield f"{words}; acceptance_rate sets what the engine reports; {source}"


def _shared(resolved: ResolvedService) -> Iterator[str]:
    """What replicas that share a GPU in software must be told, and what is assumed of the others."""
    part = build_slice(resolved)
    if part is None or part.in_hardware:
        return
    share = resolved.job.engine.memory.utilization * part.memory_share
    yield f"{part.per_gpu} replicas share the memory of a GPU: start each engine with a share of {share:.3g}"
    yield f"times are those with all {part.per_gpu} replicas of a GPU at work ({part.name})"


def _assumed_lengths(resolved: ResolvedService) -> Iterator[str]:
    """Lengths of prompts and answers that nobody gives."""
    traffic, images = resolved.traffic, resolved.job.images
    text_tokens = traffic.inputs - (images.each * images.seen.tokens if images else 0)
    lengths = {"input_tokens": f"prompts of {text_tokens:,.0f}", "output_tokens": f"answers of {traffic.outputs:,.0f}"}
    if not traffic.outputs:
        lengths = {"input_tokens": f"texts of {text_tokens:,.0f}"}
    assumed = [name for name in lengths if resolved.origins.get(f"serve.{name}") == "default"]
    if assumed:
        words = " and ".join(lengths[name] for name in assumed)
        yield f"{words} tokens are assumed: the scenario gives no {' and '.join(assumed)}"


def cautions(estimate: ServingEstimate) -> Iterator[str]:
    """Yield what helps to read the verdict right: what a failure stops, what keeps an engine from starting."""
    model = estimate.resolved.job.model
    yield from (f"{model.name}: {guess}" for guess in model.guesses)
    yield from _sharing(estimate)
    yield from _spanning(estimate)
    yield from _failing(estimate)
    yield from _too_long(estimate)


def _sharing(estimate: ServingEstimate) -> Iterator[str]:
    """How much memory a machine is taken to have whose GPU shares it, where nobody says it."""
    resolved, gpu = estimate.resolved, estimate.resolved.job.server.accelerator
    if gpu.unified_share and resolved.scenario.values.host_memory_gib is None:
        gib = gpu.memory_bytes / gpu.unified_share / GIB
        setting = resolved.scenario.caller.setting("host_memory_gib", 64)
        had = f"a machine of {gib:.0f} GiB is assumed, the largest there is, of which the GPU may use"
        yield f"{had} {whole_percent(gpu.unified_share)}: {setting} says another"


def misread(resolved: ResolvedService) -> Iterator[str]:
    """Limits that are read in seconds and look like milliseconds, with how to write these."""
    setting = resolved.scenario.caller.setting
    for name, limit in resolved.unlikely_limits():
        key = f"limits.{name}"
        each = " per token" if name == "max_tpot_s" else ""
        meant = f"for milliseconds write {setting(key, f'{limit:g}ms')}, for seconds {setting(key, f'{limit:g}s')}"
        rate = f", for {limit:g} tokens/s {setting(key, f'{1.0 / limit:.3g}')}" if each else ""
        yield f"{name} {limit:g} is read as {limit:,g} s{each}: {meant}{rate}"


def _spanning(estimate: ServingEstimate) -> Iterator[str]:
    """That a replica needs several servers to run, each of which stops it."""
    servers = math.ceil(int(estimate.placement.gpus[0]) / estimate.resolved.job.server.accelerators)
    if estimate.fits and servers > 1:
        which = "the only replica" if estimate.working_replicas == 1 else "each replica"
        yield f"{which} spans {servers} servers: one failure stops it all"


def _failing(estimate: ServingEstimate) -> Iterator[str]:
    """What is left of the replicas as the server fails that has most of them, where that is too little."""
    resolved, count, prefills = estimate.resolved, estimate.replicas, estimate.choice.prefills
    alone = resolved.load == "concurrency" and resolved.amount == 1  # who asks for one request at a time
    if not estimate.ok or resolved.load in (None, "batch") or alone or estimate.choice.test:
        return
    encoders = estimate.choice.encoders
    if prefills is not None or encoders is not None:  # replicas of several kinds, which share servers
        kinds = {"prefill": prefills.replicas, "decode": count} if prefills else {"serving": count}
        if encoders is not None:
            kinds = {"encode": encoders.replicas, **kinds}
        one = [kind for kind, each in kinds.items() if each == 1]
        if one:
            yield f"there is one {' and one '.join(one)} replica: if its server fails, nothing serves"
        return
    if estimate.survives(estimate.nodes) or int(estimate.placement.gpus[0]) > resolved.job.server.accelerators:
        return
    left = estimate.left_by_failure(estimate.nodes)
    together = count - left
    if count == 1:
        where = "the only replica is in one server: if it fails"
    elif not left:
        where = f"{'both' if count == 2 else f'all {count}'} replicas are in one server: if it fails"
    elif together == 1:
        where = f"the {count} replicas are in servers of their own: if one fails"
    else:
        where = f"{together} of the {count} replicas are in one server: if it fails"
    taken = rounded(left * estimate.choice.top_load, down=True)
    others = "the other takes" if left == 1 else "the others take"
    most = f"{others} {taken:,g} of {resolved.amount:,.6g}" if left else "nothing serves"
    yield f"{where}, {most}{_kept_up(estimate)}"


def _kept_up(estimate: ServingEstimate) -> str:
    """How few spare replicas, or GPUs where their number is given, keep the service up, in brackets; empty: none do."""
    resolved = estimate.resolved
    key: str
    if resolved.gpus is None:
        key, spare = "serve.spare_replicas", resolved.spare_replicas
        most = max(spare + 1, resolved.job.server.accelerators)  # a server more is always enough
        tried = ((more, estimate.with_spares(more)) for more in range(spare + 1, most + 1))
    elif resolved.job.server.bare:  # how many GPUs a server has, nobody says
        return ""
    else:
        key, node = "gpus", resolved.job.server.accelerators
        more_servers = (node * (estimate.nodes + more) for more in (1, 2))
        tried = ((gpus, one) for gpus in more_servers if (one := estimate.resized(gpus=gpus)) is not None)
    for value, one in tried:
        if one.survives(one.nodes) and one.ok:
            servers = f" on {one.nodes} servers" if one.nodes > estimate.nodes else ""
            return f" ({resolved.scenario.caller.setting(key, value)}{servers} keeps the service up)"
    return ""


def _saturated(estimate: ServingEstimate) -> Iterator[str]:
    resolved, places, traffic = estimate.resolved, estimate.choice.places, estimate.resolved.traffic
    scenario, load = resolved.scenario, resolved.load
    if not estimate.fits:
        return
    if load == "concurrency" and estimate.point.in_flight > places + 0.5:
        inside = (
            f"{math.floor(places) * estimate.working_replicas:,} of the {resolved.amount:,.0f} requests run at once"
        )
        yield f"{inside}: the others wait in the queue (more GPUs or narrower formats)"
    if load == "batch" and resolved.amount > places:
        inside = f"{max(math.floor(places), 1):,} of the {resolved.amount:,.0f} requests of the batch run at once"
        yield f"{inside}: a replica runs it in waves"
    if load in CHANCE and not resolved.limits_latency and SATURATED < estimate.utilisation <= 1.0:
        used = f"{min(estimate.utilisation, 0.999):.1%}"
        keys = ("limits.max_ttft_s", "limits.max_tpot_s") if traffic.outputs else ("limits.max_request_s",)
        options = " and ".join(scenario.caller.setting(key) for key in keys)
        say = "say" if traffic.outputs else "says"
        yield f"replicas run at {used} of what they sustain: {options} {say} how long requests may take"


def _too_long(estimate: ServingEstimate) -> Iterator[str]:
    """Some engines do not start where the cache of a replica is too small for one sequence of the longest length."""
    resolved = estimate.resolved
    engine, longest, shorter = resolved.job.engine, resolved.values.serve.max_model_len, estimate.starts_with
    yield from _rejected(estimate, resolved.scenario.values.serve.max_model_len)
    if shorter is None:
        return
    text = f"{engine.name} refuses to start for sequences of {longest:,} tokens (the model's maximum)"
    start = f"Start it with {engine.memory.length_flag} {shorter}"
    yield f"{text}: the KV cache of a replica does not hold one. {start}"


def _rejected(estimate: ServingEstimate, asked: int | None) -> Iterator[str]:
    """Of engines that start all the same: what they reject, and that the model was trained for less."""
    job = estimate.resolved.job
    if asked is None or job.engine.memory.length_flag or not estimate.fits or estimate.grows or estimate.too_long:
        return
    if not estimate.holds_one(asked):
        held = f"its KV cache holds {estimate.longest_held(asked):,}"
        yield f"{job.engine.name} starts and rejects sequences of {asked:,} tokens: {held}"
    if job.model.max_positions and asked > job.model.max_positions:
        positions = f"the {job.model.max_positions:,} positions that {job.model.name} was trained for"
        yield f"max_model_len {asked:,} is above {positions}"


def _formats(estimate: ServingEstimate) -> Iterator[str]:
    asked, job = estimate.resolved.scenario.values.serve.activations, estimate.resolved.job
    if asked is not None and asked != job.scheme.activations.name:
        gpu = job.server.accelerator.name
        yield f"{gpu} does not multiply {asked}: activations stay in {job.scheme.activations.name}"


def _ignored(scenario: Scenario, engine: str) -> set[str]:
    """Keys of the file or the flags that inference does not read, whole sections by their name."""
    found = set()
    for key, origin in scenario.origin.items():
        section, dot, _ = key.partition(".")
        unused = key not in USED or (section == "lora" and scenario.values.serve.adapters is None)
        if origin != "env" and unused:
            found.add(section if dot and section not in PARTLY_USED else key)
    if (scenario.values.stack or "").lower() == engine:  # an engine that was named as the stack
        found.discard("stack")
    return found | ({f"job {scenario.values.job}"} if scenario.values.job not in (None, INFERENCE) else set())


# LoRA adapters.


def build_adapters(estimate: ServingEstimate) -> Adapters | None:
    """Build what adapters take of a GPU and of a decode step; None where the service has none."""
    job, placement = estimate.resolved.job, estimate.placement
    adapters = job.adapters
    if adapters is None:
        return None
    decode = {name: float(seconds[0]) for name, seconds in estimate.point.decode.parts.items()}
    held_bytes = float(adapter_bytes(job.model, adapters, placement)[0])
    sequences = max(estimate.point.running, 1.0) / float(job.groups(placement)[0])
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


# Speculative decoding.


def build_speculation(estimate: ServingEstimate, details: bool = False) -> Speculation | None:
    """Build what drafts gain and what they take; None where the service has none.

    details : with the same service without drafts
    """
    resolved, traffic = estimate.resolved, estimate.resolved.traffic
    if not traffic.draft_tokens:
        return None
    job, assumed = resolved.job, resolved.assumed_drafting
    name = resolved.values.serve.speculative or ""
    method = METHODS[name] if name else None
    decode = {part: float(seconds[0]) for part, seconds in estimate.point.decode.parts.items()}
    step_s = sum(decode.values())
    stated_s = traffic.draft_tokens * traffic.draft_cost * step_s
    seconds = decode[drafting.name] + stated_s
    off = replace(traffic, draft_tokens=0, draft_depth=None, acceptance_rate=0.0, draft_cost=0.0)
    without = estimate.resized(job=replace(job, drafter=None), traffic=off) if details and estimate.fits else None
    answers = without is not None and without.fits
    return Speculation(
        method=name,
        label=method.label if method else "",
        draft_tokens=traffic.draft_tokens,
        acceptance=traffic.acceptance,
        assumed=assumed is not None,
        tokens_per_step=traffic.tokens_per_step,
        bytes=float(estimate.memory.fixed[drafter.name][0]) if job.drafter else 0.0,
        seconds=seconds,
        share=seconds / (step_s + stated_s),
        acceptance_low=assumed[0] if assumed else (),
        acceptance_high=assumed[1] if assumed else (),
        source=method.source if method and assumed else "",
        without_tpot_s=_finite(without.point.tpot_s) if without is not None and answers else None,
        without_requests_per_s=without.requests_per_s if without is not None and answers else None,
    )


# The result.


def summarise(estimate: ServingEstimate, details: bool = True) -> ServeResult:
    """Everything about an estimate but the advice.

    details : with what only a full report shows: the minimum of GPUs, the curve over the load, and sources
    """
    resolved = estimate.resolved
    node, nodes = resolved.job.server.accelerators, estimate.nodes
    compared = resolved.scenario.values.cost.api_price_per_million is not None
    today = day(estimate) if details or compared else None
    return ServeResult(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=find_scenario(estimate),
        verdict=verdict_of(estimate, estimate.confidence, estimate.keeps_limits, _reasons(estimate)),
        gpus=Gpus(
            count=estimate.gpus,
            nodes=nodes,
            gpus_per_node=min(estimate.gpus, node) if nodes == 1 else node,
            minimum_that_fits=estimate.minimum if details else None,
        ),
        layout=build_layout(estimate.placement),
        memory=serve_memory(estimate, details),
        latency=_latency(estimate),
        throughput=build_throughput(estimate),
        kv_cache=_kv_cache(estimate),
        replicas=_replicas(estimate, nodes),
        per_replica=_per_replica(estimate),
        cost=build_cost(estimate, today),
        phases=Phases(prefill=_phase(estimate.point.prefill), decode=_phase(estimate.point.decode)),
        images=images_in(estimate) if estimate.fits else None,
        experts=experts_in(estimate) if estimate.fits or estimate.placement.apart else None,
        test=build_benchmark(estimate) if estimate.choice.test else None,
        load_curve=tuple(load_curve(estimate)) if details and not estimate.choice.test else (),
        kept_load=kept_load(estimate),
        day=today if details else None,
        disaggregation=disaggregation(estimate) if details else None,
        encoders=build_encoders(estimate, details),
        adapters=build_adapters(estimate),
        speculation=build_speculation(estimate, details),
        session_cache=session_cache(estimate),
        session_turns=session_turns(estimate, details),
        fit=build_fit(estimate),
        slice=build_slice(resolved),
        cautions=tuple(cautions(estimate)),
        misread=tuple(misread(resolved)),
        read_from_name=resolved.read_from_name,
        warnings=tuple(dict.fromkeys((*misread(resolved), *resolved.warnings, *find_warnings(estimate)))),
        sources=tuple(_sources(estimate)) if details else (),
    )


def build_slice(resolved: ResolvedService) -> GpuSlice | None:
    """Build the part of a GPU that a replica has; None where it has whole ones."""
    server = resolved.job.server
    part = server.part
    if part is None:
        return None
    return GpuSlice(
        name=part.name,
        per_gpu=part.count,
        compute_share=part.compute,
        memory_share=part.memory,
        bandwidth_share=part.memory if part.bandwidth is None else part.bandwidth,
        in_hardware=part.name in server.accelerator.slices,
    )


def find_scenario(estimate: ServingEstimate) -> dict[str, Any]:
    """Resolved keys with their origin; the formats are those that are used, whichever way they were said."""
    resolved = estimate.resolved
    job = resolved.job
    nested = resolved_scenario(resolved.scenario, resolved.values, resolved.origins, job.model, job.server)
    origin, serve = nested["origin"], nested.setdefault("serve", {})
    formats = {"weights": job.scheme.weights, "activations": job.scheme.activations}
    formats |= {"kv_cache": job.scheme.cache} if job.answers else {}
    for name, used in formats.items():
        serve[name] = used.name
        origin.setdefault(f"serve.{name}", origin.get("serve.scheme", "default"))
    asked = resolved.scenario.values.job == INFERENCE
    nested["job"], origin["job"] = INFERENCE, resolved.scenario.origin["job"] if asked else "default"
    return nested


def _latency(estimate: ServingEstimate) -> Latency:
    point, resolved = estimate.point, estimate.resolved
    expected = (point.ttft_s, point.tpot_s, point.request_s) if estimate.fits else (math.inf,) * 3
    quantities: tuple[Quantity, ...] = ("ttft", "tpot", "request")
    spans = {
        f"{quantity}_s": _span(estimate, quantity, value) for quantity, value in zip(quantities, expected, strict=True)
    }
    basis = span(resolved, "request")
    percentiles = point.percentiles if estimate.fits else {}
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


def _span(estimate: ServingEstimate, quantity: Quantity, expected: float) -> Span:
    if not math.isfinite(expected):
        return Span(low=None, expected=None, high=None)
    found = span(estimate.resolved, quantity).around(expected)
    return Span(low=estimate.no_faster(quantity, found.low, expected), expected=found.expected, high=found.high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def build_throughput(estimate: ServingEstimate) -> Throughput:
    traffic, rate = estimate.resolved.traffic, estimate.taken_per_s
    return Throughput(
        output_tokens_per_s=rate * traffic.outputs,
        total_tokens_per_s=rate * (traffic.request_inputs + traffic.outputs),
        requests_per_s=rate,
        tokens_per_s_per_user=1.0 / estimate.point.tpot_s if estimate.fits and estimate.point.tpot_s else 0.0,
        output_tokens_per_s_per_gpu=rate * traffic.outputs / estimate.gpus,
        requests_in_flight=_finite(estimate.in_flight),
    )


def experts_in(estimate: ServingEstimate) -> ServedExperts | None:
    """Experts on several ranks, in a decode step of the load; None where every rank has a part of all."""
    job, ranks, time = estimate.resolved.job, int(estimate.placement.ep[0]), estimate.point.decode
    if job.model.experts is None or (ranks == 1 and not estimate.placement.apart):
        return None
    step, gathered_s = time.step, time.picked(time.step.exchange_s("dp"))
    apart = _experts_apart(estimate, time)
    if apart is None:
        sent_s = float((time.picked(step.exchange_s("ep")) + gathered_s)[0])
        waited_s = float((time.picked(step.waited_share * step.exchange_s("ep")) + gathered_s)[0])
    else:
        sent_s, waited_s = apart.dispatch_s + apart.combine_s, apart.attention_wait_s
    return ServedExperts(
        dispatcher=job.sends_by(estimate.placement).name,
        per_gpu=(job.model.experts.count + (job.redundant_experts or 0)) / ranks,
        redundant=job.redundant_experts,
        busiest_load=float(time.picked(step.busiest_load)[0]),
        exchange_s=sent_s,
        waited_s=waited_s,
        apart=apart,
    )


def _experts_apart(estimate: ServingEstimate, time: StepTime) -> ExpertsApart | None:
    """Both kinds of GPUs in a decode step, where experts have GPUs of their own."""
    pools, placement = time.step.pools, estimate.placement
    if pools is None:
        return None
    names = ("experts", "there", "back", "micro_batches")
    experts_s, there_s, back_s, count = (float(time.picked(getattr(pools, name))[0]) for name in names)
    whole_s, waited_s = float(time.total_s[0]), float(time.parts[waiting_for_experts.name][0])
    return ExpertsApart(
        gpus=int(placement.expert_gpus[0]),
        attention_gpus=int(placement.attention_gpus[0]),
        micro_batches=count,
        memory=_held_alone(estimate, "experts", details=True),
        attention_s=whole_s - waited_s,
        experts_s=experts_s,
        attention_wait_s=waited_s,
        experts_wait_s=whole_s - experts_s,
        dispatch_s=there_s,
        combine_s=back_s,
    )


def _per_replica(estimate: ServingEstimate) -> PerReplica:
    replicas, rate = estimate.working_replicas, estimate.taken_per_s
    return PerReplica(
        gpus=int(estimate.placement.gpus[0]),
        requests_per_s=rate / replicas,
        concurrency=_finite(estimate.in_flight / replicas),
        running_requests=estimate.point.running if estimate.fits else 0.0,
        output_tokens_per_s=rate * estimate.resolved.traffic.outputs / replicas,
    )


def _kv_cache(estimate: ServingEstimate) -> KvCache:
    job, traffic, placement = estimate.resolved.job, estimate.resolved.traffic, estimate.placement
    ranks = int(placement.dp[0]) * (int(placement.pp[0]) if job.engine.pipelined else 1)
    each = token_bytes(job.model, job.scheme.cache) * job.answers
    if job.drafter:
        drafting = job.drafter.first
        each += job.drafter.modules * token_bytes(drafting.model, drafting.scheme.cache)
    states = float(state_bytes(job.model, ReplicaLayouts.of())[0])
    return KvCache(
        state_bytes_per_sequence=states or None,
        bytes_per_token=each,
        gpu_bytes_per_token=each * job.gpu_share,
        pool_bytes=estimate.cache_bytes * int(placement.gpus[0]),
        pool_tokens=estimate.choice.holds * (traffic.inputs + traffic.outputs) if job.answers else 0.0,
        max_concurrency=min(estimate.choice.holds, float(job.engine.batching.max_sequences * ranks)),
    )


def _replicas(estimate: ServingEstimate, nodes: int) -> Replicas:
    return Replicas(
        count=estimate.replicas,
        spare=estimate.resolved.spare_replicas,
        gpus=estimate.gpus,
        nodes=nodes,
        utilisation=estimate.utilisation if estimate.fits else 0.0,
        max_requests_per_s=estimate.most_per_s if estimate.fits else 0.0,
        running_requests=estimate.point.running if estimate.fits else 0.0,
        max_load=estimate.choice.top_load * estimate.working_replicas
        if estimate.fits and estimate.resolved.load
        else None,
    )


def build_cost(estimate: ServingEstimate, today: Day | None = None) -> ServeCost:
    """Price and energy of all GPUs by the tokens that they process, idle and spare ones included.

    today : the day whose hours differ in load, by which an API is compared
    """
    server, tariff = estimate.resolved.job.server, estimate.resolved.tariff
    energy = None if estimate.power_w is None else estimate.power_w / WATT_PER_KW  # of an hour [kWh]
    millions = build_throughput(estimate).total_tokens_per_s * HOUR_S / MEGA
    return ServeCost(
        per_hour=estimate.cost,
        per_million_input_tokens=estimate.cost_per_million_input_tokens,
        per_million_output_tokens=estimate.cost_per_million_tokens if estimate.resolved.job.answers else None,
        energy_kwh_per_million_tokens=None if energy is None or not millions else energy / millions,
        currency=tariff.currency,
        energy_formula=energy_words(server, INFERENCE_POWER_SHARE),
        parts=tariff.cost_parts(1.0, estimate.billed_gpus, estimate.gpus),
        electricity_per_hour=tariff.electricity_of_hour(estimate.gpus, estimate.nodes),
        power_w=estimate.power_w,
        api=compare_with_api(estimate, today),
        per_million_tokens=estimate.cost_per_million_of_both,
        billed_gpus=None if estimate.cost is None else estimate.billed_gpus,
        hourly_price=estimate.resolved.tariff.hourly(server),
    )


def compare_with_api(estimate: ServingEstimate, today: Day | None) -> ApiComparison | None:
    """Compare the price of the service with that of an API for the requests of a day; None where none is given.

        API per request = input tokens x price + output tokens x price of an output token
        requests a day from which the service is cheaper = its cost of a day / API per request

    Parameters
    ----------
    estimate : the service, whose servers cost the same at any load that they take
    today : requests and cost of a day whose hours differ in load; None: all hours are alike

    Returns
    -------
    ApiComparison; without a break-even where the service has no price or cannot run [currency], [1/s]

    Source: definition.
    """
    prices, traffic = estimate.resolved.scenario.values.cost.api_price_per_million, estimate.resolved.traffic
    if prices is None:
        return None
    tokens = traffic.request_inputs + traffic.outputs
    a_request = (traffic.request_inputs * prices[0] + traffic.outputs * prices[-1]) / MEGA
    most = estimate.most_per_s if estimate.fits else 0.0
    hourly = None if estimate.cost is None else estimate.cost * DAY_S / HOUR_S
    requests, cost = (estimate.taken_per_s * DAY_S, hourly) if today is None else (today.requests, today.cost)
    enough = None if cost is None or not most else cost / DAY_S / a_request
    return ApiComparison(
        per_million_input_tokens=prices[0],
        per_million_output_tokens=prices[-1],
        per_million_tokens=a_request / tokens * MEGA,
        per_hour=estimate.taken_per_s * HOUR_S * a_request,
        per_day=requests * a_request,
        tokens_per_day=requests * tokens,
        service_per_day=cost,
        break_even_requests_per_s=enough,
        break_even_tokens_per_day=None if enough is None else enough * tokens * DAY_S,
        break_even_utilisation=None if enough is None else enough / most,
        cheaper=None if enough is None else requests / DAY_S >= enough,
    )


def _reasons(estimate: ServingEstimate) -> Iterator[Reason]:
    if not estimate.fits:
        yield shortage(estimate)
    elif estimate.too_long:
        yield _too_long_reason(estimate)
    elif estimate.rejects:
        yield _rejected_reason(estimate)
    elif estimate.overloaded:
        yield _overload(estimate)
    elif estimate.queues:
        running = math.floor(estimate.choice.places) * estimate.working_replicas
        message = (
            f"{running:,} of the {estimate.in_flight:,.0f} requests in flight run at once, the others wait in the queue"
        )
        yield Reason(code=QUEUES, message=message)
    known = estimate.limits if estimate.fits else tuple(limit for limit in estimate.limits if limit.value is not None)
    yield from memory_doubt(estimate, estimate.confidence)
    yield from missed(known, estimate.resolved.scenario.caller, confidence=estimate.confidence)


def _too_long_reason(estimate: ServingEstimate) -> Reason:
    resolved = estimate.resolved
    asked, positions = resolved.scenario.values.serve.max_model_len or 0, resolved.job.model.max_positions
    whose = f"max_model_len {asked:,} is more than the {positions:,} positions of {resolved.job.model.name}"
    return Reason(code=TOO_LONG, message=f"{whose}: {resolved.job.engine.name} refuses to start")


def _rejected_reason(estimate: ServingEstimate) -> Reason:
    resolved, model = estimate.resolved, estimate.resolved.job.model
    what = "prompt and answer" if resolved.traffic.outputs else "texts"
    whose = f"{what} of {resolved.request_tokens:,.0f} tokens are longer than the {model.max_positions:,} positions"
    return Reason(code=REJECTED, message=f"{whose} of {model.name}: {resolved.job.engine.name} rejects such requests")


def _overload(estimate: ServingEstimate) -> Reason:
    asked, replicas, gpus = estimate.resolved.amount, estimate.working_replicas, int(estimate.placement.gpus[0])
    if not estimate.choice.full_rate:
        message = "the KV cache of a replica is too small for the longest of requests that vary this much"
        return Reason(code=OVERLOADED, message=message)
    shape, prefills = f"{gpus} GPU{'s' if gpus > 1 else ''}", estimate.choice.prefills
    words = f"{replicas} replicas of {shape} sustain" if replicas > 1 else f"one replica of {shape} sustains"
    if prefills:
        words = f"{prefills.replicas} prefill and {replicas} decode replicas sustain"
    encoders = estimate.choice.encoders
    if encoders is not None and encoders.utilisation >= HIGHEST_LOAD:
        words = f"{encoders.replicas} image encoder{'s sustain' if encoders.replicas > 1 else ' sustains'}"
    most = rounded(HIGHEST_LOAD * estimate.choice.full_rate * replicas, down=True)
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


def with_operators(result: ServeResult, estimate: ServingEstimate) -> ServeResult:
    """Add the operators of both kinds of step to the result."""
    phases, point = result.phases, estimate.point
    decode, prefill = _in_full(phases.decode, point.decode), _in_full(phases.prefill, point.prefill)
    return replace(result, phases=Phases(prefill=prefill, decode=decode))


def _in_full(phase: Phase, step: StepTime) -> Phase:
    from xe_sizer.scenario.trials import operator_rows
    from xe_sizer.serving.step_time import expert_costs, operator_costs

    rows, of_experts = (operator_rows(costs(step), phase.seconds) for costs in (operator_costs, expert_costs))
    return replace(phase, operators=rows, expert_operators=of_experts)


def _sources(estimate: ServingEstimate) -> Iterator[Source]:
    job = estimate.resolved.job
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
