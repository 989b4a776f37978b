"""What the GPUs that train do in an iteration: log-probabilities, values, rewards, and the optimizer steps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import part
from xe_sizer.reinforcement.memory import moved_bytes, states_bytes
from xe_sizer.training.forward_pass import forward_pass_s
from xe_sizer.training.step import timeline

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.step import Timeline


@frozen
class Training:
    """The trainer's phases are computed from these; layouts of shape (layout,)."""

    resolved: ResolvedReinforcement
    layouts: Layouts

    @property
    def zeros(self) -> Array:
        return np.zeros(len(self.layouts))

    @cached_property
    def actor(self) -> Timeline:
        return timeline(self.resolved.actor, self.layouts)

    @cached_property
    def critic(self) -> Timeline | None:
        critic = self.resolved.critic
        return None if critic is None else timeline(critic, self.layouts)

    def pass_s(self, companion: Frozen | None, answers: float) -> Array:
        """Time of so many answers through weights beside the actor, fetched from the host where they wait there [s]."""
        if companion is None or not answers:
            return self.zeros
        job = self.resolved.actor.beside(companion)
        seconds = forward_pass_s(job, self.layouts, answers)
        if self.resolved.settings.frozen_offload and companion.copies:
            held = states_bytes(job, self.layouts)
            seconds = seconds + copy_time_s(held, job.server.pcie_bytes_per_s)
        return np.asarray(seconds)


@part(
    "log-probabilities of the policy",
    "forward of the actor for every answer that is trained on",
    "forward_pass_s; importance weights need the log-probabilities of the trainer's own kernels",
)
def policy_pass(training: Training) -> Array:
    resolved, settings = training.resolved, training.resolved.settings
    if not (resolved.recomputes and settings.answers.mean):
        return training.zeros
    return forward_pass_s(resolved.actor, training.layouts, settings.trained)


@part("log-probabilities of the reference", "forward of the reference model for every answer", "forward_pass_s")
def reference_pass(training: Training) -> Array:
    settings = training.resolved.settings
    return training.pass_s(training.resolved.reference, settings.trained * bool(settings.answers.mean))


@part("log-probabilities: values of the critic", "forward of the critic for every answer", "forward_pass_s")
def critic_pass(training: Training) -> Array:
    critic, settings = training.resolved.critic, training.resolved.settings
    if critic is None or not settings.answers.mean:
        return training.zeros
    return forward_pass_s(critic, training.layouts, settings.trained)


@part("reward model", "forward of the reward model for every answer written", "forward_pass_s")
def reward_pass(training: Training) -> Array:
    settings = training.resolved.settings
    return training.pass_s(training.resolved.reward, settings.asked.count * bool(settings.answers.mean))


@part(
    "reward: verifier",
    "ceil(answers / workers) x CPU seconds of one",
    "definition; processes of the CPUs of all nodes",
)
def verifier(training: Training) -> Array:
    settings, gpus = training.resolved.settings, training.layouts.gpus
    workers = settings.workers or 1
    if settings.workers is None:
        rounds = np.ceil(settings.asked.count / np.maximum(settings.workers_on(1) * gpus, 1))
    else:
        rounds = np.full(len(training.layouts), np.ceil(settings.asked.count / workers))
    return np.asarray(rounds * settings.verifier_s * bool(settings.answers.mean))


@part(
    "training of the actor",
    "optimizer steps of an iteration x time of one",
    "the training wing's timeline of a step",
)
def actor_steps(training: Training) -> Array:
    return np.asarray(training.resolved.steps * training.actor.step_s)


@part(
    "training of the critic",
    "optimizer steps of an iteration x time of one, in the actor's layout",
    "the training wing's timeline of a step",
)
def critic_steps(training: Training) -> Array:
    line = training.critic
    return training.zeros if line is None else np.asarray(training.resolved.steps * line.step_s)


@part(
    "training: states to the host and back",
    "states that wait in host memory while answers are written, there and back / PCIe rate",
    "the stack's offloading between phases",
)
def offloading(training: Training) -> Array:
    resolved, away = training.resolved, training.resolved.settings.offloads
    if not away:
        return training.zeros
    jobs = [job for job in (resolved.actor, resolved.critic) if job is not None]
    moved = sum((moved_bytes(job, training.layouts, away) for job in jobs), training.zeros)
    return np.asarray(2.0 * copy_time_s(moved, resolved.actor.server.pcie_bytes_per_s))


RATING_PARTS = (policy_pass, reference_pass, critic_pass)
REWARD_PARTS = (reward_pass, verifier)
LEARNING_PARTS = (actor_steps, critic_steps)
ALL_PARTS = {one.name: (one.formula, one.source) for one in (*RATING_PARTS, *REWARD_PARTS, *LEARNING_PARTS, offloading)}
"""Formula and source of each part."""
