"""How long all answers take to write, against the serving wing's simulation of every request, step by step."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.reinforcement.answers import Answers, Asked, constant_answers, cut_answers
from xe_sizer.reinforcement.rollout import written_continuously, written_in_batches
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.simulation import Offered, simulate
from xe_sizer.serving.step_time import decode_time

ONE = ReplicaLayouts.of()


def drawn(answers: Answers, count: int) -> np.ndarray:
    """Lengths at the middle of equal shares of the answers, in an order of chance."""
    places = (np.arange(count) + 0.5) / count
    lengths = answers.lengths[
        np.searchsorted(np.cumsum(answers.probabilities), places).clip(0, answers.lengths.size - 1)
    ]
    return np.random.default_rng(3).permutation(np.maximum(np.rint(lengths), 1.0))


def simulated_s(made: ServingJob, asked: Asked) -> float:
    """The duration of a test of all answers at once, prompts of a group in the prefix cache but for one."""
    count = round(asked.count)
    traffic = Traffic(asked.inputs, asked.answers.mean, prefix_hit_share=1.0 - 1.0 / asked.group)
    load = Offered(np.full(count, asked.inputs), drawn(asked.answers, count), np.zeros(count))
    return simulate(made, ONE, serving_memory(made, ONE), traffic, load).duration_s


@pytest.mark.parametrize(
    ("prompts", "spread", "room"), [(8, 0.6, 1024.0), (16, 1.0, 1024.0), (64, 0.6, 128.0), (64, 0.6, 48.0)]
)
def test_all_answers_take_as_long_as_a_simulation_of_each(prompts: int, spread: float, room: float) -> None:
    made = limited(job(serve__engine="vllm"), round(room))
    asked = Asked(prompts, 8, 256.0, cut_answers(600.0, spread, 2400.0))
    writing = written_continuously(made, ONE, 1, np.array([room]), asked)
    assert float(writing.total_s[0]) == pytest.approx(simulated_s(made, asked), rel=0.06)


def limited(made: ServingJob, most: int) -> ServingJob:
    """The engine with so many sequences at most."""
    batching = msgspec.structs.replace(made.engine.batching, max_sequences=most)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


def test_alike_answers_end_together_and_nothing_waits() -> None:
    made = job(serve__engine="vllm")
    asked = Asked(8, 1, 128.0, constant_answers(200.0))
    writing = written_continuously(made, ONE, 1, np.array([64.0]), asked)
    assert float(writing.full_s[0]) == 0.0
    steps = float(decode_time(made, ONE, 8.0, 128.0, 202.0).total_s[0]) * 200
    assert float(writing.tail_s[0]) == pytest.approx(steps, rel=0.01)
    assert float(writing.waiting_share[0]) < 0.02


def test_long_tails_cost_time_and_are_said() -> None:
    made = job(serve__engine="vllm")
    alike, spread = (
        written_continuously(made, ONE, 1, np.array([512.0]), Asked(32, 8, 256.0, cut_answers(600.0, by, 6000.0)))
        for by in (0.0, 1.0)
    )
    assert spread.total_s[0] > 1.5 * alike.total_s[0]
    assert spread.waiting_share[0] > 0.3 > alike.waiting_share[0]


def test_more_replicas_and_more_room_are_never_slower() -> None:
    made = job(serve__engine="vllm")
    asked = Asked(64, 8, 256.0, cut_answers(600.0, 0.8, 4096.0))
    counts = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0])
    several = ReplicaLayouts.of(tp=np.ones(6, dtype=int))
    assert np.all(np.diff(written_continuously(made, several, counts, np.full(6, 200.0), asked).total_s) <= 0)
    rooms = np.array([10.0, 20.0, 50.0, 100.0, 300.0, 600.0])
    assert np.all(np.diff(written_continuously(made, several, np.ones(6), rooms, asked).total_s) <= 1e-9)


def test_answers_that_may_go_on_leave_no_tail() -> None:
    made = job(serve__engine="vllm")
    asked = Asked(64, 8, 256.0, cut_answers(600.0, 0.8, 4096.0))
    whole, carried = (
        written_continuously(made, ONE, 1, np.array([100.0]), one) for one in (asked, replace(asked, carried=True))
    )
    assert carried.tail_s[0] == 0.0
    assert carried.total_s[0] < whole.total_s[0]
    assert carried.waiting_share[0] == pytest.approx(0.0, abs=1e-9)


def test_a_replica_without_room_for_an_answer_is_timed_as_if_it_had_room_for_one() -> None:
    made = job(serve__engine="vllm")
    asked = Asked(8, 1, 128.0, constant_answers(200.0))
    none, one = (written_continuously(made, ONE, 1, np.array([room]), asked).total_s[0] for room in (0.5, 1.0))
    assert none == one


def test_batches_that_end_together_wait_for_their_longest_answer() -> None:
    made = job(serve__engine="hf-transformers")
    answers = Answers(np.array([100.0, 300.0]), np.array([0.5, 0.5]), 0.0)
    writing = written_in_batches(made, ONE, 1, np.array([2.0]), Asked(4, 1, 128.0, answers))
    one = float(decode_time(made, ONE, 2.0, 128.0, 250.0).total_s[0])
    # Two waves of two, the longer of which has 250 tokens in the mean; 200 of them are of use.
    assert float(writing.full_s[0]) == pytest.approx(2 * 200 * one)
    assert float(writing.tail_s[0]) == pytest.approx(2 * 50 * one)
    slower = written_in_batches(made, ONE, 1, np.array([2.0]), Asked(4, 1, 128.0, answers), np.array([0.01]))
    assert float(slower.total_s[0] - writing.total_s[0]) == pytest.approx(2 * 250 * 0.01)


def test_replicas_that_are_bound_wait_for_the_longest_answer_of_all_of_them() -> None:
    made = job(serve__engine="hf-transformers")
    answers = Answers(np.array([100.0, 300.0]), np.array([0.5, 0.5]), 0.0)
    asked, room = Asked(8, 1, 128.0, answers), np.array([2.0])
    alone, bound = (written_in_batches(made, ONE, 2, room, asked, bound=each) for each in (1.0, 2.0))
    # The longest of two answers has 250 tokens in the mean, that of four 287.5.
    assert float((alone.full_s + alone.tail_s)[0] / alone.full_s[0]) == pytest.approx(250 / 200)
    assert float((bound.full_s + bound.tail_s)[0] / bound.full_s[0]) == pytest.approx(287.5 / 200)
