"""What the sizing of reinforcement learning comes to: an iteration on a number of GPUs, and what the run costs.

It is an estimate of training whose step is an iteration, so that limits, prices and rankings read it as any other.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from xe_sizer.reinforcement.iteration import RATING, ROLLOUT, SYNCHRONISATION, learning_of, rating_of
from xe_sizer.reinforcement.rollout import evaluation_s
from xe_sizer.result.training import Pool
from xe_sizer.scenario.limits import chance
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.run import Run, run_time_s
from xe_sizer.training.summary import build_layout
from xe_sizer.training.uncertainty import memory_suffices

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.iteration import Iteration
    from xe_sizer.reinforcement.pools import ModelPool
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.training.job import Job


REPLICA_SIZES = ("tp", "pp", "ep")


class ReinforcementEstimate(TrainingEstimate):
    """A resolved scenario with its layouts and its split of the GPUs chosen; `choice` is the trainer's.

    fewest_gpus : looks for the fewest on which every phase fits, when somebody asks
    """

    iteration: Iteration
    fewest_gpus: Callable[[], int | None]

    @property
    def reinforcement(self) -> ResolvedReinforcement:
        return self.iteration.resolved

    @property
    def question(self) -> ResolvedReinforcement:  # type: ignore[override]
        return self.reinforcement

    @property
    def trainer(self) -> TrainingEstimate:
        """The optimizer steps alone, as an estimate of training on the trainer's GPUs."""
        return TrainingEstimate(self.resolved, self.iteration.trainer_gpus, self.choice, self.minimum_gpus)

    @cached_property
    def minimum(self) -> int | None:
        return self.fewest_gpus()

    @property
    def minimum_offloads(self) -> bool:
        return False

    @property
    def colocated(self) -> bool:
        return self.iteration.colocated

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The GPUs that train and those that write answers, or those that do both."""
        one, node = self.iteration, self.resolved.job.server.accelerators
        rollout, idle, peaks = one.rollout, one.idle_shares, one.peaks
        own = {name for other in one.others for name in (rating_of(other), learning_of(other))}
        away = own if one.colocated else {*own, ROLLOUT}
        writes: dict[str, Any] = {
            "replicas": rollout.replicas,
            "engine": rollout.job.engine.name,
            **{name: int(getattr(rollout.placement, name)[0]) for name in REPLICA_SIZES},
        }
        trains = Pool(
            name="trainer and rollout" if one.colocated else "trainer",
            gpus=one.trainer_gpus,
            nodes=math.ceil(one.trainer_gpus / node),
            peak_bytes=float(round(max(size for name, size in peaks.items() if name not in away))),
            idle_share=idle[0],
            layout=build_layout(self.layouts),
            **(writes if one.colocated else {}),
        )
        others = tuple(self._pool_of(other) for other in one.others)
        if one.colocated:
            return (trains, *others)
        answers = Pool(
            name="rollout",
            gpus=rollout.gpus,
            nodes=math.ceil(rollout.gpus / node),
            peak_bytes=float(round(peaks[ROLLOUT])),
            idle_share=idle[1],
            **writes,
        )
        return trains, answers, *others

    def _pool_of(self, other: ModelPool) -> Pool:
        """A model on GPUs of its own: its ranks, or the replicas of the engine that serves it."""
        served: dict[str, Any] = {}
        if other.served is not None:
            placement = other.served.placement
            served = {name: int(getattr(placement, name)[0]) for name in REPLICA_SIZES}
            served |= {"replicas": other.served.replicas, "engine": other.served.job.engine.name}
        return Pool(
            name=other.asked.name,
            gpus=other.gpus,
            nodes=math.ceil(other.gpus / self.resolved.job.server.accelerators),
            peak_bytes=float(round(other.peak_bytes)),
            idle_share=self.iteration.idle_share_of(other),
            layout=None if other.layouts is None else build_layout(other.layouts),
            model=other.model.name,
            **served,
        )

    @property
    def pool_keys(self) -> dict[str, object]:
        rollout = self.iteration.rollout
        sizes = {f"rollout.{name}": int(getattr(rollout.placement, name)[0]) for name in REPLICA_SIZES}
        shared = {"rollout.colocated": True} if self.colocated else {"rollout.gpus": rollout.gpus}
        return {**sizes, **shared, **{f"{one.asked.section}.gpus": one.gpus for one in self.iteration.others}}

    @cached_property
    def fits(self) -> bool:
        """Whether every phase fits the card and the trainer's states the host."""
        host = self.resolved.job.server.host_usable_bytes
        on_host = host is None or float(self.ledger.host_bytes[0]) <= host
        served = all(one.served is None or one.served.fits for one in self.iteration.others)
        return self.iteration.rollout.fits and served and self.peak_bytes <= self.usable_bytes and on_host

    @property
    def ok(self) -> bool:
        """Whether every phase fits and every limit is kept."""
        return self.fits and super().ok

    @cached_property
    def peak_bytes(self) -> float:
        """Fullest GPU of the worst phase."""
        return max(self.iteration.peaks.values())

    @property
    def needed_bytes(self) -> float:
        """What the worst phase cannot do without: an engine that takes what is left needs room for one answer."""
        one = self.iteration
        needed = {**one.peaks, ROLLOUT: one.needed_bytes}
        served = [other for other in one.others if other.served is not None]
        needed |= {rating_of(other): other.served.least_bytes for other in served if other.served is not None}
        if one.colocated:
            needed[SYNCHRONISATION] = max(needed[RATING], needed[ROLLOUT])
        return max(needed.values())

    def known_chance(self, guessed: bool) -> float:
        """That card and host suffice in the worst phase, with room for an answer [-]; lengths count as known."""
        needed = max(self.needed_bytes / self.usable_bytes, self.host_share)
        engines = [self.iteration.rollout, *(one.served for one in self.iteration.others if one.served is not None)]
        enough = all(one.room >= 1.0 for one in engines) and not self.counted_too_much
        return chance(memory_suffices(False), 1.0 / needed) if enough else 0.0

    @property
    def worst_phase(self) -> str:
        peaks = self.iteration.peaks
        return max(peaks, key=lambda name: peaks[name])

    @property
    def step_s(self) -> float:
        """Time of an iteration."""
        return self.iteration.seconds

    @property
    def component_s(self) -> dict[str, float]:
        return self.iteration.component_s

    @property
    def _run_job(self) -> Job:
        """The job whose steps are iterations."""
        return replace(self.resolved.job, steps=self.reinforcement.iterations)

    @cached_property
    def _evaluation_s(self) -> Array:
        """Time of an evaluation, in which the replicas write an answer to each of its samples, shape (layout,) [s]."""
        return np.array([evaluation_s(self.reinforcement, self.iteration.rollout)])

    @cached_property
    def total_s(self) -> float:
        return float(run_time_s(self.run)[0])

    @cached_property
    def run(self) -> Run:
        return Run(Evaluation(self._run_job, self.layouts), np.array([self.step_s]), self._evaluation_s)

    @cached_property
    def tokens_per_sample(self) -> float:
        """Tokens of a prompt with its answer as the trainer processes them, padding included."""
        return float(self.choice.sequences.mean_tokens[0])

    @property
    def samples_per_s(self) -> float:
        """Answers that are trained on in a second."""
        return self.reinforcement.settings.trained / self.step_s

    @cached_property
    def ideal_s(self) -> dict[str, float] | None:
        """Nobody has said what the speed of light is of phases that wait for the longest answer."""
        return None
