"""What a benchmark tool prints of a test, from what the requests of one replica saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.result.serving import Benchmark, BenchmarkLatency, Span
from xe_sizer.serving.uncertainty import span

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation_offered import Outcome
    from xe_sizer.serving.uncertainty import Quantity

PERCENTILES = (50.0, 90.0, 95.0, 99.0)  # that benchmark tools print


def benchmark_of(sized: ServingEstimate) -> Benchmark | None:
    """The test of a service; None where none was asked for, or nothing fits.

        tokens per second = requests per second x mean tokens, over the whole test with its beginning and its end
        requests in flight = sum of the times of all requests / duration
        goodput = requests per second x share of the requests that keep the user's limits

    Requests are given to the replicas in turn, so that each replica sees the same test.

    Parameters
    ----------
    sized : a service with the outcome of one replica's requests

    Returns
    -------
    Benchmark, seconds [s] and rates [1/s], or None

    Source: definitions of `vllm bench serve` (vllm/benchmarks/serve.py, calculate_metrics), of SGLang's bench_serving
    and of GenAI-Perf.
    """
    test, resolved = sized.choice.test, sized.resolved
    if test is None or not sized.fits:
        return None
    requests, rate = resolved.requests or 0, sized.requests_per_s
    low, high = factors = _rates(sized, rate)
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
        ttft_s=_latency(sized, "ttft", test.ttft_s),
        tpot_s=_latency(sized, "tpot", test.tpot_s[test.outputs > 1.0]),
        itl_s=_gaps(sized, test),
        e2e_latency_s=_latency(sized, "request", test.request_s),
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
    limits = resolved.given.values.limits
    if limits.max_ttft_s is None and limits.max_tpot_s is None:
        return None
    return rate * test.goodput(limits.max_ttft_s, limits.max_tpot_s) / test.requests_per_s


def _rates(sized: ServingEstimate, rate: float) -> tuple[float, float]:
    """Factors on the rate of a test, lowest and highest.

    Requests that come at a rate are no faster than that, and as fast while the replicas take more than comes.
    """
    resolved, found = sized.resolved, span(sized.resolved, "throughput")
    if resolved.load != "request_rate" or not rate:
        return found.low, found.high
    most = max(sized.choice.full_rate * sized.working_replicas, rate)
    return min(1.0, found.low * most / rate), max(1.0, min(found.high, resolved.amount / rate))


def _between(expected: float, factors: tuple[float, float]) -> Span:
    return Span(low=expected * factors[0], expected=expected, high=expected * factors[1])


def _around(sized: ServingEstimate, quantity: Quantity, expected: float) -> Span:
    """A latency with its range, in which nothing is faster than the hardware could be."""
    found = span(sized.resolved, quantity).around(expected)
    return Span(low=sized.no_faster(quantity, found.low, expected), expected=expected, high=found.high)


def _latency(sized: ServingEstimate, quantity: Quantity, seconds: Array) -> BenchmarkLatency:
    """Mean with its range, median and percentiles of one figure of all requests; zeros where no request has it."""
    values = seconds if seconds.size else np.zeros(1)
    median, p90, p95, p99 = (float(value) for value in np.percentile(values, PERCENTILES))
    mean = _around(sized, quantity, float(values.mean()))
    return BenchmarkLatency(mean=mean, median=median, p90=p90, p95=p95, p99=p99)


def _gaps(sized: ServingEstimate, test: Outcome) -> BenchmarkLatency:
    """Times between two tokens of a request, of all requests together."""
    median, p90, p95, p99 = (test.gap_at_s(percentile) for percentile in PERCENTILES)
    return BenchmarkLatency(mean=_around(sized, "tpot", test.mean_gap_s), median=median, p90=p90, p95=p95, p99=p99)
