"""Sessions of several turns: how their prompts grow, how long a cache keeps what they left, and what is found again."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from serving_cases import problems, served

from xe_sizer.serving.job import Traffic
from xe_sizer.serving.sessions import Turns, found_share, kept_s
from xe_sizer.serving.summary import summarise

AGENT: dict[str, object] = {
    "model": "llama-3.1-70b", "server": "dell-xe9680-h100", "gpus": 8, "layout__tp": 8, "serve__request_rate": 4.0,
    "serve__input_tokens": 2000.0, "serve__output_tokens": 300.0, "serve__turns": 10, "serve__turn_tokens": 500.0,
    "serve__tool_seconds": 60.0,
}  # fmt: skip


def result(**keys: object) -> Any:
    return summarise(served(**{**AGENT, **keys}))


# Prompts.


def test_a_prompt_is_all_that_was_said_before_and_what_is_new() -> None:
    session = Turns(first=2000.0, added=500.0, answer=300.0, spread=0.0, turns=4, gap_s=10.0)
    assert session.prompts.tolist() == [2000.0, 2800.0, 3600.0, 4400.0]
    assert session.seen.tolist() == [0.0, 2300.0, 3100.0, 3900.0]
    found = session.traffic(Traffic(2000.0, 300.0), 1.0)
    assert found.inputs == 3200.0
    assert found.new_inputs == pytest.approx((2000.0 + 3 * 500.0) / 4)
    # Work of 2,000 tokens once and of 500 three times, over its mean of 875.
    assert 1.0 + found.input_spread**2 == pytest.approx((2000.0**2 + 3 * 500.0**2) / 4 / 875.0**2)
    gone = session.traffic(Traffic(2000.0, 300.0), 0.0)
    assert (gone.prefix_hit_share, gone.new_inputs) == (0.0, 3200.0)


def test_prompts_are_those_of_a_published_benchmark() -> None:
    """Of SGLang, 512 new and 64 answered tokens: hit rates of rounds 1 to 4 with room for all (pull request 27010).

    Its clients send text, of which the last answer is not found.
    """
    prompts = Turns(first=512.0, added=512.0, answer=64.0, spread=0.0, turns=5, gap_s=1.0).prompts
    assert (prompts[:-1] / prompts[1:]).tolist() == pytest.approx([0.470588, 0.653846, 0.742857, 0.795455], abs=1e-6)


# How long the cache keeps what nobody uses.


def test_without_room_nothing_is_kept_and_with_all_of_it_everything_is() -> None:
    assert float(kept_s(0.0, 1.0, 9.0, 2.0, 60.0)) == 0.0
    assert float(found_share(kept_s(0.0, 1.0, 9.0, 2.0, 60.0), 60.0)) == 0.0
    assert float(found_share(kept_s(1e9, 1.0, 9.0, 2.0, 60.0), 60.0)) == 1.0
    assert float(found_share(kept_s(1.0, 1.0, 9.0, 2.0, 0.0), 0.0)) == 1.0  # that come back at once


def test_sessions_that_never_end_find_the_share_that_has_room() -> None:
    """Where nothing is left behind, r gap sessions wait, and a share of them has room: Che's exact case."""
    found = found_share(kept_s(30.0, 1.0, 1.0, 1e-12, 60.0), 60.0)
    assert float(found) == pytest.approx(30.0 / 60.0)


def test_what_is_kept_fills_the_room() -> None:
    kept = float(kept_s(100.0, 0.4, 9.0, 1.7, 60.0))
    assert 0.4 * (9.0 * 60.0 * (1.0 - math.exp(-kept / 60.0)) + 1.7 * kept) == pytest.approx(100.0)


@pytest.mark.parametrize(("room", "gap_s"), [(40.0, 60.0), (120.0, 60.0), (60.0, 20.0)])
def test_a_simulated_cache_of_the_last_used_finds_as_many(room: float, gap_s: float) -> None:
    """Sessions of five turns begin by chance; a cache of so many tokens evicts what was used longest ago."""
    draw, rate, first, added, answer, turns = np.random.default_rng(3), 0.5, 2000.0, 500.0, 300.0, 5
    session = Turns(first, added, answer, 0.0, turns, gap_s)
    capacity = room * float(session.seen[1:].mean())
    events, clock = [], 0.0
    for name in range(12_000):
        clock += draw.exponential(1.0 / rate)
        at = clock
        for turn in range(turns):
            events.append((at, name, turn))
            at += draw.exponential(gap_s)
    kept: OrderedDict[int, float] = OrderedDict()
    held, hits = 0.0, []
    for place, (_, name, turn) in enumerate(sorted(events)):
        if turn and place > 5_000:
            hits.append(name in kept)
        held += float(session.prompts[turn]) + answer - kept.pop(name, 0.0)
        kept[name] = float(session.prompts[turn]) + answer
        while held > capacity:
            held -= kept.popitem(last=False)[1]
    expected = float(found_share(session.kept_s(room, rate * turns), gap_s))
    assert float(np.mean(hits)) == pytest.approx(expected, abs=0.02)


# The service.


def test_one_turn_is_the_answer_without_turns() -> None:
    plain = summarise(served(**{key: value for key, value in AGENT.items() if not key.startswith("serve__t")}))
    one = result(serve__turns=1)
    for name in plain.__struct_fields__:
        if name != "scenario":
            assert getattr(one, name) == getattr(plain, name), name
    assert one.session_turns is None


def test_history_is_found_while_turns_follow_soon_and_lost_where_they_do_not() -> None:
    soon, later = (result(serve__tool_seconds=gap).session_turns for gap in (1.0, 60.0))
    assert soon.found_share == pytest.approx(soon.history_share)
    assert soon.history_share == pytest.approx(1.0 - (2000.0 + 9 * 500.0) / 10 / 5600.0)
    assert 0.0 < later.found_share < soon.found_share
    assert later.by_turn[-1].ttft_s > soon.by_turn[-1].ttft_s
    assert later.sessions > soon.sessions


def test_a_host_tier_finds_what_the_gpu_lost() -> None:
    without, beside = result(), result(serve__kv_host_gib=1000.0)
    assert without.session_cache.in_host == 0.0
    assert beside.session_turns.found_share == pytest.approx(beside.session_turns.history_share, abs=2e-3)
    assert beside.session_cache.hit_host > 0.1
    assert beside.latency.ttft_s.expected < without.latency.ttft_s.expected


def test_the_first_token_of_a_turn_takes_what_is_new_of_its_prompt() -> None:
    """With all of the history found, later turns compute 500 tokens after it, and the first one 2,000."""
    first, median, last = result(serve__tool_seconds=1.0).session_turns.by_turn
    assert (first.turn, median.turn, last.turn) == (1, 5, 10)
    assert (last.prompt_tokens, last.history_tokens) == (9200.0, 8700.0)
    assert median.ttft_s < last.ttft_s < first.ttft_s


def test_the_cache_must_hold_the_last_turn() -> None:
    """A hundred turns of 800 tokens are 81,500 tokens; a replica whose cache is smaller holds no session."""
    small: dict[str, object] = {"model": "llama-3.1-8b", "gpu": "rtx-4090", "server": None, "gpus": 1, "layout__tp": 1}
    assert result(**small).verdict.fits
    assert not result(**small, serve__turns=100).verdict.fits


def test_fewer_sessions_in_progress_need_fewer_replicas() -> None:
    """The load decides the replicas with the share that is found on them."""
    counts = [
        result(gpus=None, serve__request_rate=30.0, serve__tool_seconds=gap, limits__max_ttft_s=0.5).replicas.count
        for gap in (1.0, 120.0)
    ]
    assert counts[0] < counts[1]


def test_users_think_after_a_session_and_wait_for_tools_inside_it() -> None:
    """300 users with ten turns each: nine waits of 5 s and one of 60 s, 10.5 s in the mean."""
    users: dict[str, object] = {"serve__request_rate": None, "serve__users": 300, "serve__think_time_s": 60.0}
    found = served(**{**AGENT, **users, "serve__tool_seconds": 5.0})
    assert found.resolved.think_s == pytest.approx((9 * 5.0 + 60.0) / 10)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"serve__prefix_hit_share": 0.5}, "'turns' and 'prefix_hit_share' are both given"),
        ({"serve__request_rate": None, "serve__batch": 4}, "'turns' does not go with 'batch'"),
        ({"serve__turns": None}, "'turn_tokens' needs 'turns'"),
        ({"serve__max_model_len": 8000}, "the last of 10 turns has 9,500 tokens, more than max_model_len (8,000)"),
    ],
)
def test_what_does_not_go_with_turns(keys: dict[str, object], message: str) -> None:
    assert any(message in each for each in problems(**{**AGENT, **keys}))
