"""One job with one factor moved at a time: what `sensitivity` reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from xe_sizer.immutable import Immutable
from xe_sizer.report.blocks import assumed_run, change_point, listed, memory_bar
from xe_sizer.report.document import (
    TOOL,
    Case,
    Column,
    Document,
    Figure,
    Finding,
    Picture,
    Point,
    Remark,
    Summary,
    Table,
)
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    clean,
    count,
    duration,
    duration_range,
    gib,
    hourly_words,
    money,
    number,
    offer_cells,
    plural,
    probability_words,
    ratio,
    spanned,
)
from xe_sizer.report.picture import Axis, Swing, Tornado
from xe_sizer.report.text_charts import cells_within
from xe_sizer.report.verdict import job_words
from xe_sizer.result.common import Range
from xe_sizer.result.studies import DEADLINE, OWN_SERVERS, Sensitivity
from xe_sizer.units import HOUR_S, rounded

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Level, Options
    from xe_sizer.result.studies import Effect, Factor, Outcome

# The first screen.

SURE_FROM = 0.9  # probability of a limit from which nothing need be said
OF_GPUS = " of GPU time"
MOST_SHOWN = 8  # factors on the first screen


def sensitivity_points(result: Sensitivity) -> Iterator[Point]:
    """The job as asked, then its factors with their widest steps."""
    base = result.base
    free = base.usable_bytes - base.peak_bytes
    memory = memory_bar(base.peak_bytes, base.usable_bytes, free)
    if not base.fits:
        yield memory
        yield from change_point(result.advice)
        yield from _factor_points(result)
        return
    yield from KINDS[result.ranked_by].points(result)
    yield memory
    yield from _factor_points(result)


def _points_of_job(result: Sensitivity) -> Iterator[Point]:
    base, supposed = result.base, assumed_run(result.scenario)
    yield Point("Time", f"{_time(base)} on {plural(base.gpus, 'GPU')}{f', {supposed}' if supposed else ''}")
    yield Point("Cost", f"{number(base.gpu_hours)} GPU-hours{_priced(base, '')}")


def _points_of_service(result: Sensitivity) -> Iterator[Point]:
    base = result.base
    first, further = _seconds(base.ttft_s), _seconds(base.tpot_s)
    words = f"{first} to the first token (TTFT), {further} per token (TPOT)"
    yield Point("Latency", f"{first} a request" if base.tpot_s is None else words)
    replicas = plural(base.replicas or 1, "replica")
    yield Point("GPUs", f"{count(base.gpus)} in {replicas}; they sustain {_rate(base)} requests/s")
    yield Point("Cost", f"{_of_a_request(base)} per request{_priced(base, ' an hour')}")


def _priced(base: Outcome, of: str) -> str:
    """Price of the run, or of an hour, and on what terms it is meant."""
    cost = "" if base.price is None else f", {money(base.price, base.currency)}{of}"
    if base.hourly_price is not None:
        cost += f"; {clean(base.hourly_price.hardware)} at {hourly_words(base.hourly_price)}"
    return cost


def _of_a_request(outcome: Outcome) -> str:
    """GPU time that a request takes of what is sustained."""
    return f"{duration(outcome.gpu_hours * HOUR_S)}{OF_GPUS}"


def _seconds(value: float | None) -> str:
    return NOT_A_NUMBER if value is None else duration(value)


def _rate(outcome: Outcome) -> str:
    rate = outcome.requests_per_s
    return NOT_A_NUMBER if rate is None else number(rounded(rate, down=True))


def _factor_points(result: Sensitivity) -> Iterator[Point]:
    for place, factor in enumerate(result.factors[:MOST_SHOWN]):
        name = clean(factor.name)
        yield Point(name[:1].upper() + name[1:], "; ".join(_ends(factor, result.base, result.ranked_by)), spare=place)


def _time(base: Outcome) -> str:
    if base.low_s is None or base.high_s is None:
        return duration(base.total_s)
    return spanned(Range(low=base.low_s, expected=base.total_s, high=base.high_s))


def _ends(factor: Factor, base: Outcome, ranked_by: str) -> Iterator[str]:
    """The steps with the least and the most of what ranks them: `b200: 60.2 min (x0.44)`."""
    kind = KINDS[ranked_by]
    ranks = _price_of if factor.name == OWN_SERVERS else kind.ratio
    possible = sorted((effect for effect in factor.effects if effect.outcome.fits), key=ranks)
    ends: Sequence[Effect] = possible if len(possible) < 2 else (possible[0], possible[-1])
    for effect in ends:
        if not base.fits:
            on = f" on {plural(effect.outcome.gpus, 'GPU')}" if effect.outcome.gpus != base.gpus else ""
            yield f"{clean(effect.step)}: fits{on}, {kind.value(effect.outcome)}"
        elif factor.name == OWN_SERVERS:
            over = f" ({ratio(_price_of(effect) / base.price)})" if base.price else ""
            yield f"{clean(effect.step)}: {money(effect.outcome.price, base.currency)}{over}"
        elif factor.name == DEADLINE:
            yield f"to finish in {clean(effect.step)}: {plural(effect.outcome.gpus, 'GPU')}{_so_many(effect)}"
        else:
            doubt = limit_doubt(effect.outcome)
            further = f", limits {doubt}" if doubt else ""
            value = kind.value(effect.outcome).removesuffix(OF_GPUS)
            yield f"{clean(effect.step)}: {value} ({ratio(kind.ratio(effect))}{further})"
    if not possible:
        yield "no step fits"


def _price_of(effect: Effect) -> float:
    return effect.outcome.price or 0.0


def _so_many(effect: Effect) -> str:
    """How many times the GPUs: ` (4 times as many)`."""
    if effect.gpus_ratio == 1.0:
        return " (as many)"
    return f" ({effect.gpus_ratio:g} times as many)" if effect.gpus_ratio > 1.0 else f" (x{effect.gpus_ratio:.2g})"


def limit_doubt(outcome: Outcome) -> str:
    """What is to be said of the limits of a step: MISSED, or met and how likely; empty where all is well."""
    if outcome.meets_limits is None:
        return ""
    chance = outcome.limits_probability
    if outcome.meets_limits and (chance is None or chance >= SURE_FROM):
        return ""
    word = "met" if outcome.meets_limits else "MISSED"
    return word if chance is None else f"{word}, {probability_words(chance)}"


# Picture: what each factor is worth, as a tornado.

TITLE = "Effect of each factor"


def timed(result: Sensitivity) -> tuple[Factor, ...]:
    """The factors whose steps move the time; those of the deadline move the GPUs, those of own servers the price."""
    return tuple(factor for factor in result.factors if factor.name not in (DEADLINE, OWN_SERVERS))


def unfit(factors: Iterable[Factor]) -> str:
    """The steps that do not fit, in one line; empty where all do."""
    steps = [clean(effect.step) for factor in factors for effect in factor.effects if not effect.outcome.fits]
    return f"does not fit: {'; '.join(steps)}" if steps else ""


def pictures(result: Sensitivity, figure: Figure) -> Iterator[Picture]:
    """figure : the tornado in characters."""
    kind = KINDS[result.ranked_by]
    swings = tuple(_swing(factor, kind) for factor in timed(result))
    if not swings:
        return
    axis = Axis(f"factor on {kind.moved}", logarithmic=True)
    ends = {swing.name: ", ".join(filter(None, (swing.low_text, swing.high_text))) for swing in swings}
    says = "; ".join(f"{name}: {words}" for name, words in ends.items())
    drawing = Tornado(axis, swings, f"as asked: {kind.value(result.base)}")
    short = unfit(timed(result))
    note = "The axis is logarithmic: half and twice are equally far." + (f" * {short}." if short else "")
    yield Picture(TITLE, f"{says}; {short}" if short else says, drawing, note, figure)


def _swing(factor: Factor, kind: Kind) -> Swing:
    """The steps that fit and move the figure most to each side."""
    possible = [(kind.ratio(effect), effect) for effect in factor.effects if effect.outcome.fits]
    less = min((each for each in possible if each[0] < 1.0), key=lambda each: each[0], default=None)
    more = max((each for each in possible if each[0] > 1.0), key=lambda each: each[0], default=None)
    texts = [f"{clean(each[1].step)} ×{each[0]:.2f}" if each else "" for each in (less, more)]
    if not any(texts):
        texts[0] = "no effect" if possible else "no step fits"
    return Swing(marked(factor), less[0] if less else 1.0, more[0] if more else 1.0, texts[0], texts[1])


def marked(factor: Factor) -> str:
    """The name of a factor, with a star where a step of it does not fit."""
    return clean(factor.name) + ("" if all(effect.outcome.fits for effect in factor.effects) else " *")


# The report.

ANSWER = Sensitivity
AS_ASKED = "as asked"
RATIOS = ("time_ratio", "gpus_ratio", "memory_ratio", "gpu_hours_ratio")
BAR, MIDDLE = 16, "│"  # cells of a bar on each side of the middle


def document(result: Sensitivity, options: Options) -> Document:
    """The factors as a tornado, widest first, then every step with its figures."""
    base, kind = result.base, KINDS[result.ranked_by]
    limited = base.meets_limits is not None
    read = base.ttft_s is not None and base.tpot_s is None  # embeddings and scores, without output tokens
    kinds = tuple(Column("request", True) if read and one.name == "TTFT" else one for one in kind.columns)
    columns = (Column("factor"), Column("step"), *kinds, *((Column("limits"),) if limited else ()))
    rows = [(AS_ASKED, "", *_figures(result, None))]
    for factor in result.factors:
        rows += [(clean(factor.name), clean(effect.step), *_figures(result, effect)) for effect in factor.effects]
    subject = f"{job_words(result.scenario)} on {plural(base.gpus, 'GPU')}"
    words = f"{subject} takes {kind.value(base)}{kind.each}; "
    words += f"largest effects: {', '.join(clean(factor.name) for factor in timed(result)[:3])}"
    blocks: tuple[Block, ...] = (
        Summary(tuple(sensitivity_points(result))),
        *(pictures(result, _tornado(result, options.width)) if base.fits else ()),
        Table("All variations", columns, tuple(rows), note=kind.note),
        *listed("Warnings", map(clean, result.warnings)),
    )
    if not base.fits:
        short = f"{gib(base.peak_bytes)} GiB are needed, {gib(base.usable_bytes)} are there"
        return Document("DOES NOT FIT", False, subject, (short,), blocks)
    return Document("SENSITIVITY", True, words, (), blocks, tuple(map(clean, result.cautions)))


def _figures(result: Sensitivity, effect: Effect | None) -> tuple[str, ...]:
    outcome = effect.outcome if effect else result.base
    against = effect if result.base.fits else None  # nothing compares with what will never run
    limits = (_limits(outcome),) if result.base.meets_limits is not None else ()
    return (*KINDS[result.ranked_by].cells(outcome, against), *limits)


def _cells_of_job(outcome: Outcome, against: Effect | None) -> tuple[str, ...]:
    runs = outcome.fits
    least = NOT_A_NUMBER if outcome.minimum is None else count(outcome.minimum)
    time = duration(outcome.total_s) + (f" ({ratio(against.time_ratio)})" if against else "")
    hours = number(outcome.gpu_hours) + (f" ({ratio(against.gpu_hours_ratio)})" if against else "")
    return (
        time if runs else NOT_A_NUMBER,
        _span(outcome) if outcome.fits else "does not fit",
        count(outcome.gpus),
        f"{least}, offloading" if outcome.minimum_offloads else least,
        gib(outcome.peak_bytes),
        hours if runs else NOT_A_NUMBER,
        money(outcome.price, outcome.currency) if runs else NOT_A_NUMBER,
    )


def _cells_of_service(outcome: Outcome, against: Effect | None) -> tuple[str, ...]:
    if not outcome.fits:
        return ("does not fit", count(outcome.gpus), *[NOT_A_NUMBER] * 5)
    time = duration(outcome.gpu_hours * HOUR_S) + (f" ({ratio(against.gpu_hours_ratio)})" if against else "")
    sizes = count(outcome.gpus), count(outcome.replicas or 1)
    price = money(outcome.price, outcome.currency)
    return (time, *sizes, _seconds(outcome.ttft_s), _seconds(outcome.tpot_s), _rate(outcome), price)


class Kind(Immutable):
    """How answers of one kind are shown, by what ranks their factors.

    moved : what the factors move, in words; each : what follows the value of it in the headline
    value : of an outcome, in words; ratio : of an effect; points : of the first screen, of what fits
    columns, cells : of an outcome, with its effect where it has one; note : of their table
    """

    moved: str
    each: str
    value: Callable[[Outcome], str]
    ratio: Callable[[Effect], float]
    points: Callable[[Sensitivity], Iterator[Point]]
    columns: tuple[Column, ...]
    cells: Callable[[Outcome, Effect | None], tuple[str, ...]]
    note: str


KINDS: Mapping[str, Kind] = {
    "time_ratio": Kind(
        "the time of the whole job",
        "",
        lambda outcome: duration(outcome.total_s),
        lambda effect: effect.time_ratio,
        _points_of_job,
        (
            Column("time", True), Column(RANGE), Column("GPUs", True), Column("fewest", True, spare=3),
            Column("GiB used", True, spare=2), Column("GPU-hours", True, spare=1), Column("price", True, spare=4),
        ),
        _cells_of_job,
        "",
    ),
    "gpu_hours_ratio": Kind(
        "the GPU time of a request",
        " per request",
        _of_a_request,
        lambda effect: effect.gpu_hours_ratio,
        _points_of_service,
        (
            Column("GPU time per request", True), Column("GPUs", True), Column("replicas", True),
            Column("TTFT", True), Column("TPOT", True), Column("sustains, requests/s", True, spare=1),
            Column("per hour", True, spare=2),
        ),
        _cells_of_service,
        "GPU time per request: GPUs over the requests per second that they sustain within the limits",
    ),
}  # fmt: skip
"""By `ranked_by` of a result."""


def _limits(outcome: Outcome) -> str:
    """What became of the limits, and how likely they hold where that is not sure."""
    return (limit_doubt(outcome) or "met") if outcome.fits else NOT_A_NUMBER


def _span(outcome: Outcome) -> str:
    if outcome.low_s is None or outcome.high_s is None:
        return ""
    return duration_range(Range(low=outcome.low_s, expected=outcome.total_s, high=outcome.high_s))


def _tornado(result: Sensitivity, width: int | None) -> Figure:
    """Bars to both sides of what is asked: less to the left, more to the right, on a logarithmic scale."""
    kind = KINDS[result.ranked_by]
    lines = list(_bars(timed(result), kind, width))
    short = unfit(timed(result))
    note = f"effect of each step on {kind.moved}, logarithmic" + (f"; * {short}" if short else "")
    return Figure(TITLE, tuple(lines), note)


def _bars(factors: tuple[Factor, ...], kind: Kind, terminal: int | None) -> Iterator[str]:
    ranges = [(marked(factor), *_range(factor, kind)) for factor in factors]
    widest = max((max(-low, high) for _, low, high in ranges), default=0.0) or 1.0
    width = max((len(name) for name, _, _ in ranges), default=0)
    last = max((len(ratio(math.exp(high))) for _, _, high in ranges), default=0)
    cells = cells_within(terminal, width + 2 + 6 + 1 + len(MIDDLE) + 1 + last, 2 * BAR) // 2
    for name, low, high in ranges:
        left, right = (round(cells * size / widest) for size in (-low, high))
        bar = f"{'█' * left:>{cells}}{MIDDLE}{'█' * right:<{cells}}"
        yield f"{name:<{width}}  {ratio(math.exp(low)):>6} {bar} {ratio(math.exp(high))}"


def _range(factor: Factor, kind: Kind) -> tuple[float, float]:
    """Smallest and largest effect as logarithms, at least none."""
    logs = [math.log(kind.ratio(effect)) for effect in factor.effects if effect.outcome.fits]
    return min([0.0, *logs]), max([0.0, *logs])


def rows(result: Sensitivity, options: Options) -> Iterator[tuple[object, ...]]:
    """The job as asked, then one line a step of a factor."""
    yield "factor", "step", *_cells(result.base), *RATIOS
    yield AS_ASKED, "", *_cells(result.base).values(), *[1.0] * len(RATIOS)
    for factor in result.factors:
        for effect in factor.effects:
            ratios = (getattr(effect, name) for name in RATIOS)
            yield factor.name, effect.step, *_cells(effect.outcome).values(), *ratios


def _cells(outcome: Outcome) -> dict[str, object]:
    """The figures of an outcome by their names, with how its price is meant."""
    figures = {name: value for name, value in asdict(outcome).items() if name != "hourly_price"}
    return {**figures, **offer_cells(outcome.hourly_price)}


def findings(result: Sensitivity, options: Options) -> Iterator[Finding]:
    """The job as asked, then each step of a factor; one that does not fit is no failure of the job."""
    job, base = job_words(result.scenario), _words(result, None)
    whole = Case(AS_ASKED, output=base) if result.ok else Case(AS_ASKED, "failed", "does-not-fit", base)
    level: Level = "notice" if result.ok else "error"
    cases = [whole]
    remarks = [Remark(level, f"{TOOL}: {'fits' if result.ok else 'does not fit'}", f"{job}: {base}", options.file)]
    for factor in result.factors:
        for effect in factor.effects:
            name, said = f"{factor.name}: {effect.step}", _words(result, effect)
            cases.append(
                Case(name, output=said)
                if effect.outcome.fits
                else Case(name, "skipped", message="does not fit", output=said)
            )
            remarks.append(Remark("notice", f"{TOOL}: {factor.name}", f"{effect.step}: {said}", options.file))
    yield Finding(options.file or job, tuple(cases), tuple(remarks))


def _words(result: Sensitivity, effect: Effect | None) -> str:
    time, *_ = _figures(result, effect)
    time += KINDS[result.ranked_by].each and " of GPU time per request"
    outcome = effect.outcome if effect else result.base
    short = "" if outcome.fits else " (does not fit)"
    ran = f"{time} on {plural(outcome.gpus, 'GPU')}" if outcome.fits else plural(outcome.gpus, "GPU")
    return f"{ran}, {gib(outcome.peak_bytes)} GiB used{short}"
