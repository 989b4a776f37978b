"""Predicted over measured, one point a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import percent
from xe_sizer.report.picture import Axis, Chart, Point
from xe_sizer.report.pictures.parts import time_axis
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.report.document import Figure
    from xe_sizer.result.accuracy import Prediction

RATE = "throughput"
MEMORY = "peak_memory"


def picture(
    title: str, quantity: str, predictions: Sequence[Prediction], show: Callable[[float | bool], str], figure: Figure
) -> Picture:
    """Points on the line agree. predictions : of one quantity, positive; figure : it in characters"""
    points = tuple(_point(one, show) for one in predictions)
    near = sum(0.5 <= one.predicted / one.measured <= 2.0 for one in predictions) / len(predictions)
    says = f"{len(points)} runs; {percent(near)} of the predictions between half and twice what was measured"
    measured, predicted = (_axis(label, quantity, points) for label in ("Measured", "Predicted"))
    drawing = Chart(measured, predicted, points, ("a run",), diagonal=True)
    return Picture(title, says, drawing, "On the line they agree; both axes are logarithmic.", figure)


def _axis(label: str, quantity: str, points: Sequence[Point]) -> Axis:
    if quantity == RATE:
        return Axis(f"{label} [tokens/s]", 1.0, True)
    if quantity == MEMORY:
        return Axis(f"{label} [GiB]", GIB, True)
    middle = sorted(point.across for point in points)[len(points) // 2]
    return time_axis(label, middle, True)


def _point(one: Prediction, show: Callable[[float | bool], str]) -> Point:
    measured, predicted = float(one.measured), float(one.predicted)
    return Point(measured, predicted, f"{one.id}: measured {show(measured)}, predicted {show(predicted)}")
