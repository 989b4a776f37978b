"""Comparison, sensitivity and scaling as reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from xe_sizer.report.document import Block, Column, Document, Figure, Table
from xe_sizer.report.format import NOT_A_NUMBER, amount, clean, count, duration, gib, number, percent
from xe_sizer.report.formats.json import pretty
from xe_sizer.report.options import Options
from xe_sizer.report.plan import layout_words, render_document
from xe_sizer.report.verdict import hardware, job_words, verdict_word
from xe_sizer.result.studies import Comparison, Effect, Factor, Scaling, Sensitivity
from xe_sizer.result.training import Price, Result

FORMATS = ("table", "json", "markdown", "html")
BAR, MIDDLE = 16, "│"  # cells of a bar on each side of the middle


def render_variation(result: Comparison | Sensitivity | Scaling, name: str, options: Options) -> str:
    """A comparison, sensitivity or scaling in one of FORMATS."""
    if name == "json":
        return pretty(result)
    if isinstance(result, Comparison):
        content = comparison_document(result)
    elif isinstance(result, Sensitivity):
        content = sensitivity_document(result)
    else:
        content = scaling_document(result)
    return render_document(content, name, options)


def comparison_document(result: Comparison) -> Document:
    """One column an alternative; below it the parts of the time in which they differ most."""
    results = [one.result for one in result.alternatives]
    names = tuple(Column(clean(one.name), True) for one in result.alternatives)
    rows = tuple((label, *map(value, results)) for label, value in _ROWS)
    blocks: list[Block] = [Table("Side by side", (Column(""), *names), rows)]
    parts = tuple(
        (clean(part.name), *(duration(seconds) if seconds else NOT_A_NUMBER for seconds in part.total_s))
        for part in result.differences
    )
    note = "time of the whole job; the parts that differ most come first"
    blocks.append(Table("Where they differ", (Column("part"), *names), parts, note=note))
    fitting = [one for one in result.alternatives if one.result.verdict.ok]
    fastest = min(fitting, key=lambda one: one.result.time.total_s.expected, default=None)
    words = f"{len(fitting)} of {len(results)} fit and meet their limits"
    if fastest is not None and len(results) > 1:
        words += f"; {clean(fastest.name)} is the fastest, {duration(fastest.result.time.total_s.expected)}"
    return Document("COMPARED", len(fitting) == len(results), words, (), tuple(blocks))


def _price(price: Price | None) -> str:
    return f"{amount(price.expected)} {clean(price.currency)}" if price else NOT_A_NUMBER


_Cell = Callable[[Result], str]
_ROWS: tuple[tuple[str, _Cell], ...] = (
    ("verdict", verdict_word),
    ("job", lambda r: job_words(r.scenario)),
    ("hardware", hardware),
    ("stack", lambda r: clean(r.scenario.get("stack", ""))),
    ("layout", lambda r: layout_words(r.layout)),
    ("fewest GPUs that fit", lambda r: count(r.gpus.minimum_that_fits) if r.gpus.minimum_that_fits else "none found"),
    ("GiB used", lambda r: gib(r.memory.peak_bytes)),
    ("GiB usable", lambda r: gib(r.memory.usable_bytes)),
    ("time per step", lambda r: duration(r.time.step_s.expected)),
    ("total time", lambda r: duration(r.time.total_s.expected)),
    ("GPU-hours", lambda r: number(r.cost.gpu_hours.expected)),
    ("price", lambda r: _price(r.cost.price)),
    ("energy", lambda r: f"{number(r.cost.energy_kwh)} kWh" if r.cost.energy_kwh else NOT_A_NUMBER),
    ("tokens per second and GPU", lambda r: number(r.time.tokens_per_s_per_gpu)),
    ("model FLOPs utilisation", lambda r: percent(r.time.mfu)),
    ("bound by", lambda r: clean(r.time.bound)),
)  # fmt: skip


def sensitivity_document(result: Sensitivity) -> Document:
    """The factors as a tornado, widest first, then every step with its figures."""
    base = result.base
    columns = (
        Column("factor"), Column("step"), Column("time", True), Column("GPUs", True), Column("fewest", True, spare=2),
        Column("GiB used", True), Column("GPU-hours", True, spare=1), Column("price", True, spare=3),
    )  # fmt: skip
    rows = [("as asked", "", *_figures(result, None))]
    for factor in result.factors:
        rows += [(clean(factor.name), clean(effect.step), *_figures(result, effect)) for effect in factor.effects]
    words = f"{job_words(result.scenario)} on {base.gpus} GPUs takes {duration(base.total_s)}; "
    words += f"what moves it most: {', '.join(clean(factor.name) for factor in result.factors[:3])}"
    blocks: tuple[Block, ...] = (_tornado(result), Table("Every step", columns, tuple(rows)))
    if not base.fits:
        short = f"{gib(base.peak_bytes)} GiB are needed, {gib(base.usable_bytes)} are there"
        return Document("DOES NOT FIT", False, words, (short,), blocks)
    return Document("SENSITIVITY", True, words, (), blocks)


def _figures(result: Sensitivity, effect: Effect | None) -> tuple[str, ...]:
    outcome = effect.outcome if effect else result.base
    memory = gib(outcome.peak_bytes) + ("" if outcome.fits else " (does not fit)")
    price = NOT_A_NUMBER if outcome.price is None else f"{amount(outcome.price)} {clean(outcome.currency)}"
    return (
        duration(outcome.total_s) + (f" ({_ratio(effect.time_ratio)})" if effect else ""),
        count(outcome.gpus),
        NOT_A_NUMBER if outcome.minimum is None else count(outcome.minimum),
        memory,
        number(outcome.gpu_hours) + (f" ({_ratio(effect.gpu_hours_ratio)})" if effect else ""),
        price,
    )


def _ratio(ratio: float) -> str:
    return f"x{ratio:.2f}"


def _tornado(result: Sensitivity) -> Figure:
    """Bars to both sides of the time as asked: shorter to the left, longer to the right, on a logarithmic scale."""
    lines = list(_bars(result.factors))
    note = "effect of each factor's steps on the time of the job (on the number of GPUs for the deadline), logarithmic"
    return Figure("What each factor is worth", tuple(lines), note)


def _bars(factors: tuple[Factor, ...]) -> Iterator[str]:
    ranges = [(factor.name, *_range(factor)) for factor in factors]
    widest = max((max(-low, high) for _, low, high in ranges), default=0.0) or 1.0
    width = max((len(name) for name, _, _ in ranges), default=0)
    for name, low, high in ranges:
        left, right = (round(BAR * size / widest) for size in (-low, high))
        bar = f"{'█' * left:>{BAR}}{MIDDLE}{'█' * right:<{BAR}}"
        yield f"{clean(name):<{width}}  {_ratio(math.exp(low)):>6} {bar} {_ratio(math.exp(high))}"


def _range(factor: Factor) -> tuple[float, float]:
    """Smallest and largest effect as logarithms, at least none."""
    deadline = factor.name == "deadline"
    possible = [effect for effect in factor.effects if effect.outcome.fits]
    logs = [math.log(effect.gpus_ratio if deadline else effect.time_ratio) for effect in possible]
    return min([0.0, *logs]), max([0.0, *logs])


def scaling_document(result: Scaling) -> Document:
    """Time and efficiency over numbers of GPUs, with what limits at each."""
    columns = (
        Column("GPUs", True),
        Column("batch", True, spare=3),
        Column("time per step", True),
        Column("tokens per second", True, spare=1),
        Column("efficiency", True),
        Column("bound by", spare=2),
        Column("mostly lost to"),
        Column("layout"),
    )
    rows = tuple(
        (
            count(point.gpus), f"{point.global_batch:,}", duration(point.step_s), number(point.tokens_per_s),
            percent(point.efficiency), clean(point.bound), clean(point.lost), layout_words(point.layout),
        )
        for point in result.points
    )  # fmt: skip
    kept = "the same global batch" if result.kind == "strong" else "a global batch that grows with the GPUs"
    most = max((point.efficiency for point in result.points), default=1.0)
    shares = tuple(point.efficiency / most for point in result.points)
    note = "efficiency: samples per second and GPU against the fewest GPUs on which it fits"
    words = f"{job_words(result.scenario)}: {result.kind} scaling, {kept}"
    if not result.points:
        return Document("DOES NOT FIT", False, words, ("no layout fits on any of the GPUs that were tried",), ())
    table = Table("Over numbers of GPUs", columns, rows, shares, note=note, bars="efficiency")
    return Document("SCALING", True, words, (), (table,))
