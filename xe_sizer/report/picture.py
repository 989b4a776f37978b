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
    """A value from zero, and the range it may have; `value` None where nothing bounds it, or there is none.

    chosen : whether it is the one that is recommended, which stands out
    """

    name: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    chosen: bool = False


class Bars(Immutable):
    axis: Axis
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()


class Line(Immutable):
    name: str
    points: tuple[tuple[float, float], ...]


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
    lines : curves behind the points
    roof : places that a line connects above the points, which bounds them
    """

    across: Axis
    up: Axis
    points: tuple[Point, ...]
    ranks: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    diagonal: bool = False
    lines: tuple[Line, ...] = ()
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


class Piece(Immutable):
    """What reaches from a value to another; `kind` is a place in `kinds` of the picture, `says` what a pointer shows.

    name : written in its box where there is room
    """

    start: float
    end: float
    kind: int = 0
    name: str = ""
    says: str = ""


class Row(Immutable):
    """Pieces beside each other, which do not overlap, below a name and with a value."""

    name: str
    pieces: tuple[Piece, ...]
    text: str = ""


class Rows(Immutable):
    """Rows of pieces along one axis from zero: a Gantt chart where it is time, stacked bars where it is bytes.

    kinds : what the colours mean; marks : lines upwards
    """

    axis: Axis
    rows: tuple[Row, ...]
    kinds: tuple[str, ...]
    marks: tuple[Mark, ...] = ()


class Stay(Immutable):
    """A time in which something runs; `share` (0 to 1) is how much of all it has, `text` is written in it."""

    start: float
    end: float
    share: float
    text: str
    says: str


class Lane(Immutable):
    """One of several that share something over time; `text` stands beside its name.

    open : spans in which it may run; by : a time before which it must be done; ends : when it is done
    tone : `no` where it is not well, `unknown` where the lane is nobody's
    """

    name: str
    text: str
    stays: tuple[Stay, ...]
    open: tuple[tuple[float, float], ...] = ()
    by: float | None = None
    ends: float | None = None
    tone: Tone = ""


class Schedule(Immutable):
    """Lanes below each other over one time, up to `end`; `ticks` are times with their labels.

    legend : what bars, open spans and the line of a deadline mean
    """

    lanes: tuple[Lane, ...]
    end: float
    ticks: tuple[tuple[float, str], ...]
    legend: tuple[str, str, str]


Drawing = Stack | Bars | Chart | Tornado | Curves | Strip | Rows | Schedule
