"""Token lengths, padding and packing: numbers from enumeration, order statistics and simulation."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import xe_sizer
from xe_sizer.errors import InputError
from xe_sizer.training import token_lengths
from xe_sizer.training.padding import (
    LONGEST_IN_GLOBAL_BATCH,
    LONGEST_IN_MICRO_BATCH,
    PACKED,
    POLICIES,
    TO_SEQ_LEN,
    Sequences,
    expected_normal_maximum,
    sequences,
)
from xe_sizer.training.token_lengths import TokenLengths, constant_lengths, histogram_lengths, statistics_lengths

DELL = statistics_lengths(12012, 114.53571, 1, 8588)
DICE = histogram_lengths([3, 1, 2], [1, 1, 1])


def lay_out(
    lengths: TokenLengths,
    policy: str,
    *,
    seq_len: float = 4096,
    b: object = 1,
    d: object = 1,
    g: object = 1,
    zero3: object = False,
    samples: float | None = None,
    round_to: int = 1,
) -> Sequences:
    return sequences(
        lengths,
        policy,
        seq_len=seq_len,
        micro_batch=b,  # type: ignore[arg-type]
        data_parallel=d,  # type: ignore[arg-type]
        grad_accum=g,  # type: ignore[arg-type]
        synchronised_every_micro_batch=zero3,  # type: ignore[arg-type]
        samples=samples,
        round_to=round_to,
    )


def largest_sum(lengths: TokenLengths, b: int, d: int, g: int, steps: int) -> float:
    """Simulated tokens per sequence of the slowest of d ranks that meet once a step."""
    rng = np.random.default_rng(7)
    share = lengths.probabilities / lengths.probabilities.sum()
    drawn = rng.choice(lengths.lengths, p=share, size=(steps, d, g, b))
    return float(drawn.max(axis=3).mean(axis=2).max(axis=1).mean())


# --- distributions


@pytest.mark.parametrize("draws", [1, 2, 3, 5])
def test_maximum_of_a_small_distribution_equals_enumeration(draws: int) -> None:
    maxima = np.array([max(rolled) for rolled in itertools.product((1, 2, 3), repeat=draws)])
    assert DICE.expected_maximum(draws) == pytest.approx(maxima.mean())
    assert DICE.deviation(draws) == pytest.approx(maxima.std())


def test_two_draws_of_three_lengths() -> None:
    assert float(DICE.expected_maximum(2)) == pytest.approx(22 / 9)


def test_maximum_keeps_the_shape_and_equals_the_scalar() -> None:
    draws = np.array([[1, 4, 4], [128, 2, 1000]])
    together = DELL.expected_maximum(draws)
    assert together.shape == (2, 3)
    assert DELL.expected_maximum(4).shape == ()
    one_by_one = [[DELL.expected_maximum(n) for n in row] for row in draws]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-13)


def test_a_constant_has_no_spread() -> None:
    same = constant_lengths(2048)
    assert same.mean == same.longest == 2048
    np.testing.assert_array_equal(same.expected_maximum([1, 7, 512]), 2048)
    np.testing.assert_array_equal(same.deviation([1, 7]), 0)


def test_truncation_moves_the_mass_to_the_limit() -> None:
    cut = histogram_lengths([10, 20, 40], [2, 1, 1]).truncated(15)
    np.testing.assert_allclose(cut.lengths, [10, 15])
    np.testing.assert_allclose(cut.probabilities, [0.5, 0.5])


def test_histogram_joins_equal_lengths_and_drops_empty_ones() -> None:
    counted = histogram_lengths([20, 10, 20, 999], [1, 2, 1, 0])
    np.testing.assert_allclose(counted.lengths, [10, 20])
    np.testing.assert_allclose(counted.probabilities, [0.5, 0.5])
    assert counted.assumption == "histogram"


def test_a_bad_histogram_reports_every_problem() -> None:
    with pytest.raises(InputError) as caught:
        histogram_lengths([0, 10], [-1, 0, 0])
    messages = [problem.message for problem in caught.value.problems]
    assert messages == [
        "token histogram: 2 lengths but 3 counts",
        "token histogram: a length is not greater than 0",
        "token histogram: a count is negative",
        "token histogram: no sample is counted",
    ]


# --- statistics


def test_design_guide_statistics() -> None:
    logs = np.log(DELL.lengths)
    sigma = math.sqrt(DELL.probabilities @ (logs - DELL.probabilities @ logs) ** 2)
    assert DELL.mean == pytest.approx(114.53571, rel=1e-9)
    assert DELL.lengths[0] == 1
    assert DELL.longest == pytest.approx(8588)
    assert sigma == pytest.approx(1.4, abs=0.1)
    assert 1400 < DELL.truncated(2048).expected_maximum(128) < 1850
    assert 1500 < DELL.truncated(4096).expected_maximum(128) < 1850
    assert "12012" in DELL.assumption


def test_fit_recovers_a_known_log_normal() -> None:
    """Mean and median maximum of ln N(4, 0.9), 1000 samples, in closed form; Phi(3.19759) = 2^(-1/1000)."""
    mu, sigma, z = 4.0, 0.9, 3.197589
    fitted = statistics_lengths(1000, math.exp(mu + sigma**2 / 2), 1, math.exp(mu + sigma * z))
    below_median = fitted.probabilities[fitted.lengths < math.exp(mu)].sum()
    drawn = np.exp(np.random.default_rng(3).normal(mu, sigma, size=(20_000, 16)))
    assert below_median == pytest.approx(0.5, abs=0.02)
    assert fitted.expected_maximum(16) == pytest.approx(np.minimum(drawn, fitted.longest).max(1).mean(), rel=0.02)


def test_without_a_maximum_the_spread_is_assumed_and_said() -> None:
    guessed = statistics_lengths(52002, 76.7)
    assert guessed.mean == pytest.approx(76.7)
    # E[max of 2] / mean of a log-normal is 2 Phi(sigma / sqrt(2)) = 1.428 for sigma 0.8
    assert guessed.expected_maximum(2) / 76.7 == pytest.approx(1.428, abs=0.01)
    assert "assumed" in guessed.assumption


@pytest.mark.parametrize(
    ("samples", "mean", "minimum", "maximum", "expected_mean", "longest"),
    [
        (1, 100, 50, 200, 100, 200),  # one sample: a stated maximum must still fit into memory
        (100, 100, 100, 100, 100, 100),
        (100, 512, None, 512, 512, 512),
        (10, 100, 100, 500, 100, 500),
        (1000, 1.2, 1, 8000, 1.2, 8000),
        (1000, 7999, 1, 8000, 7999, 8000),
        (1000, 4000.5, 4000, 4001, 4000.5, 4001),
        (None, 300, 10, 900, 300, 900),
    ],
)
def test_statistics_at_the_edges(
    samples: float | None,
    mean: float,
    minimum: float | None,
    maximum: float,
    expected_mean: float,
    longest: float,
) -> None:
    fitted = statistics_lengths(samples, mean, minimum, maximum)
    assert fitted.mean == pytest.approx(expected_mean, rel=1e-6)
    assert fitted.longest == pytest.approx(longest)
    assert fitted.probabilities.sum() == pytest.approx(1)
    assert np.all(fitted.probabilities >= 0)


@settings(max_examples=60, deadline=None)
@given(
    samples=st.integers(2, 10_000_000),
    minimum=st.floats(1, 100),
    share=st.floats(0.001, 0.999),
    span=st.floats(1.01, 1e4),
)
def test_statistics_keep_mean_and_maximum(samples: int, minimum: float, share: float, span: float) -> None:
    maximum = minimum * span
    mean = minimum + share * (maximum - minimum)
    fitted = statistics_lengths(samples, mean, minimum, maximum)
    assert fitted.mean == pytest.approx(mean, rel=1e-5)
    assert fitted.longest == pytest.approx(maximum)


@pytest.mark.parametrize(
    ("draws", "expected"),
    [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi)), (8, 1.42360), (100, 2.50759)],
)
def test_normal_maximum_equals_published_order_statistics(draws: int, expected: float) -> None:
    """n = 8 and 100: Harter (1961), expected values of normal order statistics."""
    assert float(expected_normal_maximum(draws)) == pytest.approx(expected, abs=1e-5)


def data_set_profiles() -> list[Path]:
    return sorted((Path(xe_sizer.__file__).parent / "profiles" / "datasets").glob("*.yaml"))


@pytest.mark.parametrize("path", data_set_profiles(), ids=lambda path: path.stem)
def test_data_set_profile_is_named_sourced_and_usable(path: Path) -> None:
    profile = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert profile["name"] == path.stem
    assert profile["source"]["title"]
    assert profile["source"]["url"].startswith("https://")
    fitted = statistics_lengths(
        profile["samples"], profile["mean_tokens"], profile.get("min_tokens"), profile.get("max_tokens")
    )
    assert fitted.mean == pytest.approx(profile["mean_tokens"])


def test_the_named_data_sets_ship() -> None:
    assert {"alpaca", "dell-design-guide"} <= {path.stem for path in data_set_profiles()}


# --- policies


def test_packed_fills_every_sequence_and_loses_nothing() -> None:
    packed = lay_out(DELL, PACKED, seq_len=2048, b=[1, 2], d=8)
    np.testing.assert_array_equal(packed.mean_tokens, [2048, 2048])
    np.testing.assert_array_equal(packed.critical_tokens, packed.longest_tokens)
    np.testing.assert_allclose(packed.padding_share, 0, atol=1e-12)


def test_to_seq_len_pads_all_to_the_same() -> None:
    padded = lay_out(DICE, TO_SEQ_LEN, seq_len=10)
    assert padded.mean_tokens == padded.critical_tokens == padded.longest_tokens == 10
    assert padded.padding_share == pytest.approx(0.8)


def test_micro_batch_policy_by_enumeration() -> None:
    pairs = np.array([max(pair) for pair in itertools.product((1, 2, 3), repeat=2)])
    quads = np.array([max(four) for four in itertools.product((1, 2, 3), repeat=4)])
    padded = lay_out(DICE, LONGEST_IN_MICRO_BATCH, b=2, d=2)
    assert padded.mean_tokens == pytest.approx(pairs.mean())
    assert padded.critical_tokens == pytest.approx(quads.mean())
    assert padded.longest_tokens == 3
    assert padded.padding_share == pytest.approx(1 - 2 / pairs.mean())
    assert padded.real_tokens == pytest.approx(2)


def test_fsdp_waits_in_every_micro_batch_and_ddp_once_a_step() -> None:
    waiting = lay_out(DELL, LONGEST_IN_MICRO_BATCH, b=4, d=8, g=[1, 8, 8], zero3=[False, True, False])
    each = float(DELL.truncated(4096).expected_maximum(32))
    assert waiting.critical_tokens[0] == pytest.approx(each)
    assert waiting.critical_tokens[1] == pytest.approx(each)
    assert waiting.mean_tokens[2] < waiting.critical_tokens[2] < each


def test_a_single_rank_waits_for_nobody() -> None:
    alone = lay_out(DELL, LONGEST_IN_MICRO_BATCH, b=4, d=1, g=[1, 4, 64], zero3=[True, False, False])
    np.testing.assert_allclose(alone.critical_tokens, alone.mean_tokens)


@pytest.mark.parametrize(("b", "d", "g"), [(1, 2, 4), (1, 8, 4), (4, 8, 8), (4, 64, 2), (1, 64, 16)])
@pytest.mark.parametrize(
    ("lengths", "tolerance"),
    [(DELL.truncated(2048), 0.10), (statistics_lengths(52002, 76.7), 0.06), (DICE, 0.07)],
    ids=["heavy-tailed", "instructions", "uniform"],
)
def test_slowest_rank_equals_simulation(lengths: TokenLengths, tolerance: float, b: int, d: int, g: int) -> None:
    predicted = float(lay_out(lengths, LONGEST_IN_MICRO_BATCH, b=b, d=d, g=g).critical_tokens)
    assert predicted == pytest.approx(largest_sum(lengths, b, d, g, steps=1500), rel=tolerance)


def test_one_outlier_sets_the_slowest_rank() -> None:
    rare = histogram_lengths([10, 1000], [999, 1])
    predicted = float(lay_out(rare, LONGEST_IN_MICRO_BATCH, b=1, d=64, g=4).critical_tokens)
    # 256 draws a step: P(an outlier) = 0.2260, and then its rank has (1000 + 3 x 10) / 4 tokens a sequence
    assert predicted == pytest.approx(0.2260 * 257.5 + 0.7740 * 10, rel=0.03)


def test_global_batch_policy_pads_the_share_of_a_rank() -> None:
    padded = lay_out(DELL, LONGEST_IN_GLOBAL_BATCH, seq_len=2048, b=1, d=[1, 4], g=[128, 32])
    cut = DELL.truncated(2048)
    np.testing.assert_allclose(padded.mean_tokens, cut.expected_maximum([128, 32]))
    np.testing.assert_allclose(padded.critical_tokens, cut.expected_maximum(128))
    assert padded.mean_tokens[0] > 12 * DELL.mean


def test_no_batch_draws_more_than_the_data_set_holds() -> None:
    padded = lay_out(DELL, LONGEST_IN_GLOBAL_BATCH, b=8, d=8, g=8, samples=16)
    assert padded.critical_tokens == pytest.approx(float(DELL.truncated(4096).expected_maximum(16)))


def test_rounding_up_never_passes_the_sequence_length() -> None:
    rounded = lay_out(histogram_lengths([1, 16, 17, 100], [1, 1, 1, 1]), LONGEST_IN_MICRO_BATCH, round_to=16)
    assert rounded.mean_tokens == pytest.approx((16 + 16 + 32 + 112) / 4)
    assert rounded.longest_tokens == 112
    short = lay_out(histogram_lengths([50, 100], [1, 1]), LONGEST_IN_MICRO_BATCH, seq_len=100, round_to=64)
    assert short.mean_tokens == pytest.approx((64 + 100) / 2)
    assert short.longest_tokens == 100


def test_rounding_a_fitted_distribution_equals_rounding_whole_lengths() -> None:
    """A block of 16 adds 7.5 tokens to a whole length on average, where lengths spread over many blocks."""
    fitted = statistics_lengths(1000, 200, 100, 400)
    rounded = lay_out(fitted, LONGEST_IN_MICRO_BATCH, seq_len=8192, round_to=16)
    assert rounded.mean_tokens - fitted.mean == pytest.approx(7.5, abs=0.2)


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="longest-in-batch"):
        lay_out(DICE, "longest-in-batch")


@pytest.mark.parametrize("policy", POLICIES)
def test_scalar_layout_equals_array(policy: str) -> None:
    b, d, g, zero3 = (np.array(v) for v in ([1, 2, 8], [1, 16, 4], [1, 8, 3], [False, True, False]))
    together = lay_out(DELL, policy, seq_len=2048, b=b, d=d, g=g, zero3=zero3, round_to=8)
    for i in range(3):
        one = lay_out(DELL, policy, seq_len=2048, b=b[i], d=d[i], g=g[i], zero3=zero3[i], round_to=8)
        for name, values in vars(together).items():
            assert getattr(one, name).shape == ()
            assert float(getattr(one, name)) == pytest.approx(float(values[i]), rel=1e-12)


def never_falls(values: NDArray[np.float64]) -> bool:
    return bool(np.all(np.diff(values) >= -1e-9 * values[:-1]))


@pytest.mark.parametrize("policy", [LONGEST_IN_MICRO_BATCH, LONGEST_IN_GLOBAL_BATCH])
@pytest.mark.parametrize("zero3", [True, False])
def test_larger_batches_and_more_ranks_never_shorten_a_sequence(policy: str, zero3: bool) -> None:
    powers = 2 ** np.arange(8)
    by_batch = lay_out(DELL, policy, b=powers, d=8, g=4, zero3=zero3)
    by_rank = lay_out(DELL, policy, b=2, d=powers, g=4, zero3=zero3)
    assert never_falls(by_batch.mean_tokens)
    assert never_falls(by_batch.critical_tokens)
    assert never_falls(by_rank.critical_tokens)


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(st.integers(1, 5000), st.integers(1, 50), min_size=1, max_size=12),
    policy=st.sampled_from(POLICIES),
    seq_len=st.integers(8, 8192),
    b=st.integers(1, 64),
    d=st.integers(1, 512),
    g=st.integers(1, 64),
    zero3=st.booleans(),
    round_to=st.sampled_from([1, 8, 16]),
)
def test_mean_critical_and_longest_are_ordered(
    counts: dict[int, int], policy: str, seq_len: int, b: int, d: int, g: int, zero3: bool, round_to: int
) -> None:
    lengths = histogram_lengths(list(counts), list(counts.values()))
    out = lay_out(lengths, policy, seq_len=seq_len, b=b, d=d, g=g, zero3=zero3, round_to=round_to)
    slack = 1 + 1e-12
    assert out.mean_tokens <= out.critical_tokens <= out.longest_tokens * slack
    assert out.longest_tokens <= seq_len
    assert 0 <= out.padding_share < 1


def test_unpadded_micro_batches_are_sums_of_samples() -> None:
    """Against drawn batches: the mean, the slowest of 8 ranks, and the largest micro-batch of an epoch."""
    lengths = statistics_lengths(4096, 300.0, maximum=2000.0)
    out = lay_out(lengths, "none", seq_len=4096, b=4, d=8, g=1, zero3=True, samples=4096)
    drawn = np.random.default_rng(1).choice(lengths.lengths, (200, 1024, 4), p=lengths.probabilities).mean(axis=2)
    assert out.mean_tokens == pytest.approx(drawn.mean(), rel=0.01)
    assert out.critical_tokens == pytest.approx(drawn.reshape(200, -1, 8).max(axis=2).mean(), rel=0.05)
    assert out.longest_tokens == pytest.approx(drawn.max(axis=1).mean(), rel=0.25)
    assert out.padding_share == 0


def test_without_a_maximum_the_longest_is_the_median_longest_of_a_log_normal() -> None:
    """Of n draws with mean m the median longest is m exp(z s - s^2 / 2), with z = Phi^-1(2^(-1/n))."""
    n, mean, sigma = 1000, 500.0, token_lengths.ASSUMED_SIGMA
    z = NormalDist().inv_cdf(0.5 ** (1 / n))
    found = statistics_lengths(n, mean)
    assert found.lengths.max() == pytest.approx(mean * math.exp(z * sigma - sigma**2 / 2))
    assert found.mean == pytest.approx(mean)


def test_a_mean_as_short_as_the_shortest_has_samples_of_that_length_only() -> None:
    found = statistics_lengths(100, 64.0, 64, 512)
    assert (found.lengths.tolist(), found.probabilities.tolist()) == ([64.0, 512.0], [1.0, 0.0])
