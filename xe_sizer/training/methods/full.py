"""Pre-training and supervised fine-tuning: of every weight, unless adapters are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import VOCABULARY
from xe_sizer.graph.parameters import generator_weights
from xe_sizer.graph.parts import GENERATOR, Part
from xe_sizer.training.methods.method import TASK, Method, register

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods.method import MethodKind, MethodOptions


@register(
    "pretrain", label="Pre-training", evidence="pretrain", fine_tunes=False, lighter="sft",
    heads=(VOCABULARY, VOCABULARY), aliases=("pretraining", "pt", "continued-pretraining", "cpt"),
)  # fmt: skip
def pretrain(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Pre-training from scratch or continued; with the generator of a model that tells replaced tokens (ELECTRA).

    Source: arXiv:2003.10555, section 3: the generator learns to fill in masked tokens at the same time.
    """
    generator, trained = model.generator_model, options.trained
    if generator is None:
        return Method(kind, trained)
    if not trained.learning.base:
        message = f"{model.name} is pre-trained beside a generator, which has no equation with adapters yet"
        raise InputError(Problem(message, hint="leave the adapters out, or fine-tune it"))
    part = Part(GENERATOR, generator_weights(generator), Learning(base=True), split=True)
    return Method(kind, replace(trained, parts=(part,)))


@register(
    "sft", label="SFT", words="full fine-tuning", evidence="sft", lighter="lora", default=True, reads=(TASK,),
    aliases=("full", "full-finetune", "full-finetuning", "fft", "supervised-finetuning"),
)  # fmt: skip
def sft(kind: MethodKind, model: ModelShape, options: MethodOptions) -> Method:
    """Supervised fine-tuning."""
    return Method(kind, options.trained)
