"""Pictures of one training job: time and price with their ranges, memory, and the parts of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import middle_word
from xe_sizer.report.document import Picture
from xe_sizer.report.format import amount, clean, duration, duration_range, number, value_range
from xe_sizer.report.picture import Axis, Bar, Bars, Mark
from xe_sizer.report.pictures.parts import memory_picture, step_picture, time_axis
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.result.training import Result


def pictures(result: Result) -> Iterator[Picture]:
    """Of a job that fits: all; of one that does not: its memory, as it will never run."""
    if result.verdict.fits:
        yield _total(result)
        if result.cost.price is not None:
            yield _price(result)
    yield memory_picture(result)
    if result.verdict.fits:
        time = result.time
        ideal = (Mark(time.ideal_step_s, f"roofline limit {duration(time.ideal_step_s)}"),) if time.ideal_step_s else ()
        yield step_picture("Time of a step", time.components, time.step_s.expected, ideal)


def limit_marks(result: Result, name: str, unit: float, text: str) -> tuple[Mark, ...]:
    """The line of a limit. text : the limit in words, with its value in place of {}"""
    found = [limit.limit for limit in result.verdict.limits if limit.name == name]
    return tuple(Mark(limit * unit, text.format(number(limit))) for limit in found)


def _total(result: Result) -> Picture:
    span = result.time.total_s
    text = f"{duration(span.expected)}, {duration_range(span)}"
    marks = limit_marks(result, "max_hours", HOUR_S, "limit {} h")
    bars = Bars(
        time_axis("Time", span.high),
        (Bar("whole job", span.expected, text, span.low, span.high),),
        marks,
    )
    limits = "".join(f"; {mark.text}" for mark in marks)
    word = middle_word(result.time.basis)
    return Picture("Time of the whole job", f"{word} and range: {text}{limits}", bars, range_note(word))


def range_note(word: str = "expected") -> str:
    """How to read a bar with a range. word : what the value at its end is called"""
    return f"The bar is the {word} value, the line through its end the range."


def _price(result: Result) -> Picture:
    price = result.cost.price
    assert price is not None
    currency = clean(price.currency)
    text = f"{amount(price.expected)} {currency}, {value_range(price.low, price.high, amount)}"
    marks = limit_marks(result, "max_cost", 1.0, f"limit {{}} {currency}")
    bar = Bar("whole job", price.expected, text, price.low, price.high)
    drawing = Bars(Axis(f"Price [{currency}]"), (bar,), marks)
    limits = "".join(f"; {mark.text}" for mark in marks)
    word = middle_word(result.time.basis)
    return Picture("Price of the whole job", f"{word} and range: {text}{limits}", drawing)
