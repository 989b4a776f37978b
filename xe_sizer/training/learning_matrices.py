"""The matrices of a model's layers that learn, and what an optimizer keeps of matrices by their shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.inputs import adapters_on, head_adapters
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import layer_weights

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.software.optimizer import Kept, Optimizer
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


@frozen
class Matrices:
    """Matrices of one size that learn: rows and columns [-], and how many the layers of the model have.

    experts, split : whether they are of experts, and whether tensor-parallel ranks hold parts of them
    """

    rows: int
    columns: int
    count: float
    experts: bool = False
    split: bool = False

    @property
    def elements(self) -> float:
        """Elements of all of them [-]."""
        return self.count * self.rows * self.columns

    def tensor_ranks(self, layouts: Layouts) -> Array:
        """Tensor-parallel ranks that hold parts of a matrix, shape (layout,) [-]."""
        ranks = as_array(layouts.expert_ranks if self.experts else layouts.tp)
        return ranks if self.split else np.ones(len(layouts))


def base_matrices(job: Job) -> Iterator[Matrices]:
    """Every kind of matrix in the layers of the base model; embedding and head are not among them."""
    for kind, layers in job.model.layer_kinds:
        weights = layer_weights(job.model, kind)
        yield from (_of_weight(weight, layers) for weight in weights if weight.kind == "linear")


def adapter_matrices(job: Job) -> Iterator[Matrices]:
    """Both factors of every kind of adapter."""
    for kind, layers in job.model.layer_kinds:
        for adapter in adapters_on(layer_weights(job.model, kind), job.method.learning.adapters):
            yield from (Matrices(rows, columns, layers) for rows, columns in adapter.matrices)
    for adapter in head_adapters(job.model, job.method.learning.adapters):
        yield from (Matrices(rows, columns, 1.0) for rows, columns in adapter.matrices)


def learning_matrices(job: Job) -> Iterator[Matrices]:
    """Every kind of matrix in the layers that learns."""
    if job.method.learning.base:
        yield from base_matrices(job)
    yield from adapter_matrices(job)


def state_elements_bytes(optimizer: Optimizer, kept: Kept, rows: int, columns: int, moment_bytes: float) -> float:
    """What an optimizer keeps of one matrix of m rows and n columns, m <= n after sorting.

        bytes = e m n + l (m + n) + k b sum of the squares of the preconditioned sides
        bytes = e r n + projection + l (m + n),  r = min(rank, m)                  where gradients are projected

    Parameters
    ----------
    optimizer : k squares of each side [-]; its rank, and what it projects with
    kept : e bytes of an element, and l of a row or column [bytes]
    rows, columns : of the matrix [-]
    moment_bytes : b, size of an element of a moment [bytes]

    Returns
    -------
    float, state of the matrix [bytes]

    Source: galore_torch adamw.py and galore_projector.py; SOAP (arXiv:2409.11321); Adafactor (arXiv:1804.04235).
    """
    m, n = sorted((rows, columns))
    lines = kept.line_bytes * (m + n)
    low, squares = optimizer.low_rank, optimizer.squares
    if low is not None:
        return kept.bytes(moment_bytes) * min(low.rank, m) * n + low.basis_bytes(m, moment_bytes) + lines
    held = squares.kept * squares.elements(m, n) if squares is not None else 0.0
    return kept.bytes(moment_bytes) * m * n + held * moment_bytes + lines


def mean_state_bytes(optimizer: Optimizer, matrices: Iterable[Matrices], moment_bytes: float) -> float:
    """State of an average element of matrices, moments without a master copy.

        bytes = sum of count x state of one / sum of count x m n

    Parameters
    ----------
    optimizer : what it keeps of a matrix
    matrices : all that learn alike; asked for only where their shape matters
    moment_bytes : size of an element of a moment [bytes]

    Returns
    -------
    float, of an element [bytes]

    Source: definition.
    """
    kept = optimizer.state.matrix
    if optimizer.low_rank is None and optimizer.squares is None and not kept.line_bytes:
        return kept.bytes(moment_bytes)
    held = elements = 0.0
    for each in matrices:
        one = state_elements_bytes(optimizer, kept, each.rows, each.columns, moment_bytes)
        held, elements = held + each.count * one, elements + each.elements
    return held / elements if elements else kept.bytes(moment_bytes)


def table_state_bytes(optimizer: Optimizer, rows: int, columns: int, moment_bytes: float) -> float:
    """State of an element of the embedding or the head, which are never projected.

        bytes = e + l (m + n) / m n + k b sum of the squares of the preconditioned sides / m n

    Parameters
    ----------
    optimizer : as of `state_elements_bytes`, e and l of an embedding
    rows, columns : vocabulary and hidden size [-]
    moment_bytes : b, size of an element of a moment [bytes]

    Returns
    -------
    float, of an element [bytes]

    Source: as of `state_elements_bytes`; SOAP and Shampoo precondition every matrix.
    """
    kept, squares = optimizer.state.embedding, optimizer.squares
    held = squares.kept * squares.elements(rows, columns) if squares is not None else 0.0
    more = kept.line_bytes * (rows + columns) + held * moment_bytes
    return kept.bytes(moment_bytes) + more / (rows * columns)


def _of_weight(weight: Weight, layers: int) -> Matrices:
    count = float(layers * weight.copies)
    return Matrices(weight.inputs, weight.outputs, count, weight.split == "expert", weight.split != "replicated")
