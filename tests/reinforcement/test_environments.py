"""Tools and environments: how long responses wait, what of it is hidden, and the CPUs that calls take."""

from __future__ import annotations

import math
from typing import Any

import pytest
from reinforcement_cases import base, resolved, sized

from xe_sizer.reinforcement.environment import Environment, least_calling_s, waiting_share
from xe_sizer.reinforcement.summary import summarise

CALLS: dict[str, Any] = {"environment__turns": 5, "environment__seconds": 2, "environment__turn_tokens": 100}


def environment(**other: Any) -> Environment:
    given = {"turns": 5.0, "turn_tokens": 100.0, "seconds": 2.0, "spread": 0.5, "start_s": 3.0, "cores": 2.0}
    return Environment(**{**given, "at_once": None, "server_cores": 64.0, **other})


def test_an_answer_waits_for_all_its_calls() -> None:
    """Four calls of 2 s after a start of 3 s; the slowest of 100 is 0.5 x 2 x sqrt(4) x sqrt(2 ln 100) later."""
    one = environment()
    assert (one.calls, one.wait_s, one.added_tokens) == (4, 11, 400)
    assert float(one.slowest_s(100)) == pytest.approx(11 + 2 * math.sqrt(2 * math.log(100)))
    assert float(one.slowest_s(1)) == 11
    assert waiting_share([30.0, 0.0, 0.0], [10.0, 10.0, 0.0]).tolist() == [0.75, 0, 0]
    assert float(least_calling_s(environment(at_once=50), 500)) == 500 * 11 / 50
    assert float(least_calling_s(one, 500)) == 0


def test_calls_that_take_and_say_nothing_change_nothing() -> None:
    instant = sized(environment__turns=5, environment__turn_tokens=0)
    assert instant.iteration.phase_s == base().iteration.phase_s
    assert resolved(environment__turns=1).settings.asked.environment is None


def test_what_tools_say_is_read_and_part_of_the_sequence() -> None:
    told = sized(environment__turns=5, environment__turn_tokens=100)
    more = summarise(told).iteration.tokens - summarise(base()).iteration.tokens  # type: ignore[union-attr]
    assert more == pytest.approx(512 * 4 * 100)
    assert told.iteration.phase_s["training"] > base().iteration.phase_s["training"]
    for part in ("rollout: prompts", "rollout: last answers"):
        assert told.iteration.parts_s["rollout"][part] > base().iteration.parts_s["rollout"][part]


def test_others_are_written_while_answers_wait_if_some_have_not_begun() -> None:
    """Where all are under way at once the last wait is exposed; of a few places at a time only half of it."""
    together = sized(**CALLS, environment__spread=0).iteration.parts_s["rollout"]["rollout: tools"]
    assert together == pytest.approx(8.0)
    queued = sized(**CALLS, environment__spread=0, rollout__max_sequences=4).iteration
    assert 4.0 <= queued.parts_s["rollout"]["rollout: tools"] < 8.0
    one = queued.rollout.writing
    assert float(one.started[0]) > 4 >= float(one.running[0])


def test_a_pool_of_cores_bounds_the_rollout() -> None:
    """512 answers of four calls of 2 s on 16 cores, two a call: 512 x 8 / 8 = 512 s."""
    one = sized(**CALLS, environment__cores=2, environment__pool_cores=16)
    assert one.iteration.phase_s["rollout"] == pytest.approx(512.0)
    tools = summarise(one).iteration.tools  # type: ignore[union-attr]
    assert tools is not None
    assert (tools.calls_at_once, tools.cores, tools.servers) == (8, 16, 1)
    assert sized(**CALLS, environment__at_once=8).iteration.phase_s["rollout"] == pytest.approx(512.0)


def test_open_pools_have_the_cores_that_calls_take() -> None:
    one = sized(**CALLS, environment__server_cores=16)
    tools = summarise(one).iteration.tools  # type: ignore[union-attr]
    assert tools is not None
    writing = one.iteration.rollout.writing
    calls = float(writing.started[0] - writing.running[0]) * one.iteration.rollout.replicas
    assert tools.calls_at_once == tools.cores == pytest.approx(calls)
    assert tools.servers == math.ceil(calls / 16)
    assert tools.environments_at_once == pytest.approx(512)
    assert tools.share == pytest.approx(tools.exposed_s / one.iteration.phase_s["rollout"])


def test_answers_that_are_carried_over_wait_for_nothing_but_a_pace() -> None:
    apart: dict[str, Any] = {"gpus": 16, "rollout__gpus": 8, "rollout__asynchronous": True, "rollout__partial": True}
    without, slow = sized(**apart), sized(**apart, **{**CALLS, "environment__turn_tokens": 0}, environment__spread=0)
    more_s = slow.iteration.phase_s["rollout"] - without.iteration.phase_s["rollout"]
    assert 0 <= more_s < 8.0
    assert slow.iteration.parts_s["rollout"]["rollout: tools"] == pytest.approx(more_s)
