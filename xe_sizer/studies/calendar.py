"""A calendar of a cluster: which job or service has how many GPUs when, and how many servers would do.

The rule, by which the same calendar always gets the same answer:

1. Order: priority, then services before jobs, then the earlier deadline, then the name.
2. In this order a service gets the replicas that its load needs at every hour, and a job the fewest GPUs with which it
   meets its deadline; without a deadline the fewest that hold it, and where no number meets the deadline, as many in
   each window as end it first.
3. In the same order each job then gets more of what is still free, where that ends it earlier.

A job's GPUs change between two windows only; those of a job without a window where any other window opens or closes.
While those before it need its GPUs it stops, and goes on later. At every start it loses its start-up and the reading of
its last checkpoint, and the time to save one where it is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, attempt
from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import INFERENCE_POWER_SHARE, TRAINING_POWER_SHARE, energy_kwh
from xe_sizer.result.calendar import (
    WEEKDAYS,
    CalendarCost,
    CalendarHour,
    CalendarJob,
    CalendarResult,
    CalendarService,
    Finish,
    ServiceSpan,
)
from xe_sizer.result.common import (
    BOUND,
    DEFAULT_CONFIDENCE,
    SCHEMA_VERSION,
    CostPart,
    certainty_of,
)
from xe_sizer.scenario.calendar import PRIORITIES, open_spans
from xe_sizer.scenario.limits import memory_doubt
from xe_sizer.scenario.read import changed
from xe_sizer.serving.summary import day
from xe_sizer.serving.summary import start_s as replica_start_s
from xe_sizer.studies.estimate import job_wing, serving_wing
from xe_sizer.studies.plan import likely_fits
from xe_sizer.studies.schedule import Occupancy, Way, blocks_of, play
from xe_sizer.training.search_space import gpu_counts
from xe_sizer.training.summary import build_layout
from xe_sizer.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.serving import Day
    from xe_sizer.scenario.calendar import Calendar, Entry
    from xe_sizer.scenario.tariff import Tariff
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.software.uncertainty import Spread
    from xe_sizer.studies.schedule import Blocks, Played, Spans
    from xe_sizer.training.estimate import TrainingEstimate

MOST_SERVERS = 64  # chosen: that are tried where their number is open
HORIZONS = (7, 28, 112)  # days that are looked at, the longer ones where a job is not done before
MOST_DAYS = 7  # that are shown unless somebody says
HALVINGS = 5  # of a range of probabilities, to per cents
LEVELS = (0.01, *(step / 20 for step in range(1, 20)), 0.99)  # probabilities at which the calendar is played through
JUDGED = ("max_hours", "max_gpus", "min_headroom_gib", "confidence")  # limits of a job's scenario that count here
LOW, HIGH = 0.1, 0.9  # ends of an 80 % range
UTILISATION = "cost.utilisation"

# Services: what each hour of the day needs.


class Service(Immutable):
    """A service, sized once for its load and for each hour of a day."""

    entry: Entry
    estimate: ServingEstimate
    day: Day | None
    scenario: dict[str, Any]

    @property
    def replica_gpus(self) -> int:
        return int(self.estimate.placement.gpus[0])

    def at(self, hour: int) -> tuple[int, int, bool]:
        """Replicas, GPUs beside them, and whether the limits are met, at an hour of the day."""
        if self.day is None:
            replicas, gpus, meets = self.estimate.replicas, self.estimate.gpus, self.estimate.ok
        else:
            one = self.day.hours[hour % 24]
            replicas, gpus, meets = one.replicas, one.gpus, one.meets_limits
        return replicas, gpus - replicas * self.replica_gpus, meets

    @cached_property
    def gpus(self) -> tuple[int, int]:
        """Fewest and most GPUs of a day."""
        every = [replicas * self.replica_gpus + more for replicas, more, _ in map(self.at, range(24))]
        return min(every), max(every)

    @property
    def start_s(self) -> float:
        return self.day.replica_start_s if self.day else replica_start_s(self.estimate)

    def demand(self, start_s: float, end_s: float) -> Iterator[tuple[float, float, int, int, bool]]:
        """Spans with the replicas, further GPUs and limits of their hour; what is added starts early enough to answer.

        start_s : of the calendar, from Monday 00:00; spans count from it, up to `end_s` [s]
        """
        found: list[list[Any]] = []
        for opens, closes in open_spans(self.entry.windows, start_s, end_s):
            at = opens
            while at < closes:
                hour, begun = int((start_s + at) // HOUR_S), at
                at = min((hour + 1) * HOUR_S - start_s, closes)
                found.append([begun, at, *self.at(hour)])
        for place, slot in enumerate(found):
            before = found[place - 1] if place else [0.0, 0.0, 0]
            if before[1] < slot[0]:
                slot[0] = max(slot[0] - self.start_s, before[1])
            elif slot[2] > before[2]:
                slot[0] = before[1] = max(slot[0] - self.start_s, before[0])
        for begun, until, replicas, more, meets in found:
            if until > begun:
                yield begun, until, replicas, more, meets


def _size_service(entry: Entry, registry: Registry) -> Service:
    """Raises InputError."""
    wing = serving_wing()
    sized = wing.size(wing.resolve(entry.scenario, registry))
    return Service(entry, sized, day(sized), wing.summarise(sized, False).scenario)


# Jobs: sized once on each number of GPUs that is asked about.


class Job:
    """A job with the estimates of the numbers of GPUs that were asked about."""

    def __init__(self, entry: Entry, registry: Registry, node: int) -> None:
        self.entry = entry
        self.registry = registry
        self.node = node
        self.wing = job_wing(entry.scenario)
        self.pinned: dict[str, object] = {}  # an assumed batch, as it is on the fewest GPUs that hold the job
        self.known: dict[int, TrainingEstimate | None] = {}
        self.problem: InputError | None = None
        self.wing.resolve(entry.scenario, registry)  # which tells what is wrong, on whatever GPUs

    def estimate(self, gpus: int) -> TrainingEstimate | None:
        """The job on so many GPUs as `plan` runs it there, in a layout that likely holds it; None where there is none.

        Where the user says on how many GPUs it runs at most, a layout that may hold it will do.
        """
        if gpus not in self.known:
            found = self._searched(gpus, self.pinned)
            if not found and self.pinned:
                found = self._searched(gpus, {})  # GPUs that cannot split the assumed batch have one of their own
            likely = [one for one in found if likely_fits(one)]
            if not likely and self.entry.max_gpus is not None:
                likely = [one for one in found if not any(memory_doubt(one, one.confidence))]
            self.known[gpus] = min(likely, key=lambda one: one.total_s, default=None)
        return self.known[gpus]

    def _searched(self, gpus: int, pinned: Mapping[str, object]) -> tuple[TrainingEstimate, ...]:
        """What fits of all that the stack supports on so many GPUs."""
        try:
            resolved = self.wing.resolve(changed(self.entry.scenario, {**pinned, "gpus": gpus}), self.registry)
            found = self.wing.candidates(resolved)
            sized = found.of_a_whole_search()
            if not found.considered:
                raise InputError(found.resolved.no_layout((gpus,)))
        except InputError as problem:
            self.problem = problem
            return ()
        return sized

    @property
    def spread(self) -> Spread | None:
        return next((one.uncertainty.spread for one in self.known.values() if one is not None), None)

    def numbers(self, most: int) -> list[int]:
        """The numbers of GPUs that it may run on, ascending."""
        low, high = self.entry.min_gpus or 1, min(self.entry.max_gpus or most, most)
        named = {count for count in (self.entry.min_gpus, self.entry.max_gpus) if count is not None}
        return sorted({count for count in (*gpu_counts(self.node, most, parts=True), *named) if low <= count <= high})

    def ways(self, most: int) -> list[Way]:
        """The numbers of at most so many GPUs that hold it, with its times on them."""
        found: list[Way] = []
        for count in self.numbers(most):
            one = self.estimate(count)
            if one is None:
                continue
            assumed = one.resolved.origins.get("train.global_batch") == "default" and one.question.batch_is_free
            if assumed and not self.pinned:
                self.pinned = {"train.global_batch": one.resolved.job.global_batch}
            times = (one.total_s, one.start_s, one.resume_s, one.save_s)
            found.append(Way(count, one.resolved.job.global_batch, blocks_of(count, self.node), *times))
        return found

    def scenario(self, gpus: int | None) -> dict[str, Any]:
        """The scenario as it is resolved on so many GPUs."""
        one = self.estimate(gpus) if gpus else next((each for each in self.known.values() if each), None)
        return {} if one is None else dict(self.wing.summarise(one, False).scenario)


# A schedule: the sessions of every job.


class Schedule(Immutable):
    """What is played on a number of servers, jobs with their times as expected or at a probability.

    served : by service, spans with the GPUs that it gets, that it needs, and whether its limits are met
    """

    jobs: Mapping[str, Played]
    served: Mapping[str, tuple[tuple[float, float, int, int, bool], ...]]
    sizes: Mapping[str, int | None]
    end_s: float


class Cluster:
    """A calendar on a number of servers."""

    def __init__(self, study: Study, bins: Blocks) -> None:
        self.study = study
        self.bins = bins
        self.gpus = sum(bins)
        self.ways = {job.entry.name: job.ways(self.gpus) for job in study.jobs}
        self.known: dict[tuple[float | None, bool], Schedule] = {}

    def at(self, probability: float | None, sure: bool = False) -> Schedule:
        """The schedule with every job's times at a probability, or as expected where it is None.

        sure : with times of which no limit is sure before
        How many GPUs a job gets first is decided on the times that its deadline is judged by.
        """
        key = (probability, sure)
        if key not in self.known:
            plan = self.study.confidence
            sizes = None if key == (plan, False) else self.at(plan).sizes
            factors = {job.entry.name: _factor(job.spread, probability, sure) for job in self.study.jobs}
            for days in HORIZONS:
                found = self._schedule(days * DAY_S, factors, sizes)
                able = [name for name, ways in self.ways.items() if ways]
                if all(found.jobs[name].finish_s is not None for name in able):
                    break
            self.known[key] = found
        return self.known[key]

    def _schedule(self, end_s: float, factors: Mapping[str, float], sizes: Mapping[str, int | None] | None) -> Schedule:
        held = Occupancy(self.bins, end_s)
        served: dict[str, tuple[tuple[float, float, int, int, bool], ...]] = {}
        jobs: dict[str, Played] = {}
        chosen: dict[str, int | None] = {}
        spans = {job.entry.name: self.parts(job.entry, end_s) for job in self.study.jobs}
        for one in self.study.ordered:
            name = one.entry.name
            if isinstance(one, Service):
                served[name] = tuple(_serve(one, self.study.calendar.start_s, held))
                continue
            ways = self.ways[name]
            if sizes is None:
                chosen[name], jobs[name] = _first(one.entry, ways, spans[name], factors[name], held)
            else:
                chosen[name] = sizes[name]
                fixed = [way for way in ways if way.gpus == sizes[name]]
                jobs[name] = play(fixed or _by_batch(ways)[0], spans[name], factors[name], held)
            self._hold(name, jobs[name], held.put)
        for one in self.study.ordered:
            name = one.entry.name
            if isinstance(one, Service):
                continue
            self._hold(name, jobs[name], held.take)
            for ways in _by_batch(self.ways[name]):
                more = play(ways, spans[name], factors[name], held)
                if more.key < jobs[name].key:
                    jobs[name] = more
            self._hold(name, jobs[name], held.put)
        return Schedule(jobs, served, chosen, end_s)

    def spans(self, entry: Entry, end_s: float) -> list[tuple[float, float]]:
        """When a job or a service may run."""
        spans = open_spans(entry.windows, self.study.calendar.start_s, end_s)
        return [(max(begin, entry.not_before_s), until) for begin, until in spans if until > entry.not_before_s]

    def parts(self, entry: Entry, end_s: float) -> list[tuple[float, float]]:
        """The same, cut where a job may change its GPUs: between its windows, else between those of the others."""
        spans = self.spans(entry, end_s)
        if entry.windows:
            return spans
        others = (one.windows for one in self.study.calendar.entries if one.windows)
        start_s = self.study.calendar.start_s
        edges = sorted({edge for windows in others for span in open_spans(windows, start_s, end_s) for edge in span})
        found = []
        for begin, until in spans:
            cuts = [begin, *(edge for edge in edges if begin < edge < until), until]
            found += list(pairwise(cuts))
        return found

    def _hold(self, name: str, played: Played, change: Callable[[float, float, Blocks], None]) -> None:
        for session in played.sessions:
            change(session.start_s, session.end_s, blocks_of(session.gpus, self.study.node))

    @cached_property
    def ok(self) -> bool:
        """Whether everything is served, and every job done, in time as surely as is asked."""
        schedule = self.at(self.study.confidence)
        jobs = all(
            played.finish_s is not None and played.finish_s <= (deadline_s if deadline_s is not None else math.inf)
            for played, deadline_s in ((schedule.jobs[job.entry.name], job.entry.deadline_s) for job in self.study.jobs)
        )
        return jobs and all(
            meets and gpus == needed for spans in schedule.served.values() for _, _, gpus, needed, meets in spans
        )


def _factor(spread: Spread | None, probability: float | None, sure: bool) -> float:
    """Factor on the times of a job; 1 where nobody knows how far they are off."""
    if spread is None:
        return 1.0
    expected = 1.0 if probability is None else spread.quantile(probability)
    return max(expected, spread.sure_from) if sure else expected


def _first(
    entry: Entry, ways: Sequence[Way], spans: Spans, factor: float, held: Occupancy
) -> tuple[int | None, Played]:
    """The fewest GPUs with which a job meets its deadline, or is done where it has none; None for as many as help."""
    limit_s = math.inf if entry.deadline_s is None else entry.deadline_s
    for way in ways:
        played = play([way], spans, factor, held)
        if played.finish_s is not None and played.finish_s <= limit_s:
            return way.gpus, played
    return None, play(_by_batch(ways)[0], spans, factor, held)


def _by_batch(ways: Sequence[Way]) -> list[list[Way]]:
    """Ways with the same global batch, that of the fewest GPUs first: a job trains with one from start to end."""
    batches = dict.fromkeys(way.batch for way in ways)
    return [[way for way in ways if way.batch == batch] for batch in batches] or [[]]


def _serve(service: Service, start_s: float, held: Occupancy) -> Iterator[tuple[float, float, int, int, bool]]:
    """Give a service the replicas of every hour, or as many as there is room for."""
    node, each = service.estimate.resolved.job.server.accelerators, service.replica_gpus
    for begun, until, replicas, more, meets in service.demand(start_s, held.end_s):
        needed = replicas * each + more
        for begin, end, standing in list(held.segments(begun, until)):
            count = replicas
            blocks = _blocks(count, each, more, node)
            while count and not held.takes(standing, blocks):
                count -= 1
                blocks = _blocks(count, each, more, node)
            held.put(begin, end, blocks if count else ())
            yield begin, end, count * each + more if count else 0, needed, meets and service.estimate.fits


def _blocks(replicas: int, each: int, more: int, node: int) -> Blocks:
    found = blocks_of(each, node) * replicas + blocks_of(more, node)
    return tuple(sorted(found, reverse=True))


# The study.


class Study:
    """A calendar with its services and jobs sized, each once on each number of GPUs."""

    def __init__(self, calendar: Calendar, registry: Registry) -> None:
        self.calendar = calendar
        self.node = calendar.server.accelerators
        self.confidence = calendar.confidence
        problems: list[Any] = []
        services: list[Service] = []
        jobs: list[Job] = []
        for entry in calendar.entries:
            made = (
                attempt(_size_service, entry, registry) if entry.service else attempt(Job, entry, registry, self.node)
            )
            if isinstance(made, InputError):
                problems += made.problems
            elif isinstance(made, Service):
                services.append(made)
            else:
                jobs.append(made)
        if problems:
            raise InputError(list(dict.fromkeys(problems)))
        self.services, self.jobs = services, jobs
        self.ordered: list[Service | Job] = sorted((*services, *jobs), key=_rank)
        self.clusters: dict[Blocks, Cluster] = {}

    def cluster(self, bins: Blocks) -> Cluster:
        if bins not in self.clusters:
            self.clusters[bins] = Cluster(self, bins)
        return self.clusters[bins]

    @cached_property
    def tried(self) -> tuple[Blocks, ...]:
        """The clusters that are tried, the smaller first: of whole servers, of bare GPUs also parts of one."""
        most = MOST_SERVERS * self.node
        if not self.calendar.server.bare:
            return tuple((self.node,) * count for count in range(1, MOST_SERVERS + 1))
        return tuple(blocks_of(gpus, self.node) for gpus in gpu_counts(self.node, most, parts=True))


def _rank(one: Service | Job) -> tuple[int, bool, float, str]:
    entry = one.entry
    return entry.priority, not entry.service, math.inf if entry.deadline_s is None else entry.deadline_s, entry.name


def calendar_result(calendar: Calendar, registry: Registry) -> CalendarResult:
    """What runs when on the cluster, and how many servers would do.

    Raises
    ------
    InputError : with what is wrong with the scenarios
    """
    study = Study(calendar, registry)
    asked = _asked(calendar, study.node)
    given = None if asked is None else study.cluster(asked)
    fewest = next((cluster for cluster in map(study.cluster, study.tried) if cluster.ok), None)
    if given is None:
        given = fewest or _nearest(study)
    elif fewest is not None and not given.ok and fewest.gpus <= given.gpus:
        given = fewest  # what fewer do, more do: the others stand idle
    return _Answer(study, given, asked, fewest).result()


def _asked(calendar: Calendar, node: int) -> Blocks | None:
    """The servers that were asked for, by their GPUs; None where they are open."""
    if calendar.gpus is not None:
        return blocks_of(calendar.gpus, node)
    return None if calendar.servers is None else (node,) * calendar.servers


def _fewest_for_services(study: Study) -> Blocks | None:
    """The smallest cluster that serves the services, were there no jobs; None where they are not shared."""
    if not study.services or not study.jobs:
        return None
    for bins in study.tried:
        held = Occupancy(bins, HORIZONS[0] * DAY_S)
        spans = [span for one in study.ordered if isinstance(one, Service)
                 for span in _serve(one, study.calendar.start_s, held)]  # fmt: skip
        if all(gpus == needed and meets for _, _, gpus, needed, meets in spans):
            return bins
    return None


def _nearest(study: Study) -> Cluster:
    """The smallest cluster on which least is missed."""

    def missed(cluster: Cluster) -> int:
        schedule = cluster.at(study.confidence)
        late = sum(
            played.key > (job.entry.deadline_s if job.entry.deadline_s is not None else 1e300)
            for job, played in ((job, schedule.jobs[job.entry.name]) for job in study.jobs)
        )
        short = sum(
            gpus < needed or not meets for spans in schedule.served.values() for _, _, gpus, needed, meets in spans
        )
        return late + short

    return min(map(study.cluster, study.tried), key=missed)


class _Answer(Immutable):
    """What is told of a cluster.

    asked : servers that were asked for, None where they were open; fewest : the smallest cluster that does, None where
    none of those tried does
    """

    study: Study
    cluster: Cluster
    asked: Blocks | None
    fewest: Cluster | None

    def result(self) -> CalendarResult:
        calendar, server = self.study.calendar, self.study.calendar.server
        bins = self.cluster.bins if self.asked is None else self.asked
        services = tuple(self.service(one) for one in self.study.services)
        jobs = tuple(self.job(one) for one in self.study.jobs)
        hours = self.hours(sum(bins))
        used = math.fsum(sum(hour.used.values()) for hour in hours)
        start_s, alone = calendar.start_s, _fewest_for_services(self.study)
        return CalendarResult(
            schema_version=SCHEMA_VERSION,
            server=server.name,
            gpu=server.accelerator.name,
            gpus=sum(bins),
            servers=len(bins),
            gpus_per_server=self.study.node,
            by_server=not server.bare,
            asked_gpus=None if self.asked is None else sum(self.asked),
            fewest_gpus=None if self.fewest is None else self.fewest.gpus,
            fewest_gpus_for_services=None if alone is None else sum(alone),
            tried_gpus=sum(self.study.tried[-1]),
            starts=f"{WEEKDAYS[int(start_s // DAY_S)]} {clock(start_s)}",
            days=self.days,
            confidence=self.study.confidence or DEFAULT_CONFIDENCE,
            services=services,
            jobs=jobs,
            hours=hours,
            available_gpu_hours=float(sum(bins) * len(hours)),
            gpu_hours=used,
            energy_kwh=self.energy(hours),
            cost=self.cost(hours),
        )

    @cached_property
    def expected(self) -> Schedule:
        return self.cluster.at(None)

    @cached_property
    def days(self) -> int:
        """Days that are shown: as asked, else a week where a service has weekdays, else until the last job is done."""
        if self.study.calendar.days is not None:
            return self.study.calendar.days
        some_days = any(len(window.days) < 7 for one in self.study.services for window in one.entry.windows)
        ends = [played.key for played in self.expected.jobs.values()]
        last_s = MOST_DAYS * DAY_S if some_days else min(max(ends, default=0.0), MOST_DAYS * DAY_S)
        return max(math.ceil(last_s / DAY_S), 1)

    def opened(self, entry: Entry) -> tuple[tuple[float, float], ...]:
        """When its window is open in the days that are shown."""
        return tuple(self.cluster.spans(entry, self.days * DAY_S))

    def service(self, one: Service) -> CalendarService:
        end_s, entry, server = self.days * DAY_S, one.entry, self.study.calendar.server
        spans = [(begin, min(end, end_s), *rest) for begin, end, *rest in self.expected.served[entry.name]
                 if begin < end_s]  # fmt: skip
        whole = self.expected.served[entry.name]
        hours = [(end - begin) / HOUR_S for begin, end, *_ in spans]
        short = [gpus < needed for _, _, gpus, needed, _ in spans]
        gpu_hours = math.fsum(gpus * length for (_, _, gpus, *_), length in zip(spans, hours, strict=True))
        missed = [not meets and not lacks for (*_, meets), lacks in zip(spans, short, strict=True)]
        return CalendarService(
            name=entry.name,
            priority=PRIORITIES[entry.priority],
            window=entry.words,
            open_s=self.opened(entry),
            replica_gpus=one.replica_gpus,
            min_gpus=one.gpus[0],
            max_gpus=one.gpus[1],
            replica_start_s=one.start_s,
            spans=tuple(_joined(spans)),
            hours=math.fsum(hours),
            short_hours=math.fsum(length for length, lacks in zip(hours, short, strict=True) if lacks),
            missed_hours=math.fsum(length for length, misses in zip(hours, missed, strict=True) if misses),
            fit_probability=one.estimate.fit_probability,
            ok=all(gpus == needed and meets for _, _, gpus, needed, meets in whole),
            reason="" if one.estimate.fits else f"a replica does not fit on {one.replica_gpus} GPUs",
            gpu_hours=gpu_hours,
            energy_kwh=energy_kwh(server, gpu_hours, INFERENCE_POWER_SHARE),
            cost=self.price(entry.name, gpu_hours),
            scenario=one.scenario,
        )

    def job(self, one: Job) -> CalendarJob:
        entry, name = one.entry, one.entry.name
        played, ways = self.expected.jobs[name], self.cluster.ways[name]
        opens = self.cluster.spans(entry, self.expected.end_s)
        begun = played.sessions[0].start_s if played.sessions else None
        planned = self.cluster.at(self.study.confidence).jobs[name].finish_s
        deadline_s = entry.deadline_s
        ok = planned is not None and (deadline_s is None or planned <= deadline_s)
        probability, certainty = self.chance(one)
        gpu_hours = sum(each.gpus * (each.end_s - each.start_s) for each in played.sessions) / HOUR_S
        most = max((each.gpus for each in played.sessions), default=None)
        given, chosen = entry.scenario.values.limits, one.estimate(most) if most else None
        unjudged = (name for name in given.__struct_fields__ if getattr(given, name) is not None and name not in JUDGED)
        return CalendarJob(
            name=name,
            priority=PRIORITIES[entry.priority],
            window=entry.words,
            open_s=self.opened(entry),
            not_before_s=entry.not_before_s,
            deadline_s=deadline_s,
            min_gpus=ways[0].gpus if ways else None,
            max_gpus=ways[-1].gpus if ways else None,
            waits_s=None if begun is None or not opens else begun - opens[0][0],
            until_s=begun,
            sessions=played.sessions,
            finish=self.finish(one),
            ok=ok,
            probability=probability,
            certainty=certainty,
            fit_probability=None if chosen is None else chosen.fit_probability,
            unjudged=tuple(unjudged),
            reason="" if ok else self.reason(one),
            lost_s=math.fsum(each.lost_s for each in played.sessions),
            gpu_hours=gpu_hours,
            energy_kwh=energy_kwh(self.study.calendar.server, gpu_hours, TRAINING_POWER_SHARE),
            cost=self.price(name, gpu_hours),
            layout=None if chosen is None else build_layout(chosen.layouts),
            basis=None if chosen is None else chosen.uncertainty.basis,
            scenario=one.scenario(most),
        )

    def finish(self, one: Job) -> Finish:
        """When a job is done; what else is early or late is so together, and a job is not earlier for it."""
        expected = self.expected.jobs[one.entry.name].key
        low, high = expected, expected
        if one.spread is not None:
            low, high = (self.cluster.at(level).jobs[one.entry.name].key for level in (LOW, HIGH))
        ends = (min(low, expected), expected, max(high, expected))
        low_s, expected_s, high_s = (end if math.isfinite(end) else None for end in ends)
        return Finish(low_s=low_s, expected_s=expected_s, high_s=high_s)

    def chance(self, one: Job) -> tuple[float | None, str]:
        """That the deadline is met, all jobs being as early or late as each other, and the word for it."""
        deadline_s, name = one.entry.deadline_s, one.entry.name
        if deadline_s is None or not self.cluster.ways[name]:
            return None, ""
        if one.spread is None:
            return None, BOUND

        def met(level: float) -> bool:
            return self.cluster.at(level).jobs[name].key <= deadline_s

        last = next((place for place, level in enumerate(LEVELS) if not met(level)), len(LEVELS))
        below, above = (0.0, *LEVELS)[last], (*LEVELS, 1.0)[last]
        for _ in range(HALVINGS if 0 < last < len(LEVELS) else 0):
            middle = (below + above) / 2
            below, above = (middle, above) if met(middle) else (below, middle)
        probability = round((below + above) / 2, 3)
        known = self.cluster.at(None, sure=True).jobs[name].key <= deadline_s
        return probability, certainty_of(probability, known=known)

    def reason(self, one: Job) -> str:
        """Why a job is not done or too late."""
        name, entry = one.entry.name, one.entry
        if not self.cluster.ways[name]:
            least = next((way.gpus for way in one.ways(sum(self.study.tried[-1]))), None)
            if least is not None and least > self.cluster.gpus:
                return f"likely does not fit on {self.cluster.gpus} GPUs; {least} would do"
            asked = entry.max_gpus or self.cluster.gpus
            if one.problem is not None and not any(one.known.values()):
                return one.problem.problems[0].message
            return f"does not fit on {asked} GPUs or fewer"
        played = self.cluster.at(self.study.confidence).jobs[name]
        least = self.cluster.ways[name][0].gpus
        if not played.sessions:
            return f"never has {least} GPUs in its window for long enough to start"
        if played.finish_s is None:
            return f"is not done within {HORIZONS[-1]} days"
        return "is done after its deadline"

    def hours(self, gpus: int) -> tuple[CalendarHour, ...]:
        count = self.days * 24
        used: list[dict[str, float]] = [{} for _ in range(count)]
        held = [(name, begin, end, of) for name, spans in self.expected.served.items() for begin, end, of, *_ in spans]
        held += [(name, each.start_s, each.end_s, each.gpus) for name, played in self.expected.jobs.items()
                 for each in played.sessions]  # fmt: skip
        for name, begin, end, of in held:
            for hour in range(int(begin // HOUR_S), min(math.ceil(end / HOUR_S), count)):
                shared_s = min(end, (hour + 1) * HOUR_S) - max(begin, hour * HOUR_S)
                if of and shared_s > 0:
                    used[hour][name] = used[hour].get(name, 0.0) + of * shared_s / HOUR_S
        return tuple(
            CalendarHour(hour=hour, used=each, idle=max(gpus - math.fsum(each.values()), 0.0))
            for hour, each in enumerate(used)
        )

    def energy(self, hours: Iterable[CalendarHour]) -> float | None:
        """Energy of the GPUs at work in the hours that are shown [kWh]."""
        server, services = self.study.calendar.server, {one.entry.name for one in self.study.services}
        drawn = [
            energy_kwh(server, gpu_hours, INFERENCE_POWER_SHARE if name in services else TRAINING_POWER_SHARE)
            for hour in hours for name, gpu_hours in hour.used.items()
        ]  # fmt: skip
        known = [each for each in drawn if each is not None]
        return math.fsum(known) if len(known) == len(drawn) else None

    @cached_property
    def tariffs(self) -> dict[str, Tariff]:
        """What the GPUs of each service and job cost, by its name: electricity differs by what they do."""
        found: dict[str, Any] = {one.entry.name: one.estimate.resolved for one in self.study.services}
        for one in self.study.jobs:
            sized = next((each for each in one.known.values() if each is not None), None)
            found |= {} if sized is None else {one.entry.name: sized.resolved}
        return {name: _of_all_hours(each) for name, each in found.items()}

    def price(self, name: str, gpu_hours: float) -> float | None:
        """What so many GPU-hours of a service or a job cost; None without a price."""
        cost = self.tariffs[name].hour(gpu_hours, gpu_hours) if name in self.tariffs else None
        return None if cost is None else float(cost)

    def cost(self, hours: Sequence[CalendarHour]) -> CalendarCost | None:
        """Of the days that are shown: GPUs at work with their electricity, and idle ones without."""
        tariff = next(iter(self.tariffs.values()), None)
        if tariff is None or tariff.per_gpu_hour is None:
            return None
        parts, used = dict[str, float](), 0.0
        for name, its in self.tariffs.items():
            gpu_hours = math.fsum(hour.used.get(name, 0.0) for hour in hours)
            used += self.price(name, gpu_hours) or 0.0
            for part, value in its.parts(gpu_hours, gpu_hours).items():
                parts[part] = parts.get(part, 0.0) + float(value)
        idle = math.fsum(hour.idle for hour in hours)
        off = replace(tariff, electricity=None)
        for part, value in off.parts(idle, 0.0).items():
            parts[part] = parts.get(part, 0.0) + float(value)
        unused = off.hour(idle, 0.0)
        assert unused is not None
        return CalendarCost(
            currency=tariff.currency,
            cluster=used + float(unused),
            used=used,
            parts=tuple(CostPart(name=part, value=value) for part, value in parts.items()),
            hourly_price=tariff.hourly(self.study.calendar.server),
        )


def _of_all_hours(resolved: Any) -> Tariff:
    """A tariff under which every hour of servers that are owned is paid for, as a calendar has the idle ones too.

    Where the user says how much of their hours servers have work, that holds.
    """
    tariff: Tariff = resolved.tariff
    own = tariff.own
    if own is None or tariff.per_gpu_hour is None or resolved.origins.get(UTILISATION) != "default":
        return tariff
    per_gpu_hour = tariff.per_gpu_hour * own.utilisation
    return replace(tariff, per_gpu_hour=per_gpu_hour, own=replace(own, utilisation=1.0))


def clock(seconds: float) -> str:
    """The time of day of a moment of the week: 08:30."""
    minutes = int(seconds % DAY_S // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _joined(spans: Iterable[Sequence[Any]]) -> Iterator[ServiceSpan]:
    """Spans with those that follow each other with the same GPUs taken together."""
    last: ServiceSpan | None = None
    for begin, end, gpus, needed, *_ in spans:
        if last and last.end_s == begin and (last.gpus, last.needed_gpus) == (gpus, needed):
            last = ServiceSpan(start_s=last.start_s, end_s=end, gpus=gpus, needed_gpus=needed)
            continue
        if last:
            yield last
        last = ServiceSpan(start_s=begin, end_s=end, gpus=gpus, needed_gpus=needed)
    if last:
        yield last
