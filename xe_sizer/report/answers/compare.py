"""Alternatives side by side: what `compare` reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict, replace

from xe_sizer.immutable import Immutable
from xe_sizer.report.answers.estimate import RANGE_NOTE, hardware, time_axis
from xe_sizer.report.answers.serve import cells as cells_of_service
from xe_sizer.report.blocks import assumed_run, listed, scenario_finding, verdict_remark
from xe_sizer.report.document import Column, Document, Picture, Point, Summary, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    amount,
    byte_size,
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
    probability_words,
    spanned,
    value_range,
    whole,
)
from xe_sizer.report.picture import Axis, Bar, Bars, Mark
from xe_sizer.report.service import judged, latency, load_words, replica_gpus, replicas_words
from xe_sizer.report.verdict import PROFILES, job_words, profile_name, unsure_of_host, verdict_word
from xe_sizer.result.common import ELECTRICITY, SURE, USERS_OWN
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.studies import Comparison
from xe_sizer.result.training import Result
from xe_sizer.units import GIB, HOUR_S, WATT_PER_KW, rounded

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Finding, Options
    from xe_sizer.result.common import Range, Sized
    from xe_sizer.result.studies import Alternative
    from xe_sizer.result.training import Price

# The first screen.

MOST_SHOWN = 8  # alternatives on the first screen


def compare_points(result: Comparison) -> Summary:
    """One line an alternative."""
    shown = result.alternatives[:MOST_SHOWN]
    supposed = {assumed_run(one.result.scenario) for one in result.alternatives}
    points = [
        Point(name, ", ".join(kind_of(result).figures(one.result, len(supposed) > 1)), spare=place)
        for place, (name, one) in enumerate(zip(shown_names(result), shown, strict=False))
    ]
    if len(supposed) == 1 and any(supposed):
        points.append(Point("Times", supposed.pop()))
    return Summary(tuple(points), len(result.alternatives) - len(shown), "alternative")


SPEAKING = ("server", "gpu", "model", "stack", "engine")  # keys whose values say by themselves what they are


def _without_key(names: list[str]) -> list[str]:
    """Alternatives that all name one thing of a kind, as servers, by its name alone."""
    pairs = [name.partition("=") for name in names]
    alone = len({key for key, _, _ in pairs}) == 1 and pairs[0][0] in SPEAKING and "," not in "".join(names)
    return [value for _, _, value in pairs] if alone else names


def shown_names(result: Comparison) -> tuple[str, ...]:
    """What the alternatives are called: by their jobs where those alone tell them apart."""
    answers: list[Any] = [one.result for one in result.alternatives]
    names = _without_key([clean(one.name) for one in result.alternatives])
    jobs = [clean((answer.scenario.get("names") or {}).get("job") or "") for answer in answers]
    others = [name for name in names if not name.startswith("job=") or "," in name]
    same = {(answer.scenario.get("names") or {}).get("model") for answer in answers}
    alone = (
        all(jobs) and len(set(jobs)) == len(jobs) and len(same) == 1 and len({hardware(each) for each in answers}) == 1
    )
    return tuple(jobs if alone and len(others) <= 1 and "=" not in "".join(others) else names)


LEAST_SURE = "least sure limit"


def _least_sure(answer: Any) -> str:
    """The limit that is least surely kept, and with what probability; a dash where none has one."""
    known = [limit for limit in answer.verdict.limits if limit.probability is not None]
    if not known:
        return NOT_A_NUMBER
    least = min(known, key=lambda limit: float(limit.probability))
    return f"{clean(least.name)} {'met' if least.ok else 'missed'} ({probability_words(least.probability)})"


def _doubt(answer: Any) -> Iterator[str]:
    """The same where it is not sure, or missed."""
    if any(limit.certainty not in ("", SURE) or not limit.ok for limit in answer.verdict.limits):
        yield _least_sure(answer)


def _figures_of_job(answer: Any, says_length: bool) -> Iterator[str]:
    yield f"{verdict_word(answer)} on {plural(answer.gpus.count, 'GPU')}"
    if not answer.verdict.fits:
        yield f"{gib(answer.memory.peak_bytes)} of {gib(answer.memory.usable_bytes)} GiB per GPU"
        return
    if answer.layout.offload != "none":
        yield f"{answer.layout.offload} offloaded"
    supposed = assumed_run(answer.scenario) if says_length else ""
    yield " ".join(filter(None, (spanned(answer.time.total_s, answer.time.calibrated), supposed)))
    yield from _doubt(answer)
    yield f"{number(answer.cost.gpu_hours.expected)} GPU-hours"
    if answer.cost.price is not None:
        yield money(answer.cost.price.expected, answer.cost.price.currency)


def _figures_of_service(answer: ServeResult, _: bool) -> Iterator[str]:
    yield f"{verdict_word(answer)} on {plural(answer.gpus.count, 'GPU')}"
    if not answer.verdict.fits:
        yield f"{gib(answer.memory.peak_bytes)} of {gib(answer.memory.usable_bytes)} GiB per GPU"
        return
    yield _replicas(answer)
    at = judged(answer)
    if answer.writes:
        yield f"TTFT {latency(at.ttft_s)}"
        yield f"TPOT {latency(at.tpot_s)}"
    else:
        yield f"{latency(at.request_s)} a request"
    yield from _doubt(answer)
    made = answer.throughput
    rate = f"{number(made.output_tokens_per_s)} output" if answer.writes else number(made.total_tokens_per_s)
    yield f"{rate} tokens/s"
    if answer.cost.per_hour is not None:
        yield f"{money(answer.cost.per_hour, answer.cost.currency)} an hour"


# Pictures: alternatives by their time and price, or by their GPUs and latencies.

DOES_NOT_FIT = "does not fit"


def pictures(result: Comparison) -> Iterator[Picture]:
    """What alternatives are compared by, as bars."""
    called = zip(shown_names(result), result.alternatives, strict=True)
    alternatives = tuple(replace(one, name=name) for name, one in called)
    if any(one.result.verdict.fits for one in alternatives):
        yield from kind_of(result).pictures(alternatives)


def _pictures_of_jobs(alternatives: Sequence[Alternative]) -> Iterator[Picture]:
    """Time and GPU-hours, and the price where every alternative that fits has one of one kind."""
    fitting: list[Any] = [one.result for one in alternatives if one.result.verdict.fits]
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
    if all(prices) and len(currencies) == 1 and len(kinds - USERS_OWN) <= 1:
        bars = tuple(map(_price, alternatives))
        axis = Axis(f"Price [{clean(currencies.pop())}]")
        yield Picture("Price of the whole job", _said(bars), Bars(axis, bars), RANGE_NOTE)


def _time(one: Alternative) -> Bar:
    answer: Any = one.result
    span = answer.time.total_s
    return _bar(one, span, f"{duration(span.expected)}, {duration_range(span)}")


def _hours(one: Alternative) -> Bar:
    answer: Any = one.result
    span = answer.cost.gpu_hours
    return _bar(one, span, f"{number(span.expected)}, {value_range(span.low, span.high)}")


def _price(one: Alternative) -> Bar:
    answer: Any = one.result
    price = answer.cost.price
    text = f"{amount(price.expected)}, {value_range(price.low, price.high, amount)}" if price else ""
    return _bar(one, price, text)


def _bar(one: Alternative, span: Range | Price | None, text: str) -> Bar:
    name = clean(one.name)
    if span is None or not one.result.verdict.fits:
        return Bar(name, None, DOES_NOT_FIT)
    return Bar(name, span.expected, text, span.low, span.high)


def _pictures_of_services(alternatives: Sequence[Alternative]) -> Iterator[Picture]:
    """GPUs, and both latencies as limits are compared with them."""
    counts = tuple(_plain_bar(one, float(one.result.gpus.count), count(one.result.gpus.count)) for one in alternatives)
    yield Picture("GPUs", _said(counts), Bars(Axis("GPUs"), counts))
    titles = {"ttft_s": "Time to the first token", "tpot_s": "Time per output token"}
    if not _writes(alternatives):
        titles = {"request_s": "Time of a request"}
    for key, title in titles.items():
        seconds = [getattr(judged(cast(Any, one.result)), key) for one in alternatives]
        bars = tuple(_plain_bar(one, value, latency(value)) for one, value in zip(alternatives, seconds, strict=True))
        fitting: list[Any] = [one.result for one in alternatives if one.result.verdict.fits]
        found = {limit.limit for one in fitting for limit in one.verdict.limits if limit.name == f"max_{key}"}
        marks = tuple(Mark(limit, f"limit {duration(limit)}") for limit in sorted(found))
        longest = max((value for value in seconds if value is not None), default=1.0)
        yield Picture(title, _said(bars), Bars(time_axis("Time", longest), bars, marks))


def _writes(alternatives: Sequence[Alternative]) -> bool:
    """Whether any of the services has output tokens."""
    return any(cast(Any, one.result).writes for one in alternatives)


def _plain_bar(one: Alternative, value: float | None, text: str) -> Bar:
    """A bar without a range."""
    fits = one.result.verdict.fits
    return Bar(clean(one.name), value if fits else None, text if fits else DOES_NOT_FIT)


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
        _side_by_side(results, names, kind_of(result)),
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
        memory: Any = one.result.memory
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
    return words + kind_of(result).best(fitting, equal)


def _best_job(fitting: Sequence[Alternative], equal: bool) -> str:
    """The alternative with the fewest GPU-hours, and the fastest."""
    words = ""

    def hours(one: Alternative) -> float:
        answer: Any = one.result
        return float(answer.cost.gpu_hours.expected)

    least = min(fitting, key=hours)
    fastest = min(fitting, key=lambda one: cast(Any, one.result).time.total_s.expected)
    if not equal:
        words += f"; {clean(least.name)} takes the fewest GPU-hours, {_figures(least)}"
    if equal or fastest is not least:
        words += f"; {clean(fastest.name)} is the fastest, {_figures(fastest)}"
    return words


def _figures(one: Alternative) -> str:
    """`2.1 h on 16 GPUs, 33.5 GPU-hours`."""
    answer: Any = one.result
    run = f"{duration(answer.time.total_s.expected)} on {plural(answer.gpus.count, 'GPU')}"
    return f"{run}, {number(answer.cost.gpu_hours.expected)} GPU-hours"


def _best_service(fitting: Sequence[Alternative], equal: bool) -> str:
    """The alternative with the fewest GPUs; of as many that which takes most requests."""
    rates = [cast(Any, one.result).replicas.max_requests_per_s for one in fitting]
    best = min(range(len(fitting)), key=lambda place: (fitting[place].result.gpus.count, -rates[place]))
    one, rate = fitting[best], number(rounded(rates[best], down=True))
    if equal:
        return f"; {clean(one.name)} sustains the most, {rate} requests/s"
    return f"; {clean(one.name)} takes the fewest GPUs, {count(one.result.gpus.count)}"


_Cell = Callable[[Any], str]


def _fewest(result: Sized) -> str:
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
    (LEAST_SURE, _least_sure),
    ("GPU-hours", lambda r: number(r.cost.gpu_hours.expected)),
    ("price", lambda r: _money_of(r.cost.price)),
    ("priced", lambda r: offer_words(r.cost.hourly_price) if r.cost.hourly_price else NOT_A_NUMBER),
    ("energy", lambda r: f"{number(r.cost.energy_kwh)} kWh" if r.cost.energy_kwh else NOT_A_NUMBER),
    (ELECTRICITY, lambda r: _money_of(r.cost.electricity)),
    ("power at load", lambda r: f"{number(r.cost.power_w / WATT_PER_KW)} kW" if r.cost.power_w else NOT_A_NUMBER),
    ("tokens per second per GPU", lambda r: number(r.time.tokens_per_s_per_gpu)),
    ("model FLOPs utilisation", lambda r: percent(r.time.mfu)),
    ("bound by", lambda r: clean(r.time.bound)),
)  # fmt: skip
"""Those of what does not fit say nothing: it will never run."""


def _money_of(price: Price | None) -> str:
    return NOT_A_NUMBER if price is None else money(price.expected, price.currency)


def _replicas(result: ServeResult) -> str:
    """How many replicas, of how many GPUs, and how these share the model: `3 replicas of 8 (tp 8)`."""
    layout = result.layout
    sizes = ", ".join(f"{name} {size}" for name, size in asdict(layout).items() if size > 1)
    return f"{replicas_words(result)} of {replica_gpus(result)}{f' ({sizes})' if sizes else ''}"


def _judged_of(result: ServeResult) -> str:
    """Of which requests latencies are the most."""
    percentile = judged(result).percentile
    return f"{number(percentile)} % of requests" if percentile else "the mean"


def _pool(result: ServeResult) -> str:
    cache = result.kv_cache
    return f"{byte_size(cache.pool_bytes)}, {count(round(cache.pool_tokens))} tokens"


def _energy(result: ServeResult) -> str:
    energy = result.cost.energy_kwh_per_million_tokens
    return NOT_A_NUMBER if energy is None else f"{number(energy)} kWh"


_ROWS_OF_SERVICES: tuple[tuple[str, _Cell], ...] = (
    ("verdict", verdict_word),
    ("load", load_words),
    ("hardware", hardware),
    ("engine", lambda r: clean((r.scenario.get("serve") or {}).get("engine", ""))),
    ("weights", lambda r: clean((r.scenario.get("serve") or {}).get("weights", ""))),
    ("KV cache", lambda r: clean((r.scenario.get("serve") or {}).get("kv_cache", ""))),
    ("replicas", _replicas),
    ("GiB used", lambda r: gib(r.memory.peak_bytes)),
    ("GiB usable", lambda r: gib(r.memory.usable_bytes)),
)  # fmt: skip
OF_READING = ("whole request", "tokens per second, in and out")
OF_TOKENS = frozenset(
    {"TTFT", "TPOT", "output tokens per second", "output tokens per second per GPU", "tokens per second per user",
     "KV pool per replica"}
)  # fmt: skip
_ROWS_OF_A_SERVICE: tuple[tuple[str, _Cell], ...] = (
    ("TTFT", lambda r: latency(judged(r).ttft_s)),
    ("TPOT", lambda r: latency(judged(r).tpot_s)),
    (OF_READING[0], lambda r: latency(judged(r).request_s)),
    ("latencies are of", _judged_of),
    (LEAST_SURE, _least_sure),
    ("requests per second", lambda r: number(r.throughput.requests_per_s)),
    ("most it sustains", lambda r: f"{number(rounded(r.replicas.max_requests_per_s, down=True))} requests/s"),
    ("output tokens per second", lambda r: number(r.throughput.output_tokens_per_s)),
    ("output tokens per second per GPU", lambda r: number(r.throughput.output_tokens_per_s_per_gpu)),
    (OF_READING[1], lambda r: number(r.throughput.total_tokens_per_s)),
    ("tokens per second per user", lambda r: number(r.throughput.tokens_per_s_per_user)),
    ("KV pool per replica", _pool),
    ("price per hour", lambda r: money(r.cost.per_hour, r.cost.currency)),
    ("price per million tokens", lambda r: money(r.cost.per_million_tokens, r.cost.currency)),
    ("priced", lambda r: offer_words(r.cost.hourly_price) if r.cost.hourly_price else NOT_A_NUMBER),
    ("energy per million tokens", _energy),
)  # fmt: skip


def _side_by_side(results: Sequence[Sized], names: Sequence[Column], kind: Kind) -> Table:
    """One column an alternative; no time and no cost of what does not fit."""
    rows = [(label, *map(value, results)) for label, value in kind.rows]
    read = not any(getattr(one, "writes", True) for one in results)  # embeddings and scores, without output tokens
    for label, value in kind.rows_of_a_run:
        cells = [value(one) if one.verdict.fits else NOT_A_NUMBER for one in results]
        if label in (OF_TOKENS if read else OF_READING):
            continue
        if label not in (ELECTRICITY, LEAST_SURE) or set(cells) != {NOT_A_NUMBER}:  # which most do not ask for
            rows.append((label, *cells))
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
    note = f"{kind_of(result).parts}; the parts that differ most come first"
    yield Table("Where they differ", (Column("part"), *names), parts, note=note)


def rows(result: Comparison, options: Options) -> Iterator[tuple[object, ...]]:
    """One line an alternative; then the time of each part in which they differ."""
    lines = [_cells(place, one, result) for place, one in enumerate(result.alternatives)]
    yield tuple(dict.fromkeys(name for line in lines for name in line))
    yield from (tuple(line.values()) for line in lines)


def _cells(place: int, one: Alternative, result: Comparison) -> dict[str, Any]:
    parts = {f"{part.name} total_s": part.total_s[place] for part in result.differences}
    return {"alternative": one.name, **kind_of(result).cells(one.result), **parts}


def _cells_of_job(answer: Any) -> dict[str, Any]:
    price, power = answer.cost.price, answer.cost.electricity
    span, memory, gpus = answer.time.total_s, answer.memory, answer.gpus
    return {
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
        "electricity": power.expected if power else None,
        "power_w": answer.cost.power_w,
        "tokens_per_s_per_gpu": answer.time.tokens_per_s_per_gpu,
        "mfu": answer.time.mfu,
        "bound": answer.time.bound,
    }


class Kind(Immutable):
    """How answers of one kind are shown side by side.

    rows : label and cell, of what does not fit too; rows_of_a_run : of what fits alone
    figures : of the first screen; whether they say how long the run is, too
    best : the best of those that fit, and whether all have as many GPUs; parts : what the parts that differ are of
    cells : of a line of CSV
    """

    figures: Callable[[Any, bool], Iterator[str]]
    rows: Sequence[tuple[str, _Cell]]
    rows_of_a_run: Sequence[tuple[str, _Cell]]
    pictures: Callable[[Sequence[Alternative]], Iterator[Picture]]
    best: Callable[[Sequence[Alternative], bool], str]
    parts: str
    cells: Callable[[Any], dict[str, Any]]


KINDS: Mapping[str, Kind] = {
    Result.question: Kind(
        _figures_of_job, _ROWS, _ROWS_OF_A_RUN, _pictures_of_jobs, _best_job, "time of the whole job", _cells_of_job
    ),
    ServeResult.question: Kind(
        _figures_of_service, _ROWS_OF_SERVICES, _ROWS_OF_A_SERVICE, _pictures_of_services, _best_service,
        "time of one step of a replica", cells_of_service,
    ),
}  # fmt: skip
"""By the question of the answers."""


def kind_of(result: Comparison) -> Kind:
    return KINDS[result.alternatives[0].result.question]


def findings(result: Comparison, options: Options) -> Iterator[Finding]:
    """The fit and the limits of each alternative."""
    for one in result.alternatives:
        found = scenario_finding(one.result, one.name, options.file)
        remark = verdict_remark(one.result, options.file)
        yield replace(found, remarks=(replace(remark, title=f"{remark.title}, {one.name}"),))
