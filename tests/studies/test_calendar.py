"""Calendars on real estimates: nothing is shared twice, hours add up, order and more servers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.calendar import CalendarJob, CalendarResult
from xe_sizer.scenario.calendar import Calendar, read_calendar
from xe_sizer.scenario.read import changed, load_scenario, read_scenario
from xe_sizer.studies import calendar as study
from xe_sizer.studies.calendar import calendar_result
from xe_sizer.studies.estimate import serve
from xe_sizer.studies.plan import plan_and_estimate
from xe_sizer.training.run import start_up_s
from xe_sizer.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.scenario import Scenario

REGISTRY = Registry()
HEAD = "server: dell-xe9680-h100\nstarts: mon 08:00\n"
LOAD = "[1, 1, 1, 1, 1, 1, 1, 5, 60, 100, 100, 100, 100, 100, 100, 100, 100, 80, 40, 20, 10, 5, 2, 1]"
CHAT = f"""services:
  chat:
    scenario:
      model: llama-3.1-8b
      serve: {{users: 1500, input_tokens: 1000, output_tokens: 300, hourly_load: {LOAD}}}
"""
SFT = "{{model: llama-3.1-8b, job: sft, train: {{steps: {steps}, global_batch: 128, seq_len: 4096, padding: packed}}}}"


def read(text: str, folder: Path) -> Calendar:
    file = folder / "cluster.yaml"
    file.write_text(text, encoding="utf-8")

    def of_file(path: Path, hardware: Mapping[str, object]) -> Document:
        return load_scenario(path)

    def of_document(document: Document) -> Scenario:
        return read_scenario(document.path, {}, {}, lambda _: document)

    return read_calendar(file, REGISTRY, of_file, of_document)


def answer(text: str, folder: Path, **changes: Any) -> CalendarResult:
    return calendar_result(replace(read(text, folder), **changes), REGISTRY)


def job(name: str, steps: int, **keys: object) -> str:
    lines = [f"  {name}:", f"    scenario: {SFT.format(steps=steps)}"]
    return "\n".join([*lines, *(f"    {key}: {value}" for key, value in keys.items())]) + "\n"


NIGHT = "20:00-08:00"
WEEK = (
    HEAD
    + CHAT
    + "jobs:\n"
    + job("long", 24000, window=NIGHT, deadline="thu 08:00")
    + job("short", 2500, window=NIGHT, priority="low")
    + job("always", 9000, max_gpus=8)
)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> CalendarResult:
    return answer(WEEK, tmp_path_factory.mktemp("week"), servers=2)


def test_no_hour_has_more_gpus_than_the_cluster(week: CalendarResult) -> None:
    assert len(week.hours) == 24 * week.days
    for hour in week.hours:
        assert sum(hour.used.values()) + hour.idle == pytest.approx(week.gpus)
        assert hour.idle >= 0.0


def test_at_no_moment_more_gpus_are_held_than_there_are(week: CalendarResult) -> None:
    end_s = week.days * DAY_S
    spans = [(each.start_s, each.end_s, each.gpus) for one in week.services for each in one.spans]
    spans += [(each.start_s, min(each.end_s, end_s), each.gpus) for one in week.jobs for each in one.sessions]
    for moment in {begin for begin, *_ in spans}:
        assert sum(gpus for begin, end, gpus in spans if begin <= moment < end) <= week.gpus


def test_the_hours_of_each_job_add_up(week: CalendarResult) -> None:
    for one in week.jobs:
        assert sum(each.share for each in one.sessions) == pytest.approx(1.0)
        assert one.gpu_hours == pytest.approx(sum(s.gpus * (s.end_s - s.start_s) for s in one.sessions) / HOUR_S)
        assert one.lost_s == pytest.approx(sum(each.lost_s for each in one.sessions))
        assert one.finish.expected_s == one.sessions[-1].end_s
    named = [one.name for one in (*week.services, *week.jobs)]
    shown = {name: sum(hour.used.get(name, 0.0) for hour in week.hours) for name in named}
    for name, hours in shown.items():
        whole = next(one.gpu_hours for one in (*week.services, *week.jobs) if one.name == name)
        assert hours == pytest.approx(whole) or (name in {one.name for one in week.jobs} and hours < whole)
    assert week.gpu_hours == pytest.approx(sum(shown.values()))


def planned(scenario: Scenario, **values: object) -> Result:
    """The estimate of the layout that `plan` takes on the GPUs that are given."""
    given = changed(scenario, {key.replace("__", "."): value for key, value in values.items()})
    conclude = plan_and_estimate(given, REGISTRY, details=False)[1]
    assert conclude is not None
    return conclude()


def test_a_session_takes_what_a_plan_on_those_gpus_takes(week: CalendarResult, tmp_path: Path) -> None:
    """Work is a share of the job's time on as many GPUs; a start costs its start-up, a stop its checkpoint."""
    long = next(one for one in week.jobs if one.name == "long")
    gpus = long.sessions[0].gpus
    assert {each.gpus for each in long.sessions} == {gpus}
    scenario = next(entry.scenario for entry in read(WEEK, tmp_path).entries if entry.name == "long")
    alone = planned(scenario, gpus=gpus, train__checkpoint_every=1)
    assert alone.time is not None
    steps_s = alone.time.step_s.expected * 24000
    worked_s = sum(each.end_s - each.start_s - each.lost_s for each in long.sessions)
    assert worked_s == pytest.approx(steps_s, rel=1e-6)
    assert alone.checkpoint is not None
    start_s, save_s = alone.time.start_up_s, alone.checkpoint.save_s
    assert start_s is not None
    read_s = alone.checkpoint.bytes / alone.checkpoint.write_bytes_per_s
    expected = [start_s + save_s] + [start_s + read_s + save_s] * (len(long.sessions) - 2) + [start_s + read_s]
    assert len(long.sessions) > 1
    assert [each.lost_s for each in long.sessions] == [pytest.approx(each, rel=1e-3) for each in expected]


def test_windows_and_services_are_kept(week: CalendarResult) -> None:
    for name in ("long", "short"):
        one = next(each for each in week.jobs if each.name == name)
        for each in one.sessions:
            assert any(begin <= each.start_s and each.end_s <= end for begin, end in one.open_s)
    (chat,) = week.services
    assert chat.ok
    assert chat.hours == pytest.approx(24.0 * week.days)


def test_a_service_has_the_replicas_of_its_hourly_load(week: CalendarResult, tmp_path: Path) -> None:
    entry = next(one for one in read(WEEK, tmp_path).entries if one.service)
    day = serve(entry.scenario, REGISTRY).day
    assert day is not None
    (chat,) = week.services
    for hour in range(24):
        at_s = ((hour - 8) % 24 + 0.5) * HOUR_S
        held = next(each.gpus for each in chat.spans if each.start_s <= at_s < each.end_s)
        assert held == day.hours[hour].gpus
    starts = (each for each in chat.spans[1:] if (each.start_s + 8 * HOUR_S) % HOUR_S)
    assert all(HOUR_S - each.start_s % HOUR_S == pytest.approx(day.replica_start_s) for each in starts)


# Order.


def plain(result: CalendarResult) -> dict[str, object]:
    return {one.name: replace(one, scenario={}) for one in (*result.services, *result.jobs)}


def test_the_order_of_the_file_does_not_matter(week: CalendarResult, tmp_path: Path) -> None:
    asked = read(WEEK, tmp_path)
    turned = calendar_result(replace(asked, servers=2, entries=tuple(reversed(asked.entries))), REGISTRY)
    assert plain(turned) == plain(week)
    assert turned.hours == week.hours


def test_priority_comes_before_the_deadline_and_the_deadline_before_the_name(tmp_path: Path) -> None:
    def first(*jobs: str) -> str:
        found = answer(HEAD + "jobs:\n" + "".join(jobs), tmp_path, servers=1)
        return min(found.jobs, key=lambda one: one.until_s if one.until_s is not None else 1e30).name

    eight: dict[str, object] = {"min_gpus": 8, "max_gpus": 8}
    assert first(job("a", 900, **eight), job("b", 900, **eight)) == "a"
    assert first(job("a", 900, **eight), job("b", 900, **eight, deadline_hours=50)) == "b"
    assert first(job("a", 900, **eight, priority="high"), job("b", 900, **eight, deadline_hours=50)) == "a"
    assert first(job("a", 900, **eight, deadline_hours=60), job("b", 900, **eight, deadline_hours=50)) == "b"


# More servers.


def test_more_servers_meet_what_fewer_meet_and_never_end_the_first_job_later(tmp_path: Path) -> None:
    text = WEEK
    found = [answer(text, tmp_path, servers=count) for count in (1, 2, 3, 4)]
    assert [one.ok for one in found] == sorted(one.ok for one in found)
    ends = [_end(next(job for job in one.jobs if job.name == "long")) for one in found]
    assert ends == sorted(ends, reverse=True)
    fewest = next(place for place, one in enumerate(found, start=1) if one.ok)
    assert {one.fewest_gpus for one in found} == {8 * fewest}
    opened = answer(text, tmp_path)
    assert (opened.servers, opened.asked_gpus) == (fewest, None)
    assert plain(opened) == plain(found[fewest - 1])


def _end(job: CalendarJob) -> float:
    return float("inf") if job.finish.expected_s is None else job.finish.expected_s


def test_fewer_would_do_is_said(tmp_path: Path) -> None:
    found = answer(HEAD + "jobs:\n" + job("a", 100), tmp_path, servers=5)
    assert (found.ok, found.servers, found.fewest_gpus) == (True, 5, 8)


# Deadlines and their probability.


def test_a_deadline_is_met_with_the_probability_that_limits_have(tmp_path: Path) -> None:
    """Alone on the cluster a deadline is `max_hours` after the start, but for the start-up that a run's time lacks."""
    text = HEAD + "jobs:\n" + job("a", 2000, min_gpus=8, max_gpus=8)
    (one,) = answer(text, tmp_path, servers=1).jobs
    entry = read(text, tmp_path).entries[0]
    alone = planned(entry.scenario, gpus=8)
    assert alone.time is not None
    span = alone.time.total_s
    assert one.finish.expected_s is not None
    assert one.finish.low_s is not None
    assert one.finish.high_s is not None
    start_s = one.sessions[0].lost_s
    assert one.finish.expected_s == pytest.approx(span.expected + start_s)
    assert one.finish.low_s == pytest.approx((span.expected + start_s) * span.low / span.expected)
    assert one.finish.high_s == pytest.approx((span.expected + start_s) * span.high / span.expected)
    hours = one.finish.expected_s / HOUR_S
    for factor in (0.9, 1.0001, 1.2, 1.5):
        due = text + f"    deadline_hours: {hours * factor}\n"
        (found,) = answer(due, tmp_path, servers=1).jobs
        (limit,) = planned(entry.scenario, gpus=8, limits__max_hours=span.expected / HOUR_S * factor).verdict.limits
        assert found.ok is limit.ok
        assert found.probability == pytest.approx(limit.probability, abs=0.01)
        assert found.certainty == limit.certainty


def test_confidence_is_asked_of_deadlines(tmp_path: Path) -> None:
    text = HEAD + "jobs:\n" + job("a", 6000, min_gpus=8, max_gpus=8)
    (one,) = answer(text, tmp_path, servers=1).jobs
    assert one.finish.expected_s is not None
    due = text + f"    deadline_hours: {1.02 * one.finish.expected_s / HOUR_S}\n"
    assert answer(due, tmp_path, servers=1).ok
    sure = answer(due, tmp_path, servers=1, confidence=0.9)
    assert not sure.ok
    assert sure.fewest_gpus is None  # its GPUs are fixed: no number of servers helps


# What cannot be.


def test_every_number_of_gpus_gets_a_layout_that_likely_holds_the_job(tmp_path: Path) -> None:
    """The fastest layout of DPO of 8B on 16 GPUs may or may not fit; one with room stands in its place."""
    dpo = "{model: llama-3.1-8b, job: dpo, train: {steps: 2000}}"
    (one,) = answer(f"{HEAD}jobs:\n  dpo: {{scenario: {dpo}}}\n", tmp_path, servers=2).jobs
    assert one.max_gpus == 16
    assert one.fit_probability is not None
    assert one.fit_probability >= 0.75


def test_what_does_not_fit_says_on_how_many_gpus_it_would(tmp_path: Path) -> None:
    text = (
        HEAD
        + "jobs:\n  big: {scenario: {model: llama-3.1-70b, job: sft, train: {steps: 10}, layout: {offload: none}}}\n"
    )
    found = answer(text, tmp_path, servers=1)
    (big,) = found.jobs
    assert not found.ok
    assert (big.min_gpus, big.sessions, big.finish.expected_s) == (None, (), None)
    assert found.fewest_gpus is not None
    assert found.fewest_gpus > 8
    assert big.reason == f"likely does not fit on 8 GPUs; {found.fewest_gpus} would do"


def test_a_service_without_enough_gpus_is_short_where_it_is(tmp_path: Path) -> None:
    found = answer(HEAD + CHAT.replace("users: 1500", "users: 9000"), tmp_path, servers=1)
    (chat,) = found.services
    assert not found.ok
    assert 0.0 < chat.short_hours < 24.0
    for each in chat.spans:
        assert each.gpus <= min(found.gpus, each.needed_gpus)
    short = sum(each.end_s - each.start_s for each in chat.spans if each.gpus < each.needed_gpus)
    assert chat.short_hours == pytest.approx(short / HOUR_S)


def test_a_part_of_a_server_is_a_cluster_too(tmp_path: Path) -> None:
    text = "gpu: rtx-4090\ngpus: 2\njobs:\n  a: {scenario: {model: llama-3.1-8b, job: qlora, train: {steps: 50}}}\n"
    found = answer(text, tmp_path)
    assert (found.gpus, found.ok, found.fewest_gpus) == (2, True, 1)
    assert max(each.gpus for each in found.jobs[0].sessions) <= 2
    hours = (found.jobs[0].finish.expected_s or 0.0) / HOUR_S
    short = answer(text.replace("}}}", f"}}}}, deadline_hours: {hours / 2}}}"), tmp_path)
    assert (short.gpus, short.ok) == (2, False)  # of eight no more than two are taken
    assert max(each.gpus for each in short.jobs[0].sessions) <= 2


def test_reinforcement_learning_is_a_job_like_others(tmp_path: Path) -> None:
    text = HEAD + "jobs:\n  grpo: {scenario: {model: qwen2.5-1.5b, job: grpo, train: {steps: 20}}, max_gpus: 8}\n"
    found = answer(text, tmp_path)
    (grpo,) = found.jobs
    assert found.ok
    assert sum(each.share for each in grpo.sessions) == pytest.approx(1.0)


def test_a_replica_is_not_started_before_the_last_window_closed(tmp_path: Path) -> None:
    """Windows a minute apart, and replicas that take longer to start: no GPU is held twice."""
    text = HEAD + CHAT + '    window: ["08:00-12:00", "12:01-20:00"]\n'
    (chat,) = answer(text, tmp_path, servers=2).services
    assert chat.replica_start_s > 60.0
    assert all(one.end_s <= other.start_s for one, other in pairwise(chat.spans))
    assert chat.ok


# Estimates.


def test_nothing_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(scenario: Scenario, values: Mapping[str, object]) -> Scenario:
        asked.append(f"{scenario.values.train.steps} steps: {sorted(values.items())}")
        return changed(scenario, values)

    monkeypatch.setattr(study, "changed", counted)
    answer(WEEK, tmp_path)
    assert len(asked) == len(set(asked)) > 3


def test_start_up_is_no_part_of_a_job_s_work(week: CalendarResult, tmp_path: Path) -> None:
    from xe_sizer.studies.estimate import job_wing

    entry = next(one for one in read(WEEK, tmp_path).entries if one.name == "always")
    wing = job_wing(entry.scenario)
    always = next(one for one in week.jobs if one.name == "always")
    start_s = start_up_s(wing.resolve(entry.scenario, REGISTRY).job)
    assert always.sessions[0].lost_s >= start_s
