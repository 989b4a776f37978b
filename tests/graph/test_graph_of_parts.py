"""Parts of a model beside its layers: what of them learns, and what a tensor-parallel rank holds."""

from __future__ import annotations

import numpy as np
import pytest

from xe_sizer.graph.inputs import Learning, LowRank, Part
from xe_sizer.graph.weights import Weight

# Three layers of a biased matrix of 8 x 12, split by columns, one of 12 x 8, split by rows, and a norm of 8 with bias;
# one table of 10 rows of 8, split by them.
UP = Weight("up", "vision", "linear", 8, 12, 12, split="column")
DOWN = Weight("down", "vision", "linear", 12, 8, 8, split="row")
NORM = Weight("norm", "vision", "vector", 1, 8, 8)
TABLE = Weight("positions", "vision", "embedding", 10, 8, split="vocabulary")
GROUPS = ((1.0, (TABLE,)), (3.0, (UP, DOWN, NORM)))
TP = np.array([1.0, 2.0, 4.0])
ADAPTED = {"up": LowRank(5), "positions": LowRank(3)}
PARAMETERS = 80 + 3 * (96 + 12 + 96 + 8 + 16)
ADAPTERS = 3 * (10 + 8) + 3 * 5 * (8 + 12)


def part(learning: Learning, split: bool = False) -> Part:
    return Part("vision", GROUPS, learning, split)


@pytest.mark.parametrize(
    ("learning", "learns", "adapters", "learning_parameters"),
    [
        (Learning(True), True, 0, PARAMETERS),
        (Learning(False), False, 0, 0),
        (Learning(False, ADAPTED), True, ADAPTERS, ADAPTERS),
        (Learning(True, ADAPTED), True, ADAPTERS, PARAMETERS + ADAPTERS),
    ],
)
def test_what_of_a_part_learns(learning: Learning, learns: bool, adapters: int, learning_parameters: int) -> None:
    one = part(learning)
    assert (one.parameters, one.learns) == (PARAMETERS, learns)
    assert (one.adapter_parameters, one.learning_parameters) == (adapters, learning_parameters)


def test_ranks_share_the_matrices_of_a_part_that_is_split() -> None:
    """Biases of rows are added after the sum, by every rank; so are norms."""
    one = part(Learning(False, ADAPTED), split=True)
    assert one.matrices_on_rank(TP).tolist() == pytest.approx((3 * ((96 + 12) / TP + 96 / TP + 8)).tolist())
    assert one.others_on_rank(TP).tolist() == pytest.approx((80 / TP + 3 * 16).tolist())
    assert one.adapters_on_rank(TP).tolist() == pytest.approx((3 * (10 + 8 / TP) + 3 * 5 * (8 + 12 / TP)).tolist())


def test_every_rank_has_all_of_a_part_that_is_not() -> None:
    one = part(Learning(False, ADAPTED))
    held = one.matrices_on_rank(TP) + one.others_on_rank(TP)
    assert held.tolist() == [PARAMETERS] * 3
    assert one.adapters_on_rank(TP).tolist() == [ADAPTERS] * 3
    assert part(Learning(True)).adapters_on_rank(TP).tolist() == [0] * 3


def test_experts_and_their_adapters_are_divided_among_the_ranks_that_share_them() -> None:
    """Eight experts of 8 x 12 with biases: four ranks have two each, whatever the tensor ranks are."""
    experts = Weight("expert_up", "experts", "linear", 8, 12, 12, copies=8, split="expert")
    assert (experts.parameters, experts.matrix_elements, experts.bias_elements) == (8 * 108, 8 * 96, 8 * 12)
    ranks = np.array([1.0, 4.0, 8.0])
    assert experts.on_rank(experts.matrix_elements, experts.bias_elements, TP, ranks).tolist() == [864, 216, 108]
    heads = Weight("k", "qkv", "linear", 8, 12, 12, split="column", shards=2)
    assert heads.on_rank(96.0, 12.0, TP, ranks).tolist() == [108, 54, 54]
    both = Weight("norm", "norm", "vector", 1, 8, 8)
    assert both.on_rank(8.0, 8.0, TP, ranks).tolist() == [16] * 3
