"""What the update of weights holds beside states and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.training.gradients import updates_at_once
from xe_sizer.training.learning_matrices import learning_matrices
from xe_sizer.training.orthogonalisation import orthogonalisation_bytes
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.software.optimizer import Temporaries
    from xe_sizer.training.job import Job
    from xe_sizer.training.memory_parts import Tensors

SUB_GROUP = 1e9  # published: elements that DeepSpeed's ZeRO-3 updates together (sub_group_size)


@frozen
class Workspace:
    """Temporaries of an update, each of shape (stage, layout) [bytes].

    together : of a step that updates all weights; head, matrix, table : of one of them alone
    """

    together: Array
    head: Array
    matrix: Array
    table: Array


def update_workspace(tensors: Tensors) -> Workspace:
    """Temporaries of the optimizer's step.

        bytes = learning elements x weight bytes                     multi-tensor update
        bytes = learning elements x 4, at most of a sub-group        float32 gradients
        bytes = largest learning tensor x bytes of its temporaries   an optimizer's own eager update
        and in each case the products of the largest matrix, or its decomposition

    Parameters
    ----------
    tensors : elements of a rank, shape (stage, layout) [-], and sizes [bytes]

    Returns
    -------
    Workspace, each of shape (stage, layout) [bytes]

    Source: torch.optim.adam, _multi_tensor_adamw; DeepSpeed stage_1_and_2.py, single_grad_partition, and stage3.py;
    transformers optimization.py, Adafactor.step; traced.
    """
    job, held, layouts, shards = tensors.job, tensors.held, tensors.layouts, tensors.shards.optimizer
    whole = matrix_workspace_bytes(job)
    on_card = np.where(tensors.offloaded, 0.0, 1.0)
    temporaries, weight = job.optimizer.temporaries, _kept_wide(job, tensors.sizes.weight)
    transient, own = job.stack.memory.optimizer_transient, held.learning(tensors.base) / shards
    if temporaries is not None:
        each = temporaries_bytes(temporaries, weight) * on_card * tensors.base / shards
        head, matrix, table = (held.head * each, held.largest * each, held.embedding * each)
        of_layers = np.maximum(matrix, whole) if job.optimizer.low_rank is None else whole + 0.0 * matrix
        return Workspace(np.maximum.reduce([head, of_layers, table]), head, of_layers, table)
    # An optimizer that runs in the backward updates a weight in one kernel too.
    without = job.optimizer.in_one_kernel | updates_at_once(job, layouts) | (transient != "multi-tensor")
    together = np.where(without, 0.0, own * tensors.sizes.weight)
    if transient == "float32-gradients":
        group = np.where(layouts.gathers_by_layer, np.minimum(own, SUB_GROUP), own)
        together = np.where(layouts.zero >= 1, group * FLOAT32, 0.0)
    none = np.zeros_like(together)
    return Workspace(together * on_card + whole, none, none + whole, none)


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
    """What work on the largest matrix of the layers holds: Newton-Schulz products, or a decomposition in float32.

        bytes = 4 (m n where the gradient is narrower + m n + m^2 + n r + r^2)

    A singular value decomposition returns both factors, of which the singular values scale r columns.

    Parameters
    ----------
    job : its optimizer says what is done, its method what learns

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: galore_torch galore_projector.py, get_orthogonal_matrix; `orthogonalisation_bytes`.
    """
    low = job.optimizer.low_rank
    if low is None or not low.decomposed:
        return orthogonalisation_bytes(job)
    sizes = [sorted((matrices.rows, matrices.columns)) for matrices in learning_matrices(job)]
    cast = float(job.stack.states.gradient_bytes < FLOAT32)
    rows = [(m, n, min(low.rank, m)) for m, n in sizes]
    return max((FLOAT32 * ((1.0 + cast) * m * n + m**2 + n * r + r**2) for m, n, r in rows), default=0.0)


def _kept_wide(job: Job, weight_bytes: Array | float) -> Array | float:
    """The type of what the optimizer updates: the master copy's where there is one [bytes]."""
    return float(FLOAT32) if job.master_bytes else weight_bytes
