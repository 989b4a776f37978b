"""Small parts of the model itself: its norms (Zhao et al. 2023, arXiv:2312.11420), or rows of its embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.parameters import LAYER_NORMS, embedding_weights, head_weights, layer_weights
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.on_weights import learning_of
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions

NORM = "norm"


def norm_parameters(model: ModelShape) -> int:
    """Parameters of the norms of the hidden state, with that before the head [-]."""
    layers = sum(
        count * weight.parameters
        for kind, count in model.layer_kinds
        for weight in layer_weights(model, kind)
        if weight.name in LAYER_NORMS[model.norms_per_layer]
    )
    ends = (*embedding_weights(model), *head_weights(model))
    return layers + sum(weight.parameters for weight in ends if weight.module == NORM)


@register("ln-tuning", label="LN tuning", aliases=("ln_tuning", "lntuning"))
def ln_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """Every norm learns; what it normalised is kept for its gradient.

    Source: peft (tuners/ln_tuning/layer.py).
    """
    return Trained(learning_of(options, norms=True), added_parameters=norm_parameters(model))


@register(
    "trainable-tokens", label="Trainable tokens", settings=("p_tuning",), aliases=("trainable_tokens",)
)  # fmt: skip
def trainable_tokens(model: ModelShape, options: AdapterOptions) -> Trained:
    """Rows of the embedding, as many as there are virtual tokens: parameters = tokens x its width.

    A head that is the embedding is made anew with these rows in every forward, and kept for its backward.

    Source: peft (tuners/trainable_tokens/layer.py).
    """
    width = model.embedding_size or model.hidden
    head = SIXTEEN_BIT * model.vocab * width * float(model.tied_embeddings)
    learning = learning_of(options, before=True)
    return Trained(learning, added_parameters=options.virtual_tokens * width, added_bytes=head)
