"""Proximal policy optimisation: a critic learns beside the actor what answers are worth, token by token.

Schulman et al. 2017, arXiv:1707.06347; for language models Ouyang et al. 2022, arXiv:2203.02155.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Method, Rollout, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "ppo", label="PPO", evidence="reinforcement", implies_adapter=True, rollout=Rollout(critic=True, rated=True),
    reads=("train.reference", "train.critic_model", "train.reward_model"),
    aliases=("rlhf", "proximal-policy-optimization"),
)  # fmt: skip
def ppo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """The actor; critic, reference and reward model stand beside it."""
    return Method(kind, options.trained, objective=Objective.POLICY)
