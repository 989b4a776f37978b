"""One iteration in one layout of the trainer and one placement of the replicas: its phases, their times and memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.reinforcement.memory import around_bytes, asleep_bytes, kept_bytes, stepping_bytes, trainer_ledgers
from xe_sizer.reinforcement.synchronisation import broadcast_s, gather_s, hand_over_s, loading_s, waking_s
from xe_sizer.reinforcement.trainer import LEARNING_PARTS, RATING_PARTS, REWARD_PARTS, Training, offloading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.reinforcement.rollout import Rollout
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger

ROLLOUT, RATING, REWARD, TRAINING, SYNCHRONISATION = (
    "rollout", "log-probabilities", "rewards", "training", "weight synchronisation",
)  # fmt: skip
PHASES = (ROLLOUT, RATING, REWARD, TRAINING, SYNCHRONISATION)


@frozen
class Iteration:
    """An iteration; the layout has one entry.

    rollout : the replicas that write; colocated : on the GPUs that train, in turn
    trained_s, held : what the parts of the trainer take, by name, and its memory, where these are known already
    """

    resolved: ResolvedReinforcement
    layouts: Layouts
    rollout: Rollout
    colocated: bool
    trained_s: Mapping[str, float] | None = None
    held: tuple[Ledger, Ledger | None] | None = None

    @property
    def trainer_gpus(self) -> int:
        return int(self.layouts.gpus[0])

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.trainer_gpus if self.colocated else self.trainer_gpus + self.rollout.gpus

    @property
    def asynchronous(self) -> bool:
        """Whether answers are written while the trainer learns from older ones."""
        return self.resolved.settings.staleness > 0 and not self.colocated

    @cached_property
    def training(self) -> Training:
        return Training(self.resolved, self.layouts)

    @cached_property
    def parts_s(self) -> dict[str, dict[str, float]]:
        """Seconds of the parts of each phase; each phase takes their sum."""
        writing = self.rollout.writing
        written = {
            "rollout: prompts": float(writing.prompts_s[0]),
            "rollout: answers": float(writing.full_s[0]),
            "rollout: last answers": float(writing.tail_s[0]),
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
        return {ROLLOUT: written, **worked, SYNCHRONISATION: {SYNCHRONISATION: self.synchronisation_s}}

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
        sent_s = gathered_s + float(broadcast_s(job, self.layouts, rollout.gpus)[0])
        return max(sent_s, hand_over_s(job)) + loaded_s

    @cached_property
    def phase_s(self) -> dict[str, float]:
        """Seconds of each phase, whether another one hides it or not."""
        return {name: sum(parts.values()) for name, parts in self.parts_s.items()}

    @property
    def hidden(self) -> frozenset[str]:
        """Phases that run beside longer ones: the shorter of writing and of all that the trainer does."""
        if not self.asynchronous:
            return frozenset()
        seconds = self.phase_s
        trained_s = seconds[RATING] + seconds[REWARD] + seconds[TRAINING]
        return frozenset({ROLLOUT} if trained_s >= seconds[ROLLOUT] else {RATING, REWARD, TRAINING})

    @cached_property
    def component_s(self) -> dict[str, float]:
        """Seconds that each part adds to the iteration; they sum to it.

            iteration = sum of the phases                                  in turn
            iteration = max(rollout, other phases of the trainer) + weight synchronisation      asynchronous

        Source: one-step off-policy pipelines (verl recipe, AReaL arXiv:2505.24298); a bound of one iteration suffices,
        as both pools then never wait for more than the slower of them.
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
        """Share of an iteration in which the trainer's GPUs wait for the replicas, and these for the trainer [-]."""
        if self.colocated or not self.seconds:
            return 0.0, 0.0
        seconds, whole_s = self.phase_s, self.seconds
        trained_s = seconds[RATING] + seconds[REWARD] + seconds[TRAINING]
        shared_s = seconds[SYNCHRONISATION]
        return 1.0 - (trained_s + shared_s) / whole_s, 1.0 - (seconds[ROLLOUT] + shared_s) / whole_s

    @property
    def idle_share(self) -> float:
        """Share of the GPU time of an iteration in which GPUs wait, for the longest answers or the other pool [-]."""
        trainer, rollout = self.idle_shares
        waiting_s = float(self.rollout.writing.waiting_share[0]) * self.phase_s[ROLLOUT]
        waiting = waiting_s / self.seconds * self.rollout.gpus
        waiting += 0.0 if self.colocated else trainer * self.trainer_gpus + rollout * self.rollout.gpus
        return waiting / self.gpus

    @cached_property
    def ledgers(self) -> tuple[Ledger, Ledger | None]:
        """Of the optimizer steps of actor and critic, each alone on the card."""
        return self.held or trainer_ledgers(self.resolved, self.layouts)

    @cached_property
    def beside_bytes(self) -> tuple[float, float]:
        """What is on the card beside the step of the actor, and beside that of the critic [bytes]."""
        actor, critic = kept_bytes(self.resolved, self.layouts)
        engine = self.asleep_bytes
        return float(critic[0]) + engine, float(actor[0]) + engine

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
        learning = float(stepping_bytes(self.ledgers, kept_bytes(self.resolved, self.layouts))[0]) + self.asleep_bytes
        rating = self.kept_bytes + self.asleep_bytes
        return {
            ROLLOUT: self.rollout.peak_bytes,
            RATING: rating,
            REWARD: rating,
            TRAINING: learning,
            SYNCHRONISATION: max(rating, self.rollout.peak_bytes if self.colocated else 0.0),
        }

    @property
    def needed_bytes(self) -> float:
        """The least that the GPUs need while answers are written, with what the trainer keeps there [bytes]."""
        kept = self.kept_bytes if self.colocated else 0.0
        return min(self.rollout.peak_bytes, kept + self.rollout.least_bytes)

    @cached_property
    def kept_bytes(self) -> float:
        """States of actor and critic, and context, communicators and workspaces of their process [bytes]."""
        actor, critic = kept_bytes(self.resolved, self.layouts)
        return float(actor[0] + critic[0] + around_bytes(self.resolved.actor, self.layouts)[0])
