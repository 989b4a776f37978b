"""A test of so many requests, in the words of benchmark tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import (
    RANGE,
    duration,
    number,
    plural,
    range_words,
)
from xe_sizer.report.service import latency, span_words

if TYPE_CHECKING:
    from xe_sizer.result.serving import (
        Benchmark,
        BenchmarkLatency,
        ServeResult,
        Span,
    )

LATENCIES = (
    ("Time to first token (TTFT)", "ttft_s"),
    ("Time per output token (TPOT)", "tpot_s"),
    ("Inter-token latency (ITL)", "itl_s"),
    ("End-to-end latency (E2EL)", "e2e_latency_s"),
)
SAME = 1.005  # highest over lowest of a range that is none
ARRIVALS = {
    "closed-loop": "the next request comes when one is answered",
    "poisson": "requests arrive at random (Poisson)",
    "constant": "requests arrive evenly",
    "trace": "requests arrive as in the trace",
    "all-at-once": "all requests arrive at once",
}


def test_points(result: ServeResult) -> Iterator[Point]:
    """How long the test takes and what it gets done; nothing where there is no test."""
    test = result.test
    if test is None:
        return
    seconds = "" if test.duration_s.expected is None else duration(test.duration_s.expected)
    tokens = f"{_rate(test.output_tokens_per_s)} output tokens/s, {_rate(test.total_tokens_per_s)} tokens/s in all"
    good = "" if test.goodput_per_s is None else f", goodput {number(test.goodput_per_s)} requests/s"
    yield Point(
        "Test", f"{seconds} for {plural(test.requests, 'request')}: {_rate(test.requests_per_s)} requests/s{good}"
    )
    yield Point("", tokens)
    if between := _has_width(test.duration_s) and span_words(test.duration_s):
        name = RANGE if result.latency.calibrated else "uncalibrated range"
        yield Point("", f"{name} of the duration: {between}", spare=3)


def test_tables(result: ServeResult) -> Iterator[Table]:
    """What a benchmark tool prints at the end of a test: its figures, and the latencies of its requests."""
    if result.test is None:
        return
    columns = (Column("result"), Column("value", True), Column("note"))
    yield Table("Serving benchmark", columns, tuple(_rows(result.test)))
    shown = result.latency
    span, note = range_words(shown.evidence, shown.calibrated, shown.basis)
    heads = tuple(Column(name, True) for name in ("median", "P90", "P95", "P99"))
    rows = []
    for name, key in LATENCIES:
        found: BenchmarkLatency = getattr(result.test, key)
        percentiles = (latency(value) for value in (found.median, found.p90, found.p95, found.p99))
        rows.append((name, latency(found.mean.expected), span_words(found.mean), *percentiles))
    yield Table(
        "Latencies of the test", (Column("latency"), Column("mean", True), Column(span), *heads), tuple(rows), note=note
    )


def _rows(test: Benchmark) -> Iterator[tuple[str, str, str]]:
    yield "Successful requests", f"{test.requests:,}", ARRIVALS[test.arrivals]
    if test.concurrency is not None:
        yield "Maximum request concurrency", f"{test.concurrency:,}", ""
    if test.request_rate is not None:
        yield "Request rate (req/s)", number(test.request_rate), ""
    yield "Benchmark duration (s)", _value(test.duration_s), _between(test.duration_s)
    yield "Total input tokens", f"{test.input_tokens:,}", ""
    yield "Total generated tokens", f"{test.output_tokens:,}", ""
    yield "Request throughput (req/s)", _value(test.requests_per_s), _between(test.requests_per_s)
    if test.goodput_per_s is not None:
        yield "Request goodput (req/s)", number(test.goodput_per_s), "requests that meet your latency limits"
    yield "Output token throughput (tok/s)", _rate(test.output_tokens_per_s), _between(test.output_tokens_per_s)
    yield "Total token throughput (tok/s)", _rate(test.total_tokens_per_s), _between(test.total_tokens_per_s)
    yield "Mean concurrency", number(test.mean_concurrency), "requests in flight"
    if test.preemptions:
        yield "Preemptions per replica", f"{test.preemptions:,}", "requests that lost their KV cache and began again"


def _value(span: Span) -> str:
    return "" if span.expected is None else number(span.expected)


def _rate(span: Span) -> str:
    """A rate in whole numbers where it is large."""
    expected = span.expected or 0.0
    return number(float(round(expected)) if expected >= 100.0 else expected)


def _has_width(span: Span) -> bool:
    """Whether a figure is uncertain: the rate at which requests come bounds what a service answers."""
    return span.low is not None and span.high is not None and span.high > SAME * span.low


def _between(span: Span) -> str:
    """The range of a figure without a unit."""
    if span.low is None or span.high is None or not _has_width(span):
        return ""
    low, high = (number(float(f"{value:.3g}")) for value in (span.low, span.high))
    return f"80 % range: {low} to {high}"
