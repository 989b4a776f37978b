"""P-tuning: virtual tokens from a small prompt encoder before a frozen model (Liu et al. 2021, arXiv:2103.10385)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.on_weights import learning_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions

PERCEPTRON = 1024  # published: hidden size of NeMo's prompt encoder (bottleneck_dim of its p_tuning configuration)


@register("p-tuning", label="P-tuning", settings=("p_tuning",), usual=True)
def p_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """An embedding of the virtual tokens and a perceptron with biases, e wide inside.

        parameters = tokens w + (w + 1) e + (e + 1) hidden                              NeMo: w = 1024
        parameters = tokens hidden + (hidden + 1) e + (e + 1) e + (e + 1) hidden        peft

    The frozen model still carries the gradient back to its input: no weight gradients, all input gradients.
    Source: NeMo's prompt encoder (embedding_dim of its p_tuning configuration); peft (tuners/p_tuning/model.py).
    """
    tokens, hidden = options.virtual_tokens, model.hidden
    if width := options.prompt_embedding:
        inside = options.encoder_hidden or PERCEPTRON
        own = tokens * width + (width + 1) * inside + (inside + 1) * hidden
    else:
        inside = options.encoder_hidden or hidden
        own = tokens * hidden + (hidden + 1) * inside + (inside + 1) * (inside + hidden)
    return Trained(learning_of(options), added_parameters=own, added_tokens=tokens)
