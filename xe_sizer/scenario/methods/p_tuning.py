"""P-tuning: virtual tokens from a small prompt encoder before a frozen model (Liu et al. 2021, arXiv:2103.10385)."""

from __future__ import annotations

from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.transformer import Learning
from xe_sizer.scenario.methods.method import Method, MethodOptions, register

# NeMo's prompt encoder: hidden size of its two-layer perceptron unless the user gives another.
NEMO_ENCODER_HIDDEN = 2048


@register("p-tuning")
def p_tuning(model: ModelShape, options: MethodOptions) -> Method:
    """An embedding of the virtual tokens and a two-layer perceptron (hidden -> encoder -> hidden, with biases).

    The frozen model still carries the gradient back to its input: no weight gradients, all input gradients.
    """
    encoder = options.encoder_hidden or NEMO_ENCODER_HIDDEN
    table = options.virtual_tokens * model.hidden
    perceptron = (model.hidden + 1) * encoder + (encoder + 1) * model.hidden
    return Method(
        "p-tuning",
        Learning(base=False),
        added_parameters=table + perceptron,
        added_tokens=options.virtual_tokens,
    )
