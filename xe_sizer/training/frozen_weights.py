"""Models that stand frozen beside the one that learns: what ranks hold of them, and what it takes to bring them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import part
from xe_sizer.training.moments import spread
from xe_sizer.training.sharding import Shards, census, sharded_elements
from xe_sizer.training.state_bytes import StateBytes

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.tensors import Tensors

# Counted: the model's weights go to the host, the copy comes to the card, and the model's come back (NeMo-Aligner
# utils/utils.py, cpu_weight_swap; NeMo RL dtensor_policy_worker.py, use_reference_model).
COPIES_OF_A_SWAP = 3.0


def bytes_as_copy(job: Job, layouts: Layouts) -> Array:
    """All weights of a job's model on a rank, kept as a copy that learns nothing.

        bytes = (matrices x bytes of frozen matrices + others x bytes of frozen others) / ZeRO-3 group

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (stage, layout) [bytes]

    Source: stack states; ZeRO (arXiv:1910.02054).
    """
    held = census(job.model, job.method, layouts, job.split)
    sizes, shards = StateBytes.of(job, layouts), Shards.of(layouts)
    dense_bytes = (held.linear + held.parts_matrices) * sizes.frozen_linear
    dense_bytes = dense_bytes + (held.other + held.parts_others) * sizes.frozen
    return sharded_elements(dense_bytes, held.experts * sizes.frozen_linear, shards.weights, shards)


def copies_bytes(job: Job, layouts: Layouts) -> Array:
    """All copies beside the model on a rank, wherever they are.

        bytes = sum of copies x bytes of each

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (stage, layout) [bytes]

    Source: the method; `bytes_as_copy`.
    """
    held = (one.copies * bytes_as_copy(job.beside(one), layouts) for one in job.method.frozen if one.copies)
    return np.asarray(sum(held, np.zeros((2, len(layouts)))))


def on_host(job: Job, layouts: Layouts) -> Array:
    """Whether copies wait in host memory, with the model's weights or by themselves.

        on host = max(weights offloaded, copies on the host)

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), 1 or 0 [-]

    Source: the layout; states of the stack.
    """
    return np.asarray(np.maximum(layouts.hosts_params.astype(float), float(job.stack.states.copies_on_host)))


def swap_s(job: Job, layouts: Layouts) -> Array:
    """Copies that wait in host memory take the place of the model for their passes, once a step.

        t = COPIES_OF_A_SWAP x bytes of the copies / PCIe rate

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: NeMo-Aligner and NeMo RL, which pass all micro-batches of a step through the reference before they train.
    """
    if not job.stack.states.copies_on_host:
        return np.zeros(len(layouts))
    return copy_time_s(COPIES_OF_A_SWAP * copies_bytes(job, layouts).max(axis=0), job.server.pcie_bytes_per_s)


@part(
    "frozen copies",
    "copies x elements on the rank x bytes of frozen weights, over the ZeRO-3 group",
    "method; stack states",
    lambda tensors: any(one.copies for one in tensors.job.method.frozen),
)
def frozen_copies(tensors: Tensors) -> Array:
    """Models that learn nothing, spread as the model itself; none where they wait in host memory."""
    job, layouts = tensors.job, tensors.layouts
    return spread(copies_bytes(job, layouts) * (1.0 - on_host(job, layouts)))
