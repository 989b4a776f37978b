"""Layouts as a struct of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ONE_GPU, layouts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from xe_sizer.training.layout import Layouts
from xe_sizer.training.rank import unique_rows


def test_sizes_broadcast_to_one_shape() -> None:
    made = layouts(tp=[1, 2, 4], dp=8)
    assert len(made) == 3
    assert made.gpus.tolist() == [8, 16, 32]
    assert made.dp.tolist() == [8, 8, 8]


def test_every_field_must_be_given() -> None:
    sizes = dict(ONE_GPU)
    del sizes["zero"]
    with pytest.raises(KeyError, match="zero"):
        Layouts.of(**sizes)


def test_selection_keeps_the_rows_together() -> None:
    made = layouts(tp=[1, 2, 4], dp=[4, 2, 1])
    chosen = made[made.tp > 1]
    assert list(zip(chosen.tp.tolist(), chosen.dp.tolist(), strict=True)) == [(2, 2), (4, 1)]
    assert made[np.array([2, 0])].tp.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("tp", "cp", "dp", "ep", "expert_tp", "expert_dp"),
    [
        (1, 1, 8, 8, 1, 1),  # the expert group takes all data-parallel ranks
        (2, 1, 8, 8, 2, 1),  # experts split over tp, as the dense layers are
        (2, 1, 8, 4, 2, 2),
        (8, 1, 1, 8, 1, 1),  # no data-parallel ranks: the tensor ranks hold whole experts
        (8, 1, 2, 8, 1, 2),
        (4, 2, 4, 1, 4, 8),
    ],
)
def test_expert_groups(tp: int, cp: int, dp: int, ep: int, expert_tp: int, expert_dp: int) -> None:
    made = layouts(tp=tp, cp=cp, dp=dp, ep=ep)
    assert (made.expert_ranks.tolist(), made.expert_dp.tolist()) == ([expert_tp], [expert_dp])
    assert expert_tp * expert_dp * ep == tp * cp * dp


def test_ranks_that_split_an_expert_may_be_chosen() -> None:
    """16 ranks of a stage: with ep 4, an expert whole, in two and in four leaves 4, 2 and 1 copies of it."""
    made = layouts(tp=4, dp=4, ep=4, expert_tp=[1, 2, 4, 0])
    assert (made.expert_ranks.tolist(), made.expert_dp.tolist()) == ([1, 2, 4, 4], [4, 2, 1, 1])


# Distinct rows: exact, also where columns are wide or not whole numbers.


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(*[arrays(np.int64, n, elements=st.integers(0, 3))] * 4)))
def test_rows_come_back(columns: tuple[np.ndarray, ...]) -> None:
    rows = unique_rows(columns)
    for column in columns:
        assert (rows.broadcast(column[rows.first]) == column).all()
    assert rows.first.size == len({tuple(row) for row in zip(*columns, strict=True)})


def test_wide_columns_and_fractions_are_told_apart() -> None:
    wide = np.array([2**60, 2**60, 2**60 + 1, 0])
    shares = np.array([0.25, 0.5, 0.25, 0.25])
    rows = unique_rows([wide, wide, shares])
    assert rows.first.size == 4


def test_a_single_figure_serves_all() -> None:
    rows = unique_rows([np.array([1, 2, 1])])
    assert rows.broadcast(np.array([7.0])).tolist() == [7.0, 7.0, 7.0]
