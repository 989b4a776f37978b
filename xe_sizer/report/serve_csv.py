"""A service as one row for a spreadsheet, SI units in the names of the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec

from xe_sizer.report.formats.csv import cell
from xe_sizer.serve_result import ServeResult

NAMES = ("model", "gpu", "server")
ASKED = (
    "engine", "weights", "activations", "kv_cache", "request_rate", "concurrency", "batch", "input_tokens",
    "output_tokens", "percentile",
)  # fmt: skip
MEMORY = ("peak_bytes", "usable_bytes", "headroom_bytes")
LATENCIES = ("ttft_s", "tpot_s", "request_s")


def serve_csv(result: ServeResult) -> str:
    """A line of names and a line of values; what is not known is empty."""
    row = dict(_cells(result))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(row)
    writer.writerow(map(cell, row.values()))
    return stream.getvalue()


def _cells(result: ServeResult) -> Iterator[tuple[str, Any]]:
    scenario, serve = result.scenario, result.scenario.get("serve") or {}
    names = scenario.get("names") or {}
    yield from ((name, names.get(name) or scenario.get(name)) for name in NAMES)
    yield from ((name, serve.get(name)) for name in ASKED)
    yield from (("fits", result.verdict.fits), ("meets_limits", result.verdict.meets_limits))
    yield from (("gpus", result.gpus.count), ("nodes", result.gpus.nodes))
    yield from msgspec.structs.asdict(result.layout).items()
    yield from ((name, getattr(result.memory, name)) for name in MEMORY)
    yield from _latencies(result)
    yield from msgspec.structs.asdict(result.throughput).items()
    yield from ((f"kv_{name}", value) for name, value in msgspec.structs.asdict(result.kv_cache).items())
    replicas = msgspec.structs.asdict(result.replicas)
    yield "replicas", replicas["count"]
    yield from ((name, replicas[name]) for name in ("spare", "utilisation", "max_requests_per_s", "running_requests"))
    yield from msgspec.structs.asdict(result.cost).items()


def _latencies(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Means with their ranges, then each percentile."""
    for name in LATENCIES:
        span = getattr(result.latency, name)
        stem = name.removesuffix("_s")
        yield from ((f"{stem}_low_s", span.low), (name, span.expected), (f"{stem}_high_s", span.high))
    for at in result.latency.percentiles:
        for name in LATENCIES:
            yield f"{name.removesuffix('_s')}_p{at.percentile:g}_s", getattr(at, name)
