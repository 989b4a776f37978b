"""A picture before it is drawn: values with their names and units, for formats that can draw.

Values are in SI units, or whatever the axis names; an axis says how many of them are one of its units. Texts are ready
to be shown: a format decides where they stand, never what they say.
"""

from __future__ import annotations

from typing import Literal

from xe_sizer.immutable import Immutable

Tone = Literal["", "yes", "caution", "no", "unknown"]


class Axis(Immutable):
    """`unit` is how many of the values make one unit of the label; 3600 for seconds on an axis in hours."""

    label: str
    unit: float = 1.0
    logarithmic: bool = False


class Mark(Immutable):
    """A line at a value: a limit, the memory of a card, a load."""

    value: float
    text: str


class Part(Immutable):
    """A piece of a whole; `text` is its value, `share` what that is of the whole."""

    name: str
    value: float
    text: str
    share: str = ""


class Stack(Immutable):
    """Parts on top of each other against marks; `whole` names the sum, `over` is the mark it must stay below."""

    axis: Axis
    parts: tuple[Part, ...]
    whole: Part
    marks: tuple[Mark, ...] = ()
    over: float | None = None


class Bar(Immutable):
    """A value from zero, and the range it may have; `value` None where nothing bounds it."""

    name: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None


class Bars(Immutable):
    axis: Axis
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()


class Point(Immutable):
    """A point of a chart, with the range of its height; `name` is written beside it, `says` tells all of it.

    kind : place in `kinds` of the chart, which gives its shape; rank : 0 is one of many, 1 stands out, 2 is the answer
    """

    across: float
    up: float
    says: str
    name: str = ""
    low: float | None = None
    high: float | None = None
    kind: int = 0
    rank: int = 0


class Chart(Immutable):
    """Points over two axes. `kinds` are told apart by shape; `ranks` says what the ranks of points mean.

    marks : lines across at heights; diagonal : with the line where both axes have one value
    roof : places that a line connects above the points, which bounds them
    """

    across: Axis
    up: Axis
    points: tuple[Point, ...]
    ranks: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    diagonal: bool = False
    roof: tuple[tuple[float, float], ...] = ()


class Swing(Immutable):
    """How far a factor moves a figure to both sides of 1; texts say which step does it, empty where none does."""

    name: str
    low: float
    high: float
    low_text: str = ""
    high_text: str = ""


class Tornado(Immutable):
    axis: Axis
    swings: tuple[Swing, ...]
    middle: str


class Line(Immutable):
    name: str
    points: tuple[tuple[float, float], ...]


class Curves(Immutable):
    """Lines over two axes. marks : lines across at heights; asked : lines upwards, as at the load that is asked."""

    across: Axis
    up: Axis
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    asked: tuple[Mark, ...] = ()


class Cell(Immutable):
    """One of many that passed or did not; `says` is what a pointer shows."""

    says: str
    tone: Tone


class Strip(Immutable):
    """Cells in the order of the table that lists them; `legend` says what each tone stands for."""

    cells: tuple[Cell, ...]
    legend: tuple[tuple[Tone, str], ...]


Drawing = Stack | Bars | Chart | Tornado | Curves | Strip
