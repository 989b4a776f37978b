"""Distinct rows: exact, also where columns are wide or not whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from xe_sizer.training.rank import unique_rows


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(0, 3))] * 4)))
def test_rows_come_back(columns: tuple[np.ndarray, ...]) -> None:
    rows = unique_rows(columns)
    for column in columns:
        assert (rows.spread(column[rows.first]) == column).all()
    assert rows.first.size == len({tuple(row) for row in zip(*columns, strict=True)})


def test_wide_columns_and_fractions_are_told_apart() -> None:
    wide = np.array([2**60, 2**60, 2**60 + 1, 0])
    shares = np.array([0.25, 0.5, 0.25, 0.25])
    rows = unique_rows([wide, wide, shares])
    assert rows.first.size == 4


def test_a_single_figure_serves_all() -> None:
    rows = unique_rows([np.array([1, 2, 1])])
    assert rows.spread(np.array([7.0])).tolist() == [7.0, 7.0, 7.0]
