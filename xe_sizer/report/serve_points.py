"""The first screen of the report on a service: latency, throughput and price, then what they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import RANGE, bias_words
from xe_sizer.report.document import Point
from xe_sizer.report.first_screen import (
    change_point,
    gpus_point,
    limits_points,
    memory_point,
)
from xe_sizer.report.format import amount, clean, number, plural
from xe_sizer.report.serve_words import judged, latency, objectives, partly_priced, replica_gpus, shared, span_words

if TYPE_CHECKING:
    from xe_sizer.result.serving import ServeCost, ServeResult


def serve_points(result: ServeResult) -> Iterator[Point]:
    """Latency, throughput and cost where it fits; GPUs, memory, limits, and the one thing to change."""
    if result.verdict.fits:
        yield Point("Latency", latency_words(result))
        yield from _ranges(result)
        if bias := bias_words(result.latency.basis):
            yield Point("", bias, spare=4)
        yield Point("Output", _output(result))
        yield from _cost(result)
    layout = result.layout
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    split = f" ({', '.join(sizes)})" if sizes else ""
    spare = f", {result.replicas.spare} spare" if result.replicas.spare else ""
    replicas = f", {plural(result.replicas.count, 'replica')} of {replica_gpus(result)}{split}{spare}"
    yield gpus_point(result.gpus, replicas)
    yield memory_point(result.memory, result.verdict)
    yield from limits_points(result.verdict, result.cost.currency)
    yield from (Point("", clean(words)) for words in result.misread)
    yield from (Point("", words) for words in objectives(result))
    yield from change_point(result.advice)


def latency_words(result: ServeResult) -> str:
    """What limits are compared with: `184 ms to the first token (TTFT), 38.7 ms per token (TPOT), 95 % of requests`."""
    at = judged(result)
    whom = f"{number(at.percentile)} % of requests" if at.percentile else "on average"
    return f"{latency(at.ttft_s)} to the first token (TTFT), {latency(at.tpot_s)} per token (TPOT), {whom}"


def _ranges(result: ServeResult) -> Iterator[Point]:
    found = result.latency
    spans = [words for span in (found.ttft_s, found.tpot_s) if (words := span_words(span))]
    if spans:
        what = RANGE if found.calibrated else "uncalibrated range"
        yield Point("", f"{what} of the means: {' and '.join(spans)}")


def _output(result: ServeResult) -> str:
    made = result.throughput
    user = f", {number(made.tokens_per_s_per_user)} per user" if made.tokens_per_s_per_user else ""
    tokens = f"{number(float(round(made.output_tokens_per_s)))} tokens/s{user}"
    return f"{number(made.requests_per_s)} requests/s{_flying(result)}, {tokens}"


def _flying(result: ServeResult) -> str:
    """The requests in flight, and what of them each of several replicas has."""
    flying, each = result.throughput.requests_in_flight, shared(result)
    if flying is None:
        return ""
    return f", {number(flying)} in flight" + (f" ({each})" if each else "")


def _cost(result: ServeResult) -> Iterator[Point]:
    cost, currency = result.cost, clean(result.cost.currency)
    if cost.per_hour is None:
        yield Point("Cost", "unknown: give --price-per-gpu-hour")
    else:
        yield Point(
            "Cost", f"{amount(cost.per_hour)} {currency} an hour{partly_priced(result)}{_million(cost, currency)}"
        )


def _million(cost: ServeCost, currency: str) -> str:
    """Prices of a million tokens: `; per million tokens 0.191 in, 0.890 out, 0.353 USD over both`."""
    parts = {"in": cost.per_million_input_tokens, "out": cost.per_million_output_tokens}
    told = [f"{number(value)} {name}" for name, value in parts.items() if value is not None]
    if cost.per_million_tokens is not None:
        told.append(f"{number(cost.per_million_tokens)} {currency} over both")
    return f"; per million tokens {', '.join(told)}" if told else ""
