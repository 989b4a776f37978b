"""Pre-training and supervised fine-tuning: of every weight, unless adapters are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.model import VOCABULARY
from xe_sizer.training.methods.method import TASK, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "pretrain", label="Pre-training", evidence="pretrain", fine_tunes=False, lighter="sft",
    heads=(VOCABULARY, VOCABULARY), aliases=("pretraining", "pt", "continued-pretraining", "cpt"),
)  # fmt: skip
def pretrain(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Pre-training from scratch or continued."""
    return Method(kind, options.trained)


@register(
    "sft", label="SFT", words="full fine-tuning", evidence="sft", lighter="lora", default=True, reads=(TASK,),
    aliases=("full", "full-finetune", "full-finetuning", "fft", "supervised-finetuning"),
)  # fmt: skip
def sft(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Supervised fine-tuning."""
    return Method(kind, options.trained)
