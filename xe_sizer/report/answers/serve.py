"""The report on a service, block by block: what an architect shows first, then what it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.report import serve_words
from xe_sizer.report.blocks import (
    framed,
    limits_table,
    memory_table,
    parts_table,
    remarks,
    scenario_facts,
    words,
)
from xe_sizer.report.certainty import range_words
from xe_sizer.report.document import Column, Summary, Table
from xe_sizer.report.explain import formulas, ledger, operator_table, sources
from xe_sizer.report.format import (
    amount,
    byte_size,
    clean,
    count,
    duration,
    number,
    offer_cells,
    offer_words,
    percent,
    plural,
)
from xe_sizer.report.options import OPERATORS
from xe_sizer.report.pictures.serve import pictures
from xe_sizer.report.scenario_findings import scenario_finding
from xe_sizer.report.serve_day import day_table
from xe_sizer.report.serve_fleet import fleet_blocks
from xe_sizer.report.serve_points import serve_points
from xe_sizer.report.serve_pools import pools_table
from xe_sizer.report.serve_sessions import sessions_table
from xe_sizer.report.serve_test import test_tables
from xe_sizer.report.serve_words import latency, replica_gpus, shared, span_words
from xe_sizer.report.verdict import PROFILES
from xe_sizer.result.serving import ServeResult
from xe_sizer.units import rounded

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Document
    from xe_sizer.report.findings import Finding
    from xe_sizer.report.options import Options
    from xe_sizer.result.serving import LatencyAt

ANSWER = ServeResult
ALL_LAYERS = "all layers of the fullest pipeline stage"
Row = tuple[str, str, str]
ASKED = (
    "engine", "weights", "activations", "kv_cache", "request_rate", "concurrency", "users", "think_time_s",
    "batch", "requests", "input_tokens", "output_tokens", "percentile",
)  # fmt: skip
MEMORY = ("peak_bytes", "usable_bytes", "headroom_bytes")
FIGURES = ("ttft_s", "tpot_s", "request_s")
LATENCIES = (("first token (TTFT)", "ttft_s"), ("per token (TPOT)", "tpot_s"), ("whole request", "request_s"))
TRAFFIC = {
    "input_tokens": "mean tokens per prompt, without images",
    "output_tokens": "mean tokens per answer",
    "images": "images in each prompt",
    "input_spread": "standard deviation of prompt lengths over their mean",
    "output_spread": "standard deviation of answer lengths over their mean",
    "prefix_hit_share": "share of prompt tokens found in the cache",
    "draft_tokens": "tokens proposed per step by speculative decoding",
    "acceptance_rate": "probability that a proposed token is kept",
    "request_rate": "requests per second, all replicas together",
    "concurrency": "requests in flight, all replicas together",
    "users": "people who ask, read the answer and ask again",
    "think_time_s": "seconds between an answer and the user's next request",
    "batch": "requests that each replica starts together",
    "requests": "requests of the test",
    "percentile": "percentage of requests that must meet the latency limits",
}


def document(result: ServeResult, options: Options) -> Document:
    """The whole report on `result`; `options.explain` adds sections."""
    return framed(result, _blocks(result, options))


def _blocks(result: ServeResult, options: Options) -> Iterator[Block]:
    yield Summary(tuple(serve_points(result)))
    yield from pictures(result)
    if result.verdict.fits:
        yield from test_tables(result)
        yield service_table(result)
        if not result.test:
            yield latency_table(result)
        yield from pools_table(result)
        yield from sessions_table(result)
    if result.verdict.limits:
        yield limits_table(result)
    yield from day_table(result)
    yield from fleet_blocks(result, options.width)
    yield scenario_facts(result)
    yield memory_table(result)
    if result.verdict.fits:
        yield from phase_tables(result)
    yield from explanations(result, options.explain)
    yield from remarks(result)


def service_table(result: ServeResult) -> Table:
    """What it takes, what it delivers and what that costs."""
    rows = (*_size_rows(result), *_rate_rows(result), *_cache_rows(result), *_cost_rows(result))
    return Table("Service", (Column("quantity"), Column("value", True), Column("note")), rows)


def _size_rows(result: ServeResult) -> Iterator[Row]:
    replicas, layout = result.replicas, result.layout
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    shape = plural(replica_gpus(result), "GPU") + (f" each ({', '.join(sizes)})" if sizes else " each")
    spare = f": {replicas.count - replicas.spare:,} serving + {replicas.spare:,} spare" if replicas.spare else ""
    if result.disaggregation is not None:
        apart = result.disaggregation
        yield "prefill replicas", number(apart.prefill_replicas), plural(apart.prefill_gpus, "GPU") + " each"
    yield "decode replicas" if result.disaggregation else "replicas", number(replicas.count), f"{shape}{spare}"
    minimum = result.gpus.minimum_that_fits
    least = (
        ""
        if minimum is None
        else f"{plural(minimum, 'GPU')} hold{'s' if minimum == 1 else ''} the model in memory (not the load)"
    )
    yield "GPUs", number(result.gpus.count), least
    flying = result.throughput.requests_in_flight
    if flying is not None:
        yield "requests in flight", number(flying), shared(result)
    most = f"max concurrency at full length: {number(float(int(result.kv_cache.max_concurrency)))}"
    yield "concurrent requests per replica", number(replicas.running_requests), most


def _rate_rows(result: ServeResult) -> Iterator[Row]:
    made = result.throughput
    yield from _users(result)
    yield "requests", f"{number(made.requests_per_s)} /s", _taken(result)
    yield "output tokens", f"{_rate(made.output_tokens_per_s)} /s", f"{_rate(made.output_tokens_per_s_per_gpu)} per GPU"
    yield "prompt and output tokens", f"{_rate(made.total_tokens_per_s)} /s", ""
    if made.tokens_per_s_per_user:
        yield "tokens per user", f"{number(made.tokens_per_s_per_user)} /s", ""


def _users(result: ServeResult) -> Iterator[Row]:
    """The users, and how many the working replicas sustain."""
    users, most = (result.scenario.get("serve") or {}).get("users"), result.replicas.max_load
    if users is None:
        return
    sustained = "" if most is None else f"about {number(rounded(most, down=True))}"
    if most is None or users > most:
        yield "users", number(users), sustained and f"these GPUs sustain {sustained}"
    else:
        share = f"{percent(users / most)} of what these GPUs sustain{_within(result)}"
        yield "users", number(users), f"{share}: {sustained} users"


def _within(result: ServeResult) -> str:
    """Whether what is sustained keeps the limits on latency."""
    limits = {limit.name for limit in result.verdict.limits} & {"max_ttft_s", "max_tpot_s"}
    return " within the limits" if limits and result.verdict.meets_limits else ""


def _taken(result: ServeResult) -> str:
    replicas, asked = result.replicas, (result.scenario.get("serve") or {}).get("request_rate")
    if asked is None or not replicas.max_requests_per_s:
        return ""
    if result.latency.ttft_s.expected is None:
        return f"of {number(asked)} /s: more than it can sustain"
    most = number(rounded(replicas.max_requests_per_s, down=True))
    return f"{percent(replicas.utilisation)} of the {most} /s it sustains{_within(result)}"


def _rate(value: float) -> str:
    return number(float(round(value)) if value >= 100 else value)


def _cache_rows(result: ServeResult) -> Iterator[Row]:
    cache = result.kv_cache
    tokens = f"{count(round(cache.pool_tokens))} tokens at {byte_size(cache.bytes_per_token)}"
    yield "KV cache per replica", byte_size(cache.pool_bytes), tokens


def _cost_rows(result: ServeResult) -> Iterator[Row]:
    cost = result.cost
    currency = clean(cost.currency)
    if cost.per_hour is not None:
        yield "price per hour", f"{amount(cost.per_hour)} {currency}", serve_words.partly_priced(result).strip(" ()")
    if cost.hourly_price is not None:
        hourly = cost.hourly_price
        yield f"hour of {clean(hourly.hardware)}", f"{amount(hourly.per_hour)} {currency}", offer_words(hourly)
    if cost.per_million_input_tokens is not None:
        yield "price per million input tokens", f"{_money(cost.per_million_input_tokens)} {currency}", ""
    if cost.per_million_output_tokens is not None:
        yield "price per million output tokens", f"{_money(cost.per_million_output_tokens)} {currency}", ""
    if cost.per_million_tokens is not None:
        yield "price per million tokens", f"{_money(cost.per_million_tokens)} {currency}", "prompts and answers alike"
    energy = cost.energy_kwh_per_million_tokens
    if energy is not None:
        yield "energy per million tokens", f"{number(energy)} kWh", clean(cost.energy_formula) or "prompts and answers"


def _money(value: float) -> str:
    return amount(value) if value >= 1 else number(value)


def latency_table(result: ServeResult) -> Table:
    """Means with their ranges, and percentiles where requests arrive by chance."""
    found = result.latency
    span, note = range_words(found.evidence, found.calibrated, found.basis)
    percentiles = tuple(Column(f"{number(at.percentile)} %", True, spare=1) for at in found.percentiles)
    rows = tuple(
        (name, latency(getattr(found, key).expected), span_words(getattr(found, key)), *_row(found.percentiles, key))
        for name, key in LATENCIES
    )
    columns = (Column("latency"), Column("mean", True), Column(span), *percentiles)
    return Table("Latency", columns, rows, note=note)


def _row(percentiles: tuple[LatencyAt, ...], key: str) -> tuple[str, ...]:
    return tuple(latency(getattr(at, key)) for at in percentiles)


def phase_tables(result: ServeResult) -> Iterator[Table]:
    """A decode step and a step with prefill by part, and both by module."""
    phases = result.phases
    yield parts_table("Time of a decode step", phases.decode.components, phases.decode.seconds)
    yield parts_table("Time of a step with prefill", phases.prefill.components, phases.prefill.seconds)
    prompts = {module.name: module.seconds for module in phases.prefill.modules}
    rows = tuple(
        (words(module.name), duration(module.seconds), duration(prompts.get(module.name, 0.0)))
        for module in phases.decode.modules
    )
    columns = (Column("module"), Column("decode", True), Column("with prefill", True))
    yield Table("Time of a step by module", columns, rows, detail=True)


def explanations(result: ServeResult, topics: tuple[str, ...]) -> Iterator[Block]:
    """Sections that show where numbers come from, each once, in the order of the report."""
    if "memory" in topics:
        yield ledger(result)
    if "time" in topics:
        phases = result.phases
        yield formulas("How a decode step adds up", phases.decode.components, phases.decode.seconds)
        yield formulas("How a step with prefill adds up", phases.prefill.components, phases.prefill.seconds)
    if OPERATORS in topics:
        decode, prefill = result.phases.decode, result.phases.prefill
        yield operator_table("Operators of a decode step", decode.operators, ALL_LAYERS)
        yield operator_table("Operators of a step with prefill", prefill.operators, ALL_LAYERS)
    if "data" in topics:
        yield _load(result)
    if "sources" in topics:
        yield from sources(result)


def _load(result: ServeResult) -> Table:
    serve = result.scenario.get("serve") or {}
    rows = [(words(key), number(serve[key]), meaning) for key, meaning in TRAFFIC.items() if serve.get(key) is not None]
    rows.append(("per replica", number(result.replicas.running_requests), "concurrent requests, on average"))
    columns = (Column("quantity"), Column("value", True), Column("meaning"))
    return Table(f"How the load adds up: {serve_words.load_words(result)}", columns, tuple(rows))


def rows(result: ServeResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line of figures under their names."""
    cells = dict(_cells(result))
    yield tuple(cells)
    yield tuple(cells.values())


def _cells(result: ServeResult) -> Iterator[tuple[str, Any]]:
    scenario, serve = result.scenario, result.scenario.get("serve") or {}
    names = scenario.get("names") or {}
    yield from ((name, names.get(name) or scenario.get(name)) for name in PROFILES)
    yield from ((name, serve.get(name)) for name in ASKED)
    yield from (("fits", result.verdict.fits), ("meets_limits", result.verdict.meets_limits))
    yield from (("gpus", result.gpus.count), ("nodes", result.gpus.nodes))
    yield from msgspec.structs.asdict(result.layout).items()
    yield from ((name, getattr(result.memory, name)) for name in MEMORY)
    yield from _latency_cells(result)
    yield from _test_cells(result)
    yield from msgspec.structs.asdict(result.throughput).items()
    yield from ((f"kv_{name}", value) for name, value in msgspec.structs.asdict(result.kv_cache).items())
    replicas = msgspec.structs.asdict(result.replicas)
    yield "replicas", replicas["count"]
    yield from ((name, replicas[name]) for name in ("spare", "utilisation", "max_requests_per_s", "running_requests"))
    cost = msgspec.structs.asdict(result.cost)
    yield from ((name, value) for name, value in cost.items() if name not in ("energy_formula", "hourly_price"))
    yield from offer_cells(result.cost.hourly_price).items()


def _latency_cells(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Means with their ranges, then each percentile."""
    for name in FIGURES:
        span = getattr(result.latency, name)
        stem = name.removesuffix("_s")
        yield from ((f"{stem}_low_s", span.low), (name, span.expected), (f"{stem}_high_s", span.high))
    for at in result.latency.percentiles:
        for name in FIGURES:
            yield f"{name.removesuffix('_s')}_p{at.percentile:g}_s", getattr(at, name)


def _test_cells(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Of a test: its duration, and the latencies that a steady state has no percentiles of."""
    test = result.test
    if test is None:
        return
    yield "duration_s", test.duration_s.expected
    yield "goodput_per_s", test.goodput_per_s
    for name, found in (("itl", test.itl_s), ("e2e_latency", test.e2e_latency_s)):
        yield f"{name}_s", found.mean.expected
        yield f"{name}_p99_s", found.p99


def findings(result: ServeResult, options: Options) -> Iterator[Finding]:
    yield scenario_finding(result, options.file, options.file)
