"""Pictures: every text inside, none over another, every value where its number says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from xe_sizer.cli.render import read_answer
from xe_sizer.report.answers import reporter
from xe_sizer.report.document import Document, Options, Picture
from xe_sizer.report.picture import (
    Axis,
    Bar,
    Bars,
    Chart,
    Curves,
    Line,
    Mark,
    Part,
    Piece,
    Point,
    Row,
    Rows,
    Stack,
    Swing,
    Tornado,
)
from xe_sizer.report.registry import render
from xe_sizer.report.shapes import WIDTH, Box, Drawn, Rect, Stroke, Text, crosses, fitted, text_width, wrapped
from xe_sizer.report.svg import drawn, svg, svg_file
from xe_sizer.result.common import Answer
from xe_sizer.result.studies import PlanResult
from xe_sizer.result.training import Result

FIXTURES = Path(__file__).parent / "fixtures"
SAVED = sorted(FIXTURES.rglob("*.json"))
ONE = 1e-6


def document(answer: Answer) -> Document:
    return reporter(answer.question).document(answer, Options())


def pictures(file: Path) -> Iterator[Picture]:
    yield from document(read_answer(str(file))).pictures


def texts(found: Drawn) -> list[Text]:
    return [shape for shape in found.shapes if isinstance(shape, Text)]


def is_legible(found: Drawn) -> None:
    """No text leaves the picture, none lies over another."""
    page = Box(0.0, 0.0, WIDTH, found.height)
    for text in texts(found):
        assert text.box.inside(Box(page.left - ONE, page.top - ONE, page.right + ONE, page.bottom + ONE)), text
    for one, other in combinations(texts(found), 2):
        assert not one.box.meets(other.box), (one, other)


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_no_text_meets_another_or_leaves_the_picture(file: Path) -> None:
    for picture in pictures(file):
        is_legible(drawn(picture))


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_every_picture_says_what_it_shows(file: Path) -> None:
    page = render(read_answer(str(file)), "html", Options())
    for place, element in enumerate(re.findall(r"<svg.*?</svg>", page, re.DOTALL), start=1):
        root = ET.fromstring(element)
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"picture-{place}-title picture-{place}-says"
        title, says = root[0], root[1]
        assert title.text
        assert says.text
        assert (title.get("id"), says.get("id")) == (f"picture-{place}-title", f"picture-{place}-says")
    assert page.count("<figcaption>") == page.count("<svg")


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_html_draws_and_has_no_art_of_characters(file: Path) -> None:
    content = document(read_answer(str(file)))
    assert all(isinstance(block, Picture) or type(block).__name__ != "Figure" for block in content.blocks)
    page = render(read_answer(str(file)), "html", Options())
    assert "│" not in page
    assert "█" not in page
    assert page.count("<svg") == len(content.pictures)


def rects(found: Drawn, style: str) -> list[Rect]:
    return [shape for shape in found.shapes if isinstance(shape, Rect) and shape.style == style]


def strokes(found: Drawn, style: str) -> list[Stroke]:
    return [shape for shape in found.shapes if isinstance(shape, Stroke) and shape.style == style]


def test_a_bar_and_its_range_are_as_long_as_their_values() -> None:
    """An axis from 0 to 10 h is 404 units long: 5 h are 202."""
    bars = Bars(Axis("Time [h]", 3600.0), (Bar("job", 5 * 3600.0, "5 h", 4 * 3600.0, 10 * 3600.0),))
    found = drawn(Picture("t", "s", bars))
    (bar,), (whisker,) = rects(found, "fill"), strokes(found, "whisker")
    assert (bar.x, bar.width) == pytest.approx((8.0, 202.0))
    assert [part[0][0] for part in whisker.lines] == pytest.approx([8 + 161.6, 8 + 161.6, 412.0])
    assert {text.text for text in texts(found)} >= {"0", "2", "4", "6", "8", "10", "Time [h]", "job", "5 h"}


def test_the_line_of_a_limit_breaks_where_a_value_stands() -> None:
    """The value stands at the right end, where the limit of 9 of 10 h is."""
    bars = Bars(Axis("Time [h]", 3600.0), (Bar("job", 36e3, "10 h, 8 to 12 h"),) * 2, (Mark(9 * 3600.0, "limit 9 h"),))
    found = drawn(Picture("t", "s", bars))
    values = [text.box for text in texts(found) if text.text.startswith("10 h")]
    pieces = [part for stroke in strokes(found, "mark") for part in stroke.lines]
    assert all(box.left < pieces[0][0][0] < box.right for box in values)
    assert len(pieces) >= 2
    for (_, start), (_, end) in pieces:
        assert not any(start < box.bottom and box.top < end for box in values)


def test_parts_of_a_stack_stand_end_to_end_before_the_line_of_what_is_usable() -> None:
    """60 and 20 of 100 units on an axis to 125: 60 / 125 x 404, then 20 / 125 x 404."""
    parts = (Part("weights", 60.0, "60 GiB", "60 %"), Part("rest", 20.0, "20 GiB", "20 %"))
    stack = Stack(Axis("GiB"), parts, Part("peak", 80.0, "80 GiB", "80 %"), (Mark(100.0, "usable 100 GiB"),), 100.0)
    found = drawn(Picture("t", "s", stack))
    first, second = rects(found, "c1")[0], rects(found, "c2")[0]
    assert first.x == pytest.approx(8.0)
    assert first.width + 1 == pytest.approx(60 / 125 * 404)
    assert second.x == pytest.approx(8 + 60 / 125 * 404)
    (line,) = strokes(found, "mark")
    assert line.lines[0][0][0] == pytest.approx(8 + 100 / 125 * 404)
    assert rects(found, "over") == []
    over = drawn(Picture("t", "s", with_limit(stack, 70.0)))
    assert rects(over, "over")[0].x == pytest.approx(8 + 70 / 125 * 404)


def with_limit(stack: Stack, limit: float) -> Stack:
    return Stack(stack.axis, stack.parts, stack.whole, stack.marks, limit)


def test_pieces_of_rows_stand_where_their_times_say_and_are_told_apart_by_colour() -> None:
    """An axis from 0 to 10 h is 404 units long; the names of short tasks are left to the pointer."""
    lanes = (
        Row("trainer", (Piece(5.0, 9.0, 1, "training"), Piece(9.0, 9.2, 2, "synchronisation"))),
        Row("writer", (Piece(0.0, 5.0, 0, "rollout", "rollout: 5 h"),), "5 h"),
    )
    gantt = Rows(Axis("Time [h]"), lanes, ("rollout", "training", "synchronisation", "unused"), (Mark(9.0, "end"),))
    found = drawn(Picture("t", "s", gantt))
    (rollout, key), (training, _) = rects(found, "c1"), rects(found, "c2")
    assert (rollout.x, rollout.width + 1) == pytest.approx((8.0, 202.0))
    assert rollout.says == "rollout: 5 h"
    assert (training.x, training.width + 1) == pytest.approx((210.0, 0.4 * 404))
    assert training.y < rollout.y < key.y
    assert not rects(found, "c4")
    named = [text.text for text in texts(found) if text.style == "on"]
    assert named == ["training", "rollout"]
    is_legible(found)


def test_bars_without_a_zero_are_dots_in_their_ranges() -> None:
    """From 1 h to 100 h with 15 % of room at each end: 10 h are half way."""
    bars = tuple(Bar(f"{n} h", n * 3600.0, f"{n} h", n * 3600.0, n * 3600.0) for n in (1, 10, 100))
    found = drawn(Picture("t", "s", Bars(Axis("Time [h]", 3600.0, True), bars)))
    assert not rects(found, "fill")
    middles = [(min(x for x, _ in dot.lines[0]) + max(x for x, _ in dot.lines[0])) / 2 for dot in strokes(found, "p1")]
    assert middles[1] == pytest.approx(210.0)
    assert middles[1] - middles[0] == pytest.approx(middles[2] - middles[1])
    is_legible(found)


def test_a_curve_runs_through_its_points_and_keeps_clear_of_names_and_limits() -> None:
    """Eight points that fall, the first of them named, below the line of a limit near the second."""
    places = tuple((float(2**n), 100.0 - 12.0 * n) for n in range(8))
    points = tuple(
        Point(x, y, "a plan", "chosen: a name" if x == 1 else "", rank=2 if x == 1 else 0) for x, y in places
    )
    marks = (Mark(90.0, "limit 90"),)
    chart = Chart(
        Axis("GPUs", 1.0, True), Axis("cost"), points, ("", "", ""), ("a",), marks, lines=(Line("a", places),)
    )
    found = drawn(Picture("t", "s", chart))
    (curve,) = strokes(found, "curve")
    dots = [[sum(c) / len(dot.lines[0]) for c in zip(*dot.lines[0], strict=True)] for dot in strokes(found, "p0")]
    assert [list(place) for place in curve.lines[0][1:]] == [pytest.approx(dot, abs=1e-6) for dot in dots]
    for words in ("chosen: a name", "limit 90"):
        (box,) = [text.box for text in texts(found) if text.text == words]
        assert not crosses(curve, box)
    is_legible(found)


@pytest.mark.parametrize(
    ("line", "met"),
    [
        (((0, 0), (9, 9)), True), (((0, 0), (3, 9)), False), (((0, 5), (9, 5)), True), (((0, 3), (9, 3)), False),
        (((5, 5), (5.5, 5.5)), True), (((0, 9), (3, 9), (8, 2)), True), (((5, 0), (5, 3.9)), False),
    ],
)  # fmt: skip
def test_a_line_crosses_a_box_or_not(line: tuple[tuple[float, float], ...], met: bool) -> None:
    """The box is the square from 4 to 6."""
    assert crosses(Stroke((line,), "mark"), Box(4.0, 4.0, 6.0, 6.0)) == met


def test_half_and_twice_are_equally_far_in_a_tornado() -> None:
    swings = (Swing("data size", 0.5, 2.0, "half the data", "twice the data"),)
    found = drawn(Picture("t", "s", Tornado(Axis("times", logarithmic=True), swings, "as asked")))
    less, more = rects(found, "less")[0], rects(found, "more")[0]
    assert less.width == pytest.approx(more.width)
    assert less.x + less.width == pytest.approx(more.x)
    is_legible(found)


def test_long_names_are_cut_or_wrapped_but_never_leave_the_picture() -> None:
    name = "a name of an alternative that somebody wrote without any thought for the width of a picture " * 2
    bars = tuple(Bar(name, float(n), f"{name} {n}", n / 2, n * 2) for n in range(1, 4))
    marks = tuple(Mark(float(n), name) for n in range(1, 4))
    is_legible(drawn(Picture("t", "s", Bars(Axis(name), bars, marks))))
    parts = tuple(Part(name, 1.0, "1.00 GiB", "10 %") for _ in range(9))
    is_legible(drawn(Picture("t", "s", Stack(Axis(name), parts, Part(name, 9.0, "9 GiB", "90 %"), marks))))
    swings = tuple(Swing(name, 0.9, 1.1, name, name) for _ in range(3))
    is_legible(drawn(Picture("t", "s", Tornado(Axis(name, logarithmic=True), swings, name))))
    line = Line(name, ((1.0, 1.0), (10.0, 20.0)))
    is_legible(drawn(Picture("t", "s", Curves(Axis(name), Axis(name), (line, line), marks, marks))))


@pytest.mark.parametrize("crowd", [1, 2, 12, 60])
def test_names_of_crowded_points_do_not_meet(crowd: int) -> None:
    """Points on top of each other, each with a name: as many names as there is room for."""
    points = tuple(
        Point(8.0 + n % 3, 10.0 + 0.1 * n, "says", f"point {n}, with a name", 5.0, 30.0, n % 7, 1 + (n == 0))
        for n in range(crowd)
    )
    chart = Chart(Axis("GPUs", logarithmic=True), Axis("h", logarithmic=True), points, ("", "best", "chosen"))
    found = drawn(Picture("t", "s", chart))
    is_legible(found)
    assert "point 0, with a name" in {text.text for text in texts(found)}


def test_the_chosen_plan_is_named_with_its_gpus_and_its_time(plan: PlanResult) -> None:
    chart = next(picture for picture in document(plan).pictures if isinstance(picture.drawing, Chart))
    chosen = plan.candidates[plan.answers.chosen or 0]
    words = next(text.text for text in texts(drawn(chart)) if text.text.startswith("chosen: "))
    assert words.startswith(f"chosen: {chosen.gpus:,} GPU")
    assert isinstance(chart.drawing, Chart)
    point = next(point for point in chart.drawing.points if point.rank == 2)
    assert (point.across, point.up) == (chosen.gpus, chosen.total_s.expected)
    assert (point.low, point.high) == (chosen.total_s.low, chosen.total_s.high)


@pytest.fixture
def plan() -> PlanResult:
    answer = read_answer(str(FIXTURES / "studies" / "plan.json"))
    assert isinstance(answer, PlanResult)
    return answer


def test_memory_of_a_picture_sums_to_the_peak(lora: Result) -> None:
    stacks = [picture.drawing for picture in document(lora).pictures if isinstance(picture.drawing, Stack)]
    memory = next(stack for stack in stacks if stack.over == lora.memory.usable_bytes)
    assert sum(part.value for part in memory.parts) == pytest.approx(lora.memory.peak_bytes)
    assert memory.whole.value == lora.memory.peak_bytes


def test_a_job_that_does_not_fit_shows_its_memory_alone(too_big: Result) -> None:
    (picture,) = document(too_big).pictures
    found = drawn(picture)
    assert len(rects(found, "over")) == 1
    assert "GiB missing" in picture.says


def test_a_picture_as_a_file_is_xml_and_needs_nothing(lora: Result) -> None:
    for picture in document(lora).pictures:
        root = ET.fromstring(svg_file(picture))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("viewBox")
        assert "url(" not in svg_file(picture)
        assert "prefers-color-scheme: dark" in svg_file(picture)


def test_what_users_named_cannot_break_a_picture() -> None:
    bar = Bar("<script>&\x1b[31m\x00", 1.0, '"1"', 0.5, 2.0)
    element = svg(Picture("<b>", "&", Bars(Axis("<i>"), (bar,))), "one")
    ET.fromstring(element)
    assert "<script" not in element


@pytest.mark.parametrize("room", [30.0, 60.0, 200.0])
def test_fitted_and_wrapped_texts_have_room(room: float) -> None:
    text = "tensor-parallel communication between nodes"
    assert text_width(fitted(text, room)) <= room
    assert all(text_width(line) <= room for line in wrapped(text, room))
    assert fitted(text, 1000.0) == text
    assert " ".join(wrapped(text, 200.0)) == text


def test_a_limit_line_ends_well_before_a_text_and_goes_on_well_behind_it() -> None:
    """A line that touches a number seems to run through it."""
    bars = Bars(
        Axis("Time [h]"),
        tuple(Bar(f"kind {place}", 7.0, "7.0 h, 3.6 to 11.6 h, 172 USD", 3.6, 11.6) for place in range(3)),
        (Mark(24.0, "limit 24 h"),),
    )
    found = drawn(Picture("Kinds", "", bars))
    lines = [shape.lines[0] for shape in found.shapes if isinstance(shape, Stroke) and shape.style == "mark"]
    assert len(lines) > 1
    for (x, top), (_, bottom) in lines:
        for text in texts(found):
            box = text.box
            if box.left < x < box.right and text.text != "▼ limit 24 h":
                assert bottom <= box.top - 4.0 + ONE or top >= box.bottom + 4.0 - ONE
