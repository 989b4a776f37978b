"""Alternatives by their time and by what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import amount, clean, duration, number, value_range
from xe_sizer.report.picture import Axis, Bar, Bars, Mark
from xe_sizer.report.pictures.estimate import RANGE_NOTE
from xe_sizer.report.pictures.parts import time_axis
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.result.common import Range
    from xe_sizer.result.studies import Alternative, Comparison
    from xe_sizer.result.training import Price

DOES_NOT_FIT = "does not fit"


def pictures(result: Comparison) -> Iterator[Picture]:
    """Time and GPU-hours, and the price where every alternative that fits has one."""
    alternatives = result.alternatives
    fitting = [one.result for one in alternatives if one.result.verdict.fits]
    if not fitting:
        return
    longest = max(each.time.total_s.high for each in fitting)
    limits = {limit.limit for each in fitting for limit in each.verdict.limits if limit.name == "max_hours"}
    marks = tuple(Mark(limit * HOUR_S, f"limit {number(limit)} h") for limit in sorted(limits))
    times = tuple(_bar(one, one.result.time.total_s, _time_text) for one in alternatives)
    title = "Time of the whole job"
    yield Picture(title, _said(times), Bars(time_axis("Time", longest), times, marks), RANGE_NOTE)
    hours = tuple(_bar(one, one.result.cost.gpu_hours, _hours_text) for one in alternatives)
    yield Picture("GPU-hours", _said(hours), Bars(Axis("GPU-hours"), hours), RANGE_NOTE)
    prices = [each.cost.price for each in fitting]
    currencies = {price.currency for price in prices if price is not None}
    if all(prices) and len(currencies) == 1:
        currency = clean(currencies.pop())
        bars = tuple(_bar(one, one.result.cost.price, _price_text) for one in alternatives)
        yield Picture("Price", _said(bars), Bars(Axis(f"Price [{currency}]"), bars), RANGE_NOTE)


def _bar(one: Alternative, span: Range | Price | None, text: Callable[[Range | Price], str]) -> Bar:
    name = clean(one.name)
    if span is None or not one.result.verdict.fits:
        return Bar(name, None, DOES_NOT_FIT)
    return Bar(name, span.expected, text(span), span.low, span.high)


def _time_text(span: Range | Price) -> str:
    return f"{duration(span.expected)}, {value_range(span.low, span.high, duration)}"


def _hours_text(span: Range | Price) -> str:
    return f"{number(span.expected)}, {value_range(span.low, span.high)}"


def _price_text(span: Range | Price) -> str:
    return f"{amount(span.expected)}, {value_range(span.low, span.high, amount)}"


def _said(bars: tuple[Bar, ...]) -> str:
    return "; ".join(f"{bar.name} {bar.text}" for bar in bars)
