"""A job between those before it: against hand computation, against every choice tried, and as properties."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xe_sizer.studies.schedule import Occupancy, Played, Way, blocks_of, holds, play

NODE = 8
HOUR = 3600.0


def way(gpus: int, total_h: float, start_h: float = 0.1, resume_h: float = 0.2, save_h: float = 0.1) -> Way:
    times = (each * HOUR for each in (total_h, start_h, resume_h, save_h))
    return Way(gpus, 128, blocks_of(gpus, NODE), *times)


def empty(servers: int, hours: float = 200.0) -> Occupancy:
    return Occupancy((NODE,) * servers, hours * HOUR)


def spans(*hours: tuple[float, float]) -> list[tuple[float, float]]:
    return [(begin * HOUR, end * HOUR) for begin, end in hours]


def in_hours(played: Played) -> list[tuple[float, float, int]]:
    return [(each.start_s / HOUR, each.end_s / HOUR, each.gpus) for each in played.sessions]


# Places: GPUs of a job stand in whole servers, and the rest in one.


def test_a_job_of_a_server_needs_one_that_is_free() -> None:
    assert holds((5, 5), (8, 8))
    assert not holds((5, 5, 5), (8, 8))  # 15 of 16, but none of the three fits beside another
    assert holds((4, 3, 1), (8,))
    assert not holds((8, 1), (8,))
    assert blocks_of(20, 8) == (8, 8, 4)


def test_what_is_put_is_taken_out_again() -> None:
    held = empty(1)
    held.put(2 * HOUR, 5 * HOUR, (4,))
    held.put(3 * HOUR, 9 * HOUR, (2, 2))
    held.take(2 * HOUR, 5 * HOUR, (4,))
    assert [blocks for *_, blocks in held.segments(0.0, 10 * HOUR) if blocks] == [(2, 2), (2, 2)]


# By hand: two nights of 12 h, a job of 15 h on 8 GPUs.


def test_a_window_costs_start_checkpoint_and_reading() -> None:
    """Night 1: 12 h less 0.1 h of start and 0.1 h of saving are 11.8 h of work; 3.2 h are left, after 0.2 h."""
    played = play([way(8, 15.0)], spans((20, 32), (44, 56)), 1.0, empty(1))
    assert played.finish_s == pytest.approx((44 + 0.2 + 3.2) * HOUR)
    first, second = played.sessions
    assert (first.lost_s, second.lost_s) == (pytest.approx(0.2 * HOUR), pytest.approx(0.2 * HOUR))
    assert first.share == pytest.approx(11.8 / 15.0)
    assert second.share == pytest.approx(3.2 / 15.0)


def test_windows_that_touch_cost_nothing_where_the_gpus_stay() -> None:
    one, two = (play([way(8, 20.0)], each, 1.0, empty(1)) for each in (spans((0, 40)), spans((0, 12), (12, 40))))
    assert one.finish_s == two.finish_s == pytest.approx(20.1 * HOUR)
    assert in_hours(two) == in_hours(one)


def test_gpus_change_between_windows_alone() -> None:
    """By day 8 of 16 GPUs are taken: within one window the job stays on 8, with a window of the night it takes 16."""
    held = empty(2)
    held.put(0.0, 12 * HOUR, (8,))
    ways = [way(8, 40.0), way(16, 20.0)]
    together = play(ways, spans((0, 60)), 1.0, held)
    assert {each.gpus for each in together.sessions} == {16}  # waits: 12 + 0.1 + 20 h, on 8 GPUs 40.1 h
    assert together.finish_s == pytest.approx(32.1 * HOUR)
    apart = play(ways, spans((0, 12), (12, 60)), 1.0, held)
    assert in_hours(apart)[0] == (0.0, 12.0, 8)
    # 12 h less 0.2 h on 8 GPUs are 11.8 / 40 of the work; the rest on 16 after 0.2 h
    assert apart.finish_s == pytest.approx((12 + 0.2 + 20 * (1 - 11.8 / 40)) * HOUR)


def test_a_job_that_must_give_way_goes_on_with_as_many_gpus() -> None:
    held = empty(1)
    held.put(5 * HOUR, 7 * HOUR, (8,))
    played = play([way(4, 30.0), way(8, 10.0)], spans((0, 100)), 1.0, held)
    assert [(round(start, 3), round(end, 3), gpus) for start, end, gpus in in_hours(played)] == [
        (0.0, 5.0, 8),
        (7.0, pytest.approx(7 + 0.2 + 10 - 4.8, abs=1e-3), 8),
    ]


def test_a_window_that_is_too_short_to_start_is_left_alone() -> None:
    played = play([way(8, 5.0, start_h=0.5, save_h=0.5)], spans((0, 0.9), (10, 20)), 1.0, empty(1))
    assert in_hours(played) == [(10.0, pytest.approx(15.5), 8)]


def test_no_room_is_no_session() -> None:
    played = play([way(16, 5.0)], spans((0, 100)), 1.0, empty(1))
    assert (played.sessions, played.finish_s) == ((), None)


# Against every choice: one number of GPUs a window, each tried.

WAYS = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.floats(2.0, 60.0)), min_size=1, max_size=3, unique_by=lambda x: x[0]
)
TAKEN = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.sampled_from([1, 2, 4, 8])), max_size=4)
EDGES = st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True).filter(lambda edges: len(edges) % 2 == 0)


def occupied(taken: Sequence[tuple[int, int, int]], servers: int) -> Occupancy:
    held = empty(servers)
    for start, length, gpus in taken:
        if all(held.takes(blocks, (gpus,)) for *_, blocks in held.segments(start * HOUR, (start + length) * HOUR)):
            held.put(start * HOUR, (start + length) * HOUR, (gpus,))
    return held


def by_hand(choice: Sequence[Way], windows: Sequence[tuple[float, float]], held: Occupancy) -> float:
    """When a job is done that runs wherever its GPUs are free: as an operator would compute it, window by window."""
    left, ran = 1.0, False
    for one, (begin, end) in zip(choice, windows, strict=True):
        free: list[list[float]] = []
        for start, until, blocks in held.segments(begin, end):
            if held.takes(blocks, one.blocks):
                if free and free[-1][1] == start:
                    free[-1][1] = until
                else:
                    free.append([start, until])
        for start, until in free:
            lost = one.resume_s if ran else one.start_s
            if start + lost + left * one.total_s <= until:
                return start + lost + left * one.total_s
            worked = until - start - lost - one.save_s
            if worked > 0:
                left, ran = left - worked / one.total_s, True
    return float("inf")


@given(WAYS, TAKEN, EDGES)
def test_no_choice_of_gpus_by_window_ends_earlier(
    sizes: list[tuple[int, float]], taken: list[tuple[int, int, int]], edges: list[int]
) -> None:
    ways = [way(*one) for one in sorted(sizes)]
    held = occupied(taken, 2)
    ordered = sorted(edges)
    windows = spans(*zip(ordered[::2], ordered[1::2], strict=True))
    played = play(ways, windows, 1.0, held)
    best = min(by_hand(choice, windows, held) for choice in itertools.product(ways, repeat=len(windows)))
    assert played.key <= best * (1 + 1e-9)


@given(WAYS, TAKEN, EDGES, st.floats(0.5, 3.0))
def test_sessions_add_up_and_stand_where_there_is_room(
    sizes: list[tuple[int, float]], taken: list[tuple[int, int, int]], edges: list[int], factor: float
) -> None:
    ways = {one.gpus: one for one in (way(*each) for each in sorted(sizes))}
    held, ordered = occupied(taken, 2), sorted(edges)
    windows = spans(*zip(ordered[::2], ordered[1::2], strict=True))
    played = play(list(ways.values()), windows, factor, held)
    before = 0.0
    for place, each in enumerate(played.sessions):
        one = ways[each.gpus]
        assert each.start_s >= before
        before = each.end_s
        assert all(held.takes(blocks, one.blocks) for *_, blocks in held.segments(each.start_s, each.end_s))
        assert any(begin <= each.start_s for begin, end in windows if each.start_s < end)
        worked_s = each.share * one.total_s * factor
        assert each.end_s - each.start_s == pytest.approx(each.lost_s + worked_s)
        again, ended = place > 0, place == len(played.sessions) - 1 and played.finish_s is not None
        lost_s = (one.resume_s if again else one.start_s) + (0.0 if ended else one.save_s)
        assert each.lost_s == pytest.approx(lost_s * factor)
    if played.finish_s is not None:
        assert played.finish_s == before
        assert sum(each.share for each in played.sessions) == pytest.approx(1.0)


@given(WAYS, TAKEN, EDGES)
def test_more_servers_more_time_and_faster_gpus_never_end_later(
    sizes: list[tuple[int, float]], taken: list[tuple[int, int, int]], edges: list[int]
) -> None:
    ways, ordered = [way(*one) for one in sorted(sizes)], sorted(edges)
    windows = spans(*zip(ordered[::2], ordered[1::2], strict=True))
    base = play(ways, windows, 1.0, occupied(taken, 2)).key
    more = Occupancy((NODE,) * 3, 200 * HOUR)
    for start_s, end_s, blocks in occupied(taken, 2).segments(0.0, 200 * HOUR):
        more.put(start_s, end_s, blocks)
    assert play(ways, windows, 1.0, more).key <= base * (1 + 1e-9)
    assert play(ways, [(windows[0][0], windows[-1][1])], 0.5, empty(2)).key <= base * (1 + 1e-9)
    assert play(ways, windows, 0.8, occupied(taken, 2)).key <= base * (1 + 1e-9)
