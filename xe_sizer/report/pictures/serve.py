"""Pictures of a service: latencies against their limits and against the load, memory, and what a step is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import clean, duration, duration_range, number
from xe_sizer.report.picture import Axis, Bar, Bars, Chart, Mark, Point
from xe_sizer.report.pictures.estimate import range_note
from xe_sizer.report.pictures.load import load_pictures
from xe_sizer.report.pictures.parts import memory_picture, step_picture, time_axis
from xe_sizer.result.common import Range

if TYPE_CHECKING:
    from xe_sizer.report.document import Figure
    from xe_sizer.result.serving import LatencyAt, ParetoPoint, ServeResult

LATENCIES = (
    ("ttft_s", "Time to the first token", "max_ttft_s"),
    ("tpot_s", "Time per output token", "max_tpot_s"),
)
UNBOUNDED = "unbounded: the load exceeds the capacity"


def pictures(result: ServeResult) -> Iterator[Picture]:
    if result.verdict.fits:
        for key, title, limit in LATENCIES:
            yield _latency(result, key, title, limit)
        yield from load_pictures(result)
    yield memory_picture(result)
    if result.verdict.fits:
        decode, prefill = result.phases.decode, result.phases.prefill
        yield step_picture("Time of a decode step", decode.components, decode.seconds)
        yield step_picture("Time of a step with prefill", prefill.components, prefill.seconds)


def _latency(result: ServeResult, key: str, title: str, limit: str) -> Picture:
    """The mean with its range, and percentiles where requests arrive by chance."""
    span = getattr(result.latency, key)
    bars = [_mean(span.low, span.expected, span.high)]
    bars += [_percentile(at, key) for at in result.latency.percentiles]
    found = [each.limit for each in result.verdict.limits if each.name == limit]
    marks = tuple(Mark(seconds, f"limit {duration(seconds)}") for seconds in found)
    longest = max((end for bar in bars for end in (bar.value, bar.high) if end is not None), default=1.0)
    says = "; ".join([*(f"{bar.name} {bar.text}" for bar in bars), *(mark.text for mark in marks)])
    return Picture(title, says, Bars(time_axis("Time", longest), tuple(bars), marks), range_note())


def _mean(low: float | None, expected: float | None, high: float | None) -> Bar:
    if low is None or expected is None or high is None:
        return Bar("mean", None, UNBOUNDED)
    text = f"{duration(expected)}, {duration_range(Range(low=low, expected=expected, high=high))}"
    return Bar("mean", expected, text, low, high)


def _percentile(at: LatencyAt, key: str) -> Bar:
    value = getattr(at, key)
    return Bar(f"{number(at.percentile)} % of requests", value, UNBOUNDED if value is None else duration(value))


def front(points: Sequence[ParetoPoint], sizes: Sequence[str], title: str, figure: Figure | None) -> Picture:
    """Tokens for a user against tokens of a GPU. sizes : the layout of each point in words"""
    shown = tuple(
        Point(
            point.tokens_per_s_per_user,
            point.output_tokens_per_s_per_gpu,
            f"{clean(size)}, {number(point.running_requests)} concurrent requests",
            clean(size) if place == 0 or size != sizes[place - 1] else "",
            kind=tuple(dict.fromkeys(sizes)).index(size),
            rank=1,
        )
        for place, (point, size) in enumerate(zip(points, sizes, strict=True))
    )
    across = Axis("tokens per second per user", logarithmic=True)
    drawing = Chart(across, Axis("tokens per second per GPU", logarithmic=True), shown, ("", "replica configuration"))
    says = f"{len(points)} replica configurations: {', '.join(dict.fromkeys(sizes))}"
    return Picture(title, says, drawing, "Both axes are logarithmic.", figure)
