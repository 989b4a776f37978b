"""The distribution behind an 80 % range: quantiles and probabilities, against those of the normal distribution."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from xe_sizer.software.uncertainty import EXACT, NINE_TENTHS, MemoryChance, Spread

LOPSIDED = Spread(0.8, 3.0)


def test_the_ends_of_the_range_are_its_quantiles() -> None:
    assert NormalDist().inv_cdf(0.9) == pytest.approx(NINE_TENTHS, rel=1e-14)
    found = LOPSIDED.probability([0.8, 1.0, 3.0])
    assert found == pytest.approx([0.1, 0.5, 0.9], abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "score"), [(1.5, math.log(1.5) / math.log(3.0)), (0.7, math.log(0.7) / -math.log(0.8))]
)
def test_between_them_the_logarithm_is_normal(ratio: float, score: float) -> None:
    expected = NormalDist().cdf(score * NormalDist().inv_cdf(0.9))
    assert float(LOPSIDED.probability(ratio)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("spread", [LOPSIDED, Spread(0.6, 1.4, middle=0.95)])
def test_a_quantile_is_the_inverse_of_a_probability(spread: Spread) -> None:
    shares = np.array([0.01, 0.1, 0.3, 0.5, 0.77, 0.9, 0.999])
    factors = [spread.quantile(share) for share in shares.tolist()]
    assert spread.probability(factors) == pytest.approx(shares, abs=1e-12)
    assert spread.quantile(0.5) == spread.middle


def test_a_scalar_equals_an_array_and_nothing_is_below_zero() -> None:
    ratios = np.array([[0.0, 0.5], [1.0, math.inf]])
    found = LOPSIDED.probability(ratios)
    assert found.shape == (2, 2)
    assert found.tolist() == [[float(LOPSIDED.probability(ratio)) for ratio in row] for row in ratios.tolist()]
    assert (found[0, 0], found[1, 1]) == (0.0, 1.0)


def test_a_side_without_spread_holds_its_half_in_the_middle() -> None:
    """Runs that never took less than expected."""
    assert Spread(1.0, 2.0).probability([0.999, 1.0, 2.0]) == pytest.approx([0.0, 0.5, 0.9])
    assert EXACT.probability([0.999, 1.0, 1.001]).tolist() == [0.0, 1.0, 1.0]


CHANCE = MemoryChance(spread=0.2, least=0.01, widening=2.0, centre=1.1)


@pytest.mark.parametrize("ratio", [0.3, 0.9, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("guessed", [False, True])
def test_the_chance_of_going_out_of_memory_is_what_its_equation_says(ratio: float, guessed: bool) -> None:
    spread = 0.2 * (2.0 if guessed else 1.0)
    expected = 0.01 + 0.98 * NormalDist().cdf(math.log(ratio / 1.1) / spread)
    assert float(CHANCE.out_of_memory(ratio, guessed)) == pytest.approx(expected, rel=1e-9)
    assert float(CHANCE.probability(1 / ratio)) == pytest.approx(1 - float(CHANCE.out_of_memory(ratio)), rel=1e-9)
    assert float(CHANCE.of_a_guess.out_of_memory(ratio)) == pytest.approx(float(CHANCE.out_of_memory(ratio, True)))


def test_what_needs_as_much_as_the_centre_may_end_either_way() -> None:
    assert CHANCE.probability([0.999 / 1.1, 1.0 / 1.1, 1.001 / 1.1]) == pytest.approx([0.5, 0.5, 0.5], abs=3e-3)
    assert CHANCE.quantile(0.5) == pytest.approx(1.0 / 1.1)


def test_a_job_far_larger_than_the_card_does_not_fit_and_one_far_smaller_does() -> None:
    assert float(CHANCE.out_of_memory(100.0)) == pytest.approx(0.99, abs=1e-6)
    assert float(CHANCE.out_of_memory(1e-3)) == pytest.approx(0.01, abs=1e-6)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9, 0.98])
def test_room_that_suffices_with_a_probability_is_the_inverse(probability: float) -> None:
    assert float(CHANCE.probability(CHANCE.quantile(probability))) == pytest.approx(probability, abs=1e-9)


def test_what_is_never_so_sure_needs_endless_room() -> None:
    assert CHANCE.quantile(0.995) == math.inf
    assert CHANCE.quantile(0.005) == 0.0
