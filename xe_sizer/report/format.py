"""Numbers and words as people read them. The only place where SI units turn into text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.result.common import GIVEN_PRICE
from xe_sizer.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, three_digits

if TYPE_CHECKING:
    from xe_sizer.result.common import HourlyPrice, Range

NOT_A_NUMBER = "-"
BEYOND_WORDS = 1e15  # from here on digits in full tell nobody anything
_COUNT_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
_BYTE_UNITS = ((0.1 * GIB, GIB, "GiB"), (0.1 * MIB, MIB, "MiB"), (0.1 * KIB, KIB, "KiB"))
_FLOP_UNITS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"))
_LIMIT_UNITS = {"hours": "h", "gib": "GiB"}
_TIME_UNITS = (
    (3 * DAY_S, DAY_S, "d"),
    (90 * MINUTE_S, HOUR_S, "h"),
    (90.0, MINUTE_S, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
)


def clean(value: object) -> str:
    """One line without control characters: what a user named may hold terminal escapes or line ends."""
    return "".join(char if char.isprintable() else " " for char in str(value))


def number(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.0123, 8.14, 75.2, 1,234."""
    if value is None or not math.isfinite(value):
        return NOT_A_NUMBER
    if abs(value) >= BEYOND_WORDS:
        return f"{value:.2e}"
    if value == 0 or float(value).is_integer():
        return f"{value:,.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


def given(value: float) -> str:
    """A number as somebody wrote it, up to nine digits: 114.5, 12,012."""
    return whole(value) if float(value).is_integer() else f"{value:,.9g}"


def whole(value: float | None) -> str:
    """A count in full: 12,012."""
    return NOT_A_NUMBER if value is None else number(float(round(value)) if math.isfinite(value) else value)


def count(value: float) -> str:
    """A count that may be huge: 12,012 stays, 1.4 M, 3.2 B (billions, as the field says)."""
    for size, name in _COUNT_UNITS:
        if size <= abs(value) < BEYOND_WORDS:
            return f"{value / size:.{1 if abs(value) < 100 * size else 0}f} {name}"
    return number(value) if abs(value) < 100 else whole(value)


def _size(value: float) -> str:
    return three_digits(value) if math.isfinite(value) and abs(value) < BEYOND_WORDS else number(value)


def gib(value_bytes: float) -> str:
    """GiB without the unit, three significant digits."""
    return _size(value_bytes / GIB)


def flops(value: float) -> str:
    """Floating-point operations in the unit that fits them: 1.23 TFLOP, 45.6 GFLOP; a dash for none."""
    for size, name in _FLOP_UNITS:
        if value >= size:
            return f"{_size(value / size)} {name}"
    return f"{whole(value)} FLOP" if value else NOT_A_NUMBER


def byte_size(value_bytes: float) -> str:
    """A size in the unit that fits it: 18.4 GiB, 1.05 GiB, 52.0 MiB."""
    for threshold, unit_bytes, name in _BYTE_UNITS:
        if abs(value_bytes) >= threshold:
            return f"{_size(value_bytes / unit_bytes)} {name}"
    return f"{whole(value_bytes)} B"


def limit_quantity(name: str, value: float | None, currency: str | None = None) -> str:
    """What a limit allows, or what became of it, in the unit that its name says: 24 h, 184 ms, 2.00 GiB, 0.593 USD."""
    if value is None or not math.isfinite(value):
        return "unknown"
    last = name.rpartition("_")[2]
    if last == "s":
        return duration(value)
    if "cost" in name:
        return f"{number(value)} {clean(currency)}".rstrip() if currency else number(value)
    return " ".join((number(value), *((_LIMIT_UNITS[last],) if last in _LIMIT_UNITS else ())))


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that fits a time: its seconds, and its name."""
    for threshold, unit_s, name in _TIME_UNITS:
        if abs(seconds) >= threshold:
            return unit_s, name
    return 1e-6, "µs"


def _in_unit(value: float) -> str:
    if not math.isfinite(value) or abs(value) >= BEYOND_WORDS:
        return number(value)
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}" if abs(value) >= 0.95 else number(value)


def duration(seconds: float) -> str:
    """A time in the unit that fits it: 350 ms, 12.3 s, 42.0 min, 8.1 h, 5.2 d."""
    if seconds == 0:
        return "0 s"
    unit_s, name = time_unit(seconds)
    return f"{_in_unit(seconds / unit_s)} {name}"


def duration_range(span: Range) -> str:
    """Low to high in the unit of the expected value: 6.9 to 9.9 h."""
    unit_s, name = time_unit(span.expected)
    return f"{_in_unit(span.low / unit_s)} to {_in_unit(span.high / unit_s)} {name}"


def value_range(low: float, high: float, text: Callable[[float], str] = number) -> str:
    return f"{text(low)} to {text(high)}"


def amount(value: float) -> str:
    """Money without the currency: cents below 100."""
    return f"{value:,.2f}" if abs(value) < 100 else whole(value)


def offer_words(price: HourlyPrice) -> str:
    """How a price is meant: `on-demand, us-east-1, 2026-09-24`, or that the user gave it."""
    if price.kind == GIVEN_PRICE:
        return "as given"
    return ", ".join(clean(part) for part in (price.kind or "kind unknown", price.region, price.date) if part)


def offer_cells(price: HourlyPrice | None) -> dict[str, str | None]:
    """The same as columns of a CSV file."""
    return {f"price_{name}": getattr(price, name, None) for name in ("kind", "date", "region")}


def hourly_words(price: HourlyPrice) -> str:
    """What an hour costs, and how that is meant: `55.04 USD an hour (on-demand, us-east-1, 2026-09-24)`."""
    return f"{money(price.per_hour, price.currency)} an hour ({offer_words(price)})"


def price_words(price: HourlyPrice | None) -> Iterator[str]:
    """What an hour of the hardware costs, where the user did not give the price."""
    if price is not None and price.kind != GIVEN_PRICE:
        yield f"{clean(price.hardware)} at {hourly_words(price)}"


def money(value: float | None, currency: str | None) -> str:
    """An amount with its currency: 1,234 USD; a dash where there is none."""
    return NOT_A_NUMBER if value is None else f"{amount(value)} {clean(currency)}"


def percent(share: float) -> str:
    """A fraction as per cent: 24 %, 3.4 %, 0.02 %, <0.01 %."""
    value = 100 * share
    if not math.isfinite(value):
        return NOT_A_NUMBER
    if 0 < value < 0.005:
        return "<0.01 %"
    decimals = 0 if abs(value) >= 9.95 or value == 0 else 1 if abs(value) >= 0.095 else 2
    return f"{value:.{decimals}f} %"


def ratio(value: float) -> str:
    """A factor: x0.44, x2.00."""
    return f"x{value:.2f}"


def plural(how_many: int, noun: str) -> str:
    return f"{how_many:,} {noun}" if how_many == 1 else f"{how_many:,} {noun}s"
