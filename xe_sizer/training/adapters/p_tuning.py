"""P-tuning: virtual tokens from a small prompt encoder before a frozen model (Liu et al. 2021, arXiv:2103.10385)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.on_weights import learning_of

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions

# Published: NeMo's prompt encoder (embedding_dim and bottleneck_dim of its p_tuning configuration).
NEMO_EMBEDDING = 1024
NEMO_BOTTLENECK = 1024


@register("p-tuning", label="P-tuning", settings=("p_tuning",), usual=True)
def p_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """An embedding of the virtual tokens and a two-layer perceptron (1024 -> bottleneck -> hidden, with biases).

    The frozen model still carries the gradient back to its input: no weight gradients, all input gradients.
    """
    bottleneck = options.encoder_hidden or NEMO_BOTTLENECK
    table = options.virtual_tokens * NEMO_EMBEDDING
    perceptron = (NEMO_EMBEDDING + 1) * bottleneck + (bottleneck + 1) * model.hidden
    return Trained(learning_of(options), added_parameters=table + perceptron, added_tokens=options.virtual_tokens)
