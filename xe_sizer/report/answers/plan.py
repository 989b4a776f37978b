"""What a search answers, as a report: the answers, time against GPUs, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.blocks import left_out, listed
from xe_sizer.report.certainty import RANGE, doubts, probability_words
from xe_sizer.report.chart import chart
from xe_sizer.report.document import Column, Document, Summary, Table
from xe_sizer.report.findings import TOOL, Case, Finding, Remark, judgement
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    clean,
    count,
    duration,
    duration_range,
    gib,
    money,
    number,
    offer_cells,
    offer_words,
    plural,
)
from xe_sizer.report.iterations import split_words, writing_pool
from xe_sizer.report.pictures.plan import pictures
from xe_sizer.report.plan_points import plan_points
from xe_sizer.report.plan_words import (
    asks_for_gpus,
    cheapest_of,
    hardware_name,
    hardware_words,
    layout_words,
    limits_of_search,
    named_answers,
    premises,
)
from xe_sizer.report.scenario_findings import limit_case
from xe_sizer.report.verdict import job_words, yes_word
from xe_sizer.result.common import SURE
from xe_sizer.result.studies import Candidate, PlanResult
from xe_sizer.result.training import Layout
from xe_sizer.units import BARE_SERVER

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Figure
    from xe_sizer.report.options import Options
    from xe_sizer.result.common import Verdict

ANSWER = PlanResult
SHOWN = 12  # candidates of the table; JSON and CSV have all
WORDS = {
    "servers": "the fewest servers",
    "gpus": "the fewest GPUs",
    "cost": "the cheapest",
    "time": "the fastest",
    "energy": "the lowest energy",
}
FITS = "probability of fit"  # a column: how likely memory suffices
WRITERS = {f"rollout_{name}": name for name in ("gpus", "replicas", "tp", "pp", "ep")}  # columns of a CSV file
NO_DOUBT = 0.99  # probability from which memory takes nothing from another one
FEWEST_GPU_HOURS = "the fewest GPU-hours"
EQUAL = "plans as good as each other within the model's error (8 %) count as equal, and the smaller is named"
# Limits that no candidate can miss: the search keeps within them.
SEARCHED_WITHIN = ("max_gpus", "min_headroom_gib")


def document(result: PlanResult, options: Options) -> Document:
    """Verdict and chosen plan, the answers side by side, time against GPUs, the command of the chosen one."""
    blocks: list[Block] = [Summary(tuple(plan_points(result)))]
    if result.candidates:
        blocks += [_answers(result), _candidates(result)]
        blocks += pictures(result, _figure(result, options.width))
    if result.search.rules:
        blocks.append(_rules(result))
    blocks += left_out(result.left_out)
    blocks += listed("Warnings", map(clean, result.warnings))
    return Document(
        _word(result), result.verdict.ok, _title(result), _reasons_beyond(result), tuple(blocks), _caution(result)
    )


def _word(result: PlanResult) -> str:
    if not result.search.complete:
        return "INCOMPLETE"
    if not result.verdict.fits:
        return "DOES NOT FIT"
    return yes_word("FITS", result) if result.verdict.meets_limits else "MISSES LIMITS"


def _reasons(result: PlanResult) -> tuple[str, ...]:
    return tuple(clean(reason.message) for reason in result.verdict.reasons)


def _reasons_beyond(result: PlanResult) -> tuple[str, ...]:
    """Reasons that the headline does not say: where there is no plan, it says why."""
    return () if result.answers.chosen is None else _reasons(result)


def _caution(result: PlanResult) -> str:
    if not result.search.complete:
        return "interrupted: the best of what had been searched by then"
    if not result.verdict.ok:
        return ""
    return _joint(result.verdict) or "; ".join(doubts(result.verdict))


def _joint(verdict: Verdict) -> str:
    """How sure memory and limits are, alone and together, where memory is not sure, or neither is beyond doubt."""
    memory = verdict.fit_probability
    if memory is None:
        return ""
    doubtful = [limit for limit in verdict.limits if limit.low is not None and limit.probability is not None]
    both_open = memory < NO_DOUBT and any(limit.certainty != SURE for limit in doubtful)
    if verdict.fit_certainty == SURE and not both_open:
        return ""
    words = f"memory suffices with {probability_words(memory)} probability"
    if not doubtful:
        return words
    least = min(doubtful, key=lambda limit: limit.probability or 0.0)
    both = memory * (least.probability or 0.0)
    return f"{words}, {clean(least.name)} {probability_words(least.probability or 0.0)}, both {probability_words(both)}"


def _title(result: PlanResult) -> str:
    """What the plan is, for a report whose first screen has the figures; why there is none."""
    job = job_words(result.scenario)
    if result.answers.chosen is None:
        return f"{job}: {'; '.join((*_reasons(result), _searched(result)))}"
    chosen = result.candidates[result.answers.chosen]
    if not result.verdict.meets_limits:
        return f"{job}: the closest to the limits is {hardware_words(chosen)}"
    if result.objective == "servers" and result.verdict.limits and not chosen.server.startswith(BARE_SERVER):
        box = f"({hardware_name(chosen)}, {plural(chosen.gpus, 'GPU')})"
        if chosen.nodes == 1 or asks_for_gpus(result):
            return f"{job}: {plural(chosen.nodes, 'server')} {box} meet{'s' * (chosen.nodes == 1)} the limits"
        fewest = f"are the fewest that meet the limits{limits_of_search(result, chosen)}"
        return f"{job}: {plural(chosen.nodes, 'server')} {box} {fewest}"
    if result.objective in ("servers", "gpus") and asks_for_gpus(result):
        meet = "meet the limits" if result.verdict.limits else "fit"
        return f"{job}: {hardware_words(chosen)} {meet}"
    of = limits_of_search(result, chosen) if result.objective in ("servers", "gpus") else ""
    limits = " within the limits" if result.verdict.limits else ""
    return f"{job}: {_best_words(result, chosen)}{limits}{of}: {hardware_words(chosen)}"


def _searched(result: PlanResult) -> str:
    return f"{number(result.search.layouts_considered)} layouts searched in {duration(result.search.seconds)}"


def _headline(result: PlanResult) -> str:
    """The title with what stands alone needs: how long it takes, and what was searched."""
    if result.answers.chosen is None:
        return _title(result)
    expected_s = result.candidates[result.answers.chosen].total_s.expected
    return f"{_title(result)}, {duration(expected_s)}; {_searched(result)}"


def _best_words(result: PlanResult, chosen: Candidate) -> str:
    """What the plan is the best in; the cheapest only of what has a price."""
    if result.objective != "cost":
        return WORDS[result.objective]
    if chosen.price is None:
        return FEWEST_GPU_HOURS
    return f"{WORDS['cost']} {cheapest_of(result)}".strip()


def _columns(result: PlanResult) -> tuple[Column, ...]:
    kinds = len({hardware_name(candidate) for candidate in result.candidates}) > 1
    servers = all(not candidate.server.startswith(BARE_SERVER) for candidate in result.candidates)
    price = any(candidate.price is not None for candidate in result.candidates)
    return (
        *((Column("hardware"),) if kinds else ()),
        *((Column("servers", True, spare=4),) if servers else ()),
        Column("GPUs", True),
        Column("time", True),
        Column(RANGE, True),
        Column("GPU-hours", True, spare=2 if price else 1),
        *((Column("price", True),) if price else ()),
        Column("GiB used", True, spare=5),
        Column(FITS, True, spare=6),
        Column("bound by", spare=3),
        *((Column("rollout", least=16),) if any(candidate.pools for candidate in result.candidates) else ()),
        Column("layout", least=24),
    )


def _cells(candidate: Candidate, columns: Sequence[Column]) -> tuple[str, ...]:
    cells = {
        "hardware": hardware_name(candidate),
        "servers": count(candidate.nodes),
        "GPUs": count(candidate.gpus),
        "time": duration(candidate.total_s.expected),
        RANGE: duration_range(candidate.total_s),
        "GPU-hours": number(candidate.gpu_hours),
        "price": money(candidate.price, candidate.currency),
        "GiB used": gib(candidate.peak_bytes),
        FITS: NOT_A_NUMBER if candidate.fit_probability is None else probability_words(candidate.fit_probability),
        "bound by": clean(candidate.bound),
        "rollout": split_words(candidate.pools),
        "layout": layout_words(candidate.layout),
    }
    return tuple(cells[column.name] for column in columns)


def _answers(result: PlanResult) -> Table:
    columns = _columns(result)
    named = named_answers(result.answers)
    rows = tuple((name, *_cells(result.candidates[place], columns)) for name, place in named.items())
    return Table("Answers", (Column("plan"), *columns), rows, note=_premises(result))


def _premises(result: PlanResult) -> str:
    """What all plans share, with what nobody gave marked."""
    words = (text if given else f"{text} (assumed)" for text, given in premises(result).values())
    return "; ".join((f"all plans: {', '.join(words)}", EQUAL, *_prices(result)))


def _prices(result: PlanResult) -> Iterator[str]:
    """How the prices are meant, and which of them compare."""
    offers: dict[str, list[str]] = {}
    for price in dict.fromkeys(one.hourly_price for one in result.candidates if one.hourly_price is not None):
        offers.setdefault(offer_words(price), []).append(clean(price.hardware))
    if offers:
        yield "prices: " + "; ".join(f"{', '.join(dict.fromkeys(names))} {words}" for words, names in offers.items())
    if result.answers.cheapest is not None and (of := cheapest_of(result)):
        yield f"the cheapest is that {of}"


def _candidates(result: PlanResult) -> Table:
    """Those that are Pareto-optimal, by their time; marked where they miss a limit."""
    best = _best(result)
    shown = [best[round(index)] for index in _spread(len(best), SHOWN)]
    columns = _columns(result)
    limited = any(limit.name not in SEARCHED_WITHIN for limit in result.verdict.limits)
    rows = tuple(
        (*_cells(candidate, columns), *((("met" if candidate.meets_limits else "MISSED"),) if limited else ()))
        for candidate in shown
    )
    slowest = max(candidate.total_s.expected for candidate in shown)
    shares = tuple(candidate.total_s.expected / slowest for candidate in shown)
    more = f"{len(shown)} of {len(best)}; " if len(best) > len(shown) else ""
    note = f"{more}no other plan is better in GPUs, time, price or energy without being worse in another of them"
    last = (Column("limits"),) if limited else ()
    return Table("Pareto-optimal plans", (*columns, *last), rows, shares, note=note, bars="time")


def _best(result: PlanResult) -> list[Candidate]:
    best = [candidate for candidate in result.candidates if candidate.pareto]
    return sorted(best, key=lambda candidate: candidate.total_s.expected)


def _spread(size: int, most: int) -> Iterator[float]:
    """Places of at most so many entries, evenly spread, ends included."""
    shown = min(size, most)
    for place in range(shown):
        yield place * (size - 1) / max(shown - 1, 1)


def _figure(result: PlanResult, width: int | None) -> Figure | None:
    points = [(float(c.gpus), c.total_s.expected, c.pareto) for c in result.candidates]
    return chart("Time against GPUs", points, lambda gpus: f"{gpus:,.0f}", duration, width=width)


def _rules(result: PlanResult) -> Table:
    columns = (Column("rule"), Column("removed", True), Column("of"), Column("because"))
    rows = tuple((clean(rule.name), count(rule.removed), rule.unit, clean(rule.reason)) for rule in result.search.rules)
    searched = result.search
    note = f"{searched.layouts_considered:,} layouts were legal, {searched.layouts_feasible:,} of them fit in memory"
    return Table("What the rules removed", columns, rows, note=note)


def rows(result: PlanResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a candidate, SI units in the column names."""
    sizes = Layout.__struct_fields__
    apart = ("layout", "total_s", "command", "pools", "hourly_price")
    names = [name for name in Candidate.__struct_fields__ if name not in apart]
    yield *names, *offer_cells(None), "total_low_s", "total_s", "total_high_s", *sizes, *WRITERS, "command"
    for one in result.candidates:
        span = (one.total_s.low, one.total_s.expected, one.total_s.high)
        layout = (getattr(one.layout, size) for size in sizes)
        writer = writing_pool(one.pools)
        pool = (None if writer is None else getattr(writer, size) for size in WRITERS.values())
        figures = (*(getattr(one, name) for name in names), *offer_cells(one.hourly_price).values())
        yield *figures, *span, *layout, *pool, one.command


def findings(result: PlanResult, options: Options) -> Iterator[Finding]:
    """The plan, then each Pareto-optimal candidate; one that misses a limit is no failure of the plan."""
    job, best = job_words(result.scenario), _best(result)
    cases = (*_plan_cases(result), *map(_candidate_case, best))
    remarks = [_plan_remark(result, options.file)]
    for candidate in best:
        missed = "" if candidate.meets_limits else "; misses limits"
        said = f"{_candidate_words(candidate)}{missed}"
        remarks.append(Remark("notice", f"{TOOL}: candidate", said, options.file))
    remarks += [Remark("warning", TOOL, f"{job}: {text}", options.file) for text in result.warnings]
    yield Finding(options.file or job, cases, tuple(remarks))


def _plan_cases(result: PlanResult) -> Iterator[Case]:
    said = _headline(result)
    if result.ok:
        yield Case("plan", output=said)
    else:
        yield Case("plan", "failed", "no-plan", said, "\n".join(_reasons(result)), said)
    yield from (limit_case(result.verdict, limit) for limit in result.verdict.limits)


def _candidate_case(candidate: Candidate) -> Case:
    name, said = hardware_words(candidate), _candidate_words(candidate)
    return Case(name, output=said) if candidate.meets_limits else Case(name, "skipped", "", "misses limits", "", said)


def _plan_remark(result: PlanResult, file: str | None) -> Remark:
    caution = _caution(result)
    lines = (_headline(result), *_reasons_beyond(result), *([caution] if caution else []))
    return judgement(result.ok, _word(result).lower(), lines, bool(caution), file)


def _candidate_words(candidate: Candidate) -> str:
    figures = f"{duration(candidate.total_s.expected)}, {number(candidate.gpu_hours)} GPU-hours"
    return f"{hardware_words(candidate)}: {figures}; {layout_words(candidate.layout)}"
