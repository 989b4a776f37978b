"""What `calendar` says of the jobs and services of a cluster: the JSON contract, frozen, in SI units.

Times are seconds from the calendar's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xe_sizer.result.common import Answer, Basis, CostPart, HourlyPrice, Struct
from xe_sizer.result.training import Layout

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""As calendars write them."""
Spans = tuple[tuple[float, float], ...]
"""Beginnings and ends [s], ascending and apart."""


class Session(Struct, frozen=True, kw_only=True):
    """A time in which a job has GPUs without a break.

    lost_s : of it, for starting, reading the last checkpoint and saving one [s]; share : of the job's work done in it
    """

    start_s: float
    end_s: float
    gpus: int
    lost_s: float
    share: float


class Finish(Struct, frozen=True, kw_only=True):
    """When a job is done, with its 80 % range; None where it is not done in the days that were looked at."""

    low_s: float | None
    expected_s: float | None
    high_s: float | None


class CalendarJob(Struct, frozen=True, kw_only=True):
    """A job on the cluster.

    window : as it is written, empty where it may always run; open_s : when it is open in the days that are shown
    not_before_s, deadline_s : as asked, None: no deadline
    min_gpus, max_gpus : between which it may run, of the numbers that hold it; None where none does
    waits_s : from when it may run, its window open, to its first start; until_s : that start; None where it never runs
    probability : that the deadline is met; certainty : its word, as of a limit
    fit_probability : that memory suffices on the most GPUs that it runs on; None where nobody can say
    lost_s : of its sessions, for starting, reading and saving checkpoints [s]
    unjudged : limits of its scenario that a calendar does not look at
    layout : on the most GPUs that it runs on; basis : the published runs behind its range
    reason : why it is not done or too late, empty where it is in time
    """

    name: str
    priority: str
    window: str
    open_s: Spans
    not_before_s: float
    deadline_s: float | None
    min_gpus: int | None
    max_gpus: int | None
    waits_s: float | None
    until_s: float | None
    sessions: tuple[Session, ...]
    finish: Finish
    ok: bool
    probability: float | None = None
    certainty: str = ""
    fit_probability: float | None = None
    unjudged: tuple[str, ...] = ()
    reason: str = ""
    lost_s: float = 0.0
    gpu_hours: float = 0.0
    energy_kwh: float | None = None
    cost: float | None = None
    layout: Layout | None = None
    basis: Basis | None = None
    scenario: dict[str, Any]


class ServiceSpan(Struct, frozen=True, kw_only=True):
    """A time in which a service has GPUs, as many as it needs unless it is short."""

    start_s: float
    end_s: float
    gpus: int
    needed_gpus: int


class CalendarService(Struct, frozen=True, kw_only=True):
    """A service on the cluster, in the days that the calendar shows.

    replica_gpus : of one replica; replica_start_s : from its start to its first answer: so early it is started
    fit_probability : that the memory of a replica suffices; None where nobody can say
    short_hours : with fewer GPUs than it needs; missed_hours : with all, and its limits missed all the same
    """

    name: str
    priority: str
    window: str
    open_s: Spans
    replica_gpus: int
    min_gpus: int
    max_gpus: int
    replica_start_s: float
    spans: tuple[ServiceSpan, ...]
    hours: float
    short_hours: float
    missed_hours: float
    fit_probability: float | None = None
    ok: bool
    reason: str = ""
    gpu_hours: float = 0.0
    energy_kwh: float | None = None
    cost: float | None = None
    scenario: dict[str, Any]


class CalendarHour(Struct, frozen=True, kw_only=True):
    """One hour of the cluster: GPUs at work in the mean, of each job and service by name, and idle."""

    hour: int
    used: dict[str, float]
    idle: float


class CalendarCost(Struct, frozen=True, kw_only=True):
    """Money for the days that the calendar shows: of the whole cluster, idle or not, and of the GPUs at work alone.

    parts : that of the whole cluster is made of, where its servers are owned
    """

    currency: str
    cluster: float
    used: float
    parts: tuple[CostPart, ...] = ()
    hourly_price: HourlyPrice | None = None


class CalendarResult(Answer, frozen=True, kw_only=True):
    """What runs when on a cluster.

    asked_gpus : None where their number was open; fewest_gpus : of the smallest cluster that does, None where none does
    fewest_gpus_for_services : that serve the services, were there no jobs; None: there are none, or none tried does
    tried_gpus : up to how many were tried; servers are whole ones where `by_server`
    starts : weekday and time of the start; days : that are shown
    hours, gpu_hours, energy_kwh, cost : of the days that it shows; energy is that of the GPUs at work
    """

    question: ClassVar[str] = "calendar"

    server: str
    gpu: str
    gpus: int
    servers: int
    gpus_per_server: int
    by_server: bool
    asked_gpus: int | None
    fewest_gpus: int | None
    fewest_gpus_for_services: int | None
    tried_gpus: int
    starts: str
    days: int
    confidence: float
    services: tuple[CalendarService, ...]
    jobs: tuple[CalendarJob, ...]
    hours: tuple[CalendarHour, ...]
    available_gpu_hours: float
    gpu_hours: float
    energy_kwh: float | None = None
    cost: CalendarCost | None = None

    def moment(self, after_s: float) -> str:
        """A time after the start as weekday and clock: `Mon 20:00`, and from a week on `Mon 20:00 (week 2)`."""
        day, _, clock = self.starts.partition(" ")
        hours, _, minutes = clock.partition(":")
        whole = WEEKDAYS.index(day) * 1440 + int(hours) * 60 + int(minutes) + round(after_s / 60)
        days, minute = divmod(whole, 1440)
        week = round(after_s / 60) // (7 * 1440) + 1
        words = f"{WEEKDAYS[days % 7].capitalize()} {minute // 60:02d}:{minute % 60:02d}"
        return words if week == 1 else f"{words} (week {week})"

    @property
    def ok(self) -> bool:
        """Whether everything is served, and every job done in time."""
        return all(service.ok for service in self.services) and all(job.ok for job in self.jobs)

    @property
    def resolved_scenarios(self) -> Sequence[dict[str, Any]]:
        return [*(service.scenario for service in self.services), *(job.scenario for job in self.jobs)]

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return () if self.cost is None else (self.cost.hourly_price,)
