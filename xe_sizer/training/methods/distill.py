"""Distillation of logits: a student learns all that a frozen teacher says of each token.

Hinton et al. 2015, arXiv:1503.02531; GKD: Agarwal et al. 2023, arXiv:2306.13649.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.software.objective import Objective
from xe_sizer.training.methods.method import Frozen, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions

TEACHER = "teacher"
"""As reports name it."""


@register(
    "distill", label="Distillation", evidence="sft", implies_adapter=True, reads=("train.teacher_model",),
    aliases=("distillation", "knowledge-distillation", "kd", "gkd", "minillm"),
)  # fmt: skip
def distill(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Each sequence once more through the teacher, which stands beside the student and is spread as it is.

    Source: TRL GKDTrainer.compute_loss; torchtune recipes/knowledge_distillation_distributed.py.
    """
    if options.teacher is None:
        hint = "train.teacher_model names it, as model does the student"
        raise InputError(Problem(f"the job '{kind.name}' needs a teacher", hint=hint))
    teacher = Frozen(TEACHER, model=options.teacher, reads=Objective.LOGITS)
    return Method(kind, options.trained, frozen=(teacher,), objective=Objective.DIVERGENCE)
