"""A day whose load changes, on replicas that come and go: a line of the first screen, and a table of its hours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import amount, clean, count, duration, number, percent
from xe_sizer.report.serve_words import latency

if TYPE_CHECKING:
    from xe_sizer.result.serving import Day, ServeResult


def day_points(result: ServeResult) -> Iterator[Point]:
    """What the day takes against the replicas of its peak all day."""
    if result.day is not None:
        yield Point("Day", _words(result.day))
        yield Point(
            "", f"a replica answers {duration(result.day.replica_start_s)} after its start: start it that early"
        )


def _words(day: Day) -> str:
    fewest, most = (pick(hour.replicas for hour in day.hours) for pick in (min, max))
    replicas = f"{fewest:,} to {most:,} replicas" if fewest < most else f"{most:,} replicas at every hour"
    hours = f"{count(round(day.gpu_hours))} instead of {count(round(day.peak_gpu_hours))} GPU hours"
    saved = f" ({percent(1.0 - day.gpu_hours / day.peak_gpu_hours)} less)" if day.gpu_hours < day.peak_gpu_hours else ""
    missed = sum(not hour.meets_limits for hour in day.hours)
    limits = f"; {missed} of {len(day.hours)} hours miss the limits" if missed else ""
    return f"{replicas}, {hours}{saved}{_money(day)}{limits}"


def _money(day: Day) -> str:
    if day.cost is None or day.peak_cost is None:
        return ""
    return f", {amount(day.cost)} instead of {amount(day.peak_cost)} {clean(day.currency)}"


def day_table(result: ServeResult) -> Iterator[Table]:
    """The hours with their load, replicas and latencies."""
    day = result.day
    if day is None:
        return
    columns = (
        Column("hour"), Column("load", True), Column("requests/s", True, spare=2), Column("replicas", True),
        Column("GPUs", True), Column("TTFT", True, spare=1), Column("TPOT", True, spare=1), Column("limits", spare=3),
    )  # fmt: skip
    rows = tuple(
        (
            f"{hour.hour:02d}:00", number(hour.load), number(hour.requests_per_s), count(hour.replicas),
            count(hour.gpus), latency(hour.ttft_s), latency(hour.tpot_s), "met" if hour.meets_limits else "MISSED",
        )
        for hour in day.hours
    )  # fmt: skip
    most = max(hour.gpus for hour in day.hours)
    shares = tuple(hour.gpus / most for hour in day.hours)
    note = f"{count(round(day.requests))} requests; GPU hours count the start of replicas"
    yield Table("A day", columns, rows, shares, note=note)
