"""A whole run: its steps, start-up, checkpoints, failures and what they cost in time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import count_parameters
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import computed, part
from xe_sizer.training.layout import Split, build_stages
from xe_sizer.training.model_states import parameter_counts
from xe_sizer.training.padding import PACKED
from xe_sizer.training.step_time import forward_pass_s, timeline, timeline_of
from xe_sizer.units import DAY_S, GIGA

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.training.evaluation import Evaluation
    from xe_sizer.training.job import BatchRamp, Job
    from xe_sizer.training.layout import Layouts

# What passes before the first step: processes and groups come up, weights are read.

STORED_BYTES = 2.0  # of a parameter as checkpoints are published: 16 bit, also of what is quantised while it is read
READ_BYTES_PER_S = 2.0 * GIGA  # chosen: what one node reads from shared storage, or from a disk of its own
FIXED_S = 60.0  # chosen: imports, groups of the collectives, and the first steps, which compile and allocate
# Building the groups grows with the ranks where nobody saw to it: 1,047 s on 2,048 GPUs, and less than 5 s with better
# stores and barriers (MegaScale, arXiv:2402.15627, section 3.5). What jobs of today do lies inside FIXED_S.
NOTICEABLE = 0.1  # chosen: share of the job's time from which it is worth a warning


def start_up_s(job: Job) -> float:
    """Time before the first step, which is no part of the time of the job.

        t = fixed + parameters x stored / rate, nothing to read where a model is made from the start

    Parameters
    ----------
    job : its model says how much is read by every node, its method whether it is

    Returns
    -------
    float, t [s], one number: shape ()

    Source: fixed and rate are chosen (FIXED_S, READ_BYTES_PER_S); no publication states them apart.
    """
    read_bytes = count_parameters(job.model).total * STORED_BYTES if job.method.kind.fine_tunes else 0.0
    return FIXED_S + read_bytes / READ_BYTES_PER_S


# Checkpoints of a run: how large they are, how long one takes, and how often failures ask for one.

WRITE_BYTES_PER_S = 2.0 * GIGA  # chosen: what storage takes from one node, as much as a node reads at its start
MOST_EXPONENT = 40.0  # chosen: of a run that never gets on: keeps its time a number


class Checkpoint(Immutable):
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
    """Rate at which storage takes the writes of all nodes together.

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


def checkpoint(evaluation: Evaluation) -> Checkpoint:
    """Size and time of a checkpoint: everything that learns, once, with its optimizer's states.

        weights   = N x weight + A x adapter weight
        optimizer = N x (master + moments) + A x adapter's
        copy      = (weights + optimizer) / GPUs over PCIe
        write     = (weights + optimizer) / rate of storage

    Frozen weights are not saved: adapters are kept beside the model that they belong to. Replicas of weights share the
    copying and the writing.

    Parameters
    ----------
    evaluation : of a job with N learning parameters of the model, A of adapters with modules that learn beside them
        [-]; sizes per parameter as the stack keeps them [bytes]; layouts of shape (layout,)

    Returns
    -------
    Checkpoint, shape (layout,) [bytes] and [s]

    Source: what Megatron-LM's distributed checkpoint holds under mixed precision: 16-bit weights, float32 masters and
    two moments, 14 bytes a parameter (megatron/core/optimizer/distrib_optimizer.py, sharded_state_dict), written by all
    ranks (--ckpt-fully-parallel-save); peft's save_pretrained writes adapters alone.
    """
    job, layouts, sizes = evaluation.job, evaluation.layouts, evaluation.sizes
    one = np.ones_like(layouts.tp)
    whole = replace(layouts, tp=one, pp=one, vpp=one, cp=one, ep=one, dp=one)
    held = parameter_counts(job.model, job.method, whole, build_stages(job.model.layers, Split(), whole))
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


# A global batch that starts small: what its smaller steps add to the run.


def ramp_time_s(ramp: BatchRamp, whole: int, available: float, first_s: Array, whole_s: Array) -> Array:
    """Time that smaller batches take beyond whole ones over the same sequences.

        t = sum over k of steps_k (t(batch_k) - t(whole) batch_k / whole)
        t(b) = t(start) + (t(whole) - t(start)) (b - start) / (whole - start)

    A step is a part for each of its micro-batches, and a part of its own: a line over the batch.

    Parameters
    ----------
    ramp : how the batch grows
    whole : global batch in the end [-]
    available : sequences that the run reads [-]
    first_s, whole_s : steps of the first and of the whole batch, shape (layout,) [s]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: own derivation.
    """
    batches, steps = ramp.levels(whole, available)
    more: Array = np.zeros(np.shape(whole_s))
    for batch, count in zip(batches, steps, strict=True):
        share = (batch - ramp.start) / (whole - ramp.start)
        step_s = first_s + (whole_s - first_s) * share
        more = more + count * (step_s - whole_s * batch / whole)
    return more


def first_layouts(ramp: BatchRamp, layouts: Layouts) -> Layouts:
    """Return the layouts with as many micro-batches as the first batch has.

        grad_accum = start / (micro-batch dp)

    Parameters
    ----------
    ramp : how the batch grows, from its start on [-]
    layouts : those of the whole batch, shape (layout,)

    Returns
    -------
    Layouts, shape (layout,) [-]

    Source: definition.
    """
    together = np.maximum(layouts.micro_batch * layouts.dp, 1)
    return replace(layouts, grad_accum=np.maximum(ramp.start // together, 1))


# The time of a whole run: its steps, and what passes between them.


class Run(Immutable):
    """What the parts of a run are computed from; arrays of shape (layout,).

    of : the job under its layouts
    step_s : time of an optimizer step under each layout [s]
    evaluation_s : time of one evaluation [s]; None: that of forward passes
    """

    of: Evaluation
    step_s: Array
    evaluation_s: Array | None = None

    @property
    def job(self) -> Job:
        return self.of.job

    @property
    def layouts(self) -> Layouts:
        return self.of.layouts

    @cached_property
    def saved(self) -> Checkpoint:
        return checkpoint(self.of)

    @cached_property
    def pause_s(self) -> Array:
        """What a checkpoint takes of the training's time [s]: all of it, or the copy alone where it is asynchronous."""
        return self.saved.copy_s if self.job.pauses.asynchronous else self.saved.whole_s

    @cached_property
    def mtbf_s(self) -> Array:
        """Mean time between failures of the job, DAY_S / (failures per GPU and day x GPUs) [s]."""
        rate = self.job.pauses.failures_per_gpu_day * as_array(self.layouts.gpus) / DAY_S
        return np.asarray(np.divide(1.0, rate, out=np.full(len(rate), np.inf), where=rate > 0))

    @cached_property
    def best_every(self) -> Array:
        """Steps between checkpoints that lose least to failures; an asynchronous one is written before the next."""
        interval_s = best_interval_s(self.pause_s, self.mtbf_s)
        if self.job.pauses.asynchronous:
            interval_s = np.maximum(interval_s, self.saved.write_s)
        return np.clip(np.rint(interval_s / self.step_s), 1.0, float(self.job.steps))

    @cached_property
    def every(self) -> Array:
        """Steps between checkpoints: as asked, else the best where the job fails, else all of them."""
        asked, pauses = self.job.pauses.checkpoint_every, self.job.pauses
        if asked is not None:
            return np.full(len(self.layouts), float(min(asked, self.job.steps)))
        return self.best_every if pauses.failures_per_gpu_day else np.full(len(self.layouts), float(self.job.steps))

    @cached_property
    def saves(self) -> Array:
        """Checkpoints of the run, one of its last step among them [-]."""
        asked = self.job.pauses.checkpoint_every or self.job.pauses.failures_per_gpu_day
        return np.ceil(self.job.steps / self.every) if asked else np.zeros(len(self.layouts))

    @cached_property
    def with_passes_s(self) -> Array:
        """Time of a step in which the passes take place that were made beforehand [s]."""
        method = self.job.method
        every_step = replace(self.job, method=replace(method, frozen=(*method.frozen, *method.before), before=()))
        return timeline(every_step, self.layouts).step_s


def resume_s(run: Run) -> Array:
    """Time from starting a stopped job again to its next step.

        t = start-up + size of the checkpoint / rate of storage

    Parameters
    ----------
    run : the job, whose last checkpoint is read as fast as it was written, under layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), t [s]

    Source: own derivation; the rate is that of `write_rate`, as a node reads what another wrote.
    """
    return np.asarray(start_up_s(run.job) + run.saved.write_s)


@part("steps", "steps x time of a step", "definition")
def steps(run: Run) -> Array:
    return run.job.steps * run.step_s


@part(
    "passes beforehand",
    "share of the samples that are seen once x steps x what the passes would add to a step",
    "TRL's precompute_ref_log_probs, in the micro-batches of the training",
)
def beforehand(run: Run) -> Array:
    """Log-probabilities of a reference for every sample that the steps read, computed once and kept."""
    job = run.job
    if not job.method.before:
        return np.zeros(len(run.layouts))
    once = min(job.samples / job.samples_read, 1.0)
    return np.asarray(once * job.steps * np.maximum(run.with_passes_s - timeline_of(run.of).step_s, 0.0))


@part(
    "checkpoints",
    "saves x pause, and what is left to write when the next one or the end comes",
    "chosen rate of storage unless storage.write_gb_per_s is given; CheckFreq, USENIX FAST 2021",
)
def checkpoints(run: Run) -> Array:
    """A synchronous checkpoint stops training for as long as it takes; an asynchronous one for its copy.

    It waits for the one before, and the run ends when the last is written.
    """
    if not run.job.pauses.asynchronous:
        return run.saves * run.pause_s
    behind_s = np.maximum(run.saved.write_s - run.every * run.step_s, 0.0)
    some = run.saves > 0
    return run.saves * run.pause_s + np.where(some, (run.saves - 1.0) * behind_s + run.saved.write_s, 0.0)


@part(
    "evaluation",
    "evaluations x (micro-batches of a replica + pp - 1) x forward of the slowest stage; of answers: x rollout of each",
    "operator and collective laws; a pipeline fills and empties once",
)
def evaluation(run: Run) -> Array:
    """Forward passes alone, in micro-batches of the training; sharded weights are gathered for each.

    Reinforcement learning writes an answer to each sample instead.
    """
    job, layouts = run.job, run.layouts
    every = job.pauses.evaluate_every
    if every is None:
        return np.zeros(len(layouts))
    sequences = job.pauses.evaluated_samples * (job.lengths.mean / job.seq_len if job.padding == PACKED else 1.0)
    one_s = forward_pass_s(run.of, sequences) if run.evaluation_s is None else run.evaluation_s
    return np.asarray(job.steps // every * one_s)


@part(
    "failures",
    "segments x M e^(R/M) (e^(T/M) - 1) less what they take without failures",
    "Daly, Future Generation Computer Systems 22 (2006)",
)
def failures(run: Run) -> Array:
    """Time of what is done again, and of restarts: start-up and the last checkpoint read as fast as it was written.

    Of an asynchronous checkpoint the one before is the last while it is written, so that this time is lost too.
    """
    if not run.job.pauses.failures_per_gpu_day:
        return np.zeros(len(run.layouts))
    work_s = steps(run) + ramp_up(run) + beforehand(run) + checkpoints(run) + evaluation(run)
    restart_s = resume_s(run) + (run.saved.write_s if run.job.pauses.asynchronous else 0.0)
    segment_s = work_s / run.saves
    return np.asarray(run.saves * time_with_failures_s(segment_s, restart_s, run.mtbf_s) - work_s)


@part(
    "batch ramp-up",
    "steps of smaller batches less what whole ones take over the same sequences",
    "Megatron-LM --rampup-batch-size",
)
def ramp_up(run: Run) -> Array:
    job, ramp = run.job, run.job.batch_ramp
    if ramp is None:
        return np.zeros(len(run.layouts))
    first_s = timeline(job, first_layouts(ramp, run.layouts)).step_s
    return ramp_time_s(ramp, job.global_batch, float(job.steps * job.global_batch), first_s, run.step_s)


RUN_PARTS = (steps, ramp_up, beforehand, checkpoints, evaluation, failures)


def run_parts(run: Run) -> dict[str, Array]:
    """Seconds of each part of a run, which sum to its time.

        total = steps + batch ramp-up + passes beforehand + checkpoints + evaluation + failures

    Parameters
    ----------
    run : the job with its pauses, layouts, and time of a step under each, shape (layout,)

    Returns
    -------
    dict of name -> seconds, shape (layout,) [s]

    Source: each part of RUN_PARTS names its own.
    """
    return computed(RUN_PARTS, run)


def run_time_s(run: Run) -> Array:
    """Time of a run under each layout, shape (layout,) [s]: `steps x step` where nothing comes between.

        total = sum of RUN_PARTS

    Parameters
    ----------
    run : the job with its pauses, layouts, and time of a step under each, shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: each part of RUN_PARTS names its own.
    """
    if not run.job.interrupted:
        return np.asarray(run.job.steps * run.step_s)
    return np.asarray(sum(run_parts(run).values()))
