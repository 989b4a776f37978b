"""Kahneman-Tversky optimisation (Ethayarajh et al. 2024, arXiv:2402.01306): single answers, each good or bad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Frozen, Method, register
from xe_sizer.training.methods.reference import reference_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

DIVERGENCE = Frozen("estimate of the divergence", copies=0, adapted=True)
"""A prompt with the answer to another passes through the model that learns, without gradients."""


@register("kto", label="KTO", evidence="sft", implies_adapter=True, reads=("train.reference",), aliases=("bco",))
def kto(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Each answer forwards and backwards; a mismatched one forwards; and both through the reference.

    Source: TRL KTOTrainer (_compute_kl_logps, forward, get_batch_loss_metrics); LLaMA-Factory train/kto/trainer.py.
    """
    frozen, before = reference_of(options, forwards=2)
    return Method(kind, options.trained, frozen=(DIVERGENCE, *frozen), before=before, objective=Objective.ANSWERS)
