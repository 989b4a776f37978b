"""Which of the layouts that the model cannot tell apart is taken."""

from __future__ import annotations

import numpy as np
from cases import layouts

from xe_sizer.training.search import LAYOUT_ERROR, TIE, complexity, drawbacks, preferred


def test_each_thing_to_set_up_counts() -> None:
    """By hand: one a kind of parallelism, a doubling of the chunks and full recompute, two for host memory and cp."""
    rows = layouts(
        tp=[1, 8, 4, 4, 1, 1, 1], cp=[1, 1, 2, 1, 1, 1, 1], pp=[1, 1, 2, 2, 1, 1, 1], vpp=[1, 1, 20, 1, 1, 1, 1],
        zero=[1, 1, 1, 1, 3, 0, 3], recompute=[0, 1, 0, 2, 0, 0, 0], offload=[0, 0, 0, 0, 0, 1, 0],
        zero_group=[0, 0, 0, 0, 0, 0, 8],
    )  # fmt: skip
    assert complexity(rows).tolist() == [0, 1, 4 + 5, 3, 1, 2, 2]


def test_the_plainer_wins_inside_the_error_of_the_model_and_loses_beyond() -> None:
    both = layouts(tp=[4, 8], cp=[2, 1], pp=[2, 1], vpp=[20, 1])
    peaks = np.array([10.0, 20.0])
    alike = np.zeros(2, dtype=bool)
    assert preferred(both, np.array([1.0, 1.0 + 0.99 * LAYOUT_ERROR]), peaks, alike) == 1
    assert preferred(both, np.array([1.0, 1.0 + 1.01 * LAYOUT_ERROR]), peaks, alike) == 0


def test_doubtful_memory_counts_as_two_things_to_set_up() -> None:
    both, peaks, near = layouts(tp=[4, 8], pp=[1, 2]), np.array([20.0, 10.0]), 1.0 + 0.99 * LAYOUT_ERROR
    assert drawbacks(both, np.array([True, False])).tolist() == [3, 2]
    assert preferred(both, np.array([1.0, near]), peaks, np.array([True, False])) == 1
    assert preferred(both, np.array([1.0, near]), peaks, np.array([True, True])) == 0
    assert preferred(both, np.array([1.0, 1.0 + 1.01 * LAYOUT_ERROR]), peaks, np.array([True, False])) == 0


def test_of_layouts_equally_plain_the_fastest_and_then_the_one_with_more_headroom() -> None:
    alike = layouts(tp=[2, 4, 8])
    peaks = np.array([30.0, 20.0, 10.0])
    doubt = np.zeros(3, dtype=bool)
    assert preferred(alike, np.array([1.0, 1.0 + 0.9 * TIE, 1.05]), peaks, doubt) == 1
    assert preferred(alike, np.array([1.0, 1.0 + 1.1 * TIE, 1.05]), peaks, doubt) == 0
