"""A reinforcement-learning scenario with everything resolved but the layouts and the split of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.reinforcement.settings import Settings
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.resolved import ResolvedTraining


@frozen
class ResolvedReinforcement:
    """What is asked of an iteration.

    trainer : the optimizer steps of the actor, of all iterations; its keys and origins are those of the scenario
    service : the replicas that write answers; its number of GPUs is open
    critic : the steps of a critic beside the actor's, in the same layout; None: the method has none
    reference, reward : models that only rate answers; None: there is none
    iterations : of the run; steps : optimizer steps of an iteration [-]
    ways : whether answers may be written on the GPUs that train (True), and apart from them (False)
    """

    trainer: ResolvedTraining
    service: ResolvedService
    settings: Settings
    critic: Job | None
    reference: Frozen | None
    reward: Frozen | None
    iterations: int
    steps: int
    ways: tuple[bool, ...]

    @property
    def given(self) -> Given:
        return self.trainer.given

    @property
    def recomputes(self) -> bool:
        """Whether the trainer computes the log-probabilities of the answers again."""
        rollout = self.actor.method.kind.rollout
        if rollout is None or not rollout.ratios:
            return False
        how = self.settings.defaults.recomputes
        own = self.service.job.engine.memory.grows and self.steps == 1
        return how == "always" or (how == "as-needed" and not own)

    @property
    def actor(self) -> Job:
        return self.trainer.job

    @property
    def passes(self) -> tuple[Frozen, ...]:
        """Models that every answer passes through before the training, beside actor and critic."""
        return tuple(one for one in (self.reference, self.reward) if one is not None)
