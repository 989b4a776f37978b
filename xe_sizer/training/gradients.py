"""Gradients during a step: when a rank keeps them, and how many bytes of them there are at each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD
from xe_sizer.training.moments import BACKWARD_END, FIRST_LAYER, LAST_LAYER, MOMENTS, OPTIMIZER, over_time, spread
from xe_sizer.training.state_bytes import StateBytes

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.sharding import Census


def accumulates_whole_gradients(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether a rank keeps whole gradients between micro-batches, because it reduces them after the last one only.

        keeps = (reduces once a step or pp > 1) and ZeRO >= 2 and grad_accum > 1 and data-parallel ranks > 1

    Parameters
    ----------
    job, layouts : what the stack does, and layouts of shape (layout,)

    Returns
    -------
    ndarray of bool, shape (layout,) [-]

    Source: `no_sync` of PyTorch FSDP, which accelerate and Lightning enter while they accumulate; PyTorch's pipelines
    (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
    """
    once_a_step = (layouts.pp > 1) | (not job.stack.defaults.reduces_every_micro_batch)
    return np.asarray(once_a_step & (layouts.zero >= 2) & (layouts.grad_accum > 1) & (layouts.data_ranks > 1))


def updates_at_once(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether the optimizer runs in the backward, weight by weight.

        at once = the optimizer does so, or the stack does and GPUs = 1 and grad_accum = 1

    With such an optimizer every micro-batch is an update of its own.

    Parameters
    ----------
    job, layouts : what optimizer and stack do, and layouts of shape (layout,)

    Returns
    -------
    ndarray of bool, shape (layout,) [-]

    Source: optimizer-in-backward of torchtune, as the stack's file says; LOMO (arXiv:2306.09782), also with ZeRO-3.
    """
    of_stack = job.stack.states.updates_in_backward & (layouts.gpus == 1) & (layouts.grad_accum == 1)
    return np.asarray(of_stack | job.optimizer.in_backward)


def keeps_fresh_gradients(job: Job, layouts: Layouts) -> Array:
    """1 where the backward creates gradients, 0 where it adds them to buffers that exist already.

        fresh = not (buffers or grad_accum > 1) or ZeRO = 3, and not where whole gradients accumulate

    Parameters
    ----------
    job, layouts : what the stack does, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,) [-]

    Source: PyTorch's autograd, which adds to a gradient that exists; gradient buffers of Megatron-LM, as the stack's
    file says.
    """
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    return np.where(buffered & (layouts.zero < 3) | accumulates_whole_gradients(job, layouts), 0.0, 1.0)


def gradients_over_time(
    job: Job, layouts: Layouts, held: Census, gradients: Array, whole: Array, to_come: Array | None = None
) -> Array:
    """Gradients at each moment: fresh ones come with the backward, head first; buffers are always there.

        bytes = 0 until the backward, min(head, all), all - first layer and tables, all, all    fresh
        bytes = all at every moment                                                             buffers
        bytes = whole until the optimizer runs, then the shard                                  reduced once a step
        bytes = table, at the end; the head's go before the layers' come                        updated in the backward

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    held : elements of a rank before sharding
    gradients : of a rank after sharding, shape (stage, layout) [bytes]
    whole : of a rank until the last micro-batch has reduced them, where the stack waits for it, shape (stage, layout)
        [bytes]
    to_come : elements of the layers whose backward has not begun at the last of its moments, shape (stage, layout) [-];
        None: those of the first layer

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: own derivation from the order of the backward; `no_sync` of PyTorch FSDP; traced.
    """
    sizes = StateBytes.of(job, layouts)
    size, base, learning = sizes.gradient, float(job.method.learning.base), job.method.learning
    copied = sizes.adapter_gradient * job.method.saved_element_share
    ends = base * job.learning_layers.ends
    of_head, of_table = (ends * size + copied * float(end in learning.saved) for end in (HEAD, EMBEDDING))
    waits, at_once = accumulates_whole_gradients(job, layouts), updates_at_once(job, layouts)
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    tables = held.embedding * float(not job.model.tied_embeddings)
    in_buffers: Array = np.broadcast_to(spread(gradients), (2, len(MOMENTS), len(layouts)))
    special = ~buffered | waits | at_once
    if not np.any(special):
        return in_buffers
    sharded = np.where(layouts.zero >= 2, as_array(layouts.zero_ranks), 1.0)
    first = held.whole_layer if to_come is None else to_come
    beside = held.parts_learning * size + held.parts_adapters * sizes.adapter_gradient
    head = held.head * of_head / sharded
    later = (first * base * size + tables * of_table + beside) / sharded
    # The first layer's own gradients are counted with its backward; those of tables and other parts come after it.
    fresh = over_time(
        (BACKWARD_END + OPTIMIZER, gradients),
        (LAST_LAYER, np.minimum(head, gradients)),
        (FIRST_LAYER, np.maximum(gradients - later, 0.0)),
    )
    accumulated = over_time((1.0 - OPTIMIZER, whole), (OPTIMIZER, gradients))
    passing = over_time((BACKWARD_END, tables * base * size))
    return np.select([at_once, waits, buffered], [passing, accumulated, in_buffers], fresh)


def tied_gradients(job: Job, layouts: Layouts, held: Census) -> Array:
    """A tied table's second gradient and the sum of both, until the sum replaces the first.

        bytes = 2 x table x gradient

    Not where both are added to one buffer, nor where a pipeline has the table twice.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    held : elements of a rank before sharding

    Returns
    -------
    ndarray of float, shape (stage, layout) [bytes]

    Source: own derivation from autograd's input buffers, which add up gradients before they accumulate; traced.
    """
    learns = job.model.tied_embeddings and job.method.learning.base and not job.stack.states.gradients_persist
    second = 2.0 * float(learns) * job.learning_layers.ends * (layouts.pp == 1).astype(float)
    return np.asarray(second * held.embedding * StateBytes.of(job, layouts).gradient)
