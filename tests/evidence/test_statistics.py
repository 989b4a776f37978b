"""Errors of many predictions in a few numbers; expected numbers by hand or by numpy."""

import msgspec
import numpy as np
import pytest

from xe_sizer.evidence.statistics import best_fixed_efficiency, summaries, weighted_quantile
from xe_sizer.result.accuracy import Confusion, Prediction


def timed(name: str, ratio: float, source: str, low: float = 0.5, high: float = 2.0) -> Prediction:
    groups = ("stack:s", f"source:{source}")
    return Prediction(
        id=name, quantity="step_time", measured=1.0, predicted=ratio, ratio=ratio, low=low, high=high, groups=groups
    )


def verdict(name: str, predicted: bool, measured: bool) -> Prediction:
    return Prediction(id=name, quantity="oom", measured=measured, predicted=predicted, groups=("stack:s",))


def test_equal_weights_give_the_median() -> None:
    values = np.random.default_rng(1).normal(size=101)
    assert weighted_quantile(values, np.ones(101), 0.5) == pytest.approx(np.median(values))


def test_weights_move_the_quantile() -> None:
    # The weights' middles stand at 0.5, 1.5 and 4 of 6: half of the weight is 0.6 of the way from 2 to 9.
    assert weighted_quantile(np.array([9.0, 1.0, 2.0]), np.array([4.0, 1.0, 1.0]), 0.5) == pytest.approx(6.2)


def test_errors_bias_and_coverage() -> None:
    predictions = [timed("a", 0.8, "x"), timed("b", 1.1, "x"), timed("c", 1.5, "x", low=1.2, high=1.8)]
    whole = next(summary for summary in summaries(predictions) if summary.group == "all")
    assert whole.n == 3
    assert whole.median_abs_error == pytest.approx(0.2)
    assert whole.bias == pytest.approx(0.1)
    assert whole.interval_coverage == pytest.approx(2 / 3)


def test_every_source_weighs_alike() -> None:
    many = [timed(f"m{i}", 2.0, "many") for i in range(99)]
    few = [timed("f", 1.0, "few one"), timed("g", 1.0, "few two")]
    by_group = {summary.group: summary for summary in summaries(many + few)}
    assert by_group["all"].median_abs_error == pytest.approx(1.0)
    assert by_group["all (sources weighted alike)"].median_abs_error == pytest.approx(0.0)


def test_verdicts_are_counted_by_what_was_predicted_and_measured() -> None:
    pairs = [(False, False)] * 4 + [(True, True)] * 3 + [(False, True)] * 2 + [(True, False)]
    found = summaries([verdict(str(i), *pair) for i, pair in enumerate(pairs)])
    assert {summary.group for summary in found} >= {"all", "stack:s"}
    assert all(summary.oom == Confusion(true_fit=4, true_oom=3, false_fit=2, false_oom=1) for summary in found)
    assert all(summary.median_abs_error is None for summary in found)


def test_verdicts_are_counted_by_their_word() -> None:
    """Of three that fit one failed, of two that do not one ran, one was tight."""
    words = [("fits", False), ("fits", False), ("fits", True), ("does-not-fit", True), ("does-not-fit", False)]
    every = [*words, ("tight", True)]
    said = [
        msgspec.structs.replace(verdict(str(place), False, failed), memory=word)
        for place, (word, failed) in enumerate(every)
    ]
    counts = next(summary.oom for summary in summaries(said) if summary.group == "all")
    assert counts is not None
    assert (counts.said_to_fit, counts.failed, counts.said_not_to_fit, counts.ran) == (3, 1, 2, 1)


def test_guessed_runs_count_in_their_own_group_alone() -> None:
    known = [timed("a", 1.1, "x"), timed("b", 1.3, "y")]
    wild = msgspec.structs.replace(timed("c", 9.0, "z"), guessed=True)
    by_group = {summary.group: summary for summary in summaries([*known, wild])}
    assert set(by_group) == {"all", "all (sources weighted alike)", "guessed", "stack:s", "source:x", "source:y"}
    assert (by_group["all"].n, by_group["stack:s"].n, by_group["guessed"].n) == (2, 2, 1)
    assert by_group["guessed"].median_abs_error == pytest.approx(8.0)
    assert by_group["all"].publications == 2


def test_a_fixed_efficiency_is_the_best_that_one_constant_can_do() -> None:
    """Shares of 0.2, 0.4 and 0.5 of the peak: at a constant of 0.45 the two nearest are off by a ninth each."""
    shares, weights = np.array([0.2, 0.4, 0.5]), np.ones(3)
    found = best_fixed_efficiency(shares, weights, median_error=0.05)
    assert found.efficiency == pytest.approx(0.45, rel=0.01)
    assert found.median_abs_error == pytest.approx(1 / 9, rel=0.05)
    assert found.gain == pytest.approx(found.median_abs_error - 0.05)
    for constant in np.linspace(0.2, 0.5, 50):
        assert found.median_abs_error <= np.median(np.abs(shares / constant - 1)) + 0.005


def test_the_rule_stands_beside_times_of_training_only() -> None:
    runs = [
        msgspec.structs.replace(timed(str(place), 1.0, str(place)), at_peak_s=share)
        for place, share in enumerate((0.3, 0.4, 0.4, 0.5))
    ]
    whole = next(summary for summary in summaries(runs) if summary.group == "all")
    assert whole.fixed_efficiency is not None
    assert whole.fixed_efficiency.gain == whole.fixed_efficiency.median_abs_error
    assert all(summary.fixed_efficiency is None for summary in summaries(runs[:3]))
    served = [msgspec.structs.replace(run, at_peak_s=None) for run in runs]
    assert all(summary.fixed_efficiency is None for summary in summaries(served))
