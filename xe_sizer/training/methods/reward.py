"""Reward models (Ouyang et al. 2022, arXiv:2203.02155): a value of each answer, learnt from pairs of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.model import CLASSES, VALUES
from xe_sizer.training.methods.method import Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "reward", label="Reward model", evidence="sft", implies_adapter=True, heads=(VALUES, CLASSES),
    aliases=("rm", "reward-model", "reward-modeling"),
)  # fmt: skip
def reward(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Chosen and rejected in one batch through a head with one output: no logits of the vocabulary.

    Source: TRL RewardTrainer.compute_loss on AutoModelForSequenceClassification with one label.
    """
    return Method(kind, options.trained, sequences_per_sample=2)
