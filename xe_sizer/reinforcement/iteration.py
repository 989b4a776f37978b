"""One iteration in one layout of the trainer and one placement of the replicas: its phases, their times and memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import count_parameters, count_tensors
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, POINT_TO_POINT, collective_time_s, copy_time_s
from xe_sizer.laws.parts import part
from xe_sizer.reinforcement.memory import (
    around_bytes,
    asleep_bytes,
    fullest_pass,
    kept_bytes,
    moved_bytes,
    pass_bytes,
    passing_jobs,
    states_bytes,
    stepping_bytes,
    trainer_ledgers,
)
from xe_sizer.serving.memory import rank_weight_bytes
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.step_time import forward_pass_s, timeline_of
from xe_sizer.units import GIGA, MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.pools import ModelPool
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.reinforcement.rollout import Rollout
    from xe_sizer.serving.job import ReplicaLayouts, ServingJob
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.step_time import Timeline

# Weight synchronisation: from those who train to those who write.

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


DISK_BYTES_PER_S = 2.0 * GIGA  # assumed, where nobody says: of a file system that all nodes share


def stored_s(job: Job) -> float:
    """Time of the weights through the file system: written once, read by all replicas at once [s].

        t = 2 bytes / rate of storage

    Source: definition; update_weights_from_disk of SGLang, AReaL's weight_update_mode disk, prime-rl's filesystem.
    """
    return 2.0 * whole_bytes(job) / (job.pauses.write_bytes_per_s or DISK_BYTES_PER_S)


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


# Training: log-probabilities, values, rewards, and the optimizer steps.


class Training(Immutable):
    """The trainer's phases are computed from these; layouts of shape (layout,)."""

    resolved: ResolvedReinforcement
    layouts: Layouts

    @property
    def zeros(self) -> Array:
        return np.zeros(len(self.layouts))

    @cached_property
    def actor(self) -> Timeline:
        return timeline_of(Evaluation(self.resolved.actor, self.layouts))

    @cached_property
    def critic(self) -> Timeline | None:
        critic = self.resolved.critic
        return None if critic is None else timeline_of(Evaluation(critic, self.layouts))

    @cached_property
    def steps(self) -> Array:
        """Optimizer steps of an iteration [-]."""
        layouts = self.layouts
        return self.resolved.settings.steps(layouts.micro_batch * layouts.grad_accum * layouts.dp)

    @property
    def recomputed(self) -> Array:
        """1 where the trainer computes the log-probabilities of the answers again, else 0 [-]."""
        resolved, how = self.resolved, self.resolved.settings.defaults.recomputes
        rollout = resolved.actor.method.kind.rollout
        if rollout is None or not rollout.ratios or how == "never" or not resolved.settings.answers.mean:
            return self.zeros
        own = how == "as-needed" and resolved.writer.engine.memory.grows
        return np.where(own & (self.steps == 1), 0.0, 1.0)

    @cached_property
    def ledgers(self) -> tuple[Ledger, Ledger | None]:
        """Memory of the optimizer steps of actor and critic, each alone on the card."""
        return trainer_ledgers(self.resolved, self.layouts)

    @cached_property
    def kept_bytes(self) -> tuple[Array, Array]:
        """What actor and critic keep on the card outside of their own steps [bytes]."""
        return kept_bytes(self.resolved, self.layouts)

    @cached_property
    def between_bytes(self) -> Array:
        """The same of both, with context, communicators and workspaces of their process [bytes]."""
        return np.asarray(sum(self.kept_bytes) + around_bytes(self.resolved.actor, self.layouts))

    @cached_property
    def policy_bytes(self) -> dict[str, Array]:
        """What the pass of the policy holds, see `pass_bytes`."""
        return self._pass_bytes(self.resolved.actor)

    @cached_property
    def rating_bytes(self) -> tuple[dict[str, Array], ...]:
        """The same of reference and critic."""
        return tuple(self._pass_bytes(job) for job in passing_jobs(self.resolved, policy=False))

    @cached_property
    def reward_bytes(self) -> tuple[dict[str, Array], ...]:
        """The same of the reward model, empty without one."""
        actor, reward = self.resolved.actor, self.resolved.reward
        return () if reward is None else (self._pass_bytes(actor.beside(reward)),)

    def _pass_bytes(self, job: Job) -> dict[str, Array]:
        return pass_bytes(job, self.resolved.settings.passing(self.layouts))

    def forward_s(self, job: Job, answers: float) -> Array:
        """Time of so many answers through the weights of a job, in the micro-batches of such passes [s]."""
        return forward_pass_s(Evaluation(job, self.resolved.settings.passing(self.layouts)), answers)

    def pass_s(self, companion: Frozen | None, answers: float) -> Array:
        """Time of so many answers through weights beside the actor, fetched from the host where they wait there [s]."""
        if companion is None or not answers:
            return self.zeros
        job = self.resolved.actor.beside(companion)
        seconds = self.forward_s(job, answers)
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
    if not np.any(training.recomputed):
        return training.zeros
    return training.recomputed * training.forward_s(training.resolved.actor, training.resolved.settings.trained)


@part("log-probabilities of the reference", "forward of the reference model for every answer", "forward_pass_s")
def reference_pass(training: Training) -> Array:
    settings = training.resolved.settings
    return training.pass_s(training.resolved.reference, settings.trained * bool(settings.answers.mean))


@part("log-probabilities: values of the critic", "forward of the critic for every answer", "forward_pass_s")
def critic_pass(training: Training) -> Array:
    critic, settings = training.resolved.critic, training.resolved.settings
    if critic is None or not settings.answers.mean:
        return training.zeros
    return training.forward_s(critic, settings.trained)


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
    return np.asarray(training.steps * training.actor.step_s)


@part(
    "training of the critic",
    "optimizer steps of an iteration x time of one, in the actor's layout",
    "the training wing's timeline of a step",
)
def critic_steps(training: Training) -> Array:
    line = training.critic
    return training.zeros if line is None else np.asarray(training.steps * line.step_s)


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


# The iteration.

ROLLOUT, RATING, REWARD, TRAINING, SYNCHRONISATION = (
    "rollout", "log-probabilities", "rewards", "training", "weight synchronisation",
)  # fmt: skip

TEACHER_PASS = "log-probabilities of the teacher"
RATINGS = {reward_pass.name: "rewards"}  # what a pass is a phase of, where it is none of log-probabilities


def rating_of(pool: ModelPool) -> str:
    """Phase in which a model on GPUs of its own rates the answers."""
    names = [RATINGS.get(name, RATING) for name in pool.passes_s]
    return f"{names[0]} ({pool.asked.name})"


def learning_of(pool: ModelPool) -> str:
    """Phase in which a model on GPUs of its own learns."""
    return f"{TRAINING} ({pool.asked.name})"


class Iteration(Immutable):
    """An iteration; the layout has one entry.

    rollout : the replicas that write; colocated : on the GPUs that train, in turn
    others : models on GPUs of their own, which work beside the trainer
    trained_s, held : what the parts of the trainer take, by name, and the memory of its steps, where somebody says
    trainers, place : the trainer in several layouts, of which the iteration's is one; None: in its own alone
    """

    resolved: ResolvedReinforcement
    layouts: Layouts
    rollout: Rollout
    colocated: bool
    trained_s: Mapping[str, float] | None = None
    held: tuple[Ledger, Ledger | None] | None = None
    others: tuple[ModelPool, ...] = ()
    trainers: Training | None = None
    place: int = 0

    @property
    def trainer_gpus(self) -> int:
        return int(self.layouts.gpus[0])

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        shared = self.trainer_gpus if self.colocated else self.trainer_gpus + self.rollout.gpus
        return shared + sum(other.gpus for other in self.others)

    @property
    def asynchronous(self) -> bool:
        """Whether answers are written while the trainer learns from older ones."""
        return self.resolved.settings.staleness > 0 and not self.colocated

    @cached_property
    def training(self) -> Training:
        """The trainer in all layouts that are evaluated together; `place` is the one of the iteration."""
        return self.trainers or Training(self.resolved, self.layouts)

    @cached_property
    def parts_s(self) -> dict[str, dict[str, float]]:
        """Seconds of the parts of each phase; each phase takes their sum."""
        writing = self.rollout.writing
        written = {
            "rollout: prompts": float(writing.prompts_s[0]),
            "rollout: answers": float(writing.full_s[0]),
            "rollout: last answers": float(writing.tail_s[0]),
            "rollout: contexts read again": float(writing.reread_s[0]),
            "rollout: tools": float(writing.tools_s[0]),
        }
        if not self.resolved.settings.answers.mean:
            written = dict.fromkeys(written, 0.0)
        names = {
            RATING: RATING_PARTS,
            REWARD: REWARD_PARTS,
            TRAINING: (*LEARNING_PARTS, *((offloading,) if self.colocated else ())),
        }
        known = self.trained_s
        worked = {
            name: {one.name: known[one.name] if known is not None else float(one(self.training)[0]) for one in parts}
            for name, parts in names.items()
        }
        worked[TRAINING]["training: between the phases"] = self.resolved.settings.defaults.iteration_overhead_s
        rated, learnt = self._parts_of_others(sum(written.values()))
        training = worked.pop(TRAINING)
        last = {SYNCHRONISATION: {SYNCHRONISATION: self.synchronisation_s}}
        return {ROLLOUT: written, **worked, **rated, TRAINING: training, **learnt, **last}

    def _parts_of_others(self, rollout_s: float) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Seconds of the parts of models on GPUs of their own: of rating the answers, and of learning from them."""
        rated: dict[str, dict[str, float]] = {}
        for other in self.others:
            whole_s = sum(other.passes_s.values())
            left = other.rated_s(rollout_s) / whole_s if whole_s else 0.0  # the rest is rated while others are written
            rated[rating_of(other)] = {name: seconds * left for name, seconds in other.passes_s.items()}
        learning = {learning_of(one): {critic_steps.name: one.steps_s} for one in self.others if one.steps_s}
        return rated, learning

    @cached_property
    def stages(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """Phases between writing and synchronisation: stages one after the other, of pools at once, each in turn."""
        rating = ((RATING, REWARD), *((rating_of(one),) for one in self.others))
        learning = ((TRAINING,), *((learning_of(one),) for one in self.others if one.steps_s))
        return rating, learning

    def _stage_s(self, stage: tuple[tuple[str, ...], ...]) -> float:
        """The slowest pool decides [s]."""
        return max(sum(self.phase_s[name] for name in phases) for phases in stage)

    @cached_property
    def worked_s(self) -> float:
        """From the last answer to the newest weights: the stages, each as long as its slowest pool [s]."""
        return sum(self._stage_s(stage) for stage in self.stages)

    @cached_property
    def starts_s(self) -> dict[str, float]:
        """When each phase begins, after the beginning of an iteration [s]."""
        at_s = 0.0 if self.asynchronous else self.phase_s[ROLLOUT]
        found = {ROLLOUT: 0.0}
        for stage in self.stages:
            for phases in stage:
                start_s = at_s
                for name in phases:
                    found[name] = start_s
                    start_s += self.phase_s[name]
            at_s += self._stage_s(stage)
        return {**found, SYNCHRONISATION: self.seconds - self.phase_s[SYNCHRONISATION]}

    @cached_property
    def synchronisation_s(self) -> float:
        """Time in which the newest weights come to those who write with them [s].

        t = max(gathering and sending of the bytes, handing over of the tensors) + loading + waking
        """
        rollout, job = self.rollout, self.resolved.actor
        if not self.resolved.settings.answers.mean:
            return 0.0
        gathered_s = float(gather_s(job, self.layouts)[0])
        if rollout.job.engine.memory.grows:  # the trainer's own weights, gathered once or in every step
            return 0.0 if rollout.step_gather_s else gathered_s
        loaded_s = float(loading_s(rollout.job, rollout.placement)[0])
        if self.colocated:
            woken_s = float(waking_s(rollout.job, rollout.placement, self.resolved.settings.sleep)[0])
            return max(gathered_s, hand_over_s(job)) + loaded_s + woken_s
        if self.resolved.settings.from_disk:
            return gathered_s + stored_s(job) + loaded_s
        sent_s = gathered_s + float(broadcast_s(job, self.layouts, rollout.gpus)[0])
        return max(sent_s, hand_over_s(job)) + loaded_s

    @cached_property
    def phase_s(self) -> dict[str, float]:
        """Seconds of each phase, whether another one hides it or not."""
        return {name: sum(parts.values()) for name, parts in self.parts_s.items()}

    @property
    def hidden(self) -> frozenset[str]:
        """Phases that run beside longer ones: those of all pools but the slowest of a stage, or of writing beside all.

        of a stage : phases of each pool but the longest;    asynchronous : rollout, or all stages, whichever is less
        """
        seconds = self.phase_s
        shorter: set[str] = set()
        for stage in self.stages:
            longest = max(stage, key=lambda phases: sum(seconds[name] for name in phases))
            shorter |= {name for phases in stage if phases is not longest for name in phases}
        if not self.asynchronous:
            return frozenset(shorter)
        if self.worked_s >= seconds[ROLLOUT]:
            return frozenset({ROLLOUT, *shorter})
        return frozenset(name for stage in self.stages for phases in stage for name in phases)

    @cached_property
    def component_s(self) -> dict[str, float]:
        """Seconds that each part adds to the iteration; they sum to it.

            iteration = sum of the phases                                  in turn
            iteration = max(rollout, other phases of the trainer) + weight synchronisation      asynchronous
            other phases = max over pools of rating + max over pools of learning        models on GPUs of their own

        Source: one-step off-policy pipelines (verl recipe, AReaL arXiv:2505.24298); a bound of one iteration suffices,
        as both pools then never wait for more than the slower of them. Models that share no GPUs are called at once
        (OpenRLHF trainer/ppo_utils/experience_maker.py and ppo_trainer.py, async_run_method; HybridFlow,
        arXiv:2409.19256).
        """
        return {
            name: seconds
            for phase, parts in self.parts_s.items()
            if phase not in self.hidden
            for name, seconds in parts.items()
        }

    @property
    def seconds(self) -> float:
        return sum(self.component_s.values())

    @property
    def idle_shares(self) -> tuple[float, float]:
        """Share of an iteration in which the trainer's GPUs wait for other pools, and the replicas for them [-]."""
        if not self.seconds:
            return 0.0, 0.0
        if self.colocated:
            own_s = sum(self.phase_s[name] for name in (ROLLOUT, RATING, REWARD, TRAINING, SYNCHRONISATION))
            return (max(1.0 - own_s / self.seconds, 0.0) if self.others else 0.0), 0.0
        seconds, whole_s = self.phase_s, self.seconds
        trained_s = seconds[RATING] + seconds[REWARD] + seconds[TRAINING]
        shared_s = seconds[SYNCHRONISATION]
        return 1.0 - (trained_s + shared_s) / whole_s, 1.0 - (seconds[ROLLOUT] + shared_s) / whole_s

    def idle_share_of(self, other: ModelPool) -> float:
        """Share of an iteration in which the GPUs of a model of its own wait [-]."""
        busy_s = sum(other.passes_s.values()) + other.steps_s
        return max(1.0 - busy_s / self.seconds, 0.0) if self.seconds else 0.0

    @property
    def idle_share(self) -> float:
        """Share of the GPU time of an iteration in which GPUs wait, for the longest answers or the other pool [-]."""
        trainer, rollout = self.idle_shares
        waiting_s = float(self.rollout.writing.waiting_share[0]) * self.phase_s[ROLLOUT]
        waiting = waiting_s / self.seconds * self.rollout.gpus
        waiting += trainer * self.trainer_gpus + (0.0 if self.colocated else rollout * self.rollout.gpus)
        waiting += sum(self.idle_share_of(other) * other.gpus for other in self.others)
        return waiting / self.gpus

    @cached_property
    def ledgers(self) -> tuple[Ledger, Ledger | None]:
        """Of the optimizer steps of actor and critic, each alone on the card."""
        return self.held or self.training.ledgers

    @cached_property
    def beside_bytes(self) -> tuple[float, float]:
        """What is on the card beside the step of the actor, and beside that of the critic [bytes]."""
        actor, critic = self._kept_bytes
        engine = self.asleep_bytes
        return float(critic[0]) + engine, float(actor[0]) + engine

    @property
    def _kept_bytes(self) -> tuple[Array, Array]:
        """What actor and critic keep outside of their own steps, each of shape (1,) [bytes]."""
        actor, critic = self.training.kept_bytes
        return actor[self.place, np.newaxis], critic[self.place, np.newaxis]

    @cached_property
    def asleep_bytes(self) -> float:
        """What the engine keeps of a card on which the trainer works [bytes]."""
        rollout = self.rollout
        if not self.colocated or rollout.job.engine.memory.grows:
            return 0.0
        return float(asleep_bytes(rollout.job, rollout.placement, self.resolved.settings.sleep, rollout.share)[0])

    @cached_property
    def peaks(self) -> dict[str, float]:
        """Fullest GPU of each phase [bytes]."""
        learning = float(stepping_bytes(self.ledgers, self._kept_bytes)[0]) + self.asleep_bytes
        between = self.kept_bytes + self.asleep_bytes
        return {
            ROLLOUT: self.rollout.peak_bytes,
            RATING: between + sum(self.passing_bytes[RATING].values()),
            REWARD: between + sum(self.passing_bytes[REWARD].values()),
            TRAINING: learning,
            SYNCHRONISATION: max(between, self.rollout.peak_bytes if self.colocated else 0.0),
            **{rating_of(other): other.rating_bytes for other in self.others},
            **{learning_of(other): other.learning_bytes for other in self.others if other.ledger is not None},
        }

    @cached_property
    def passing_bytes(self) -> dict[str, dict[str, float]]:
        """What the fullest pass of the phases without a backward holds, part by part [bytes]."""
        training, parts = self.training, self.parts_s
        found: dict[str, dict[str, float]] = {RATING: {}, REWARD: {}}
        if any(parts[RATING].values()):
            policy = [training.policy_bytes] if parts[RATING][policy_pass.name] > 0 else []
            found[RATING] = fullest_pass([*policy, *training.rating_bytes], self.place)
        if any(parts[REWARD].values()):
            found[REWARD] = fullest_pass(training.reward_bytes, self.place)
        return found

    @property
    def needed_bytes(self) -> float:
        """The least that the GPUs need while answers are written, with what the trainer keeps there [bytes]."""
        kept = self.kept_bytes if self.colocated else 0.0
        return min(self.rollout.peak_bytes, kept + self.rollout.least_bytes)

    @cached_property
    def kept_bytes(self) -> float:
        """States of actor and critic, and context, communicators and workspaces of their process [bytes]."""
        return float(self.training.between_bytes[self.place])
