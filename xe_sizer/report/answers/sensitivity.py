"""One job with one factor moved at a time: what `sensitivity` reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from xe_sizer.report.answers.estimate import hardware
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
from xe_sizer.report.verdict import job_words, verdict_word
from xe_sizer.result.common import Range
from xe_sizer.result.studies import DEADLINE, Sensitivity

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Level, Options
    from xe_sizer.result.studies import Alternative, Comparison, Effect, Factor, Outcome

# The first screen, which comparisons and checks have too.

SURE_FROM = 0.9  # probability of a limit from which nothing need be said
MOST_SHOWN = 8  # alternatives, factors or files on the first screen


def compare_points(result: Comparison) -> Summary:
    """One line an alternative."""
    shown = result.alternatives[:MOST_SHOWN]
    supposed = {assumed_run(one.result.scenario) for one in result.alternatives}
    points = [
        Point(name, ", ".join(_alternative(one, len(supposed) > 1)), spare=place)
        for place, (name, one) in enumerate(zip(shown_names(result), shown, strict=False))
    ]
    if len(supposed) == 1 and any(supposed):
        points.append(Point("Times", supposed.pop()))
    return Summary(tuple(points), len(result.alternatives) - len(shown), "alternative")


SPEAKING = ("server", "gpu", "model", "stack")  # keys whose values say by themselves what they are


def _without_key(names: list[str]) -> list[str]:
    """Alternatives that all name one thing of a kind, as servers, by its name alone."""
    pairs = [name.partition("=") for name in names]
    alone = len({key for key, _, _ in pairs}) == 1 and pairs[0][0] in SPEAKING and "," not in "".join(names)
    return [value for _, _, value in pairs] if alone else names


def shown_names(result: Comparison) -> tuple[str, ...]:
    """What the alternatives are called: by their jobs where those alone tell them apart."""
    answers = [one.result for one in result.alternatives]
    names = _without_key([clean(one.name) for one in result.alternatives])
    jobs = [clean((answer.scenario.get("names") or {}).get("job") or "") for answer in answers]
    others = [name for name in names if not name.startswith("job=") or "," in name]
    same = {(answer.scenario.get("names") or {}).get("model") for answer in answers}
    alone = (
        all(jobs) and len(set(jobs)) == len(jobs) and len(same) == 1 and len({hardware(each) for each in answers}) == 1
    )
    return tuple(jobs if alone and len(others) <= 1 and "=" not in "".join(others) else names)


def _alternative(one: Alternative, says_length: bool) -> Iterator[str]:
    answer = one.result
    yield f"{verdict_word(answer)} on {plural(answer.gpus.count, 'GPU')}"
    if not answer.verdict.fits:
        yield f"{gib(answer.memory.peak_bytes)} of {gib(answer.memory.usable_bytes)} GiB per GPU"
        return
    supposed = assumed_run(answer.scenario) if says_length else ""
    yield " ".join(filter(None, (spanned(answer.time.total_s, answer.time.calibrated), supposed)))
    yield f"{number(answer.cost.gpu_hours.expected)} GPU-hours"
    if answer.cost.price is not None:
        yield money(answer.cost.price.expected, answer.cost.price.currency)


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
    cost = "" if base.price is None else f", {money(base.price, base.currency)}"
    if base.hourly_price is not None:
        cost += f"; {clean(base.hourly_price.hardware)} at {hourly_words(base.hourly_price)}"
    supposed = assumed_run(result.scenario)
    yield Point("Time", f"{_time(base)} on {plural(base.gpus, 'GPU')}{f', {supposed}' if supposed else ''}")
    yield Point("Cost", f"{number(base.gpu_hours)} GPU-hours{cost}")
    yield memory
    yield from _factor_points(result)


def _factor_points(result: Sensitivity) -> Iterator[Point]:
    for place, factor in enumerate(result.factors[:MOST_SHOWN]):
        name = clean(factor.name)
        yield Point(name[:1].upper() + name[1:], "; ".join(_ends(factor, result.base)), spare=place)


def _time(base: Outcome) -> str:
    if base.low_s is None or base.high_s is None:
        return duration(base.total_s)
    return spanned(Range(low=base.low_s, expected=base.total_s, high=base.high_s))


def _ends(factor: Factor, base: Outcome) -> Iterator[str]:
    """The steps that make the job fastest and slowest: `b200: 60.2 min (x0.44)`."""
    possible = sorted((effect for effect in factor.effects if effect.outcome.fits), key=lambda each: each.time_ratio)
    ends: Sequence[Effect] = possible if len(possible) < 2 else (possible[0], possible[-1])
    for effect in ends:
        if not base.fits:
            on = f" on {plural(effect.outcome.gpus, 'GPU')}" if effect.outcome.gpus != base.gpus else ""
            yield f"{clean(effect.step)}: fits{on}, {duration(effect.outcome.total_s)}"
        elif factor.name == DEADLINE:
            yield f"to finish in {clean(effect.step)}: {plural(effect.outcome.gpus, 'GPU')}{_so_many(effect)}"
        else:
            doubt = limit_doubt(effect.outcome)
            further = f", limits {doubt}" if doubt else ""
            yield f"{clean(effect.step)}: {duration(effect.outcome.total_s)} ({ratio(effect.time_ratio)}{further})"
    if not possible:
        yield "no step fits"


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
    """The factors whose steps move the time; those of the deadline move the GPUs."""
    return tuple(factor for factor in result.factors if factor.name != DEADLINE)


def unfit(factors: Iterable[Factor]) -> str:
    """The steps that do not fit, in one line; empty where all do."""
    steps = [clean(effect.step) for factor in factors for effect in factor.effects if not effect.outcome.fits]
    return f"does not fit: {'; '.join(steps)}" if steps else ""


def pictures(result: Sensitivity, figure: Figure) -> Iterator[Picture]:
    """figure : the tornado in characters."""
    swings = tuple(map(_swing, timed(result)))
    if not swings:
        return
    axis = Axis("factor on the time of the whole job", logarithmic=True)
    ends = {swing.name: ", ".join(filter(None, (swing.low_text, swing.high_text))) for swing in swings}
    says = "; ".join(f"{name}: {words}" for name, words in ends.items())
    drawing = Tornado(axis, swings, f"as asked: {duration(result.base.total_s)}")
    short = unfit(timed(result))
    note = "The axis is logarithmic: half and twice are equally far." + (f" * {short}." if short else "")
    yield Picture(TITLE, f"{says}; {short}" if short else says, drawing, note, figure)


def _swing(factor: Factor) -> Swing:
    """The steps that fit and move the figure most to each side."""
    possible = [(effect.time_ratio, effect) for effect in factor.effects if effect.outcome.fits]
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
    base = result.base
    limited = base.meets_limits is not None
    columns = (
        Column("factor"), Column("step"), Column("time", True), Column(RANGE), Column("GPUs", True),
        Column("fewest", True, spare=3), Column("GiB used", True, spare=2), Column("GPU-hours", True, spare=1),
        Column("price", True, spare=4),
        *((Column("limits"),) if limited else ()),
    )  # fmt: skip
    rows = [(AS_ASKED, "", *_figures(result, None))]
    for factor in result.factors:
        rows += [(clean(factor.name), clean(effect.step), *_figures(result, effect)) for effect in factor.effects]
    job = f"{job_words(result.scenario)} on {plural(base.gpus, 'GPU')}"
    words = f"{job} takes {duration(base.total_s)}; "
    words += f"largest effects: {', '.join(clean(factor.name) for factor in timed(result)[:3])}"
    blocks: tuple[Block, ...] = (
        Summary(tuple(sensitivity_points(result))),
        *(pictures(result, _tornado(result, options.width)) if base.fits else ()),
        Table("All variations", columns, tuple(rows)),
        *listed("Warnings", map(clean, result.warnings)),
    )
    if not base.fits:
        short = f"{gib(base.peak_bytes)} GiB are needed, {gib(base.usable_bytes)} are there"
        return Document("DOES NOT FIT", False, job, (short,), blocks)
    return Document("SENSITIVITY", True, words, (), blocks)


def _figures(result: Sensitivity, effect: Effect | None) -> tuple[str, ...]:
    outcome = effect.outcome if effect else result.base
    runs, against = outcome.fits, effect if result.base.fits else None  # nothing compares with what will never run
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
        *((_limits(outcome),) if result.base.meets_limits is not None else ()),
    )


def _limits(outcome: Outcome) -> str:
    """What became of the limits, and how likely they hold where that is not sure."""
    return (limit_doubt(outcome) or "met") if outcome.fits else NOT_A_NUMBER


def _span(outcome: Outcome) -> str:
    if outcome.low_s is None or outcome.high_s is None:
        return ""
    return duration_range(Range(low=outcome.low_s, expected=outcome.total_s, high=outcome.high_s))


def _tornado(result: Sensitivity, width: int | None) -> Figure:
    """Bars to both sides of the time as asked: shorter to the left, longer to the right, on a logarithmic scale."""
    lines = list(_bars(timed(result), width))
    short = unfit(timed(result))
    note = "effect of each step on the time of the job, logarithmic" + (f"; * {short}" if short else "")
    return Figure(TITLE, tuple(lines), note)


def _bars(factors: tuple[Factor, ...], terminal: int | None) -> Iterator[str]:
    ranges = [(marked(factor), *_range(factor)) for factor in factors]
    widest = max((max(-low, high) for _, low, high in ranges), default=0.0) or 1.0
    width = max((len(name) for name, _, _ in ranges), default=0)
    last = max((len(ratio(math.exp(high))) for _, _, high in ranges), default=0)
    cells = cells_within(terminal, width + 2 + 6 + 1 + len(MIDDLE) + 1 + last, 2 * BAR) // 2
    for name, low, high in ranges:
        left, right = (round(cells * size / widest) for size in (-low, high))
        bar = f"{'█' * left:>{cells}}{MIDDLE}{'█' * right:<{cells}}"
        yield f"{name:<{width}}  {ratio(math.exp(low)):>6} {bar} {ratio(math.exp(high))}"


def _range(factor: Factor) -> tuple[float, float]:
    """Smallest and largest effect as logarithms, at least none."""
    logs = [math.log(effect.time_ratio) for effect in factor.effects if effect.outcome.fits]
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
    outcome = effect.outcome if effect else result.base
    short = "" if outcome.fits else " (does not fit)"
    ran = f"{time} on {plural(outcome.gpus, 'GPU')}" if outcome.fits else plural(outcome.gpus, "GPU")
    return f"{ran}, {gib(outcome.peak_bytes)} GiB used{short}"
