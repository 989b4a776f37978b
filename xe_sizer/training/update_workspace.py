"""What the update of weights holds beside states and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.training.gradients import tied_gradients, updates_at_once
from xe_sizer.training.learning_matrices import learning_matrices
from xe_sizer.training.moments import BACKWARD_END, LAYERS_BACKWARD, LOSS, OPTIMIZER, over_time
from xe_sizer.training.orthogonalisation import orthogonalisation_bytes
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.software.optimizer import Temporaries
    from xe_sizer.training.job import Job
    from xe_sizer.training.tensors import Tensors

SUB_GROUP = 1e9  # published: elements that DeepSpeed's ZeRO-3 updates together (sub_group_size)


@frozen
class _Workspace:
    """Temporaries of an update, each of shape (stage, layout) [bytes].

    together : of a step that updates all weights; head, matrix, table : of one of them alone
    """

    together: Array
    head: Array
    matrix: Array
    table: Array


def update_workspace(tensors: Tensors) -> Array:
    """Temporaries of updates at each moment.

        bytes = learning elements x copies x weight bytes            multi-tensor update
        bytes = learning elements x 4, at most of a sub-group        float32 gradients
        bytes = largest learning tensor x bytes of its temporaries   an optimizer's own eager update
        and in each case at least the products of the largest matrix, or its decomposition

    They are there in the optimizer's step; with one that runs in the backward, when a gradient is. The head then is
    updated in the place of the loss. A tied table has its gradient at the end, when there are two instead of three.

    Parameters
    ----------
    tensors : elements of a rank, shape (stage, layout) [-], and sizes [bytes]

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: torch.optim.adam, _multi_tensor_adamw; DeepSpeed stage_1_and_2.py, single_grad_partition, and stage3.py;
    transformers optimization.py, Adafactor.step; traced.
    """
    own, layouts = _of_tensors(tensors), tensors.layouts
    at_once = updates_at_once(tensors.job, layouts)
    together = over_time((OPTIMIZER, own.together))
    if not np.any(at_once):
        return together
    apart = float(not tensors.job.model.tied_embeddings)
    head = apart * (own.head + tensors.held.head * tensors.base * tensors.sizes.gradient)
    loss = (tensors.saved.loss_live + tensors.wide_logits) * tensors.has_head
    table = np.maximum(own.table - tied_gradients(tensors.job, layouts, tensors.held) / 2.0, 0.0)
    passing = over_time((LOSS, np.maximum(head - loss, 0.0)), (LAYERS_BACKWARD, own.matrix), (BACKWARD_END, table))
    return np.where(at_once, passing, together)


def _of_tensors(tensors: Tensors) -> _Workspace:
    """Temporaries of all weights and of single ones."""
    job, held, layouts, shards = tensors.job, tensors.held, tensors.layouts, tensors.shards.optimizer
    whole = matrix_workspace_bytes(job)
    on_card = job.optimizer_on_card(layouts)
    temporaries, weight = job.optimizer.temporaries, _kept_wide(job, tensors.sizes.weight)
    transient, own = job.optimizer.transient(job.stack.memory.optimizer_transient), tensors.learned / shards
    if temporaries is not None:
        each = temporaries_bytes(temporaries, weight) * on_card * tensors.base / shards
        head, matrix, table = (held.head * each, held.largest * each, held.embedding * each)
        # What is projected has small temporaries; those of the table last until the first matrix is decomposed.
        of_layers = np.maximum(matrix, whole) if job.optimizer.low_rank is None else whole + 0.0 * matrix
        after_table = table + first_decomposition_bytes(job)
        return _Workspace(np.maximum.reduce([head, of_layers, after_table]), head, of_layers, table)
    # An optimizer that runs in the backward updates a weight in one kernel too.
    without = job.optimizer.in_one_kernel | updates_at_once(job, layouts) | (transient != "multi-tensor")
    together = np.where(without, 0.0, _together(tensors) * weight / shards)
    if transient == "float32-gradients":
        group = np.where(layouts.gathers_by_layer, np.minimum(own, SUB_GROUP), own)
        together = np.where(layouts.zero >= 1, group * FLOAT32, 0.0)
    none = np.zeros_like(together)
    return _Workspace(np.maximum(together * on_card, whole), none, none + whole, none)


def _together(tensors: Tensors) -> Array:
    """Elements that a multi-tensor update copies, shape (stage, layout) [-]."""
    held, state = tensors.held, tensors.job.optimizer.state
    of_kind = (
        (held.base - held.vectors - held.tables, state.matrix),
        (held.vectors, state.vector),
        (held.tables, state.embedding),
    )
    base = sum(elements * kind.together for elements, kind in of_kind) * tensors.job.learning_layers.share
    return np.asarray(base * tensors.base + held.adapters * state.matrix.together)


def temporaries_bytes(temporaries: Temporaries, weight_bytes: Array | float) -> Array:
    """Of an element of the tensor that is updated.

        bytes = copies w + 4 float32 + 4 casts where w < 4

    Parameters
    ----------
    temporaries : what the update holds
    weight_bytes : w, of what the optimizer updates, shape (layout,) or one number [bytes]

    Returns
    -------
    ndarray of float, shape as given [bytes]

    Source: definition.
    """
    wide = temporaries.float32 + temporaries.casts * np.less(weight_bytes, FLOAT32)
    return np.asarray(temporaries.copies * np.asarray(weight_bytes) + FLOAT32 * wide)


def matrix_workspace_bytes(job: Job) -> float:
    """What work on the largest matrix of the layers holds: Newton-Schulz products, or a decomposition.

        bytes = max over matrices of those of one

    Parameters
    ----------
    job : its optimizer says what is done, its method what learns

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: `orthogonalisation_bytes`, `decomposition_bytes`.
    """
    low = job.optimizer.low_rank
    if low is None or not low.decomposed:
        return orthogonalisation_bytes(job)
    narrow = job.stack.states.gradient_bytes < FLOAT32
    return max(
        (decomposition_bytes(one.rows, one.columns, low.rank, narrow) for one in learning_matrices(job)), default=0.0
    )


def first_decomposition_bytes(job: Job) -> float:
    """The same of the first matrix of a layer, which is decomposed while temporaries of the table still live.

        bytes = those of its decomposition

    Parameters
    ----------
    job : its optimizer says whether there is one

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: galore_torch adamw.py, AdamW.step, whose variables last until the next weight sets them; traced.
    """
    low, first = job.optimizer.low_rank, next(learning_matrices(job), None)
    if low is None or not low.decomposed or first is None:
        return 0.0
    return decomposition_bytes(first.rows, first.columns, low.rank, job.stack.states.gradient_bytes < FLOAT32)


def decomposition_bytes(rows: int, columns: int, rank: int, narrow: bool) -> float:
    """What a singular value decomposition of a gradient holds, in float32.

        bytes = 4 (m n where the gradient is narrower + m n + m^2 + n r + r^2),  m <= n

    It returns both factors, of which the singular values scale r columns; copies inside the library come on top.

    Parameters
    ----------
    rows, columns : of the matrix [-]
    rank : r of the projection [-]
    narrow : whether the gradient is in 16 bit, and cast

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: galore_torch galore_projector.py, get_orthogonal_matrix.
    """
    m, n = sorted((rows, columns))
    r = min(rank, m)
    return FLOAT32 * ((1.0 + float(narrow)) * m * n + m**2 + n * r + r**2)


def _kept_wide(job: Job, weight_bytes: Array | float) -> Array | float:
    """The type of what the optimizer updates: the master copy's where there is one [bytes]."""
    return float(FLOAT32) if job.master_bytes else weight_bytes
