"""The reference model of jobs that compare answers: a copy, the model without its adapters, or a pass beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.training.methods.method import Frozen

if TYPE_CHECKING:
    from xe_sizer.training.methods.method import MethodOptions

NONE, COPY, PRECOMPUTED, ADAPTERS_OFF = "none", "copy", "precomputed", "adapters-off"
REFERENCE = "reference model"
"""As reports name it."""

Companions = tuple[tuple[Frozen, ...], tuple[Frozen, ...]]
"""What passes in every step, and what passes once before."""


def usual_reference(options: MethodOptions) -> str:
    """Where a reference comes from unless somebody says: from the frozen weights where adapters learn, else a copy."""
    return ADAPTERS_OFF if options.trained.kind else COPY


def reference_of(options: MethodOptions, forwards: int = 1) -> Companions:
    """The reference's weights and its passes.

    forwards : of every sequence [-]
    Raises InputError where adapters shall be off and there are none.

    Source: TRL's DPOTrainer, which holds no reference model beside adapters (is_peft_model) and may compute its
    log-probabilities before the training (precompute_ref_log_probs); LLaMA-Factory train/dpo/trainer.py.
    """
    chosen = options.reference or usual_reference(options)
    if chosen == ADAPTERS_OFF and options.trained.kind is None:
        raise InputError(Problem("there are no adapters that could be off", hint=f"'{COPY}' keeps the model twice"))
    if chosen == NONE:
        return (), ()
    passes = Frozen(REFERENCE, copies=int(chosen == COPY), forwards=forwards)
    return ((), (passes,)) if chosen == PRECOMPUTED else ((passes,), ())
