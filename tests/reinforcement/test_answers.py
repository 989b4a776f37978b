"""Lengths of answers against draws of the same distribution, and against sums made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xe_sizer.reinforcement.answers import Answers, Asked, constant_answers, cut_answers

DRAWN = np.random.default_rng(7)


@pytest.mark.parametrize(("mean", "spread", "most"), [(800.0, 0.6, 4096.0), (3000.0, 1.0, 4096.0), (50.0, 0.2, 64.0)])
def test_the_mean_is_that_after_the_cut(mean: float, spread: float, most: float) -> None:
    answers = cut_answers(mean, spread, most)
    assert answers.mean == pytest.approx(mean, rel=1e-6)
    assert answers.longest <= most


def test_a_log_normal_that_is_cut() -> None:
    answers = cut_answers(3000.0, 1.0, 4096.0)
    sigma = np.sqrt(np.log(2.0))
    # With the median m, E[min(x, 4096)] = 3000; found by drawing.
    drawn = np.exp(sigma * DRAWN.standard_normal(400_000))
    low, high = 100.0, 1e6
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * drawn, 4096.0).mean() < 3000.0 else (low, middle)
    assert answers.cut_share == pytest.approx(float((high * drawn >= 4096.0).mean()), abs=0.01)
    assert float(answers.alive(2000.0)) == pytest.approx(float((high * drawn > 2000.0).mean()), abs=0.01)


def test_the_longest_of_several_answers() -> None:
    two = Answers(np.array([1.0, 3.0]), np.array([0.5, 0.5]), 0.0)
    assert two.expected_longest([1, 2]).tolist() == [2.0, 2.5]  # both short one time in four


def test_what_answers_that_are_met_on_their_way_have_to_go() -> None:
    two = Answers(np.array([1.0, 3.0]), np.array([0.5, 0.5]), 0.0)
    assert two.in_time == pytest.approx(2.5)  # (1 + 9) / 2 over the mean of 2
    assert two.mean_remaining == pytest.approx(1.25)
    # Three of four answers met are of the long kind, evenly along their three tokens: all of these have two to go or
    # less but for a third, which are a quarter of all.
    assert two.remaining([0.0, 1.0, 2.0, 3.0]).tolist() == pytest.approx([1.0, 0.5, 0.25, 0.0])
    fine = np.linspace(0.0, 3.0, 3001)
    assert np.trapezoid(two.remaining(fine), fine) == pytest.approx(two.mean_remaining, rel=1e-3)


def test_answers_that_are_alike() -> None:
    alike = constant_answers(100.0)
    assert (alike.mean, alike.longest, alike.cut_share) == (100.0, 100.0, 0.0)
    assert alike.expected_longest(64) == 100.0
    assert cut_answers(100.0, 0.0, 4096.0).longest == 100.0
    assert cut_answers(5000.0, 1.0, 4096.0).mean == 4096.0


def normal_below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@pytest.mark.parametrize(
    ("mean", "spread", "most"),
    [(800.0, 0.6, 1e9), (800.0, 2.0, 1e9), (3000.0, 1.0, 4096.0), (4092.0, 3.0, 4096.0), (40.0, 0.3, 64.0)],
)
def test_quantiles_are_those_of_the_log_normal_whose_mean_after_the_cut_is_stated(
    mean: float, spread: float, most: float
) -> None:
    """E[min(x, m)] = exp(mu + s^2 / 2) N(d - s) + m (1 - N(d)),  d = (ln m - mu) / s,  s^2 = ln(1 + spread^2)."""
    sigma = math.sqrt(math.log(1 + spread**2))

    def mean_of(mu: float) -> float:
        deviations = (math.log(most) - mu) / sigma
        whole = math.exp(mu + sigma**2 / 2)
        return whole * normal_below(deviations - sigma) + most * (1 - normal_below(deviations))

    low, high = 0.0, math.log(most) + 20.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(middle) < mean else (low, middle)
    answers = cut_answers(mean, spread, most)
    assert answers.mean == pytest.approx(mean, rel=1e-9)
    assert np.sum(answers.probabilities) == pytest.approx(1.0)
    assert answers.cut_share == pytest.approx(1 - normal_below((math.log(most) - high) / sigma), abs=0.01)
    for deviations in (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0):
        tokens = math.exp(high + sigma * deviations)
        longer = 1 - normal_below(deviations) if tokens < most else 0.0
        assert float(answers.alive(tokens)) == pytest.approx(longer, abs=0.015)
    if most == 1e9:
        assert answers.in_time / answers.mean == pytest.approx(1 + spread**2, rel=0.01)
        assert answers.lengths.size == 256


def test_shares_that_are_longer_than_a_length() -> None:
    two = Answers(np.array([1.0, 3.0]), np.array([0.25, 0.75]), 0.0)
    assert two.alive([0.0, 0.5, 1.0, 2.0, 3.0, 4.0]).tolist() == [1.0, 1.0, 0.75, 0.75, 0.0, 0.0]
    none = constant_answers(0.0)
    assert (none.mean, none.in_time, none.mean_remaining) == (0.0, 0.0, 0.0)
    assert cut_answers(0.0, 0.6, 100.0).mean == 0.0
    assert Asked(6, 4, 100.0, two).count == 24


def test_tokens_that_are_held_while_others_have_ended() -> None:
    """A quarter of the answers ends at 1 token, a quarter at 3, half at 4; 2 tokens of the prompt for each."""
    three = Answers(np.array([1.0, 3.0, 4.0]), np.array([0.25, 0.25, 0.5]), 0.0)
    assert three.most_held(2.0) == max(1.0 * 3, 0.75 * 5, 0.5 * 6)
    assert three.most_held(10.0) == max(1.0 * 11, 0.75 * 13, 0.5 * 14)
