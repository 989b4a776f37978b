"""Reinforcement learning: answers are written, judged and learned from (GRPO, PPO, on-policy distillation)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.stack import Objective
from xe_sizer.training.methods.method import Method, Rollout, register
from xe_sizer.training.methods.preferences import distill

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

# On-policy distillation: the student writes answers, and learns what a frozen teacher says of each of their tokens.
#
# GKD: Agarwal et al. 2023, arXiv:2306.13649; MiniLLM: Gu et al. 2023, arXiv:2306.08543.


@register(
    "distill-on-policy", label="On-policy distillation", evidence="reinforcement", implies_adapter=True,
    reads=("train.teacher_model", "train.teacher_top_k"), rollout=Rollout(ratios=False),
    aliases=("on-policy-distillation", "on-policy-distill", "opd"),
)  # fmt: skip
def distill_on_policy(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """As distillation on the student's own answers, each of which passes through the teacher in its step.

    Source: TRL GKDTrainer.training_step with lmbda 1 (generate_on_policy_outputs).
    """
    return distill(kind, model, options)


# Group relative policy optimisation and its kin: answers to one prompt are compared with each other, without a critic.
#
# Shao et al. 2024, arXiv:2402.03300. What differs between its kin is the loss or how advantages are normalised, not
# what
# is computed: RLOO (arXiv:2402.14740), REINFORCE++ (arXiv:2501.03262), DAPO (arXiv:2503.14476), Dr. GRPO
# (arXiv:2503.20783), GSPO (arXiv:2507.18071), CISPO (arXiv:2506.13585).


@register(
    "grpo", label="GRPO", evidence="reinforcement", implies_adapter=True, rollout=Rollout(group=8, least_group=2),
    place=6,
    reads=("train.reference", "train.reward_model"),
    aliases=("rloo", "reinforce++", "reinforce-plus-plus", "dapo", "gspo", "dr-grpo", "cispo", "remax", "rlvr"),
)  # fmt: skip
def grpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """The policy; a reference may stand beside it."""
    return Method(kind, options.trained, objective=Objective.POLICY)


# Proximal policy optimisation: a critic learns beside the actor what answers are worth, token by token.
#
# Schulman et al. 2017, arXiv:1707.06347; for language models Ouyang et al. 2022, arXiv:2203.02155.


@register(
    "ppo", label="PPO", evidence="reinforcement", implies_adapter=True, rollout=Rollout(critic=True, rated=True),
    place=7,
    reads=("train.reference", "train.critic_model", "train.reward_model"),
    aliases=("rlhf", "proximal-policy-optimization"),
)  # fmt: skip
def ppo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """The actor; critic, reference and reward model stand beside it."""
    return Method(kind, options.trained, objective=Objective.POLICY)
