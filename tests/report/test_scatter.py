"""The figure of predicted over measured values: every run is in it, on its side of the line."""

from xe_sizer.report.format import number
from xe_sizer.report.text_charts import SCATTER_COLUMNS, SCATTER_ROWS, scatter


def cells(points: list[tuple[float, float]]) -> list[str]:
    figure = scatter("Times", points, number)
    assert figure is not None
    return [line.split("│")[1].ljust(SCATTER_COLUMNS) for line in figure.lines[:SCATTER_ROWS]]


def test_ends_of_the_axes_are_the_smallest_and_largest_value() -> None:
    figure = scatter("Times", [(1.0, 2.0), (10.0, 10.0), (100.0, 50.0)], number)
    assert figure is not None
    assert figure.lines[0].lstrip().startswith("100 │")
    assert figure.lines[SCATTER_ROWS - 1].lstrip().startswith("1 │")
    assert figure.lines[-1].split() == ["1", "100"]


def test_too_high_a_prediction_lies_above_the_line() -> None:
    rows = cells([(1.0, 1.0), (10.0, 90.0), (100.0, 100.0)])
    column = next(
        row.index("·") for row in rows if "·" in row.rstrip("·")[:-1] and row.index("·") not in (0, SCATTER_COLUMNS - 1)
    )
    above = next(place for place, row in enumerate(rows) if row[column] == "·")
    line = next(place for place, row in enumerate(rows) if row[column] == "─")
    assert above < line


def test_marks_grow_with_the_runs_of_a_cell() -> None:
    text = "".join(cells([(1.0, 1.0)] * 1 + [(10.0, 10.0)] * 3 + [(100.0, 100.0)] * 9))
    assert [text.count(mark) for mark in "·o█"] == [1, 1, 1]


def test_two_runs_make_no_figure() -> None:
    assert scatter("Times", [(1.0, 1.0), (2.0, 2.0)], number) is None
