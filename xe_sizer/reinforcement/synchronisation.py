"""How the weights come from those who trained them to those who write with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import count_parameters, count_tensors
from xe_sizer.laws.collectives import ALL_GATHER, POINT_TO_POINT, collective_time_s, copy_time_s
from xe_sizer.serving.weights import rank_weight_bytes
from xe_sizer.units import MILLI

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

ONE = 1  # sender of a broadcast


def whole_bytes(job: Job, element_bytes: float = 2.0) -> float:
    """The weights as they are sent, all of them in 16 bit [bytes]."""
    return count_parameters(job.model).total * element_bytes


def gather_s(job: Job, layouts: Layouts) -> Array:
    """Time until every rank that trains has seen all weights, one after the other.

        t = all-gather of the weights over tp x pp, and over the ranks that share them (ZeRO-3, FSDP)

    Parameters
    ----------
    job, layouts : the trainer, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]; zero where every rank has all weights

    Source: full_tensor() of DTensor in verl's fsdp_workers.py, per_tensor_generator of its megatron_utils.py;
    GatheredParameters in OpenRLHF's and TRL's broadcasts.
    """
    spread = layouts.tp * layouts.pp * np.where(layouts.zero == 3, layouts.zero_ranks, 1)
    per_node = np.minimum(spread, job.network.node_ranks)
    return np.asarray(collective_time_s(ALL_GATHER, whole_bytes(job), spread, per_node, job.network))


def hand_over_s(job: Job) -> float:
    """Time in which all tensors are handed on one by one, whatever their size.

        t = tensors of a checkpoint x time of one

    Each is gathered, named as the engine has it and loaded before the next: experts, with three small matrices in every
    layer, decide. verl's synchronisation of 7B takes 0.12 s for 339 tensors, of Qwen3-30B-A3B 15.8 s for 18,700, of
    Qwen3-235B-A22B 58.6 s for 36,500.

    Source: load_weights of vLLM; verl documentation, fully async policy trainer; tensor_ms of the stack.
    """
    return count_tensors(job.model) * job.stack.rollout.tensor_ms * MILLI


def broadcast_s(job: Job, layouts: Layouts, replicas_gpus: ArrayLike) -> Array:
    """Time of a broadcast of all weights from one rank to GPUs of another pool, pipelined through all of them.

        t = bytes / rate of one accelerator's link out of its node, or inside the node where both pools share one

    Parameters
    ----------
    job, layouts : the trainer, and layouts of shape (layout,)
    replicas_gpus : GPUs of the other pool, shape (layout,) or scalar [-]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: NCCL's broadcast is a ring, whose time hardly depends on its length; trainers send tensor by tensor.
    """
    together = layouts.gpus + as_array(replicas_gpus)
    inside = together <= job.network.node_ranks
    per_node = np.where(inside, 2, ONE)
    return np.asarray(collective_time_s(POINT_TO_POINT, whole_bytes(job), 2, per_node, job.network))


def loading_s(job: ServingJob, placements: ReplicaLayouts) -> Array:
    """Time in which a rank of a replica writes its share of the weights to where the engine has them.

        t = 2 bytes / memory bandwidth

    Source: own count: one read, one write on the card (CUDA IPC hands tensors on without a copy).
    """
    return np.asarray(2.0 * rank_weight_bytes(job.model, job.scheme, placements) / job.device.bandwidth_bytes_per_s)


def waking_s(job: ServingJob, placements: ReplicaLayouts, sleep: str) -> Array:
    """Copies over PCIe of an engine whose weights wait in host memory, there and back.

        t = 2 weights of a rank / PCIe rate          weights-to-host, else nothing

    Source: vLLM documentation, sleep mode: level 1 offloads the weights, level 2 discards them.
    """
    if sleep != "weights-to-host":
        return np.zeros(len(placements))
    moved = 2.0 * rank_weight_bytes(job.model, job.scheme, placements)
    return copy_time_s(moved, job.server.pcie_bytes_per_s)
