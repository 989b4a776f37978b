"""Group relative policy optimisation and its kin: answers to one prompt are compared with each other, without a critic.

Shao et al. 2024, arXiv:2402.03300. What differs between its kin is the loss or how advantages are normalised, not what
is computed: RLOO (arXiv:2402.14740), REINFORCE++ (arXiv:2501.03262), DAPO (arXiv:2503.14476), Dr. GRPO
(arXiv:2503.20783), GSPO (arXiv:2507.18071), CISPO (arXiv:2506.13585).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Method, Rollout, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "grpo", label="GRPO", evidence="reinforcement", implies_adapter=True, rollout=Rollout(group=8, least_group=2),
    reads=("train.reference", "train.reward_model"),
    aliases=("rloo", "reinforce++", "reinforce-plus-plus", "dapo", "gspo", "dr-grpo", "cispo", "remax", "rlvr"),
)  # fmt: skip
def grpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """The policy; a reference may stand beside it."""
    return Method(kind, options.trained, objective=Objective.POLICY)
