"""A day of different hours, with replicas that come and go."""

from __future__ import annotations

import pytest
from cases import REGISTRY
from serving_cases import problems, served

from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.search import size
from xe_sizer.serving.summary import summarise

OFFICE = (4, 3, 2, 2, 2, 3, 6, 12, 22, 32, 38, 40, 36, 38, 40, 39, 35, 30, 26, 22, 18, 14, 9, 6)
CHAT: dict[str, object] = {
    "model": "llama-3.1-70b",
    "serve__request_rate": 40.0,
    "serve__hourly_load": OFFICE,
    "cost__price_per_gpu_hour": 2.5,
}


def test_every_hour_has_the_replicas_that_it_needs_alone() -> None:
    """Each hour as a question of its own, with the placement of the peak."""
    found = summarise(served(**CHAT))
    day = found.day
    assert day is not None
    assert [hour.load for hour in day.hours] == list(OFFICE)
    assert [hour.share for hour in day.hours] == pytest.approx([value / 40 for value in OFFICE])
    for hour in (day.hours[2], day.hours[8], day.hours[11]):
        alone = served("llama-3.1-70b", serve__request_rate=hour.load, layout__tp=found.layout.tp, layout__pp=1)
        assert (hour.replicas, hour.gpus) == (alone.replicas, alone.gpus)
        assert hour.ttft_s == pytest.approx(alone.ttft_s)
    assert day.hours[11].gpus == found.gpus.count
    assert day.requests == 3600 * sum(OFFICE)


def test_gpu_hours_count_hours_and_starts() -> None:
    """Started GPUs wait for their weights: 141 GB at 2 GB/s and a minute; a fixed time says otherwise."""
    found = summarise(served(**CHAT, serve__replica_start_s=360.0))
    day = found.day
    assert day is not None
    gpus = [hour.gpus for hour in day.hours]
    started = sum(max(now - then, 0) for now, then in zip(gpus, [gpus[-1], *gpus[:-1]], strict=True))
    assert day.gpu_hours == pytest.approx(sum(gpus) + started / 10)
    assert day.cost == pytest.approx(2.5 * day.gpu_hours)
    assert (day.peak_gpu_hours, day.peak_cost) == (24 * max(gpus), 24 * max(gpus) * 2.5)
    assumed = summarise(served(**CHAT)).day
    assert assumed is not None
    assert assumed.replica_start_s == pytest.approx(141.1e9 / 2e9 + 60, rel=0.01)


def test_the_unit_of_the_hours_is_free() -> None:
    shares = tuple(value / 40 for value in OFFICE)
    one, other = (summarise(served(**{**CHAT, "serve__hourly_load": hours})).day for hours in (OFFICE, shares))
    assert one == other


def test_gpus_that_are_there_are_the_most_of_an_hour() -> None:
    day = summarise(served(**CHAT, gpus=16)).day
    assert day is not None
    assert max(hour.gpus for hour in day.hours) <= 16
    assert day.hours[3].gpus < 16


def test_an_hour_without_load_keeps_a_replica() -> None:
    day = summarise(served(**{**CHAT, "serve__hourly_load": (0,) * 12 + (1,) * 12})).day
    assert day is not None
    assert (day.hours[0].replicas, day.hours[0].load, day.hours[0].requests_per_s) == (1, 0.0, 0.0)


@pytest.mark.parametrize("load", [{"serve__users": 400}, {"serve__concurrency": 300}])
def test_users_and_concurrent_requests_have_days_too(load: dict[str, object]) -> None:
    day = summarise(served("llama-3.1-8b", gpu="l40s", serve__hourly_load=OFFICE, **load)).day
    assert day is not None
    replicas = [hour.replicas for hour in day.hours]
    assert max(replicas) == replicas[11] > replicas[2]


def test_a_day_needs_the_load_of_its_peak() -> None:
    assert any("needs the load" in one for one in problems(serve__hourly_load=OFFICE))
    assert any("needs the load" in one for one in problems(serve__hourly_load=OFFICE, serve__batch=3))
    assert any("any load" in one for one in problems(serve__hourly_load=(0,) * 24, serve__request_rate=1.0))
    assert any("needs 'hourly_load'" in one for one in problems(serve__replica_start_s=9.0, serve__request_rate=1.0))
    assert summarise(served(serve__request_rate=1.0)).day is None


def test_hours_are_written_with_commas_and_read_as_numbers() -> None:
    """As an option, and as the report shows it."""
    written = ",".join(map(str, OFFICE))
    flags = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "serve.request_rate": 40.0, "serve.hourly_load": written}
    result = summarise(size(resolve(read_scenario(None, flags, {}), REGISTRY)))
    assert result.day is not None
    text = render(result, "table", Options())
    fewest, most = (pick(hour.replicas for hour in result.day.hours) for pick in (min, max))
    assert f"Day      {fewest} to {most} replicas, " in text
    assert "11:00     40" in text
