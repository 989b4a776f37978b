"""Prompts on replicas of their own, as the report on a service shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import NOT_A_NUMBER, byte_size, duration, number, percent, plural
from xe_sizer.result.replicas import AGGREGATED, DISAGGREGATED

if TYPE_CHECKING:
    from xe_sizer.result.replicas import Aggregated, Disaggregation
    from xe_sizer.result.serving import ServeResult

WAY = {"node": "inside the node", "network": "over the network"}
STAGES = (
    ("queue_s", "wait for other prompts"),
    ("prefill_s", "prefill"),
    ("transfer_s", "transfer of the KV cache"),
    ("decode_s", "wait for a place, and first decode step"),
)


def pools_words(found: Disaggregation, decode_gpus: int) -> str:
    """Both kinds of replicas: `4 prefill replicas of 2 + 1 decode replica of 4`."""
    prefill = f"{plural(found.prefill_replicas, 'prefill replica')} of {found.prefill_gpus:,}"
    return f"{prefill} + {plural(found.decode_replicas, 'decode replica')} of {decode_gpus:,}"


def pools_points(result: ServeResult) -> Iterator[Point]:
    """Whether prompts on replicas of their own are worth it."""
    if result.disaggregation is not None:
        yield Point("Prefill apart", against(result, result.disaggregation))


def against(result: ServeResult, found: Disaggregation) -> str:
    """The answer beside that with everything on all replicas."""
    other = found.aggregated
    if other is None:
        return "without it no placement is possible"
    if found.by == "gpus":
        words = f"{result.gpus.count:,} GPUs against {other.gpus:,} with prompts on all replicas"
    else:
        mine, theirs = (number(float(f"{value:.3g}")) for value in _rates(result, other))
        words = f"up to {mine} requests/s per GPU against {theirs} with prompts on all replicas"
    if not other.meets_limits and result.verdict.ok:
        return f"{words}, which miss a limit"
    if other.meets_limits and not result.verdict.ok:
        return f"{words}, which meet the limits"
    ending = {DISAGGREGATED: "it is better", AGGREGATED: "it is worse"}
    return f"{words}: {ending.get(found.better, 'no difference above 5 %')}"


def _rates(result: ServeResult, other: Aggregated) -> tuple[float, float]:
    return result.replicas.max_requests_per_s / result.gpus.count, other.max_requests_per_s / other.gpus


def pools_table(result: ServeResult) -> Iterator[Table]:
    """What the first token waits for, and both answers."""
    found = result.disaggregation
    if found is None:
        return
    sent = f"{byte_size(found.transfer_bytes)} {WAY.get(found.path, found.path)}"
    notes = {"queue_s": f"prefill replicas are busy {percent(found.utilisation)} of the time",
             "transfer_s": f"{sent}, links in use {percent(found.link_utilisation)} of the time"}  # fmt: skip
    rows = [(name, _seconds(getattr(found, key)), notes.get(key, "")) for key, name in STAGES]
    ttft_s = result.latency.ttft_s.expected
    rows.append(("first token (TTFT)", _seconds(ttft_s), ""))
    columns = (Column("time to the first token, mean"), Column("value", True), Column("note"))
    yield Table("Prefill and decode on replicas of their own", columns, tuple(rows), note=_both(result, found))


def _both(result: ServeResult, found: Disaggregation) -> str:
    other = found.aggregated
    if other is None:
        return ""
    figures = f"{_seconds(other.ttft_s)} TTFT, {_seconds(other.tpot_s)} TPOT"
    return f"{against(result, found)}. All on all replicas: {plural(other.replicas, 'replica')}, {figures}"


def _seconds(value: float | None) -> str:
    return NOT_A_NUMBER if value is None else duration(value)
