"""Numbers as reports print them."""

import math

import pytest

from xe_sizer.report import format as text
from xe_sizer.result.common import Range

GIB = 1024**3


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (8.1432, "8.14"),
        (75.23, "75.2"),
        (1234.56, "1,235"),
        (0.01234, "0.0123"),
        (24.0, "24"),
        (-3.5, "-3.50"),
    ],
)
def test_number_keeps_three_digits(value: float, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    assert text.number(value) == "-"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (4e-6, "4.0 µs"),
        (0.35, "350 ms"),
        (12.34, "12.3 s"),
        (2520, "42.0 min"),
        (29160, "8.1 h"),
        (71.9 * 3600, "71.9 h"),
        (10 * 86400, "10.0 d"),
    ],
)
def test_duration_picks_the_unit(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_range_keeps_the_unit_of_the_expected_value() -> None:
    assert text.duration_range(Range(low=3600, expected=8.1 * 3600, high=9.9 * 3600)) == "1.0 to 9.9 h"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (18.44 * GIB, "18.4 GiB"),
        (1.05 * GIB, "1.05 GiB"),
        (52 * 1024**2, "52.0 MiB"),
        (512 * 1024, "0.500 MiB"),
        (12, "12 B"),
    ],
)
def test_byte_size_picks_the_unit(size: float, shown: str) -> None:
    assert text.byte_size(size) == shown


def test_rounding_up_to_ten_gib_does_not_add_a_digit() -> None:
    assert text.gib(9.996 * GIB) == "10.0"
    assert text.gib(9.99 * GIB) == "9.99"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12012, "12,012"), (1_400_000, "1.4 M"), (3.2e9, "3.2 B"), (15e12, "15.0 T"), (13.47, "13.5")],
)
def test_count(value: float, shown: str) -> None:
    assert text.count(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0 %"), (0.24, "24 %"), (0.034, "3.4 %"), (0.0002, "0.02 %"), (3e-5, "<0.01 %"), (2.06, "206 %")],
)
def test_percent(share: float, shown: str) -> None:
    assert text.percent(share) == shown


def test_amount_shows_cents_of_small_sums_only() -> None:
    assert (text.amount(12.3), text.amount(5230.4)) == ("12.30", "5,230")


def test_given_numbers_stay_as_written() -> None:
    assert (text.given(114.5), text.given(12012), text.given(0.85)) == ("114.5", "12,012", "0.85")


def test_clean_leaves_no_way_to_write_to_the_terminal() -> None:
    assert text.clean("a\x1b[31mb\nc\u202ed") == "a [31mb c d"
