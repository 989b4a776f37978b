"""Rows that differ: many layouts share what their ranks compute, so it is computed once and handed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods.method import Compared

LARGEST_KEY = 2**62  # defined: inside a signed integer of 64 bits


class UniqueRows(Immutable):
    """`first`: an index of each distinct row; `where`: which of them every row is."""

    first: IntArray
    where: IntArray

    def spread(self, per_row: Array) -> Array:
        """A figure of the distinct rows (last axis), for all rows."""
        if np.shape(per_row)[-1] != self.first.size:
            per_row = np.broadcast_to(per_row, (*np.shape(per_row)[:-1], self.first.size))
        return per_row.take(self.where, axis=-1)


def unique_rows(columns: Sequence[ArrayLike]) -> UniqueRows:
    """The distinct rows of columns of one length; exact.

        key = ((code_1 n_2 + code_2) n_3 + code_3) ...      one integer for each row

    Whole numbers go in less the least of them, others by their rank.

    Parameters
    ----------
    columns : shape (rows,) each [any unit]

    Returns
    -------
    UniqueRows, shape (distinct rows,) and (rows,) [-]

    Source: own derivation: a mixed radix, renumbered where a key would exceed 2^62.
    """
    coded = [_code(np.asarray(column)) for column in columns]
    coded = [(code, count) for code, count in coded if count > 1] or coded[:1]
    key, size = coded[0]
    for code, count in coded[1:]:
        if size * count > LARGEST_KEY:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max()) + 1
        key, size = key * count + code, size * count
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    return UniqueRows(first, where)


def _code(column: NDArray[np.generic]) -> tuple[IntArray, int]:
    """Non-negative integers below a bound, one for each distinct value of the column."""
    if not np.issubdtype(column.dtype, np.integer):
        whole = np.abs(column).max() < LARGEST_KEY and np.array_equal(np.trunc(column), column)
        if not whole:
            values, code = np.unique(column, return_inverse=True)
            return code, values.size
        column = column.astype(np.int64)  # sorting takes longer
    code = (column - column.min()).astype(np.int64)
    return code, int(code.max()) + 1


# Jobs that compare the states of sequences with each other: how many, and what ranks exchange for it.


def queries_and_candidates(compared: Compared, layouts: Layouts) -> tuple[Array, Array]:
    """Queries of a micro-batch of a rank, and the passages that each is compared with, shape (layout,) [-].

        queries = micro-batch
        candidates = micro-batch (1 + hard negatives) x (accumulation, where gradients are cached) x (dp, across GPUs)

    Parameters
    ----------
    compared : what is compared with what
    layouts : micro-batch, accumulation and dp, shape (layout,) [-]

    Returns
    -------
    (queries, candidates), shape (layout,) [-]

    Source: MultipleNegativesRankingLoss (gather_across_devices) and its cached form in sentence-transformers.
    """
    queries = as_array(layouts.micro_batch)
    of_step = as_array(layouts.grad_accum) if compared.cached else 1.0
    everywhere = as_array(layouts.dp) if compared.across_gpus else 1.0
    return queries, queries * (1.0 + compared.hard_negatives) * of_step * everywhere
