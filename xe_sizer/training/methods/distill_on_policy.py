"""On-policy distillation: the student writes answers, and learns what a frozen teacher says of each of their tokens.

GKD: Agarwal et al. 2023, arXiv:2306.13649; MiniLLM: Gu et al. 2023, arXiv:2306.08543.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.methods.distill import distill
from xe_sizer.training.methods.method import Rollout, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import Method, MethodKind, MethodOptions


@register(
    "distill-on-policy", label="On-policy distillation", evidence="reinforcement", implies_adapter=True,
    reads=("train.teacher_model",), rollout=Rollout(ratios=False),
    aliases=("on-policy-distillation", "on-policy-distill", "opd"),
)  # fmt: skip
def distill_on_policy(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """As distillation on the student's own answers, each of which passes through the teacher in its step.

    Source: TRL GKDTrainer.training_step with lmbda 1 (generate_on_policy_outputs).
    """
    return distill(kind, model, options)
