"""Writing on engines whose step takes a second, or a second for each token: what must hold whatever an engine is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from serving_cases import job

from xe_sizer.reinforcement import rollout
from xe_sizer.reinforcement.answers import Answers, Asked, constant_answers, cut_answers
from xe_sizer.reinforcement.rollout import Writing, written_continuously, written_in_batches
from xe_sizer.serving.job import ReplicaLayouts

JOB = job(serve__engine="vllm")
ANSWERS = cut_answers(600.0, 0.8, 4096.0)
INPUTS, READING_S, PIECES = 200.0, 0.25, 3.0
Step = Callable[[np.ndarray, np.ndarray], np.ndarray]


def written(monkeypatch: pytest.MonkeyPatch, step: Step, asked: Asked, room: object, replicas: object = 1) -> Writing:
    """By an engine whose step of so many answers, with so many tokens before each, takes so long."""

    def step_time(made: object, placements: object, work: object) -> object:
        return SimpleNamespace(total_s=step(work.decodes, work.decode_past))  # type: ignore[attr-defined]

    def prefill_time(made: object, placements: object, count: np.ndarray, tokens: float, cached: float = 0.0) -> object:
        return SimpleNamespace(total_s=READING_S * count * (tokens - cached)), PIECES

    monkeypatch.setattr(rollout, "step_time", step_time)
    monkeypatch.setattr(rollout, "prefill_time", prefill_time)
    rooms = np.atleast_1d(np.asarray(room, dtype=float))
    placements = ReplicaLayouts.of(tp=np.ones(rooms.size, dtype=int))
    return written_continuously(JOB, placements, replicas, rooms, asked)  # type: ignore[arg-type]


def a_second(running: np.ndarray, past: np.ndarray) -> np.ndarray:
    return np.ones(running.shape)


def a_second_a_token(running: np.ndarray, past: np.ndarray) -> np.ndarray:
    return running * 1.0


def a_second_a_token_before(running: np.ndarray, past: np.ndarray) -> np.ndarray:
    return past * 1.0


@pytest.mark.parametrize("answers", [ANSWERS, constant_answers(700.0), cut_answers(900.0, 1.5, 1024.0)])
@pytest.mark.parametrize("room", [512.0, 300.0, 100.0, 40.0])
def test_no_token_is_written_twice_or_left_out(monkeypatch: pytest.MonkeyPatch, answers: Answers, room: float) -> None:
    """An engine that writes a token a second takes as many seconds as there are tokens, however many it holds."""
    found = written(monkeypatch, a_second_a_token, Asked(64, 8, INPUTS, answers), room)
    assert found.running.tolist() == [min(512.0, room)]
    assert float((found.full_s + found.tail_s)[0]) == pytest.approx(512 * answers.mean, rel=0.012)
    assert float((found.even_s - found.prompts_s)[0]) == pytest.approx(512 * answers.mean)


def test_a_first_wave_lasts_as_long_as_its_longest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all replicas together: 128 answers on each of four."""
    found = written(monkeypatch, a_second, Asked(64, 8, INPUTS, ANSWERS), 512.0, replicas=4)
    assert found.running.tolist() == [128]
    assert found.full_s.tolist() == [0]
    assert float(found.tail_s[0]) == pytest.approx(float(ANSWERS.expected_longest(512.0)))


def test_places_that_answers_leave_are_taken_until_none_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 alike answers on 100 places; those of steady writing still have half of their length to go on average.

    A tenth of the last hundred belongs to the first wave: (1,000 x 600 - 100 (0.1 x 600 + 0.9 x 300)) / 100 steps.
    """
    alike = constant_answers(600.0)
    found = written(monkeypatch, a_second, Asked(1000, 1, INPUTS, alike), 100.0)
    assert float(found.full_s[0]) == pytest.approx((1000 * 600 - 100 * (0.1 * 600 + 0.9 * 300)) / 100)
    # The last of a hundred answers that are met on their way, of which a tenth has all to go.
    fine = np.linspace(0.0, 600.0, 6001)
    left = np.where(fine < 600, 0.1 + 0.9 * (1 - fine / 600), 0.0)
    assert float(found.tail_s[0]) == pytest.approx(np.trapezoid(1 - (1 - left) ** 100, fine), rel=0.01)


def test_the_last_answer_of_all_replicas_sets_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(1000, 4, INPUTS, ANSWERS)
    one, four = (written(monkeypatch, a_second, asked, 100.0, replicas=count) for count in (1, 4))
    assert four.full_s[0] < one.full_s[0] / 3.5
    assert four.tail_s[0] > one.tail_s[0]
    fine = np.linspace(0.0, ANSWERS.longest, 4097)
    left = 0.1 * ANSWERS.alive(fine) + 0.9 * ANSWERS.remaining(fine)
    longest = np.trapezoid(1 - (1 - np.minimum(left, 1.0)) ** 400, fine)
    assert float(four.tail_s[0]) == pytest.approx(longest, rel=0.01)


def test_a_step_sees_the_tokens_that_were_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """While places are taken, answers at a moment have half of their length, in which long ones weigh more.

    In the tail of a first wave all have the prompt and what time has passed; others half of their length more.
    """
    asked = Asked(1000, 1, INPUTS, ANSWERS)
    steps = written(monkeypatch, a_second, asked, 100.0)
    found = written(monkeypatch, a_second_a_token_before, asked, 100.0)
    assert float(found.full_s[0] / steps.full_s[0]) == pytest.approx(INPUTS + ANSWERS.in_time / 2)
    middle = INPUTS + float(steps.tail_s[0]) / 2 + 0.9 * ANSWERS.mean_remaining
    assert float(found.tail_s[0] / steps.tail_s[0]) == pytest.approx(middle)
    first = written(monkeypatch, a_second_a_token_before, asked, 1000.0)
    longest = float(ANSWERS.expected_longest(1000.0))
    assert float(first.tail_s[0]) == pytest.approx(longest * (INPUTS + longest / 2))


def test_each_prompt_is_read_once_for_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 512 answers on two replicas each has 256; an eighth of their prompts is read, in pieces, and asked for."""
    found = written(monkeypatch, a_second, Asked(64, 8, INPUTS, ANSWERS), 512.0, replicas=2)
    reading = PIECES * READING_S * 256 * INPUTS / 8 + JOB.request_s
    assert found.prompts_s.tolist() == pytest.approx([reading])
    assert found.even_s.tolist() == pytest.approx([reading + ANSWERS.mean])


def test_answers_that_go_on_leave_no_tail_and_fill_places_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    carried = Asked(64, 8, INPUTS, ANSWERS, carried=True)
    ahead = Asked(64, 8, INPUTS, ANSWERS, carried=True, ahead=3)
    for asked, running in ((carried, 512), (ahead, 1000)):
        found = written(monkeypatch, a_second, asked, 1000.0)
        assert (found.running.tolist(), found.tail_s.tolist()) == ([running], [0])
        assert found.full_s.tolist() == pytest.approx([512 * ANSWERS.mean / running])


def test_placements_are_written_with_one_by_one_or_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(running: np.ndarray, past: np.ndarray) -> np.ndarray:
        return 2.0 + 0.1 * running + 0.001 * past

    asked, rooms, counts = Asked(64, 8, INPUTS, ANSWERS), [64.0, 512.0, 20.0], [1.0, 2.0, 8.0]
    together = written(monkeypatch, step, asked, rooms, np.array(counts))
    for place, (room, count) in enumerate(zip(rooms, counts, strict=True)):
        alone = written(monkeypatch, step, asked, room, count)
        assert float(together.total_s[place]) == pytest.approx(float(alone.total_s[0]))
        assert float(together.waiting_share[place]) == pytest.approx(float(alone.waiting_share[0]))
        assert together[place : place + 1].tail_s.tolist() == pytest.approx(alone.tail_s.tolist())


def test_without_answers_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(monkeypatch, a_second, Asked(64, 8, INPUTS, constant_answers(0.0)), 64.0)
    assert (found.full_s.tolist(), found.tail_s.tolist()) == ([0], [0])
    assert found.total_s.tolist() == found.prompts_s.tolist()
    nothing = Writing(*(np.zeros(1) for _ in Writing.__struct_fields__))
    assert nothing.waiting_share.tolist() == [0]
    assert Writing(*(np.full(1, np.inf) for _ in Writing.__struct_fields__)).waiting_share.tolist() == [0]


def test_the_share_that_waits_for_the_longest() -> None:
    sides = {"prompts_s": 1.0, "full_s": 2.0, "tail_s": 4.5, "reread_s": 0.2, "tools_s": 0.3, "even_s": 6.0}
    sides |= {"running": 9.0, "started": 9.0}
    one = Writing(**{name: np.array([size]) for name, size in sides.items()})
    assert one.total_s.tolist() == [8]
    assert one.waiting_share.tolist() == [0.25]


@pytest.mark.parametrize("each", [2.0, 30.0, 100.0, 1e4, 1e8])
def test_a_pool_is_full_where_a_first_wave_grows_together(each: float) -> None:
    """S (w / together + (1 - w) / spread) = 1 with w = min(S / n, 1): the pool as a share of what fits either way."""
    together, spread = np.array([10.0, 40.0, 99.0]), np.array([20.0, 50.0, 100.0])
    places = rollout._first_wave(together, spread, np.full(3, each))
    first = np.minimum(places / each, 1.0)
    taken = places * (first / together + (1 - first) / spread)
    alone = together >= each
    assert taken.tolist() == pytest.approx(np.ones(3).tolist(), rel=1e-6)
    assert np.all(places[alone] == together[alone])
    assert np.all((together - 1e-9 <= places) & (places <= spread + 1e-9))


def test_batches_that_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 answers on 2 places: 3 waves of 5 / 3 answers, each as long as the longest of them; prompts each time."""

    def decode_time(made: object, placements: object, count: np.ndarray, inputs: float, outputs: np.ndarray) -> object:
        return SimpleNamespace(total_s=count + inputs / 1000 + outputs / 100)

    def prefill_time(made: object, placements: object, count: np.ndarray, tokens: float) -> object:
        return SimpleNamespace(total_s=READING_S * count * tokens), PIECES

    monkeypatch.setattr(rollout, "decode_time", decode_time)
    monkeypatch.setattr(rollout, "prefill_time", prefill_time)
    two = Answers(np.array([100.0, 300.0]), np.array([0.5, 0.5]), 0.0)
    found = written_in_batches(JOB, ReplicaLayouts.of(), 1, np.array([2.0]), Asked(5, 1, INPUTS, two), 0.5)
    batch = 5 / 3
    longest = float(two.expected_longest(batch))
    step_s = batch + INPUTS / 1000 + longest / 100 + 0.5
    assert found.running.tolist() == pytest.approx([batch])
    reading = 3 * (READING_S * batch * INPUTS * PIECES + JOB.request_s)
    assert found.prompts_s.tolist() == pytest.approx([reading])
    assert found.full_s.tolist() == pytest.approx([3 * 200 * step_s])
    assert found.tail_s.tolist() == pytest.approx([3 * (longest - 200) * step_s])
    assert found.even_s.tolist() == pytest.approx([reading + 3 * 200 * step_s])
    none = written_in_batches(JOB, ReplicaLayouts.of(), 1, np.array([0.3]), Asked(5, 1, INPUTS, two))
    assert none.running.tolist() == [1]
