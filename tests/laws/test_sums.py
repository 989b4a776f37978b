"""Sums that know their products: their value is numpy's, and what they tell sums to it."""

from __future__ import annotations

import numpy as np
import pytest

from xe_sizer.graph.operators import Array, as_array
from xe_sizer.laws.parts import Sum, Terms, larger, named, over, part, product, smaller, where

RANKS = np.array([1.0, 3.0])
DENSE, EXPERTS = np.array([[7.0, 11.0], [0.0, 13.0]]), np.array([[5.0, 0.0], [2.0, 17.0]])  # shape (stage, layout)


def summed(terms: Terms) -> float:
    return sum(float(np.prod([1.0 / value if divides else value for value, _, divides in term])) for term in terms)


def sharded(dense: Sum | Array, experts: Sum | Array, size: Sum | float) -> Sum | Array:
    """An equation that holds for arrays and for sums alike."""
    return (over(dense, RANKS, "ranks") + experts) * size - 2.0 * experts + 0.0


def test_arithmetic_is_that_of_the_arrays() -> None:
    told = sharded(named(DENSE, "elements"), named(EXPERTS, "elements of experts"), named(0.3, "B"))
    assert isinstance(told, Sum)
    np.testing.assert_array_equal(told.value, sharded(DENSE, EXPERTS, 0.3))


def test_what_is_told_sums_to_the_value_at_every_place() -> None:
    told = sharded(named(DENSE, "elements"), named(EXPERTS, "elements of experts"), named(0.3, "B"))
    assert isinstance(told, Sum)
    for place in np.ndindex(2, 2):
        assert told.at(*place)
        assert summed(told.at(*place)) == pytest.approx(told.value[place], rel=1e-12)


def test_a_product_names_its_factors_and_divides_at_its_end() -> None:
    told = (over(named(DENSE, "elements"), RANKS, "ranks") * named(4.0, "B")).at(1, 1)
    assert told == (((13.0, "elements", False), (4.0, "B", False), (3.0, "ranks", True)),)


def test_ones_are_told_where_they_count_something() -> None:
    told = over(product((6.0, "elements"), (1.0, "layers")), RANKS, "ranks") * np.array([1.0, 0.5])
    assert told.at(0) == (((6.0, "elements", False), (1.0, "layers", False)),)
    assert told.at(1) == (
        ((6.0, "elements", False), (1.0, "layers", False), (0.5, "", False), (3.0, "ranks", True)),
    )  # fmt: skip


def test_products_of_nothing_are_left_out() -> None:
    told = named(DENSE, "elements") + named(EXPERTS, "elements of experts")
    assert told.at(0, 1) == (((11.0, "elements", False),),)
    assert told.at(1, 0) == (((2.0, "elements of experts", False),),)


def test_what_has_no_name_leaves_the_sum_unexplained() -> None:
    for told in (named(DENSE, "elements") + EXPERTS, EXPERTS + named(DENSE, "elements")):
        np.testing.assert_array_equal(told.value, DENSE + EXPERTS)
        assert told.at(0, 0) == ()
        assert told.at(0, 1) == (((11.0, "elements", False),),)  # nothing is added there
    assert (EXPERTS - named(DENSE, "elements")).at(0, 1) == (((-11.0, "elements", False),),)


def test_a_choice_tells_what_is_chosen() -> None:
    one, other = named(DENSE, "elements"), product((2.0, "layers"), (EXPERTS, "elements"))
    for told, value in (
        (where(DENSE > 6.0, one, other), np.where(DENSE > 6.0, DENSE, 2.0 * EXPERTS)),
        (smaller(one, other), np.minimum(DENSE, 2.0 * EXPERTS)),
        (larger(one, other), np.maximum(DENSE, 2.0 * EXPERTS)),
        (larger(one, 8.0), np.maximum(DENSE, 8.0)),
    ):
        np.testing.assert_array_equal(told.value, value)
    assert larger(one, other).at(0, 1) == (((11.0, "elements", False),),)
    assert larger(one, other).at(1, 1) == (((2.0, "layers", False), (17.0, "elements", False)),)
    assert smaller(one, 11.0).at(0, 1) == (((11.0, "elements", False),),)  # the first of two that are equal
    assert smaller(one, 12.0).at(1, 1) == ()


def test_a_size_is_told_as_so_many_of_what_each_comes_to() -> None:
    told = named(DENSE, "B").per(np.array([2.0, 4.0]), "logits", "B each")
    np.testing.assert_array_equal(told.value, DENSE)
    assert told.at(0, 1) == (((4.0, "logits", False), (2.75, "B each", False)),)


def test_another_shape_tells_the_same() -> None:
    told = product((DENSE, "elements"), (RANKS, "layers")).reshaped(
        lambda size: size[:, None] if size.ndim == 2 else size
    )
    np.testing.assert_array_equal(told.value, (DENSE * RANKS)[:, None])
    assert told.at(1, 5, 1) == (((13.0, "elements", False), (3.0, "layers", False)),)


def test_a_part_is_the_value_of_its_sum() -> None:
    def elements(count: float) -> Sum:
        return product((count, "elements"), (4.0, "B"))

    known = part("known", "elements x B", "here")(elements)
    plain = part("plain", "the widest", "here")(as_array)
    assert known(3.0) == 12.0
    assert known.terms(3.0) == (((3.0, "elements", False), (4.0, "B", False)),)
    assert (float(plain(3.0)), plain.terms(3.0)) == (3.0, ())
