"""Constants that turn the units of files and reports into SI and back.

Inside xe-sizer everything is bytes, seconds, FLOP, FLOP/s, bytes/s and watts; names say which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate, pairwise

KIB = 1024.0
MIB = 1024.0**2
GIB = 1024.0**3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
MICRO = 1e-6
MILLI = 1e-3
MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
DAY_H = 24.0
YEAR_H = 8766.0  # 365.25 days
BITS_PER_BYTE = 8.0
WATT_PER_KW = 1000.0
# Bytes of a number, in memory and on the wire.
SIXTEEN_BIT = 2.0
FLOAT32 = 4.0

BARE_SERVER = "generic-"
"""How the names of servers begin that stand for a GPU named alone."""


def rounded(value: float, down: bool) -> float:
    """To two digits upwards or to three downwards, so that what is read and typed is still kept."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - (2 if down else 1))
    whole = math.floor(value / unit + 1e-9) if down else math.ceil(value / unit - 1e-9)
    return float(f"{whole * unit:.6g}")


def three_digits(value: float) -> str:
    """A size in its unit, three significant digits and no more than three decimals: 0.046, 8.37, 16.1, 144, 1,051."""
    digits = math.floor(math.log10(abs(float(f"{value:.3g}")))) if value else 0
    return f"{value:,.{min(max(0, 2 - digits), 3)}f}"


def whole_percent(share: float) -> str:
    """A share as whole per cent: 91 %."""
    return f"{100 * share:.0f} %"


def whole_parts(values: Iterable[float]) -> list[float]:
    """Parts of a sum as whole numbers whose sum is that of the parts, rounded."""
    ends = [0.0, *(float(round(end)) for end in accumulate(values))]
    return [after - before for before, after in pairwise(ends)]
