"""Many questions, one row each: what `plan --grid` reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.answers.estimate import RANGE_NOTE, time_axis
from xe_sizer.report.answers.plan import hardware_words
from xe_sizer.report.blocks import assumed_run
from xe_sizer.report.document import Case, Column, Document, Finding, Picture, Table, judgement
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    clean,
    count,
    duration,
    duration_range,
    gib,
    hourly_words,
    layout_words,
    money,
    number,
    offer_cells,
    plural,
    probability_words,
    spanned,
)
from xe_sizer.report.picture import Bar, Bars
from xe_sizer.result.common import SURE, certainty_of
from xe_sizer.result.studies import SweepResult

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Options
    from xe_sizer.result.studies import SweepRow

# Picture: how long the chosen plan of each question takes.

MOST_BARS = 24  # the table has all


def pictures(result: SweepResult) -> Iterator[Picture]:
    spans = [row.candidate.total_s.high for row in result.rows if row.candidate]
    if not spans:
        return
    files = len({row.scenario for row in result.rows}) > 1
    bars = tuple(_bar(row, files) for row in result.rows[:MOST_BARS])
    more = f" The first {MOST_BARS} of {len(result.rows)}." if len(result.rows) > MOST_BARS else ""
    title = "Time of the chosen plans"
    says = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
    yield Picture(title, says, Bars(time_axis("Time", max(spans)), bars), RANGE_NOTE + more)


def _bar(row: SweepRow, files: bool) -> Bar:
    values = ", ".join(f"{clean(key)} {clean(value)}" for key, value in row.values.items())
    name = ", ".join(part for part in (clean(row.scenario) if files else "", values) if part) or "plan"
    if row.candidate is None:
        return Bar(name, None, "no plan")
    span = row.candidate.total_s
    return Bar(name, span.expected, f"{duration(span.expected)}, {duration_range(span)}", span.low, span.high)


# The report.

ANSWER = SweepResult
FIGURES = (
    "gpu", "server", "gpus", "step_s", "gpu_hours", "price", "currency", "energy_kwh", "peak_bytes", "headroom_bytes",
    "command",
)  # fmt: skip


def _keys(result: SweepResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for row in result.rows for key in row.values))


def document(result: SweepResult, options: Options) -> Document:
    keys = _keys(result)
    files = len({row.scenario for row in result.rows}) > 1
    judged = any(map(_probability, result.rows))
    columns = (
        *((Column("scenario"),) if files else ()),
        *(Column(key) for key in keys),
        Column("verdict"),
        *((Column("probability", True),) if judged else ()),
        Column("GPUs", True),
        Column("time", True),
        Column(RANGE, True, spare=2),
        Column("GPU-hours", True, spare=1),
        Column("price", True),
        Column("GiB used", True, spare=3),
        Column("layout"),
    )
    rows = tuple(
        (
            *((clean(row.scenario),) if files else ()),
            *(clean(row.values.get(key, "")) for key in keys),
            *_figures(row, judged),
        )
        for row in result.rows
    )
    met = sum(row.ok for row in result.rows)
    unsure = sum(row.ok and _is_doubtful(row) for row in result.rows)
    words = (
        f"{plural(len(result.rows), 'plan')}, {met} fit and meet their limits{f', {unsure} unsure' if unsure else ''}"
    )
    hourly = [row.candidate.hourly_price for row in result.rows if row.candidate]
    told = dict.fromkeys(f"{clean(one.hardware)} at {hourly_words(one)}" for one in hourly if one is not None)
    blocks: tuple[Block, ...] = (*pictures(result), Table("Plans", columns, rows, note="; ".join(told)))
    return Document("SWEEP", met == len(result.rows), words, (), blocks, tuple(_cautions(result)))


def _figures(row: SweepRow, judged: bool) -> tuple[str, ...]:
    one = row.candidate
    if one is None:
        return ("no", *([NOT_A_NUMBER] if judged else []), *[NOT_A_NUMBER] * 6, clean(row.reason))
    sure = [_sure_words(row)] if judged else []
    span = one.total_s
    times = (count(one.gpus), duration(span.expected), duration_range(span))
    figures = (number(one.gpu_hours), money(one.price, one.currency), gib(one.peak_bytes))
    return (_verdict(row), *sure, *times, *figures, layout_words(one.layout))


def _probability(row: SweepRow) -> float | None:
    """Of the fit or the limit of a plan that is least sure; None where nobody can say."""
    if row.verdict is None:
        return None
    known = (row.verdict.fit_probability, *(limit.probability for limit in row.verdict.limits))
    return min((each for each in known if each is not None), default=None)


def _is_doubtful(row: SweepRow) -> bool:
    """Whether something of a yes is less than likely."""
    probability = _probability(row)
    return probability is not None and certainty_of(probability) in ("unsure", "unlikely")


def _verdict(row: SweepRow) -> str:
    if not row.ok:
        return "misses limits"
    if row.verdict is None:
        return "yes"
    word = "met" if row.verdict.limits else "fits"
    probability = _probability(row)
    certainty = SURE if probability is None else certainty_of(probability)
    return word if certainty == SURE else f"{word}, {certainty}"


def _sure_words(row: SweepRow) -> str:
    probability = _probability(row)
    return NOT_A_NUMBER if probability is None else probability_words(probability)


def _cautions(result: SweepResult) -> Iterator[str]:
    """How long the runs are where nobody said it, once for all plans of one length."""
    supposed = (assumed_run(row.supposed) for row in result.rows)
    yield from (f"times are {words}" for words in dict.fromkeys(supposed) if words)


def rows(result: SweepResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a question: the figures of its chosen plan, or why there is none."""
    keys = _keys(result)
    names = [name for name in FIGURES if name not in keys]
    yield (
        "scenario",
        *keys,
        "ok",
        "probability",
        "reason",
        "total_low_s",
        "total_s",
        "total_high_s",
        *names,
        *offer_cells(None),
    )
    for row in result.rows:
        one = row.candidate
        figures = [getattr(one, name) for name in names] if one else [None] * len(names)
        span = one.total_s if one else None
        total = (span.low, span.expected, span.high) if span else (None, None, None)
        asked = (row.values.get(key) for key in keys)
        priced = offer_cells(one.hourly_price if one else None).values()
        yield row.scenario, *asked, row.ok, _probability(row), row.reason, *total, *figures, *priced


def findings(result: SweepResult, options: Options) -> Iterator[Finding]:
    """Each question with its chosen plan."""
    for row in result.rows:
        asked = ", ".join(f"{key}={value}" for key, value in row.values.items())
        name = " ".join(part for part in (row.scenario, asked) if part) or "plan"
        title = "meets its limits" if row.ok else "misses its limits" if row.candidate else "no plan"
        lines = (f"{name}: {_plan_words(row)}", *([row.reason] if row.candidate and row.reason else []))
        remark = judgement(row.ok, title, lines, _is_doubtful(row), row.scenario or None)
        yield Finding(name, (_case(row),), (remark,))


def _case(row: SweepRow) -> Case:
    said = _plan_words(row) if row.candidate else ""
    return Case("plan", output=said) if row.ok else Case("plan", "failed", "no-plan", row.reason, output=said)


def _plan_words(row: SweepRow) -> str:
    """The chosen plan in a line, or why there is none."""
    one = row.candidate
    if one is None:
        return row.reason
    time = spanned(one.total_s)
    unsure = f"; unsure, {_sure_words(row)}" if row.ok and _is_doubtful(row) else ""
    return f"{hardware_words(one)}, {time}, {layout_words(one.layout)}{unsure}"
