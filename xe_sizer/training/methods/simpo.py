"""Simple and contrastive preference optimisation: pairs of answers, and nothing else.

SimPO: Meng et al. 2024, arXiv:2405.14734. CPO: Xu et al. 2024, arXiv:2401.08417.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register("simpo", label="SimPO", evidence="sft", implies_adapter=True)
def simpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Mean log-probabilities of both answers.

    Source: TRL CPOTrainer.concatenated_forward with the loss type simpo and cpo_alpha 0.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.LOG_PROBABILITIES)


@register("cpo", label="CPO", evidence="sft", implies_adapter=True)
def cpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Log-probabilities of both answers, and the cross-entropy of the chosen one.

    Source: TRL CPOTrainer.concatenated_forward.
    """
    return Method(kind, options.trained, sequences_per_sample=2, objective=Objective.ODDS_RATIO)
