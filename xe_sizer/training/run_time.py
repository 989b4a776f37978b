"""The time of a whole run: its steps, and what passes between them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.parts import computed, part
from xe_sizer.training.batch_ramp import first_layouts, ramp_time_s
from xe_sizer.training.checkpoints import best_interval_s, checkpoint, time_with_failures_s
from xe_sizer.training.forward_pass import forward_pass_s
from xe_sizer.training.padding import PACKED
from xe_sizer.training.start_up import start_up_s
from xe_sizer.training.step import timeline
from xe_sizer.units import DAY_S

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.checkpoints import Checkpoint
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


@frozen
class Run:
    """What the parts of a run are computed from; arrays of shape (layout,).

    step_s : time of an optimizer step under each layout [s]
    evaluation_s : time of one evaluation [s]; None: that of forward passes
    """

    job: Job
    layouts: Layouts
    step_s: Array
    evaluation_s: Array | None = None

    @cached_property
    def saved(self) -> Checkpoint:
        return checkpoint(self.job, self.layouts)

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
    return np.asarray(once * job.steps * np.maximum(run.with_passes_s - timeline(job, run.layouts).step_s, 0.0))


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
    one_s = forward_pass_s(job, layouts, sequences) if run.evaluation_s is None else run.evaluation_s
    return np.asarray(job.steps // every * one_s)


@part(
    "failures",
    "segments x M e^(R/M) (e^(T/M) - 1) less what they take without failures",
    "Daly, Future Generation Computer Systems 22 (2006)",
)
def failures(run: Run) -> Array:
    """What is done again, and restarts: start-up and the last checkpoint read as fast as it was written.

    Of an asynchronous checkpoint the one before is the last while it is written, so that this time is lost too.
    """
    if not run.job.pauses.failures_per_gpu_day:
        return np.zeros(len(run.layouts))
    work_s = steps(run) + ramp_up(run) + beforehand(run) + checkpoints(run) + evaluation(run)
    restart_s = start_up_s(run.job) + run.saved.write_s * (2.0 if run.job.pauses.asynchronous else 1.0)
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


def run_time_s(job: Job, layouts: Layouts, step_s: Array, evaluation_s: Array | None = None) -> Array:
    """Time of a run under each layout, shape (layout,) [s]: `steps x step` where nothing comes between.

        total = sum of RUN_PARTS

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    step_s : time of an optimizer step, shape (layout,) [s]
    evaluation_s : time of one evaluation, shape (layout,) [s]; None: that of forward passes

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: each part of RUN_PARTS names its own.
    """
    if not job.interrupted:
        return np.asarray(job.steps * step_s)
    return np.asarray(sum(run_parts(Run(job, layouts, step_s, evaluation_s)).values()))
