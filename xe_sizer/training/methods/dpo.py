"""Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290): pairs of answers beside a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Method, register
from xe_sizer.training.methods.reference import reference_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "dpo", label="DPO", evidence="sft", implies_adapter=True, reads=("train.reference",),
    aliases=("ipo", "dpop", "apo", "robust-dpo", "direct-preference-optimization"),
)  # fmt: skip
def dpo(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Chosen and rejected in one batch, and both once more through the reference; IPO and its kin cost the same.

    Source: TRL DPOTrainer.concatenated_forward and _compute_loss.
    """
    frozen, before = reference_of(options)
    return Method(
        kind, options.trained, sequences_per_sample=2, frozen=frozen, before=before,
        objective=Objective.LOG_PROBABILITIES,
    )  # fmt: skip
