"""Alternatives side by side: what `compare` reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from xe_sizer.report.answers.estimate import RANGE_NOTE, hardware, time_axis
from xe_sizer.report.answers.sensitivity import compare_points, shown_names
from xe_sizer.report.blocks import listed, scenario_finding, verdict_remark
from xe_sizer.report.document import Column, Document, Picture, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    amount,
    clean,
    count,
    duration,
    duration_range,
    gib,
    layout_words,
    money,
    number,
    offer_cells,
    offer_words,
    percent,
    plural,
    value_range,
    whole,
)
from xe_sizer.report.picture import Axis, Bar, Bars, Mark
from xe_sizer.report.verdict import PROFILES, job_words, profile_name, unsure_of_host, verdict_word
from xe_sizer.result.common import GIVEN_PRICE
from xe_sizer.result.studies import Comparison
from xe_sizer.result.training import Result
from xe_sizer.units import GIB, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Finding, Options
    from xe_sizer.result.common import Range
    from xe_sizer.result.studies import Alternative
    from xe_sizer.result.training import Price

# Pictures: alternatives by their time and price.

DOES_NOT_FIT = "does not fit"


def pictures(result: Comparison) -> Iterator[Picture]:
    """Time and GPU-hours, and the price where every alternative that fits has one of one kind."""
    called = zip(shown_names(result), result.alternatives, strict=True)
    alternatives = tuple(replace(one, name=name) for name, one in called)
    fitting = [one.result for one in alternatives if one.result.verdict.fits]
    if not fitting:
        return
    longest = max(each.time.total_s.high for each in fitting)
    limits = {limit.limit for each in fitting for limit in each.verdict.limits if limit.name == "max_hours"}
    marks = tuple(Mark(limit * HOUR_S, f"limit {number(limit)} h") for limit in sorted(limits))
    times = tuple(map(_time, alternatives))
    title = "Time of the whole job"
    yield Picture(title, _said(times), Bars(time_axis("Time", longest), times, marks), RANGE_NOTE)
    hours = tuple(map(_hours, alternatives))
    yield Picture("GPU-hours", _said(hours), Bars(Axis("GPU-hours"), hours), RANGE_NOTE)
    prices = [each.cost.price for each in fitting]
    currencies = {price.currency for price in prices if price is not None}
    kinds = {each.cost.hourly_price.kind for each in fitting if each.cost.hourly_price is not None}
    if all(prices) and len(currencies) == 1 and len(kinds - {GIVEN_PRICE}) <= 1:
        bars = tuple(map(_price, alternatives))
        axis = Axis(f"Price [{clean(currencies.pop())}]")
        yield Picture("Price of the whole job", _said(bars), Bars(axis, bars), RANGE_NOTE)


def _time(one: Alternative) -> Bar:
    span = one.result.time.total_s
    return _bar(one, span, f"{duration(span.expected)}, {duration_range(span)}")


def _hours(one: Alternative) -> Bar:
    span = one.result.cost.gpu_hours
    return _bar(one, span, f"{number(span.expected)}, {value_range(span.low, span.high)}")


def _price(one: Alternative) -> Bar:
    price = one.result.cost.price
    text = f"{amount(price.expected)}, {value_range(price.low, price.high, amount)}" if price else ""
    return _bar(one, price, text)


def _bar(one: Alternative, span: Range | Price | None, text: str) -> Bar:
    name = clean(one.name)
    if span is None or not one.result.verdict.fits:
        return Bar(name, None, DOES_NOT_FIT)
    return Bar(name, span.expected, text, span.low, span.high)


def _said(bars: tuple[Bar, ...]) -> str:
    return "; ".join(f"{bar.name} {bar.text}" for bar in bars)


# The report.

ANSWER = Comparison


def document(result: Comparison, options: Options) -> Document:
    """One column an alternative; below it the parts of the time in which they differ most."""
    results = [one.result for one in result.alternatives]
    names = tuple(Column(name, True, wraps=True) for name in shown_names(result))
    blocks: list[Block] = [
        compare_points(result),
        *pictures(result),
        _side_by_side(results, names),
        *_differing(result, names),
        *listed("Warnings", _warnings(result)),
    ]
    called = zip(shown_names(result), result.alternatives, strict=True)
    fitting = [replace(one, name=name) for name, one in called if one.result.verdict.ok]
    every = len(fitting) == len(results)
    return Document("COMPARED", every, _headline(result, fitting), (), tuple(blocks), neutral=bool(fitting))


def _warnings(result: Comparison) -> Iterator[str]:
    """What a reader must know to read the figures right, once; with the alternatives where it is not of all."""
    yield from map(clean, result.warnings)
    yield from _hosts(result)
    called = tuple(zip(shown_names(result), result.alternatives, strict=True))
    for text in dict.fromkeys(text for _, one in called for text in one.result.warnings):
        of = [name for name, one in called if text in one.result.warnings]
        yield clean(text) if len(of) == len(called) else f"{', '.join(of)}: {clean(text)}"


def _hosts(result: Comparison) -> Iterator[str]:
    """What must be known of the hosts of alternatives that offload, where nobody said how much memory they have."""
    for name, one in zip(shown_names(result), result.alternatives, strict=True):
        memory = one.result.memory
        if unsure_of_host(one.result):
            least = whole(math.ceil((memory.host_bytes + memory.host_reserve_bytes) / GIB))
            server = profile_name(one.result, "server") or profile_name(one.result, "gpu")
            needs = f"offloading needs {least} GiB per node"
            yield f"{name}: host memory of {server} unknown: {needs}; --host-memory-gib sets it"


def _headline(result: Comparison, fitting: Sequence[Alternative]) -> str:
    """How many fit, on which ground they are compared, and the best of them on that ground."""
    counts = {one.result.gpus.count for one in result.alternatives}
    equal = len(counts) == 1
    ground = f"on {plural(counts.pop(), 'GPU')} each" if equal else "on unequal GPUs"
    words = f"{len(fitting)} of {len(result.alternatives)} fit and meet their limits, {ground}"
    if not fitting or len(result.alternatives) == 1:
        return words
    least = min(fitting, key=lambda one: one.result.cost.gpu_hours.expected)
    fastest = min(fitting, key=lambda one: one.result.time.total_s.expected)
    if not equal:
        words += f"; {clean(least.name)} takes the fewest GPU-hours, {_figures(least)}"
    if equal or fastest is not least:
        words += f"; {clean(fastest.name)} is the fastest, {_figures(fastest)}"
    return words


def _figures(one: Alternative) -> str:
    """`2.1 h on 16 GPUs, 33.5 GPU-hours`."""
    answer = one.result
    run = f"{duration(answer.time.total_s.expected)} on {plural(answer.gpus.count, 'GPU')}"
    return f"{run}, {number(answer.cost.gpu_hours.expected)} GPU-hours"


_Cell = Callable[[Result], str]


def _fewest(result: Result) -> str:
    """The fewest GPUs that fit, and whether they offload."""
    least = result.gpus.minimum_that_fits
    return f"{count(least)}{', offloading' if result.gpus.minimum_offloads else ''}" if least else "none found"


_ROWS: tuple[tuple[str, _Cell], ...] = (
    ("verdict", verdict_word),
    ("job", lambda r: job_words(r.scenario)),
    ("hardware", hardware),
    ("stack", lambda r: clean(r.scenario.get("stack", ""))),
    ("layout", lambda r: layout_words(r.layout)),
    ("fewest GPUs that fit", _fewest),
    ("GiB used", lambda r: gib(r.memory.peak_bytes)),
    ("GiB usable", lambda r: gib(r.memory.usable_bytes)),
)  # fmt: skip
_ROWS_OF_A_RUN: tuple[tuple[str, _Cell], ...] = (
    ("time per step", lambda r: duration(r.time.step_s.expected)),
    ("total time", lambda r: duration(r.time.total_s.expected)),
    (RANGE, lambda r: duration_range(r.time.total_s)),
    ("GPU-hours", lambda r: number(r.cost.gpu_hours.expected)),
    ("price", lambda r: money(r.cost.price.expected, r.cost.price.currency) if r.cost.price else NOT_A_NUMBER),
    ("priced", lambda r: offer_words(r.cost.hourly_price) if r.cost.hourly_price else NOT_A_NUMBER),
    ("energy", lambda r: f"{number(r.cost.energy_kwh)} kWh" if r.cost.energy_kwh else NOT_A_NUMBER),
    ("tokens per second per GPU", lambda r: number(r.time.tokens_per_s_per_gpu)),
    ("model FLOPs utilisation", lambda r: percent(r.time.mfu)),
    ("bound by", lambda r: clean(r.time.bound)),
)  # fmt: skip
"""Those of what does not fit say nothing: it will never run."""


def _side_by_side(results: Sequence[Result], names: Sequence[Column]) -> Table:
    """One column an alternative; no time and no cost of what does not fit."""
    rows = [(label, *map(value, results)) for label, value in _ROWS]
    for label, value in _ROWS_OF_A_RUN:
        rows.append((label, *(value(one) if one.verdict.fits else NOT_A_NUMBER for one in results)))
    note = (
        "" if all(one.verdict.fits for one in results) else f"{NOT_A_NUMBER}: no time and no cost of what does not fit"
    )
    return Table("Side by side", (Column(""), *names), tuple(rows), note=note)


def _differing(result: Comparison, names: Sequence[Column]) -> Iterator[Table]:
    """The parts of the time in which those that fit differ; nothing where there are no two."""
    runs = [one.result.verdict.fits for one in result.alternatives]
    if sum(runs) < 2:
        return
    parts = tuple(
        (
            clean(part.name),
            *(duration(s) if s and fits else NOT_A_NUMBER for s, fits in zip(part.total_s, runs, strict=True)),
        )
        for part in result.differences
        if any(s for s, fits in zip(part.total_s, runs, strict=True) if fits)
    )
    note = "time of the whole job; the parts that differ most come first"
    yield Table("Where they differ", (Column("part"), *names), parts, note=note)


def rows(result: Comparison, options: Options) -> Iterator[tuple[object, ...]]:
    """One line an alternative; then the time of each part in which they differ."""
    lines = [_cells(place, one, result) for place, one in enumerate(result.alternatives)]
    yield tuple(dict.fromkeys(name for line in lines for name in line))
    yield from (tuple(line.values()) for line in lines)


def _cells(place: int, one: Alternative, result: Comparison) -> dict[str, Any]:
    answer, price = one.result, one.result.cost.price
    span, memory, gpus = answer.time.total_s, answer.memory, answer.gpus
    return {
        "alternative": one.name,
        "fits": answer.verdict.fits,
        "meets_limits": answer.verdict.meets_limits,
        "job": answer.scenario.get("job"),
        **{name: profile_name(answer, name) for name in PROFILES},
        "stack": answer.scenario.get("stack"),
        "gpus": gpus.count,
        "nodes": gpus.nodes,
        "minimum_that_fits": gpus.minimum_that_fits,
        **asdict(answer.layout),
        "peak_bytes": memory.peak_bytes,
        "usable_bytes": memory.usable_bytes,
        "step_s": answer.time.step_s.expected,
        "total_low_s": span.low,
        "total_s": span.expected,
        "total_high_s": span.high,
        "gpu_hours": answer.cost.gpu_hours.expected,
        "price": price.expected if price else None,
        "currency": price.currency if price else None,
        **offer_cells(answer.cost.hourly_price),
        "energy_kwh": answer.cost.energy_kwh,
        "tokens_per_s_per_gpu": answer.time.tokens_per_s_per_gpu,
        "mfu": answer.time.mfu,
        "bound": answer.time.bound,
        **{f"{part.name} total_s": part.total_s[place] for part in result.differences},
    }


def findings(result: Comparison, options: Options) -> Iterator[Finding]:
    """The fit and the limits of each alternative."""
    for one in result.alternatives:
        found = scenario_finding(one.result, one.name, options.file)
        remark = verdict_remark(one.result, options.file)
        yield replace(found, remarks=(replace(remark, title=f"{remark.title}, {one.name}"),))
