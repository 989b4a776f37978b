"""Constants that turn the units of files and reports into SI and back.

Inside xe-sizer everything is bytes, seconds, FLOP, FLOP/s, bytes/s and watts; names say which.
"""

from __future__ import annotations

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
BITS_PER_BYTE = 8.0
