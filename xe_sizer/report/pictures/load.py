"""Latency against load: how much a service takes before requests wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import duration, number
from xe_sizer.report.picture import Axis, Curves, Line, Mark
from xe_sizer.report.pictures.parts import time_axis

if TYPE_CHECKING:
    from xe_sizer.result.serving import LoadPoint, ServeResult

LATENCIES = (
    ("ttft_s", "Time to the first token against load", "max_ttft_s"),
    ("tpot_s", "Time per output token against load", "max_tpot_s"),
)
# By the key that says the load: the axis, and what is asked.
UNITS = {
    "request_rate": ("Requests per second", "asked: {} requests/s"),
    "concurrency": ("Requests in flight", "asked: {} in flight"),
    "users": ("Users", "asked: {} users"),
}
FULL = ("Requests per second", "as sized: {} requests/s")
LEAST_POINTS = 3
WIDE = 10.0  # highest over lowest from which on an axis is logarithmic
NOTE = "The same GPUs under other loads."


def load_pictures(result: ServeResult) -> Iterator[Picture]:
    """One picture a latency; none where the answer has no curve, as one that an older version saved."""
    if len(result.load_curve) >= LEAST_POINTS:
        for key, title, limit in LATENCIES:
            yield _picture(result, key, title, limit)


def _picture(result: ServeResult, key: str, title: str, limit: str) -> Picture:
    points = result.load_curve
    lines = [Line("mean", tuple((point.load, getattr(point, key)) for point in points))]
    judged = tuple(_judged(points, key))
    if len(judged) >= LEAST_POINTS and points[0].judged:
        lines.append(Line(f"{number(points[0].judged.percentile)} % of requests", judged))
    seconds = [y for line in lines for _, y in line.points]
    limits = [each.limit for each in result.verdict.limits if each.name == limit]
    marks = tuple(Mark(each, f"limit {duration(each)}") for each in limits)
    wide = max(seconds) > WIDE * min(seconds)
    label, asked = _asked(result)
    middle = sorted(seconds)[len(seconds) // 2]
    drawing = Curves(
        Axis(label), time_axis("Time", middle if wide else max(seconds), wide), tuple(lines), marks, (asked,)
    )
    first, last = (f"{duration(getattr(each, key))} at {number(each.load)}" for each in (points[0], points[-1]))
    says = f"on average {first}, {last} {label.lower()}; {asked.text}"
    return Picture(title, says, drawing, f"{NOTE} The axis of times is logarithmic." if wide else NOTE)


def _judged(points: tuple[LoadPoint, ...], key: str) -> Iterator[tuple[float, float]]:
    for point in points:
        value = getattr(point.judged, key) if point.judged else None
        if value is not None:
            yield point.load, value


def _asked(result: ServeResult) -> tuple[str, Mark]:
    """The label of the loads, and the load of the answer."""
    serve = result.scenario.get("serve") or {}
    for key, (label, text) in UNITS.items():
        if serve.get(key) is not None:
            return label, Mark(float(serve[key]), text.format(number(serve[key])))
    rate = result.throughput.requests_per_s
    return FULL[0], Mark(rate, FULL[1].format(number(rate)))
