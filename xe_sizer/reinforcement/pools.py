"""Critic, reward model and reference on GPUs of their own: what such a pool holds, and how long it works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.reinforcement.memory import around_bytes, fullest_pass, pass_bytes, states_bytes
from xe_sizer.reinforcement.rollout import rollouts_apart, written_continuously
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.search import choose
from xe_sizer.training.search_space import legal_layouts
from xe_sizer.training.step_time import forward_pass_s, timeline_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.resolved import Apart, ResolvedReinforcement
    from xe_sizer.reinforcement.rollout import Rollout
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger


class ModelPool(Immutable):
    """A model beside the actor on so many GPUs of its own; a layout has one entry.

    layouts : of the ranks; None where an engine serves the model in replicas
    served : these replicas
    passes_s : of the answers of an iteration, by the name of each part [s]
    last_s : from the end of the last answer to its rating, where answers are rated as they end [s]
    steps_s : of the optimizer steps of an iteration [s]
    states_bytes : weights, states of what learns, and context of the process [bytes]; around_bytes : the last of these
    passing : what a pass holds beside these, part by part [bytes]
    ledger : of a step of what learns; None: nothing does
    """

    asked: Apart
    gpus: int
    layouts: Layouts | None
    served: Rollout | None
    passes_s: dict[str, float]
    last_s: float
    steps_s: float
    states_bytes: float
    around_bytes: float
    passing: dict[str, float]
    ledger: Ledger | None

    @property
    def model(self) -> ModelShape:
        """The model that the pool is for, the critic where others share it."""
        if self.served is not None:
            return self.served.job.model
        job, _ = next(iter(self.asked.passes.values()))
        return job.model

    @property
    def rating_bytes(self) -> float:
        """Fullest GPU while answers are rated [bytes]."""
        return self.served.peak_bytes if self.served else self.states_bytes + sum(self.passing.values())

    @property
    def learning_bytes(self) -> float:
        """Fullest GPU while the model learns [bytes]; 0 where nothing does."""
        return 0.0 if self.ledger is None else float(self.ledger.peak_bytes[0])

    @property
    def peak_bytes(self) -> float:
        return max(self.rating_bytes, self.learning_bytes)

    def rated_s(self, rollout_s: float) -> float:
        """Time that rating adds to writing, which takes `rollout_s` [s].

            t = sum of the passes                                        when all answers are there
            t = max(sum of the passes - rollout, that of the last)       as each answer ends

        Source: definition; the last answer cannot be rated before it ends.
        """
        whole_s = sum(self.passes_s.values())
        return max(whole_s - rollout_s, min(self.last_s, whole_s)) if self.asked.streams else whole_s


def model_pool(
    resolved: ResolvedReinforcement, asked: Apart, gpus: int, headroom_bytes: float, likely_bytes: float
) -> ModelPool | None:
    """The model on so many GPUs: the layout that takes the least time, else the one that lacks least; None: none.

    headroom_bytes, likely_bytes : what must stay free of a card, and what is to where that is possible [bytes]
    """
    if asked.service is not None:
        return _served(resolved, asked, gpus)
    layouts = legal_layouts(replace(asked.rules, fixed={**asked.rules.fixed, **asked.sizes}), (gpus,))
    if not len(layouts):
        return None
    if asked.learner is not None:
        return _in_layout(resolved, asked, choose(asked.learner, layouts, headroom_bytes).layouts)
    seconds = sum(_passes_s(resolved, asked, layouts).values(), np.zeros(len(layouts)))
    free = resolved.actor.server.accelerator.memory_bytes - _passing_bytes(resolved, asked, layouts)
    for spare in (likely_bytes, headroom_bytes):
        if np.any(free >= spare):
            best = int(np.argmin(np.where(free >= spare, seconds, np.inf)))
            return _in_layout(resolved, asked, layouts[best : best + 1])
    best = int(np.argmax(free))
    return _in_layout(resolved, asked, layouts[best : best + 1])


def _passes_s(resolved: ResolvedReinforcement, asked: Apart, layouts: Layouts) -> dict[str, Array]:
    """Time of each pass under each layout [s]."""
    passing = resolved.settings.passing(layouts)
    return {name: forward_pass_s(Evaluation(job, passing), answers) for name, (job, answers) in asked.passes.items()}


def _states_bytes(asked: Apart, layouts: Layouts) -> Array:
    """Weights of all models of the pool, states of what learns, and context of the process [bytes]."""
    learner = asked.learner
    held = [] if learner is None else [states_bytes(learner, layouts)]  # with the frozen weights beside it
    jobs = [job for job, _ in asked.passes.values()]
    frozen = [] if learner is not None else [states_bytes(job, layouts) for job in jobs]
    return np.asarray(sum([*held, *frozen], around_bytes(learner or jobs[0], layouts)))


def _passing_bytes(resolved: ResolvedReinforcement, asked: Apart, layouts: Layouts) -> Array:
    """What the fullest card holds while answers pass, under each layout [bytes]."""
    passing = resolved.settings.passing(layouts)
    passes = [np.max(sum(pass_bytes(job, passing).values()), axis=0) for job, _ in asked.passes.values()]
    return np.asarray(_states_bytes(asked, layouts) + np.max(passes, axis=0))


def _in_layout(resolved: ResolvedReinforcement, asked: Apart, layouts: Layouts) -> ModelPool:
    """The pool in one layout of its ranks."""
    settings, learner = resolved.settings, asked.learner
    passing = settings.passing(layouts)
    steps_s = 0.0
    if learner is not None:
        steps = settings.steps(layouts.micro_batch * layouts.grad_accum * layouts.dp)
        steps_s = float((steps * timeline_of(Evaluation(learner, layouts)).step_s)[0])
    last = [forward_pass_s(Evaluation(job, passing), as_array(layouts.dp)) for job, _ in asked.passes.values()]
    return ModelPool(
        asked=asked,
        gpus=int(layouts.gpus[0]),
        layouts=layouts,
        served=None,
        passes_s={name: float(value[0]) for name, value in _passes_s(resolved, asked, layouts).items()},
        last_s=float(np.sum(last)),
        steps_s=steps_s,
        states_bytes=float(_states_bytes(asked, layouts)[0]),
        around_bytes=float(around_bytes(learner or next(iter(asked.passes.values()))[0], layouts)[0]),
        passing=fullest_pass(pass_bytes(job, passing) for job, _ in asked.passes.values()),
        ledger=None if learner is None else memory_ledger(learner, layouts),
    )


def _served(resolved: ResolvedReinforcement, asked: Apart, gpus: int) -> ModelPool | None:
    """Replicas of an engine that reads a prompt with its answer, and writes what it makes of them.

    Source: the equations of a rollout; every request has a prompt of its own.
    """
    job, judged = asked.service, asked.judged
    assert job is not None
    assert judged is not None
    settings = replace(resolved.settings, asked=judged, asked_share=None, max_sequences=None)
    judge = replace(resolved, writer=job, replica_sizes=asked.sizes, settings=settings)
    found = rollouts_apart(judge, [gpus], job.engine.memory.utilization).get(gpus)
    if found is None:
        return None
    one, replicas = replace(judged, prompts=float(found.replicas)), as_array([found.replicas])
    last = written_continuously(found.job, found.placement, replicas, as_array([found.room]), one)
    (name,) = asked.passes
    return ModelPool(
        asked=asked,
        gpus=gpus,
        layouts=None,
        served=found,
        passes_s={name: found.seconds},
        last_s=float(last.total_s[0]),
        steps_s=0.0,
        states_bytes=0.0,
        around_bytes=0.0,
        passing={},
        ledger=None,
    )
