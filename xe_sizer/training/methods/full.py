"""Pre-training and supervised fine-tuning: every weight learns."""

from __future__ import annotations

from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.transformer import Learning
from xe_sizer.training.methods.method import Method, MethodOptions, register


@register("pretrain")
def pretrain(model: ModelShape, options: MethodOptions) -> Method:
    """Pre-training from scratch or continued."""
    return Method("pretrain", Learning(base=True))


@register("sft")
def sft(model: ModelShape, options: MethodOptions) -> Method:
    """Supervised fine-tuning of all weights."""
    return Method("sft", Learning(base=True))
