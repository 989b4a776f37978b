"""Efficiency over numbers of GPUs, as a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import percent, plural
from xe_sizer.report.picture import Axis, Curves, Line, Mark

if TYPE_CHECKING:
    from xe_sizer.result.studies import Scaling


def pictures(result: Scaling) -> Iterator[Picture]:
    if len(result.points) < 2:
        return
    line = Line("efficiency", tuple((float(point.gpus), point.efficiency) for point in result.points))
    drawing = Curves(
        Axis("GPUs", logarithmic=True),
        Axis("Efficiency [%]", 0.01),
        (line,),
        (Mark(1.0, "as efficient as the fewest GPUs"),),
    )
    says = "; ".join(f"{plural(point.gpus, 'GPU')} {percent(point.efficiency)}" for point in result.points)
    yield Picture(f"Efficiency of {result.kind} scaling", says, drawing)
