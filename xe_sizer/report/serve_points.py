"""The first screen of the report on a service: latency, throughput and price, then what they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import RANGE
from xe_sizer.report.document import Point
from xe_sizer.report.first_screen import (
    change_point,
    evidence_point,
    limits_points,
    memory_point,
)
from xe_sizer.report.format import amount, byte_size, clean, duration, hourly_words, number, percent, plural
from xe_sizer.report.serve_day import day_points
from xe_sizer.report.serve_pools import pools_points
from xe_sizer.report.serve_sessions import fit_points, sessions_points
from xe_sizer.report.serve_test import test_points
from xe_sizer.report.serve_words import (
    DEFAULT,
    judged,
    latencies,
    objectives,
    partly_priced,
    replica_gpus,
    replicas_words,
    shared,
    span_words,
)
from xe_sizer.result.serving import BY_POWER, BY_PRICE

if TYPE_CHECKING:
    from xe_sizer.result.serving import ServeCost, ServeResult

CHOSEN = {
    BY_PRICE: "the lowest price per hour within the limits",
    BY_POWER: "the lowest GPU design power within the limits, since not all prices are known",
}
SUPPOSED = {
    "input_tokens": "prompts of {} tokens",
    "output_tokens": "answers of {} tokens",
    "think_time_s": "think time of {} s",
    "image_size": "images of {}",
}


def serve_points(result: ServeResult) -> Iterator[Point]:
    """Latency, throughput and cost where it fits; GPUs, memory, limits, and the one thing to change."""
    if result.verdict.fits:
        yield from fit_points(result)
        yield Point("Latency", latencies(judged(result)))
        yield from _ranges(result)
        yield from evidence_point(result.latency.basis)
        yield from test_points(result) if result.test else (Point("Output", _output(result)),)
        yield from _cost(result)
    yield _gpus(result)
    yield from pools_points(result)
    yield from day_points(result)
    yield from _chosen(result)
    yield from _assumed(result)
    yield from _images(result)
    yield from _adapters(result)
    yield from sessions_points(result)
    yield memory_point(result.memory, result.verdict)
    yield from limits_points(result.verdict, result.cost.currency)
    yield from (Point("", clean(words)) for words in result.misread)
    yield from (Point("", words) for words in objectives(result))
    yield from change_point(result.advice)


def _chosen(result: ServeResult) -> Iterator[Point]:
    """By what this kind of hardware was chosen from those that were compared."""
    if len(result.fleet) > 1:
        why = CHOSEN.get(result.fleet_order, "") if result.verdict.ok else "none of them meets the limits"
        yield Point("Chosen", f"of {len(result.fleet)} kinds of hardware{why and ': '}{why}")


def _ranges(result: ServeResult) -> Iterator[Point]:
    """The ranges of the latencies that stand above."""
    found, at = result.latency, judged(result)
    pairs = ((found.ttft_s, at.ttft_s, "TTFT"), (found.tpot_s, at.tpot_s, "TPOT"))
    spans = [f"{words} ({name})" for span, value, name in pairs if (words := span_words(span, value))]
    if spans:
        yield Point("", f"{RANGE if found.calibrated else 'uncalibrated range'}: {', '.join(spans)}")


def _gpus(result: ServeResult) -> Point:
    """How many GPUs in how many nodes, as which replicas, and how few of them hold the model."""
    gpus, layout, each = result.gpus, result.layout, replica_gpus(result)
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    nodes = f" in {plural(gpus.nodes, 'node')}" if gpus.count > 1 else ""
    split = f" ({', '.join(sizes)})" if sizes else ""
    if result.disaggregation is not None:
        return Point("GPUs", f"{gpus.count:,}{nodes}: {replicas_words(result)}{split}")
    return Point("GPUs", f"{gpus.count:,}{nodes}: {replicas_words(result)} of {each}{split}{_fewest(result)}")


def _fewest(result: ServeResult) -> str:
    """On how few GPUs a replica would fit, where its own are more; that says nothing of the load."""
    least = result.gpus.minimum_that_fits
    if least is None or least == replica_gpus(result):
        return ""
    return f"; {least:,} {'holds' if least == 1 else 'hold'} the model in memory" + (
        " (not the load)" if result.verdict.fits else ""
    )


def _assumed(result: ServeResult) -> Iterator[Point]:
    """What the answer supposes of the load because nobody gave it."""
    origin, serve = result.scenario.get("origin") or {}, result.scenario.get("serve") or {}
    words = [
        text.format(serve[key] if isinstance(serve[key], str) else number(serve[key]))
        for key, text in SUPPOSED.items()
        if origin.get(f"serve.{key}") == DEFAULT and serve.get(key) is not None
    ]
    if words:
        yield Point("Assumed", ", ".join(words))
    if result.read_from_name:
        yield Point("Weights", clean(result.read_from_name).removeprefix("weights "))


def _images(result: ServeResult) -> Iterator[Point]:
    """Images in each prompt: their tokens, and how long the encoder takes."""
    images = result.images
    if images:
        each = f"{plural(images.per_request, 'image')} of {clean(images.size)} in each prompt"
        yield Point("Images", f"{each}: {images.tokens:,} tokens, {duration(images.encoder_s)} in the vision encoder")


def _adapters(result: ServeResult) -> Iterator[Point]:
    """LoRA adapters: how many, what they take of the memory and of a step."""
    found = result.adapters
    if found is not None:
        held = "" if found.held == found.count else f", {found.held:,} of them on the GPU"
        words = f"{plural(found.count, 'LoRA adapter')} of rank {found.rank}{held}: {byte_size(found.bytes)} per GPU"
        yield Point("Adapters", f"{words}, {percent(found.share)} of a decode step")


def _output(result: ServeResult) -> str:
    made = result.throughput
    user = f", {number(made.tokens_per_s_per_user)} per user" if made.tokens_per_s_per_user else ""
    tokens = f"{number(float(round(made.output_tokens_per_s)))} output tokens/s in all{user}"
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
        priced = f"{amount(cost.per_hour)} {currency} an hour{partly_priced(result)}{_million(cost, currency)}"
        hourly = cost.hourly_price
        terms = "" if hourly is None else f"; {clean(hourly.hardware)} at {hourly_words(hourly)}"
        yield Point("Cost", f"{priced}{terms}")


def _million(cost: ServeCost, currency: str) -> str:
    """Prices of a million tokens: `; per million tokens 0.191 in, 0.890 out, 0.353 USD over both`."""
    parts = {"in": cost.per_million_input_tokens, "out": cost.per_million_output_tokens}
    told = [f"{number(value)} {name}" for name, value in parts.items() if value is not None]
    if cost.per_million_tokens is not None:
        told.append(f"{number(cost.per_million_tokens)} {currency} over both")
    return f"; per million tokens {', '.join(told)}" if told else ""
