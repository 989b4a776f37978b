"""The jobs and services of a cluster over a day or a week: what `calendar` reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from xe_sizer.report.blocks import assumed_run, listed
from xe_sizer.report.document import Case, Column, Document, Figure, Finding, Picture, Point, Summary, Table, judgement
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    bias_words,
    biases_words,
    clean,
    count,
    duration,
    hourly_words,
    layout_words,
    money,
    number,
    part_words,
    percent,
    plural,
    probability_words,
    unseen_words,
)
from xe_sizer.report.picture import Lane, Schedule, Stay
from xe_sizer.report.text_charts import cells_within
from xe_sizer.result.calendar import CalendarResult
from xe_sizer.result.common import BOUND, DEFAULT_CONFIDENCE, LIKELY, SURE
from xe_sizer.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Options
    from xe_sizer.result.calendar import CalendarHour, CalendarJob, CalendarService

ANSWER = CalendarResult
SHORT, LATE, TOO_BIG = "TOO FEW GPUS", "MISSES DEADLINES", "DOES NOT FIT"
RULE = (
    "by priority, then services before jobs, then the earlier deadline; each job first gets the fewest GPUs that meet "
    "its deadline, then more of what is free; a job's GPUs change between two windows only"
)


# The first screen.


def document(result: CalendarResult, options: Options) -> Document:
    blocks: list[Block] = [Summary(tuple(_points(result)))]
    blocks.append(_picture(result, options))
    if result.jobs:
        blocks.append(_jobs(result))
    if result.services:
        blocks.append(_services(result))
    blocks.append(_hours(result))
    blocks += listed("Order", (RULE,))
    reasons, cautions = tuple(_reasons(result)), tuple(_cautions(result))
    return Document(_verdict(result), result.ok, _headline(result), reasons, tuple(blocks), cautions)


def _verdict(result: CalendarResult) -> str:
    if result.ok:
        return "FITS"
    if any(not one.ok and one.min_gpus is None for one in result.jobs):
        return TOO_BIG
    return SHORT if any(not one.ok for one in result.services) else LATE


def _headline(result: CalendarResult) -> str:
    services, jobs = len(result.services), len(result.jobs)
    what = " and ".join(plural(each, noun) for each, noun in ((services, "service"), (jobs, "job")) if each)
    said = [f"{what} on {_servers(result)}"]
    if result.ok:
        said += ["all served"] if services else []
        last_s = max((one.finish.expected_s or 0.0 for one in result.jobs), default=0.0)
        said += [f"all jobs done by {_moment(result, last_s)}"] if jobs else []
    else:
        good = sum(one.ok for one in result.services) + sum(one.ok for one in result.jobs)
        said.append(f"{good} of {services + jobs} as asked")
    return f"{said[0]}: {', '.join(said[1:])}"


def _servers(result: CalendarResult) -> str:
    gpus = f"{plural(result.gpus, 'GPU')}, " if result.by_server else ""
    return f"{_cluster(result, result.gpus)} ({gpus}{_hardware(result)})"


def _hardware(result: CalendarResult) -> str:
    return clean(result.server if result.by_server else result.gpu)


def _cluster(result: CalendarResult, gpus: int) -> str:
    """So many GPUs as servers, or as they are where no server is named."""
    return plural(gpus // result.gpus_per_server, "server") if result.by_server else plural(gpus, "GPU")


def _moment(result: CalendarResult, after_s: float | None) -> str:
    return "not done" if after_s is None else clean(result.moment(after_s))


def _reasons(result: CalendarResult) -> Iterator[str]:
    for service in result.services:
        if not service.ok:
            yield f"{clean(service.name)}: {_service_words(service)}"
    for job in result.jobs:
        if not job.ok:
            yield f"{clean(job.name)}: {_job_words(result, job)}"
    if not result.ok and result.fewest_gpus is None:
        yield f"no number up to {_cluster(result, result.tried_gpus)} does"


def _cautions(result: CalendarResult) -> Iterator[str]:
    """Memory that may not suffice, deadlines that are met and not for sure, and how long jobs are where nobody said."""
    chances = [(one.name, one.fit_probability) for one in result.services]
    chances += [(one.name, one.fit_probability) for one in result.jobs]
    tight = [(name, chance) for name, chance in chances if chance is not None and chance < LIKELY]
    yield from (f"{clean(name)}: tight, memory suffices with {probability_words(chance)}" for name, chance in tight)
    for job in result.jobs:
        supposed = assumed_run(job.scenario)
        doubtful = job.ok and job.probability is not None and job.certainty != SURE
        words = [f"deadline {_outcome(result, job)}"] if doubtful else []
        words += [f"times are {supposed}"] if supposed else []
        if words:
            yield f"{clean(job.name)}: {', '.join(words)}"


def _points(result: CalendarResult) -> Iterator[Point]:
    yield Point("Servers" if result.by_server else "GPUs", _fewest(result))
    for service in result.services:
        yield Point(clean(service.name), _service_words(service))
    for job in result.jobs:
        yield Point(clean(job.name), _job_words(result, job), spare=int(job.ok and job.deadline_s is None))
    yield from (Point("", words) for words in _evidence(result))
    waits = [job for job in result.jobs if job.waits_s]
    for place, job in enumerate(waits):
        words = f"{clean(job.name)} waits {duration(job.waits_s or 0.0)}, until {_moment(result, job.until_s)}"
        yield Point("" if place else "Waits", words, spare=5)
    yield Point("Idle", _idle(result), spare=3)
    energy = "" if result.energy_kwh is None else f", {number(result.energy_kwh)} kWh of the GPUs at work"
    hours = f"{count(round(result.gpu_hours))} of {count(round(result.available_gpu_hours))}"
    yield Point("GPU-hours", f"{hours} in {plural(result.days, 'day')}{energy}", spare=4)
    yield from _cost(result)


def _evidence(result: CalendarResult) -> Iterator[str]:
    """How far runs of the same software were off, of several kinds of software in one sentence."""
    bases = [job.basis for job in result.jobs if job.basis is not None]
    yield from filter(None, dict.fromkeys(map(unseen_words, bases)))
    known = {one.software: one for one in bases if one.bias is not None and not unseen_words(one)}
    if len(known) == 1:
        yield from map(bias_words, known.values())
    elif known:
        yield biases_words(tuple(known.values()))


def _fewest(result: CalendarResult) -> str:
    """Whether fewer would do, or more."""
    asked, fewest, each = result.asked_gpus, result.fewest_gpus, result.gpus_per_server if result.by_server else 1
    tried = f"none of up to {result.tried_gpus // each}"
    if asked is None:
        said = "the fewest that do" if fewest else f"{tried} does; on these least is missed"
    elif fewest is None:
        said = f"{tried} would do"
    elif fewest == asked:
        said = "fewer would not do" if asked > each else "as asked"
    else:
        said = f"{fewest // each} would do"
    alone = result.fewest_gpus_for_services
    more = "" if alone is None else f"; the services alone need {alone // each}"
    return f"{result.gpus // each} x {_hardware(result)}: {said}{more}"


def _service_words(service: CalendarService) -> str:
    least, most = service.min_gpus, service.max_gpus
    gpus = f"{least} to {most} GPUs" if least < most else plural(most, "GPU")
    if service.reason:
        return clean(service.reason)
    short, missed = service.short_hours, service.missed_hours
    lacks = [f"{duration(short * HOUR_S)} with fewer GPUs than it needs"] if short else []
    lacks += [f"{duration(missed * HOUR_S)} outside its limits"] if missed else []
    at = f"{clean(service.window)}, " if service.window else ""
    well = "served at every hour" if service.ok else "short on a later day"
    return f"{at}{gpus}: {', '.join(lacks) or well}"


def _job_words(result: CalendarResult, job: CalendarJob) -> str:
    if job.finish.expected_s is None:
        deadline = "" if job.deadline_s is None else f"; deadline {_moment(result, job.deadline_s)} missed"
        return f"{clean(job.reason)}{deadline}"
    done = f"done {_moment(result, job.finish.expected_s)}"
    if job.finish.low_s != job.finish.high_s:
        done += f" ({RANGE} {_span(result, job)})"
    return f"{done}{_deadline(result, job)}"


def _span(result: CalendarResult, job: CalendarJob) -> str:
    """The range of its end."""
    if job.finish.low_s is None:
        return NOT_A_NUMBER
    high = "later than was looked at" if job.finish.high_s is None else _moment(result, job.finish.high_s)
    return f"{_moment(result, job.finish.low_s)} to {high}"


def _deadline(result: CalendarResult, job: CalendarJob) -> str:
    if job.deadline_s is None:
        return ""
    return f", deadline {_moment(result, job.deadline_s)} {_outcome(result, job)}"


def _outcome(result: CalendarResult, job: CalendarJob) -> str:
    """What becomes of a deadline: met, `met, likely (80 %)`, MISSED."""
    if job.deadline_s is None:
        return NOT_A_NUMBER
    in_time = job.finish.expected_s is not None and job.finish.expected_s <= job.deadline_s
    word = "met" if job.ok else "NOT SURE ENOUGH" if in_time and result.confidence > DEFAULT_CONFIDENCE else "MISSED"
    if job.certainty == BOUND or job.probability is None:
        return f"{word} at best" if job.certainty == BOUND and job.ok else word
    sure = "" if job.certainty == SURE and job.ok else f", {job.certainty}"
    return f"{word}{sure} ({probability_words(job.probability)})"


def _idle(result: CalendarResult) -> str:
    share = 1.0 - result.gpu_hours / result.available_gpu_hours
    most = max(result.hours, key=lambda hour: hour.idle)
    least = min(result.hours, key=lambda hour: hour.idle)
    ends = (f"{_gpu_words(hour.idle)} GPUs ({_moment(result, hour.hour * HOUR_S)})" for hour in (least, most))
    return f"{percent(share)} of the GPU-hours; from {' to '.join(ends)}"


def _cost(result: CalendarResult) -> Iterator[Point]:
    cost = result.cost
    if cost is None:
        return
    terms = (
        ""
        if cost.hourly_price is None
        else f"; {clean(cost.hourly_price.hardware)} at {hourly_words(cost.hourly_price)}"
    )
    terms = "".join((*(f"; {words}" for words in part_words(cost.parts)), terms))
    whole, used = money(cost.cluster, cost.currency), money(cost.used, cost.currency)
    yield Point(
        "Cost", f"{whole} for the cluster in {plural(result.days, 'day')}, {used} for the GPUs at work{terms}", spare=2
    )


def _gpu_words(gpus: float) -> str:
    """GPUs in the mean of an hour: 16, 11.5."""
    return f"{gpus:,.1f}".removesuffix(".0")


# The picture: a lane for each service and job, and one for what is idle.

_HOURS_OF_TICKS = (3, 6, 12, 24)
_MOST_TICKS = 8


def _picture(result: CalendarResult, options: Options) -> Picture:
    lanes = (*(_service_lane(result, one) for one in result.services), *(_job_lane(result, one) for one in result.jobs))
    lanes = (*lanes, _idle_lane(result))
    end = result.days * DAY_S
    legend = (f"GPUs, the lane's height is {result.gpus}", "may run", "deadline")
    drawing = Schedule(lanes, end, tuple(_ticks(result)), legend)
    says = "; ".join(f"{lane.name}: {lane.text}" for lane in lanes)
    return Picture("Who has GPUs when", says, drawing, figure=_figure(result, lanes, options))


def _service_lane(result: CalendarResult, one: CalendarService) -> Lane:
    stays = (_stay(result, each.start_s, each.end_s, each.gpus) for each in one.spans if each.gpus)
    text = f"{one.min_gpus} to {one.max_gpus} GPUs" if one.min_gpus < one.max_gpus else plural(one.max_gpus, "GPU")
    return Lane(clean(one.name), text, tuple(stays), one.open_s if one.window else (), tone="" if one.ok else "no")


def _job_lane(result: CalendarResult, one: CalendarJob) -> Lane:
    end = result.days * DAY_S
    stays = (_stay(result, each.start_s, each.end_s, each.gpus) for each in one.sessions if each.start_s < end)
    done = "not done" if one.finish.expected_s is None else f"done {_moment(result, one.finish.expected_s)}"
    text = done if one.deadline_s is None else f"{done}, deadline {_moment(result, one.deadline_s)}"
    ends = one.finish.expected_s
    return Lane(clean(one.name), text, tuple(stays), one.open_s, one.deadline_s, ends, "" if one.ok else "no")


def _stay(result: CalendarResult, start_s: float, end_s: float, gpus: float) -> Stay:
    end_s = min(end_s, result.days * DAY_S)
    says = f"{_moment(result, start_s)} to {_moment(result, end_s)}: {_gpu_words(gpus)} GPUs"
    return Stay(start_s, end_s, gpus / result.gpus, _gpu_words(gpus), says)


def _idle_lane(result: CalendarResult) -> Lane:
    stays = []
    for idle, group in groupby(result.hours, key=lambda hour: round(hour.idle, 1)):
        hours = list(group)
        if idle:
            stays.append(_stay(result, hours[0].hour * HOUR_S, (hours[-1].hour + 1) * HOUR_S, idle))
    share = 1.0 - result.gpu_hours / result.available_gpu_hours
    return Lane("idle", f"{percent(share)} of the GPU-hours", tuple(stays), tone="unknown")


def _ticks(result: CalendarResult) -> Iterator[tuple[float, str]]:
    """Round hours of one day, or of several days their beginnings."""
    hours = result.days * 24
    step = next((each for each in _HOURS_OF_TICKS if hours / each <= _MOST_TICKS), 24)
    first = _clock_s(result)
    if first % (step * HOUR_S):
        yield 0.0, result.moment(0.0)[: 3 if step == 24 else None]
    for place in range(hours // step + 2):
        after_s = place * step * HOUR_S - first % (step * HOUR_S)
        if 0.0 <= after_s <= result.days * DAY_S:
            day, _, time = result.moment(after_s).partition(" ")
            yield after_s, day if step == 24 else f"{day} {time[:5]}" if time[:5] == "00:00" else time[:5]


def _clock_s(result: CalendarResult) -> float:
    """Time of day of the start [s]."""
    hours, _, minutes = result.starts.partition(" ")[2].partition(":")
    return int(hours) * HOUR_S + int(minutes) * HOUR_S / 60


FULL, WAITING, CLOSED = "█", "░", " "
_MOST_CELLS = 84
_HOURS_OF_CELLS = (0.5, 1, 2, 3, 4, 6, 8, 12, 24)


def _figure(result: CalendarResult, lanes: Sequence[Lane], options: Options) -> Figure:
    """The lanes in characters, but for what is idle."""
    room, hours = cells_within(options.width, 2, _MOST_CELLS), result.days * 24
    each = next((one for one in _HOURS_OF_CELLS if hours / one <= room), _HOURS_OF_CELLS[-1])
    cells = round(hours / each)
    lines: list[str] = []
    for lane in lanes[:-1]:
        signs = (_cell(lane, place * each * HOUR_S, each * HOUR_S) for place in range(cells))
        lines += [f"{lane.name}: {lane.text}", "".join(signs).rstrip()]
    lines.append(_scale(result, each))
    words = {0.5: "half an hour", 1: "an hour"}.get(each, f"{each} hours")
    note = f"{FULL} has GPUs, {WAITING} may run and has none; a sign is {words}"
    return Figure("Who has GPUs when", tuple(lines), note)


def _cell(lane: Lane, start_s: float, length_s: float) -> str:
    """Whether something has GPUs for most of a time, else whether it waits for some."""
    middle = start_s + length_s / 2
    if any(stay.start <= middle < stay.end or start_s <= stay.start < stay.end <= start_s + length_s
           for stay in lane.stays):  # fmt: skip
        return FULL
    ended = lane.ends is not None and lane.ends <= middle
    return WAITING if not ended and any(begin <= middle < end for begin, end in lane.open) else CLOSED


def _scale(result: CalendarResult, each: float) -> str:
    """Labels of times below their signs, as far as there is room."""
    line = ""
    for after_s, label in _ticks(result):
        place = round(after_s / HOUR_S / each)
        if not line or place > len(line):
            line = line.ljust(place) + label
    return line


# Tables.


def _jobs(result: CalendarResult) -> Table:
    columns = (
        Column("job", least=10),
        Column("window", spare=5, least=8),
        Column("GPUs", True),
        Column("starts", True, spare=2),
        Column("done", True),
        Column(RANGE, spare=1, least=12),
        Column("deadline", True, spare=4),
        Column("outcome", least=8),
        Column("GPU-hours", True, spare=3),
        Column("lost", True, spare=6),
        Column("layout", spare=7),
    )
    rows = tuple(
        (
            clean(job.name), clean(job.window) or "always", _gpus(job),
            "never" if job.until_s is None else _moment(result, job.until_s),
            _moment(result, job.finish.expected_s), _span(result, job),
            NOT_A_NUMBER if job.deadline_s is None else _moment(result, job.deadline_s), _outcome(result, job),
            number(job.gpu_hours), duration(job.lost_s), layout_words(job.layout) if job.layout else NOT_A_NUMBER,
        )
        for job in result.jobs
    )  # fmt: skip
    note = "lost: starting, reading and saving checkpoints; ranges suppose that all jobs are as early or as late"
    unjudged = (f"{' and '.join(map(clean, job.unjudged))} of {clean(job.name)}" for job in result.jobs if job.unjudged)
    note = "; ".join((note, *(f"not judged here: {words}" for words in unjudged)))
    return Table("Jobs", columns, rows, note=note)


def _gpus(job: CalendarJob) -> str:
    seen = list(dict.fromkeys(each.gpus for each in job.sessions))
    if not seen:
        return NOT_A_NUMBER
    return str(seen[0]) if len(seen) == 1 else f"{min(seen)} to {max(seen)}"


def _services(result: CalendarResult) -> Table:
    columns = (
        Column("service", least=10),
        Column("window", spare=3, least=8),
        Column("GPUs", True),
        Column("hours", True, spare=2),
        Column("hours short", True),
        Column("outside limits", True, spare=1),
        Column("GPU-hours", True),
    )
    rows = tuple(
        (
            clean(one.name), clean(one.window) or "always",
            f"{one.min_gpus} to {one.max_gpus}" if one.min_gpus < one.max_gpus else str(one.max_gpus),
            number(one.hours), number(one.short_hours), number(one.missed_hours), number(one.gpu_hours),
        )
        for one in result.services
    )  # fmt: skip
    starts = "; ".join(f"{clean(one.name)}: replicas of {one.replica_gpus} start {duration(one.replica_start_s)} early"
                       for one in result.services)  # fmt: skip
    return Table("Services", columns, rows, note=starts)


MOST_ROWS = 48


def _hours(result: CalendarResult) -> Table:
    """GPUs hour by hour, hours alike taken together."""
    names = [*(one.name for one in result.services), *(one.name for one in result.jobs)]
    rows, shares = [], []
    spans = list(_alike(result, names))
    for hours, used, idle in spans[:MOST_ROWS]:
        rows.append((_moment(result, hours[0].hour * HOUR_S), str(len(hours)), *used, idle))
        shares.append(1.0 - hours[0].idle / result.gpus)
    columns = (
        Column("from", True),
        Column("hours", True, spare=1),
        *(Column(clean(name), True) for name in names),
        Column("idle", True),
    )
    more = f"; the first {MOST_ROWS} of {len(spans)} rows, JSON has all hours" if len(spans) > MOST_ROWS else ""
    return Table(
        "GPUs hour by hour", columns, tuple(rows), tuple(shares), note=f"means of an hour{more}", bars="GPUs at work"
    )


def _alike(result: CalendarResult, names: Iterable[str]) -> Iterator[tuple[list[CalendarHour], tuple[str, ...], str]]:
    def figures(hour: CalendarHour) -> tuple[tuple[str, ...], str]:
        used = tuple(_gpu_words(hour.used[name]) if name in hour.used else NOT_A_NUMBER for name in names)
        return used, _gpu_words(hour.idle)

    for (used, idle), group in groupby(result.hours, key=figures):
        yield list(group), used, idle


# Rows and findings.

_JOB = ("ok", "deadline_s", "probability", "certainty", "gpu_hours", "energy_kwh", "cost")


def rows(result: CalendarResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line for each time in which a job or a service has GPUs, with what becomes of it; one for what never has."""
    yield (
        "kind", "name", "priority", "window", "starts", "ends", "start_s", "end_s", "gpus", "needed_gpus", "lost_s",
        "share", "finish_low_s", "finish_s", "finish_high_s", *_JOB,
    )  # fmt: skip
    for service in result.services:
        head = ("service", service.name, service.priority, service.window)
        tail = (None, None, None, service.ok, None, None, "", service.gpu_hours, service.energy_kwh, service.cost)
        for span in service.spans:
            times = (result.moment(span.start_s), result.moment(span.end_s), span.start_s, span.end_s)
            yield (*head, *times, span.gpus, span.needed_gpus, None, None, *tail)
    for job in result.jobs:
        head = ("job", job.name, job.priority, job.window)
        finish = (job.finish.low_s, job.finish.expected_s, job.finish.high_s)
        tail = (*finish, *(getattr(job, name) for name in _JOB))
        for each in job.sessions:
            times = (result.moment(each.start_s), result.moment(each.end_s), each.start_s, each.end_s)
            yield (*head, *times, each.gpus, each.gpus, each.lost_s, each.share, *tail)
        if not job.sessions:
            yield (*head, *[None] * 8, *tail)


def findings(result: CalendarResult, options: Options) -> Iterator[Finding]:
    """Each service and each job."""
    said = [(one.name, one.ok, _service_words(one), "served", False) for one in result.services]
    said += [
        (one.name, one.ok, _job_words(result, one), "deadline", one.certainty not in ("", SURE, BOUND))
        for one in result.jobs
    ]
    for name, ok, words, kind, doubtful in said:
        case = Case(kind, output=words) if ok else Case(kind, "failed", kind, words)
        title = "as asked" if ok else "not as asked"
        yield Finding(name, (case,), (judgement(ok, title, (f"{name}: {words}",), doubtful, options.file),))
