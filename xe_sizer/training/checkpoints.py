"""Checkpoints of a run: how large they are, how long one takes, and how often failures ask for one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.training.sharding import census
from xe_sizer.training.stages import Split
from xe_sizer.training.state_bytes import StateBytes
from xe_sizer.units import GIGA

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

WRITE_BYTES_PER_S = 2.0 * GIGA  # chosen: what storage takes from one node, as much as a node reads at its start
MOST_EXPONENT = 40.0  # chosen: of a run that never gets on: keeps its time a number


@frozen
class Checkpoint:
    """One checkpoint of the whole job, shape (layout,).

    weights, optimizer : master copies are the optimizer's [bytes]
    copy_s : from every GPU to its host; write_s : from the hosts to storage [s]
    """

    weights: Array
    optimizer: Array
    copy_s: Array
    write_s: Array

    @property
    def size(self) -> Array:
        """Of the whole checkpoint [bytes]."""
        return self.weights + self.optimizer

    @property
    def whole_s(self) -> Array:
        """From its first byte to its last [s]."""
        return self.copy_s + self.write_s


def write_rate(job: Job, layouts: Layouts) -> Array:
    """What storage takes from all nodes together.

        rate = as given, else nodes x WRITE_BYTES_PER_S

    Parameters
    ----------
    job : the rate of its storage, where it is given [bytes/s]; accelerators of a node [-]
    layouts : GPUs, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [bytes/s]

    Source: the rate of a node is chosen (WRITE_BYTES_PER_S).
    """
    nodes = np.ceil(layouts.gpus / job.server.accelerators)
    given = job.pauses.write_bytes_per_s
    return nodes * WRITE_BYTES_PER_S if given is None else np.full(len(layouts), given)


def checkpoint(job: Job, layouts: Layouts) -> Checkpoint:
    """What a checkpoint holds and how long it takes: everything that learns, once, with its optimizer's states.

        weights   = N x weight + A x adapter weight
        optimizer = N x (master + moments) + A x adapter's
        copy      = (weights + optimizer) / GPUs over PCIe
        write     = (weights + optimizer) / rate of storage

    Frozen weights are not saved: adapters are kept beside the model that they belong to. Replicas of weights share the
    copying and the writing.

    Parameters
    ----------
    job : N learning parameters of the model, A of adapters with modules that learn beside them [-]; sizes per
        parameter as the stack keeps them [bytes]
    layouts : GPUs, and whether shards are kept wider than what is loaded, shape (layout,)

    Returns
    -------
    Checkpoint, shape (layout,) [bytes] and [s]

    Source: what Megatron-LM's distributed checkpoint holds under mixed precision: 16-bit weights, float32 masters and
    two moments, 14 bytes a parameter (megatron/core/optimizer/distrib_optimizer.py, sharded_state_dict), written by all
    ranks (--ckpt-fully-parallel-save); peft's save_pretrained writes adapters alone.
    """
    one = np.ones_like(layouts.tp)
    whole = replace(layouts, tp=one, pp=one, vpp=one, cp=one, ep=one, dp=one)
    held, sizes = census(job.model, job.method, whole, Split()), StateBytes.of(job, layouts)
    base, adapters = float(job.method.learning.base) * held.base[0] + held.parts_learning[0], held.adapters[0]
    further = held.vectors[0] * sizes.vector_more + held.tables[0] * sizes.embedding_more
    weights = base * sizes.weight + adapters * job.stack.states.adapter_weight_bytes
    moving = base * job.learning_layers.share
    optimizer = (
        moving * sizes.optimizer + float(job.method.learning.base) * further + adapters * sizes.adapter_optimizer
    )
    size = weights + optimizer
    copy_s = copy_time_s(size / layouts.gpus, job.server.pcie_bytes_per_s)
    return Checkpoint(as_array(weights), as_array(optimizer), copy_s, size / write_rate(job, layouts))


def best_interval_s(pause_s: ArrayLike, mtbf_s: ArrayLike) -> Array:
    """Work between two checkpoints that loses least to saving and to what failures undo.

        t = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d   where d < 2 M, else M

    Parameters
    ----------
    pause_s : d, what one checkpoint takes of the training's time [s]
    mtbf_s : M, mean time between failures of the job [s]

    Returns
    -------
    ndarray of float, shape that both broadcast to [s]

    Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22 (2006), equation 37; its first term is J. W. Young's, CACM 17 (1974).
    """
    pause, mtbf = as_array(pause_s), as_array(mtbf_s)
    half = pause / (2.0 * mtbf)
    near = np.sqrt(2.0 * pause * mtbf) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - pause
    return np.where(half < 1.0, near, mtbf)


def time_with_failures_s(segment_s: ArrayLike, restart_s: ArrayLike, mtbf_s: ArrayLike) -> Array:
    """Expected time of work that starts again from its beginning at every failure.

        t = M e^(R / M) (e^(T / M) - 1)

    Parameters
    ----------
    segment_s : T, time of the work with the checkpoint behind it, without failures [s]
    restart_s : R, from a failure to the first step after it [s]
    mtbf_s : M, mean time between failures, which come at random [s]

    Returns
    -------
    ndarray of float, shape that all broadcast to [s]

    Source: J. T. Daly, Future Generation Computer Systems 22 (2006), the complete solution, of one segment.
    """
    segment, restart, mtbf = as_array(segment_s), as_array(restart_s), as_array(mtbf_s)
    again = np.minimum(restart / mtbf, MOST_EXPONENT)
    return np.asarray(mtbf * np.exp(again) * np.expm1(np.minimum(segment / mtbf, MOST_EXPONENT)))
