"""Every number of a result as section, name, value and unit, one row each; a service as one row. For a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from xe_sizer.report.format import clean
from xe_sizer.report.options import Options
from xe_sizer.result.serving import Answer, ServeResult
from xe_sizer.result.training import Result

_Row = tuple[str, str, str, str]
_UNITS = (
    ("tokens_per_s_per_gpu", "tokens/s"),
    ("samples_per_s", "samples/s"),
    ("gpu_hours", "h"),
    ("hours", "h"),
    ("kwh", "kWh"),
    ("gib", "GiB"),
    ("bytes", "bytes"),
    ("seconds", "s"),
    ("_s", "s"),
    ("share", "fraction"),
    ("mfu", "fraction"),
    ("hfu", "fraction"),
    ("tokens", "tokens"),
)
_PROSE = frozenset({"advice", "warnings", "sources", "reasons", "formula", "source", "origin"})
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_NAMES = ("model", "gpu", "server")
_ASKED = (
    "engine", "weights", "activations", "kv_cache", "request_rate", "concurrency", "batch", "input_tokens",
    "output_tokens", "percentile",
)  # fmt: skip
_MEMORY = ("peak_bytes", "usable_bytes", "headroom_bytes")
_LATENCIES = ("ttft_s", "tpot_s", "request_s")


def render(result: Answer, options: Options) -> str:
    if isinstance(result, ServeResult):
        return _serve(result)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("section", "name", "value", "unit"))
    writer.writerows(_rows(result))
    return out.getvalue()


def _rows(result: Result) -> Iterator[_Row]:
    currency = result.cost.price.currency if result.cost.price else ""
    for section, value in msgspec.to_builtins(result).items():
        if section in _PROSE:
            continue
        for path, leaf in _leaves(value, ()):
            name = ".".join(path) or section
            unit = clean(currency) if path[:1] == ("price",) else _unit(leaf, section, path)
            yield section, _safe(name), cell(leaf), unit


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Scalars below `value`; an entry of a list goes by its name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _PROSE and not (key == "name" and path):
                yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            named = isinstance(item, Mapping) and "name" in item
            yield from _leaves(item, (*path, str(item["name"]) if named else str(index)))
    elif value is not None:
        yield path, value


def _unit(value: Any, section: str, path: tuple[str, ...]) -> str:
    """The unit that the nearest key names: `step_s.low` is seconds, `max_hours.value` hours."""
    if isinstance(value, bool | str):
        return ""
    for key in reversed((section, *path)):
        for ending, unit in _UNITS:
            if key.endswith(ending):
                return unit
    return ""


def cell(value: Any) -> str:
    """A value as a spreadsheet reads it; empty for what is not known."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else _safe(str(value))


def _safe(text: str) -> str:
    """Text that a spreadsheet will not run as a formula."""
    text = clean(text)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _serve(result: ServeResult) -> str:
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
    yield from ((name, names.get(name) or scenario.get(name)) for name in _NAMES)
    yield from ((name, serve.get(name)) for name in _ASKED)
    yield from (("fits", result.verdict.fits), ("meets_limits", result.verdict.meets_limits))
    yield from (("gpus", result.gpus.count), ("nodes", result.gpus.nodes))
    yield from msgspec.structs.asdict(result.layout).items()
    yield from ((name, getattr(result.memory, name)) for name in _MEMORY)
    yield from _latencies(result)
    yield from msgspec.structs.asdict(result.throughput).items()
    yield from ((f"kv_{name}", value) for name, value in msgspec.structs.asdict(result.kv_cache).items())
    replicas = msgspec.structs.asdict(result.replicas)
    yield "replicas", replicas["count"]
    yield from ((name, replicas[name]) for name in ("spare", "utilisation", "max_requests_per_s", "running_requests"))
    yield from msgspec.structs.asdict(result.cost).items()


def _latencies(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Means with their ranges, then each percentile."""
    for name in _LATENCIES:
        span = getattr(result.latency, name)
        stem = name.removesuffix("_s")
        yield from ((f"{stem}_low_s", span.low), (name, span.expected), (f"{stem}_high_s", span.high))
    for at in result.latency.percentiles:
        for name in _LATENCIES:
            yield f"{name.removesuffix('_s')}_p{at.percentile:g}_s", getattr(at, name)
