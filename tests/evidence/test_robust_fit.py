"""What a fit says of runs that it has not seen: pinned by tables and arithmetic, and true of simulated runs."""

import math

import numpy as np
import pytest

from xe_sizer.evidence.calibrate import error_of_new_runs, left_out_residuals, robust, student_tail


@pytest.mark.parametrize(("freedom", "tail"), [(2, 1.8856), (3, 1.6377), (5, 1.4759), (10, 1.3722), (30, 1.3104)])
def test_the_tail_is_that_of_printed_tables(freedom: int, tail: float) -> None:
    assert student_tail(freedom) == pytest.approx(tail, rel=0.004)


def test_the_parents_range_counts_as_one_run() -> None:
    """Four runs that are 2 % off beside a parent that is 23 % off: sqrt((0.23^2 + 4 x 0.02^2) / 5) x 1.476."""
    found = error_of_new_runs(np.full(4, 0.02), list("abcd"), 0.23)
    assert found == pytest.approx(1.4759 * math.sqrt((0.23**2 + 4 * 0.02**2) / 5), rel=0.001)
    assert found == pytest.approx(0.154, abs=0.001)


def test_more_runs_that_agree_narrow_it_down_to_what_runs_differ_by() -> None:
    widths = [error_of_new_runs(np.full(runs, 0.02), list(map(str, range(runs))), 0.5) for runs in (2, 4, 8, 16, 300)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.473, abs=0.001)
    assert widths[-1] == pytest.approx(math.log(1.08))


def test_repeats_say_no_more_than_one_run() -> None:
    alone = error_of_new_runs(np.array([0.1, -0.2]), ["a", "b"], 0.3)
    assert error_of_new_runs(np.array([0.1, -0.2, -0.2, 0.2]), ["a", "b", "b", "b"], 0.3) == pytest.approx(alone)


def test_one_stray_among_ten_counts_as_three_deviations() -> None:
    residuals = np.array([0.1, -0.1] * 5 + [4.0])
    held = error_of_new_runs(residuals, list(map(str, range(11))), 0.1)
    at_three = np.append(residuals[:-1], 3 * 1.4826 * 0.1)
    assert held == pytest.approx(student_tail(12) * math.sqrt((0.1**2 + float(at_three @ at_three)) / 12))
    few = error_of_new_runs(np.array([0.1, 0.1, 4.0]), ["a", "b", "c"], 0.1)
    assert few > 2.0, "of three runs none can be called a stray"


def test_a_run_is_predicted_by_the_others() -> None:
    slopes, linear = np.array([[0.9], [0.8], [0.7]]), np.array([0.3, 0.3, -0.4])
    found = left_out_residuals(slopes, linear, np.ones(3), ["a", "b", "c"])
    others, _ = robust(slopes[:2], linear[:2], np.ones(2))
    assert found[2] == pytest.approx(-0.4 - 0.7 * others[0])
    alone = left_out_residuals(slopes, linear, np.ones(3), ["a", "a", "a"])
    assert alone == pytest.approx(linear), "nothing is left to fit, so the parent's factors stay"


@pytest.mark.parametrize("runs", [2, 4, 10])
@pytest.mark.parametrize(("noise", "parent"), [(0.1, 0.25), (0.25, 0.25), (0.4, 0.25), (0.3, 0.55)])
def test_four_in_five_new_runs_lie_inside(runs: int, noise: float, parent: float) -> None:
    """Simulated clusters: true factors, jobs that spend their time differently, and noise with long tails."""
    random = np.random.default_rng(runs)
    inside = []
    for _ in range(120):
        slopes = random.dirichlet([6.0, 1.5, 2.0, 1.5, 0.7], runs + 1) * 0.95
        linear = slopes @ random.normal(0, 0.25, 5) + noise * random.standard_t(5, runs + 1) / math.sqrt(5 / 3)
        seen, weights = slice(runs), np.ones(runs)
        factors, _ = robust(slopes[seen], linear[seen], weights)
        parts = list(map(str, range(runs)))
        unseen = left_out_residuals(slopes[seen], linear[seen], weights, parts)
        inside.append(abs(linear[-1] - slopes[-1] @ factors) <= error_of_new_runs(unseen, parts, parent))
    assert np.mean(inside) >= 0.71  # 0.8 less two and a half standard errors
