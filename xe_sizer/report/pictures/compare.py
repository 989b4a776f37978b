"""Alternatives by their time and by what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.report.document import Picture
from xe_sizer.report.format import amount, clean, duration, duration_range, number, value_range
from xe_sizer.report.picture import Axis, Bar, Bars, Mark
from xe_sizer.report.pictures.estimate import range_note
from xe_sizer.report.pictures.parts import time_axis
from xe_sizer.report.study_points import shown_names
from xe_sizer.result.common import GIVEN_PRICE
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.result.common import Range
    from xe_sizer.result.studies import Alternative, Comparison
    from xe_sizer.result.training import Price

DOES_NOT_FIT = "does not fit"


def pictures(result: Comparison) -> Iterator[Picture]:
    """Time and GPU-hours, and the price where every alternative that fits has one of one kind."""
    called = zip(shown_names(result), result.alternatives, strict=True)
    alternatives = tuple(replace(one, name=name) for name, one in called)
    fitting = [one.result for one in alternatives if one.result.verdict.fits]
    if not fitting:
        return
    longest = max(each.time.total_s.high for each in fitting)
    limits = {limit.limit for each in fitting for limit in each.verdict.limits if limit.name == "max_hours"}
    marks = tuple(Mark(limit * HOUR_S, f"limit {number(limit)} h") for limit in sorted(limits))
    times = tuple(map(_time, alternatives))
    title = "Time of the whole job"
    yield Picture(title, _said(times), Bars(time_axis("Time", longest), times, marks), range_note())
    hours = tuple(map(_hours, alternatives))
    yield Picture("GPU-hours", _said(hours), Bars(Axis("GPU-hours"), hours), range_note())
    prices = [each.cost.price for each in fitting]
    currencies = {price.currency for price in prices if price is not None}
    kinds = {each.cost.hourly_price.kind for each in fitting if each.cost.hourly_price is not None}
    if all(prices) and len(currencies) == 1 and len(kinds - {GIVEN_PRICE}) <= 1:
        bars = tuple(map(_price, alternatives))
        axis = Axis(f"Price [{clean(currencies.pop())}]")
        yield Picture("Price of the whole job", _said(bars), Bars(axis, bars), range_note())


def _time(one: Alternative) -> Bar:
    span = one.result.time.total_s
    return _bar(one, span, f"{duration(span.expected)}, {duration_range(span)}")


def _hours(one: Alternative) -> Bar:
    span = one.result.cost.gpu_hours
    return _bar(one, span, f"{number(span.expected)}, {value_range(span.low, span.high)}")


def _price(one: Alternative) -> Bar:
    price = one.result.cost.price
    text = f"{amount(price.expected)}, {value_range(price.low, price.high, amount)}" if price else ""
    return _bar(one, price, text)


def _bar(one: Alternative, span: Range | Price | None, text: str) -> Bar:
    name = clean(one.name)
    if span is None or not one.result.verdict.fits:
        return Bar(name, None, DOES_NOT_FIT)
    return Bar(name, span.expected, text, span.low, span.high)


def _said(bars: tuple[Bar, ...]) -> str:
    return "; ".join(f"{bar.name} {bar.text}" for bar in bars)
