"""From values to places: linear and logarithmic axes with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.report.format import BEYOND_WORDS
from xe_sizer.report.svg.shapes import text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Axis

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_DECADES = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))  # ticks of a decade, fewer where many decades are shown
MOST_TICKS = 6
LEAST_DIGITS = 1e-4
GAP = 8.0  # units between the labels of ticks


@frozen
class Scale:
    """An axis over a range of places: `start` is where `low` is drawn, `end` where `high` is."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value; what lies beyond the axis is at its end."""
        low, high, value = (self._moved(one) for one in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def _moved(self, value: float) -> float:
        return math.log(max(value, 1e-300)) if self.axis.logarithmic else value

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels, apart from each other."""
        found = _logarithmic(self.low, self.high, self.axis.unit) if self.axis.logarithmic else _linear(self)
        return [(self.at(value), _label(value / self.axis.unit)) for value in found]


def scale_of(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that holds all values; a linear one begins at zero.

    values : at least one; positive where the axis is logarithmic
    """
    if axis.logarithmic:
        positive = [value for value in values if value > 0] or [axis.unit]
        room = 1.15  # so that no point lies on the frame
        return Scale(axis, min(positive) / room, max(positive) * room, start, end)
    most = max([*values, 0.0]) or axis.unit
    step = _step(most / axis.unit / (MOST_TICKS - 1))
    return Scale(axis, 0.0, max(math.ceil(most / axis.unit / step - 1e-9) * step * axis.unit, most), start, end)


def _label(value: float) -> str:
    """A tick in as few digits as it has: 0.3, 2.5, 1,000."""
    if value and not LEAST_DIGITS <= abs(value) < BEYOND_WORDS:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _step(raw: float) -> float:
    """The next round number."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * each for each in _ROUND if power * each >= raw * (1 - 1e-9))


def _linear(scale: Scale) -> list[float]:
    unit, span = scale.axis.unit, abs(scale.end - scale.start)
    step = _step((scale.high - scale.low) / unit / (MOST_TICKS - 1)) * unit
    while True:
        count = int(scale.high / step + 1e-9)
        found = [place * step for place in range(count + 1)]
        widest = max(text_width(_label(value / unit)) for value in found)
        if len(found) <= 2 or widest + GAP <= span * step / (scale.high - scale.low):
            return found
        step *= 2


def _logarithmic(low: float, high: float, unit: float) -> list[float]:
    for digits in _DECADES:
        found = list(_decades(low / unit, high / unit, digits))
        if 2 <= len(found) <= MOST_TICKS:
            return [value * unit for value in found]
    if len(found) > MOST_TICKS:
        return [value * unit for value in found[:: math.ceil(len(found) / MOST_TICKS)]]
    return [low * 1.15, high / 1.15] if high > low * 1.5 else [math.sqrt(low * high)]


def _decades(low: float, high: float, digits: Sequence[float]) -> Iterator[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield from (value for digit in digits if low <= (value := digit * 10.0**power) <= high)
