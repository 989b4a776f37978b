"""Calendars as files: windows and moments, what is wrong where, and files over files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.calendar import Calendar, Window, open_spans, read_calendar, read_moment, read_window
from xe_sizer.scenario.read import load_scenario, read_scenario
from xe_sizer.training import jobs  # which makes jobs known by their names
from xe_sizer.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.scenario.scenario import Scenario

EVERY_DAY = tuple(range(7))
assert jobs


def read(path: Path) -> Calendar:
    def of_file(file: Path, hardware: Mapping[str, object]) -> Document:
        return load_scenario(file)

    def of_document(document: Document) -> Scenario:
        return read_scenario(document.path, {}, {}, lambda _: document)

    return read_calendar(path, Registry(), of_file, of_document)


def written(folder: Path, text: str, name: str = "cluster.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(written(folder, text))
    return [
        f"{one.location.line}:{one.location.column}: {one.message}" for one in caught.value.problems if one.location
    ]


JOB = "{model: llama-3.2-1b, job: lora, train: {steps: 100}}"
SERVICE = "{model: llama-3.2-1b, serve: {users: 10}}"
HEAD = "server: dell-xe9680-h100\n"


# Times.


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("20:00-08:00", Window(EVERY_DAY, 20 * HOUR_S, 12 * HOUR_S)),
        ("00:00-24:00", Window(EVERY_DAY, 0.0, DAY_S)),
        ("8:00 - 20:30", Window(EVERY_DAY, 8 * HOUR_S, 12.5 * HOUR_S)),
        ("mon-fri 20:00-08:00", Window((0, 1, 2, 3, 4), 20 * HOUR_S, 12 * HOUR_S)),
        ("Saturday,Sunday 00:00-24:00", Window((5, 6), 0.0, DAY_S)),
        ("fri-mon 08:00-09:00", Window((0, 4, 5, 6), 8 * HOUR_S, HOUR_S)),
    ],
)
def test_a_window_is_two_times_with_weekdays(text: str, window: Window) -> None:
    assert read_window(text) == window


@pytest.mark.parametrize(
    "text", ["", "8-20", "20:00", "08:00-08:00", "25:00-08:00", "24:30-08:00", "someday 8:00-9:00"]
)
def test_what_is_no_window_is_none(text: str) -> None:
    assert read_window(text) is None


def test_a_moment_is_the_next_one() -> None:
    tuesday_noon = DAY_S + 12 * HOUR_S
    assert read_moment("18:00", tuesday_noon) == 6 * HOUR_S
    assert read_moment("08:00", tuesday_noon) == 20 * HOUR_S
    assert read_moment("12:00", tuesday_noon) == DAY_S
    assert read_moment("wed 08:00", tuesday_noon) == 20 * HOUR_S
    assert read_moment("Tuesday 12:00", tuesday_noon) == 7 * DAY_S
    assert read_moment("noon", tuesday_noon) is None


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    """From Friday 18:00: Friday's night is a weekday's, those of Saturday and Sunday are not."""
    start_s = 4 * DAY_S + 18 * HOUR_S
    spans = open_spans([read_window("mon-fri 20:00-08:00")], start_s, 4 * DAY_S)  # type: ignore[list-item]
    assert [(begin / HOUR_S, end / HOUR_S) for begin, end in spans] == [(2.0, 14.0), (74.0, 86.0)]


def test_a_calendar_that_starts_in_a_window_starts_in_it() -> None:
    window = read_window("20:00-08:00")
    assert window is not None
    assert open_spans([window], 2 * HOUR_S, DAY_S) == [(0.0, 6 * HOUR_S), (18 * HOUR_S, DAY_S)]


def test_windows_that_overlap_are_one_and_those_that_touch_are_two() -> None:
    early, late, both = (read_window(text) for text in ("08:00-12:00", "12:00-20:00", "10:00-14:00"))
    assert early is not None
    assert late is not None
    assert both is not None
    assert open_spans([early, late], 0.0, DAY_S) == [(8 * HOUR_S, 12 * HOUR_S), (12 * HOUR_S, 20 * HOUR_S)]
    assert open_spans([early, late, both], 0.0, DAY_S) == [(8 * HOUR_S, 20 * HOUR_S)]


# The file.


def test_a_calendar_is_read(tmp_path: Path) -> None:
    found = read(written(tmp_path, f"""{HEAD}servers: 2
starts: mon 08:00
confidence: 0.8
cost: {{price_per_gpu_hour: 3, currency: EUR}}
services:
  chat-3.2: {{scenario: {SERVICE}}}
jobs:
  night:
    scenario: {JOB}
    window: [mon-fri 20:00-08:00, "sat,sun 00:00-24:00"]
    deadline: wed 08:00
    not_before: "20:00"
    priority: low
    min_gpus: 2
    max_gpus: 8
"""))  # fmt: skip
    chat, night = found.entries
    assert (found.servers, found.start_s, found.confidence) == (2, 8 * HOUR_S, 0.8)
    assert (chat.name, chat.service, chat.priority, chat.windows) == ("chat-3.2", True, 0, ())
    assert (night.service, night.priority, len(night.windows)) == (False, 2, 2)
    assert (night.not_before_s, night.deadline_s) == (12 * HOUR_S, 48 * HOUR_S)
    assert (night.min_gpus, night.max_gpus) == (2, 8)
    for entry in found.entries:
        values = entry.scenario.values
        assert (values.server, values.gpu) == ("dell-xe9680-h100", None)
        assert (values.limits.confidence, values.cost.price_per_gpu_hour, values.cost.currency) == (0.8, 3, "EUR")


def test_the_hardware_of_the_cluster_is_that_of_every_scenario(tmp_path: Path) -> None:
    written(tmp_path, "model: llama-3.2-1b\ngpu: a100-sxm-80gb\nnodes: 2\njob: lora\ntrain: {steps: 100}\n", "job.yaml")
    text = (
        f"{HEAD}jobs:\n  one: {{scenario: job.yaml}}\n  two: {{scenario: {{extends: job.yaml, train: {{steps: 7}}}}}}\n"
    )
    one, two = read(written(tmp_path, text)).entries
    assert [each.scenario.values.server for each in (one, two)] == ["dell-xe9680-h100"] * 2
    assert [each.scenario.values.gpu for each in (one, two)] == [None, None]
    assert [each.scenario.values.train.steps for each in (one, two)] == [100, 7]
    assert [(each.min_gpus, each.max_gpus) for each in (one, two)] == [(16, 16), (16, 16)]


def test_max_hours_of_a_scenario_is_its_deadline(tmp_path: Path) -> None:
    limited = JOB.replace("job: lora", "job: lora, limits: {max_hours: 5}")
    text = f"{HEAD}jobs:\n  a: {{scenario: {limited}}}\n  b: {{scenario: {limited}, deadline_hours: 30}}\n"
    a, b = read(written(tmp_path, text)).entries
    assert (a.deadline_s, b.deadline_s) == (5 * HOUR_S, 30 * HOUR_S)


def test_a_calendar_holds_over_the_one_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    written(tmp_path / "base", "model: llama-3.2-1b\njob: lora\ntrain: {steps: 100}\n", "job.yaml")
    base = f"{HEAD}servers: 2\njobs:\n  llama-3.2: {{scenario: job.yaml}}\n  other: {{scenario: {JOB}}}\n"
    written(tmp_path / "base", base, "week.yaml")
    text = f"extends: base/week.yaml\nservers: 4\njobs:\n  other: null\n  third-1.5: {{scenario: {JOB}}}\n"
    found = read(written(tmp_path, text))
    assert found.servers == 4
    assert {entry.name for entry in found.entries} == {"llama-3.2", "third-1.5"}


def test_all_problems_are_told_at_once_and_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(tmp_path, f"""{HEAD}servers: 2
gpus: 8
starts: monday
services:
  a:
    scenario: {JOB}
    window: 8-20
jobs:
  b:
    scenario: {{modle: llama-3.2-1b, job: lora}}
    deadline: tomorrow
    deadline_hours: 5
  c:
    scenario: {JOB}
    min_gpus: 8
    max_gpus: 4
    not_before: tue 08:00
    deadline_hours: 3
  a:
    scenario: {JOB}
""")  # fmt: skip
    assert found == [
        "3:1: 'servers' and 'gpus' both say how large the cluster is",
        "4:9: 'monday' is no moment",
        "6:3: its scenario is of training",
        "8:13: '8-20' is no window",
        "11:5: missing key 'model'",
        "11:16: unknown key 'modle'",
        "12:15: 'tomorrow' is no moment",
        "13:5: 'deadline' and 'deadline_hours' both say the deadline",
        "16:15: 'min_gpus' is 8, more than 'max_gpus' 4",
        "19:21: the deadline is not after 'not_before'",
        "20:3: a service and a job are both called 'a'",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"jobs: {{a: {{scenario: {JOB}}}}}\n", "1: no hardware named: give a server or a gpu"),
        (f"{HEAD}gpu: l4\njobs: {{a: {{scenario: {JOB}}}}}\n", "2: 'server' and 'gpu' both name the hardware"),
        (f"{HEAD}jobs: {{a: {{scenario: job.yaml}}}}\n", "2: no scenario file 'job.yaml'"),
        (f"{HEAD}servers: 2\n", "1: nothing is to run"),
        (f"{HEAD}job: {{a: {{scenario: {JOB}}}}}\n", "2: unknown key 'job'"),
        (f"{HEAD}jobs: {{a: {{scenario: {JOB}, windw: 20:00-08:00}}}}\n", "2: unknown key 'windw' in 'a'"),
        (f"{HEAD}jobs: {{a: {{scenario: {JOB}, priority: highest}}}}\n",
         "2: 'priority' must be one of high, normal, low, not 'highest'"),
        (f"{HEAD}services: {{a: {{scenario: {SERVICE}, deadline: tue 08:00}}}}\n",
         "2: unknown key 'deadline' in 'a'"),
        ("model: llama-3.2-1b\nserver: dell-xe9680-h100\n", "1: this is a scenario, no calendar"),
        (f"{HEAD}jobs: {{a: {{scenario: {{extends: 3}}}}}}\n", "2: extends must name a file, not 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, text: str, said: str) -> None:
    (found,) = problems(tmp_path, text)
    line, _, message = found.split(":", 2)
    assert f"{line}:{message}" == said
