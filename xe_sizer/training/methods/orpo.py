"""Odds ratio preference optimisation (Hong et al. 2024, arXiv:2403.07691): pairs of answers without a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register("orpo", label="ORPO", evidence="sft", implies_adapter=True)
def orpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Log-probabilities of both answers, and the cross-entropy of the chosen one.

    Source: TRL ORPOTrainer.concatenated_forward.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.ODDS_RATIO)
