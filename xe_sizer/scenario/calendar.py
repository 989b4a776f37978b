"""A calendar: one cluster, the jobs and services on it, and when each of them may run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from xe_sizer.errors import InputError, Problem, collecting, did_you_mean, file_order
from xe_sizer.fields import json_schema
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import convert, show
from xe_sizer.profiles.finder import is_path
from xe_sizer.profiles.text import name_of
from xe_sizer.profiles.yaml_reader import Document
from xe_sizer.result.calendar import WEEKDAYS
from xe_sizer.scenario.read import load_scenario, over
from xe_sizer.scenario.scenario import Scenario, serves
from xe_sizer.scenario.schema import (
    EXTENDS,
    Confidence,
    CostSection,
    Degree,
    Name,
    Positive,
    ScenarioFile,
    scenario_json_schema,
)
from xe_sizer.units import DAY_S, HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Places

# Times of a week, in seconds from Monday 00:00.

WEEK_S = 7 * DAY_S
_DAY = "|".join(f"{name}[a-z]*" for name in WEEKDAYS)
_CLOCK = r"([01]?\d|2[0-4]):([0-5]\d)"
_MOMENT = re.compile(rf"(?:({_DAY})\s+)?{_CLOCK}", re.IGNORECASE)
_WINDOW = re.compile(rf"(?:((?:{_DAY})(?:\s*[-,]\s*(?:{_DAY}))*)\s+)?{_CLOCK}\s*-\s*{_CLOCK}", re.IGNORECASE)
_MOMENT_HINT = "a time of day, with a weekday where one is meant: '08:00' or tue 08:00"
_WINDOW_HINT = "two times of day, with weekdays where not every day is meant: 20:00-08:00 or mon-fri 20:00-08:00"


class Window(Immutable, eq=True):
    """Hours in which something may run.

    days : weekdays on which it opens, from Monday as 0; opens_s : of the day; length_s : may reach into the next day
    """

    days: tuple[int, ...]
    opens_s: float
    length_s: float


def _time_of_day(hours: str, minutes: str) -> float:
    return int(hours) * HOUR_S + int(minutes) * MINUTE_S


def _weekday(word: str) -> int:
    return WEEKDAYS.index(word[:3].lower())


def read_window(text: str) -> Window | None:
    """The window that a text says, such as `mon-fri 20:00-08:00`; None where it says none."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        return None
    opens_s, closes_s = _time_of_day(found[2], found[3]), _time_of_day(found[4], found[5])
    if max(opens_s, closes_s) > DAY_S or opens_s in (closes_s, DAY_S):
        return None
    return Window(tuple(sorted(_days(found[1] or "mon-sun"))), opens_s, (closes_s - opens_s) % DAY_S or DAY_S)


def _days(text: str) -> set[int]:
    """Weekdays of `mon-fri,sun`; a span may go over the end of the week."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = (word.strip() for word in part.partition("-"))
        start = _weekday(first)
        found |= {(start + step) % 7 for step in range((_weekday(last or first) - start) % 7 + 1)}
    return found


def read_moment(text: str, after_s: float) -> float | None:
    """Seconds from a moment of the week until the next one that a text says; None where it says none.

    after_s : the moment, from Monday 00:00 [s]; the same moment is a day, or where a weekday is named a week, later
    """
    found = _MOMENT.fullmatch(text.strip())
    if found is None or (time_s := _time_of_day(found[2], found[3])) > DAY_S:
        return None
    if found[1] is None:
        return (time_s - after_s) % DAY_S or DAY_S
    return (_weekday(found[1]) * DAY_S + time_s - after_s) % WEEK_S or WEEK_S


def open_spans(windows: Iterable[Window], start_s: float, end_s: float) -> list[tuple[float, float]]:
    """The spans in which any of the windows is open, ascending [s]; all of it where there are none.

    Windows that overlap are one; those that touch stay two, between which a job may change its GPUs.

    start_s : when the calendar starts, from Monday 00:00 [s]; spans count from there, up to `end_s`
    """
    windows = tuple(windows)
    if not windows:
        return [(0.0, end_s)]
    first_day = int(start_s // DAY_S)
    opened = sorted(
        (day * DAY_S + window.opens_s - start_s, window.length_s)
        for day in range(first_day - 1, int((start_s + end_s) // DAY_S) + 1)
        for window in windows
        if day % 7 in window.days
    )
    spans: list[tuple[float, float]] = []
    for begin, length_s in opened:
        begin_s, finish_s = max(begin, 0.0), min(begin + length_s, end_s)
        if finish_s <= begin_s:
            continue
        if spans and begin_s < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], finish_s))
        else:
            spans.append((begin_s, finish_s))
    return spans


# The file.

PRIORITIES = ("high", "normal", "low")
"""In the order in which they are given GPUs."""
Priority = Literal["high", "normal", "low"]
Moment = Annotated[str, Meta(min_length=1, examples=["tue 08:00"])]
Windows = str | tuple[str, ...]


class ServiceEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service on the cluster."""

    scenario: Annotated[
        str | dict[str, Any], Meta(description="Scenario: a path, or its keys, which may extend a file")
    ]
    window: Annotated[
        Windows | None, Meta(description="When it serves, e.g. mon-fri 08:00-20:00; several in a list; default: always")
    ] = None
    priority: Annotated[Priority | None, Meta(description="What is given GPUs first; default: high")] = None


class JobEntry(ServiceEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job on the cluster."""

    window: Annotated[
        Windows | None, Meta(description="When it may run, e.g. 20:00-08:00; several in a list; default: always")
    ] = None
    priority: Annotated[Priority | None, Meta(description="What is given GPUs first; default: normal")] = None
    not_before: Annotated[Moment | None, Meta(description="When it may first run, e.g. tue 12:00")] = None
    deadline: Annotated[Moment | None, Meta(description="By when it must be done, e.g. fri 08:00")] = None
    deadline_hours: Annotated[Positive | None, Meta(description="The same, in hours from the calendar's start")] = None
    min_gpus: Annotated[Degree | None, Meta(description="Fewest GPUs to run on; default: the fewest that fit")] = None
    max_gpus: Annotated[Degree | None, Meta(description="Most GPUs to run on; default: all of the cluster")] = None


class CalendarFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster, and what is to run on it."""

    server: Annotated[Name | None, Meta(description="Server profile; instead of gpu")] = None
    gpu: Annotated[Name | None, Meta(description="Accelerator profile; instead of server")] = None
    servers: Annotated[Degree | None, Meta(description="Number of servers; the fewest that do if omitted")] = None
    gpus: Annotated[Degree | None, Meta(description="Number of GPUs; instead of servers")] = None
    starts: Annotated[Moment | None, Meta(description="When the calendar starts; default: mon 00:00")] = None
    days: Annotated[
        Annotated[int, Meta(ge=1, le=28)] | None,
        Meta(description="Days that it shows; default: until the last job is done, at most 7"),
    ] = None
    confidence: Annotated[
        Confidence | None, Meta(description="With which deadlines must be met and memory must suffice")
    ] = None
    cost: Annotated[CostSection, Meta(description="Prices, instead of those of profiles")] = field(
        default_factory=CostSection
    )
    services: Annotated[dict[str, ServiceEntry], Meta(description="Services by name")] = field(default_factory=dict)
    jobs: Annotated[dict[str, JobEntry], Meta(description="Jobs by name")] = field(default_factory=dict)


def calendar_json_schema() -> dict[str, Any]:
    """JSON Schema of a calendar, for editors and CI: its scenarios are scenarios."""
    schema, inside = json_schema(CalendarFile), scenario_json_schema()
    definitions = schema["$defs"]
    root = definitions[CalendarFile.__name__]
    about_it = "Calendar whose keys hold where this one has none; a key without a value takes that file's out"
    root["properties"] = {EXTENDS: {"type": "string", "description": about_it}, **root["properties"]}
    for entry in (ServiceEntry, JobEntry):
        found = definitions[entry.__name__]["properties"]["scenario"]
        found["anyOf"] = [{"type": "string"}, {"$ref": f"#/$defs/{ScenarioFile.__name__}"}]
    for name, definition in inside["$defs"].items():
        definitions.setdefault(name, definition)
    return schema


# What is read of it.


class Entry(Immutable):
    """A job or a service of a calendar.

    given_s : seconds from the calendar's start: `not_before_s`, and `deadline_s`, None where there is none
    priority : place in PRIORITIES; place : where it stands in the file
    """

    name: str
    scenario: Scenario
    windows: tuple[Window, ...]
    words: str
    priority: int
    service: bool
    place: Location
    not_before_s: float = 0.0
    deadline_s: float | None = None
    min_gpus: int | None = None
    max_gpus: int | None = None


class Calendar(Immutable):
    """What a calendar asks.

    servers, gpus : of the cluster, at most one of them given; start_s : from Monday 00:00 [s]
    """

    entries: tuple[Entry, ...]
    server: Server
    servers: int | None
    gpus: int | None
    start_s: float
    days: int | None
    confidence: float | None


ReadFile = Callable[[Path, Mapping[str, object]], Document]
"""What reads a scenario file or one of another tool, with hardware that such a file need not name."""
ReadScenario = Callable[[Document], Scenario]
"""What makes a scenario of a document."""


def read_calendar(path: Path, registry: Registry, read_file: ReadFile, read_scenario: ReadScenario) -> Calendar:
    """Read a calendar and all scenarios that it names.

    Raises
    ------
    InputError : with every problem of the calendar's keys, or else of all its scenarios
    """
    document = load_scenario(path)
    own = {key: value for key, value in cast(dict[str, Any], document.value).items() if key != EXTENDS}
    if "model" in own and not own.keys() & {"jobs", "services"}:
        hint = "a calendar has scenarios under jobs: and services:, each by a name"
        raise InputError(Problem("this is a scenario, no calendar", document.locate(("model",), key=True), hint))
    file = convert(own, CalendarFile, document.locate)
    problems: list[Problem] = []
    server: Server | None = None
    with collecting(problems):
        server = _server(file, document, registry)
    start_s = _moment(document, ("starts",), file.starts, problems)
    problems += _contradictions(file, document)
    entries: list[Entry] = []
    named = [*((("services", name), entry) for name, entry in file.services.items()),
             *((("jobs", name), entry) for name, entry in file.jobs.items())]  # fmt: skip
    hardware = {"server": file.server} if file.server is not None else {"gpu": file.gpu}
    for place, entry in named:
        times = _times(entry, document, place, start_s or 0.0, problems)
        if server is None:
            continue
        with collecting(problems):
            scenario = read_scenario(_document(document, place, entry, file, server, hardware, read_file))
            where = document.locate(place, key=True)
            _check_kind(scenario, place[0], where)
            entries.append(_entry(place[1], scenario, entry, where, times, server.accelerators))
    if problems or server is None:
        raise InputError(sorted(problems, key=lambda one: (_elsewhere(one, document), *file_order(one))))
    return Calendar(
        entries=tuple(entries),
        server=server,
        servers=file.servers,
        gpus=file.gpus,
        start_s=start_s or 0.0,
        days=file.days,
        confidence=file.confidence,
    )


def _elsewhere(problem: Problem, document: Document) -> str:
    """The file that a problem is in where it is not the calendar."""
    name = problem.location.name if problem.location else ""
    return "" if name == name_of(document.path) else name


def _server(file: CalendarFile, document: Document, registry: Registry) -> Server:
    """The server of the cluster. Raises InputError: none, both a server and a GPU, or an unknown one."""
    if file.server is not None and file.gpu is not None:
        message = "'server' and 'gpu' both name the hardware"
        raise InputError(Problem(message, document.locate(("gpu",), key=True), "keep one of them"))
    if file.server is not None:
        return registry.server(_relative(document, "server", file.server), document.locate(("server",)))
    if file.gpu is not None:
        gpu = registry.accelerator(_relative(document, "gpu", file.gpu), document.locate(("gpu",)))
        return registry.bare_server(gpu)
    hint = "for example server: dell-xe9680-h100; 'xe-sizer profiles list server' prints all"
    raise InputError(Problem("no hardware named: give a server or a gpu", document.locate(()), hint))


def _folder(document: Document, key: str) -> Path:
    """Where relative paths of a key start: the folder of the file that has it."""
    return document.stated_in.get(key, document.path).parent


def _relative(document: Document, key: str, name: str) -> str:
    return str(_folder(document, key) / name) if is_path(name) else name


def _contradictions(file: CalendarFile, document: Document) -> Iterator[Problem]:
    if file.servers is not None and file.gpus is not None:
        place = document.locate(("gpus",), key=True)
        yield Problem("'servers' and 'gpus' both say how large the cluster is", place, "keep one of them")
    if not file.services and not file.jobs:
        yield Problem("nothing is to run", document.locate(()), "give jobs: or services:, each by a name")
    for name in file.services.keys() & file.jobs.keys():
        place = document.locate(("jobs", name), key=True)
        yield Problem(f"a service and a job are both called {show(name)}", place, "give each a name of its own")


def _moment(
    document: Document, path: KeyPath, text: str | None, problems: list[Problem], after_s: float | None = None
) -> float | None:
    """Seconds of a moment: after another one, or from Monday 00:00 where it is None."""
    if text is None:
        return None
    found = read_moment(text, 0.0 if after_s is None else after_s)
    if found is None:
        problems.append(Problem(f"{show(text)} is no moment", document.locate(path), _MOMENT_HINT))
        return None
    return found % WEEK_S if after_s is None else found


class _Times(Immutable):
    windows: tuple[Window, ...]
    words: str
    not_before_s: float
    deadline_s: float | None


def _times(entry: ServiceEntry, document: Document, place: KeyPath, start_s: float, problems: list[Problem]) -> _Times:
    texts = (entry.window,) if isinstance(entry.window, str) else entry.window or ()
    windows: list[Window] = []
    for number, text in enumerate(texts):
        found = read_window(text)
        path = (*place, "window") if isinstance(entry.window, str) else (*place, "window", number)
        if found is None:
            problems.append(Problem(f"{show(text)} is no window", document.locate(path), _WINDOW_HINT))
        else:
            windows.append(found)
    words = ", ".join(text.strip() for text in texts)
    if not isinstance(entry, JobEntry):
        return _Times(tuple(windows), words, 0.0, None)
    # a minute before, so that the start itself counts
    first_s = _moment(document, (*place, "not_before"), entry.not_before, problems, start_s - MINUTE_S)
    not_before_s = 0.0 if first_s is None else first_s - MINUTE_S
    deadline_s = _moment(document, (*place, "deadline"), entry.deadline, problems, start_s)
    where = document.locate((*place, "deadline_hours"), key=True)
    if entry.deadline_hours is not None:
        if entry.deadline is not None:
            problems.append(Problem("'deadline' and 'deadline_hours' both say the deadline", where, "keep one of them"))
        deadline_s = entry.deadline_hours * HOUR_S
    if deadline_s is not None and deadline_s <= not_before_s:
        key = "deadline" if entry.deadline is not None else "deadline_hours"
        hint = "a moment of the week is the next one after the start; deadline_hours counts further"
        problems.append(Problem("the deadline is not after 'not_before'", document.locate((*place, key)), hint))
    if entry.min_gpus is not None and entry.max_gpus is not None and entry.min_gpus > entry.max_gpus:
        message = f"'min_gpus' is {entry.min_gpus}, more than 'max_gpus' {entry.max_gpus}"
        problems.append(Problem(message, document.locate((*place, "min_gpus"))))
    return _Times(tuple(windows), words, not_before_s, deadline_s)


def _document(
    document: Document, place: KeyPath, entry: ServiceEntry, file: CalendarFile, server: Server,
    hardware: Mapping[str, object], read_file: ReadFile,
) -> Document:  # fmt: skip
    """The scenario of an entry on the cluster's hardware, over the file that it names. Raises InputError."""
    dotted, at = ".".join(map(str, place)), (*place, "scenario")
    folder, inline = _folder(document, dotted), {} if isinstance(entry.scenario, str) else dict(entry.scenario)
    name = entry.scenario if isinstance(entry.scenario, str) else inline.pop(EXTENDS, None)
    if name is not None and not isinstance(name, str):
        raise InputError(Problem(f"extends must name a file, not {show(name)}", document.locate((*at, EXTENDS))))
    cluster: dict[str, Any] = dict(hardware)
    cost = {key: value for key, value in asdict(file.cost).items() if value is not None}
    if file.confidence is not None:
        cluster["limits"] = {"confidence": file.confidence}
    if cost:
        cluster["cost"] = cost

    def places() -> Places:
        values, keys = document.places
        moved = [{path[len(at) :]: where for path, where in each.items() if path[: len(at)] == at} for each in
                 (values, keys)]  # fmt: skip
        shared: dict[KeyPath, KeyPath] = {("limits", "confidence"): ("confidence",)}
        shared |= {(key,): (key,) for key in hardware}
        shared |= {("cost", key): ("cost", key) for key in cost}
        for found, known in zip(moved, (values, keys), strict=True):
            found.update({path: known[where] for path, where in shared.items() if where in known})
        return moved[0], moved[1]

    own_path = document.stated_in.get(dotted, document.path)
    given = Document(own_path, _with_groups(inline, cluster), places)
    if name is None:
        return given
    path = folder / name
    if not path.is_file():
        hint = did_you_mean(Path(name).name, [each.name for each in path.parent.glob("*.y*ml")])
        hint = hint or "its path starts at this file's folder"
        raise InputError(Problem(f"no scenario file '{name}'", document.locate(at), hint))
    base = read_file(path, {**hardware, "gpus": _gpus_given(inline, entry) or server.accelerators})
    merged = over(given, _without_assumed_gpus(base, inline))
    stated = {key: document.stated_in[key] for key in hardware if key in document.stated_in}
    return replace(merged, stated_in={**merged.stated_in, **stated})


def _with_groups(inline: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a scenario with further ones, group by group."""
    merged = {key: value for key, value in inline.items() if key not in ("server", "gpu")}
    for key, value in more.items():
        below = merged.get(key)
        merged[key] = {**(below if isinstance(below, Mapping) else {}), **value} if isinstance(value, dict) else value
    return merged


def _gpus_given(inline: Mapping[str, Any], entry: ServiceEntry) -> object:
    return inline.get("gpus") or (entry.min_gpus if isinstance(entry, JobEntry) else None)


def _without_assumed_gpus(base: Document, inline: Mapping[str, Any]) -> Document:
    """A file of another tool without the GPUs that were passed for it, where their number is open.

    Its global batch stays what it is on as many, however many micro-batches that takes.
    """
    if base.origins.get("gpus") != "flag" or "gpus" in inline:
        return base
    value = {key: each for key, each in cast(dict[str, Any], base.value).items() if key != "gpus"}
    train = value.get("train", {})
    if "global_batch" in train:
        value["train"] = {key: each for key, each in train.items() if key != "grad_accum"}
    return replace(base, value=value)


def _check_kind(scenario: Scenario, section: str, place: Location) -> None:
    """Raises InputError: a service among the jobs, or a job among the services."""
    if serves(scenario) != (section == "services"):
        kind, other = ("inference", "services") if serves(scenario) else ("training", "jobs")
        raise InputError(Problem(f"its scenario is of {kind}", place, f"put it under {other}:"))


def _entry(name: str, scenario: Scenario, entry: ServiceEntry, place: Location, times: _Times, node: int) -> Entry:
    job = entry if isinstance(entry, JobEntry) else None
    usual = "normal" if job else "high"
    deadline_s, most_hours = times.deadline_s, scenario.values.limits.max_hours
    if job and deadline_s is None and most_hours is not None:
        deadline_s = times.not_before_s + most_hours * HOUR_S
    values = scenario.values
    stated = values.gpus if values.nodes is None else values.nodes * node
    return Entry(
        name=name,
        scenario=scenario,
        windows=times.windows,
        words=times.words,
        priority=PRIORITIES.index(entry.priority or usual),
        service=job is None,
        place=place,
        not_before_s=times.not_before_s,
        deadline_s=deadline_s,
        min_gpus=(job.min_gpus if job else None) or stated,
        max_gpus=(job.max_gpus if job else None) or stated or values.limits.max_gpus,
    )
