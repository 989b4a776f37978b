"""Adapters without matrices: biases, norms, scales of activations, and scattered elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.inputs import AdapterForm
from xe_sizer.graph.weights import LAYER_NORMS, embedding_weights, head_weights, layer_weights
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.low_rank import build_learning, on_weights
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions

# Few entries of each weight: SHiRA (Bhardwaj et al. 2024, arXiv:2406.13175) and Super-Tuning (arXiv:2607.09287).

SPARSITY = 0.99  # published: share of the entries that stay as they are (peft's default)
INT64 = 8.0  # defined: bytes of a 64-bit integer, with which torch looks entries up
TWO_INDICES, ONE_INDEX = 8.0, 4.0  # published: bytes of a row and a column, and of a place in the flat weight (peft)


class Sparse(AdapterForm, eq=True):
    """x (W + S)^T, S with few entries: elements = r (k + n), or `share` of n k where there is no rank.

    The sum is made in every forward in the weight's own type and kept; its gradient is as large as the weight, and the
    entries are taken out of it. The weight's own product is left out.
    Source: peft (tuners/shira/layer.py and tuners/supertuning/layer.py, Linear.forward).
    """

    rank: int = 0
    share: float = 0.0

    tensors = 1
    shares_input = True
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """Entries [-]."""
        return self.rank * (k + n) if self.rank else np.floor(n * k * self.share)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Where the entries are [bytes]."""
        return self.elements(n, k) * (TWO_INDICES if self.rank else ONE_INDEX)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The sum, and the product with it in the precision of the model."""
        weight, entries = at.n * at.k * at.element_bytes, self.elements(at.n, at.k) * (at.size + TWO_INDICES)
        wide = at.n * at.k * at.size * float(self.rank > 0)  # of the dense gradient, a cast
        # The sum is kept even where its input needs no gradient, and without a rank the places as 8-byte integers.
        places = INT64 * self.elements(at.n, at.k) * float(self.rank == 0)
        kept = weight + places
        yield at.kernels("entries", 2.0 * weight + entries, weight + wide + entries, (4.0, 3.0), kept, weight + wide)
        yield at.product("output", at.tokens, at.n, at.k, computed_bytes=0.0, in_base=True)


@register("shira", label="SHiRA", settings=("lora",), rank=32)
def shira(model: ModelShape, options: AdapterOptions) -> Trained:
    """As many entries as low-rank adapters of the rank would have."""
    return on_weights(model, options, Sparse(options.lora_rank))


@register("supertuning", label="Super-Tuning", settings=("lora",), aliases=("super-tuning",))
def supertuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """The largest entries of each weight."""
    return on_weights(model, options, Sparse(share=1.0 - SPARSITY))


# IA3: vectors that scale keys, values and the inputs of the MLP (Liu et al. 2022, arXiv:2205.05638).

BEHIND_ACTIVATIONS = ("down", "expert_down", "shared_expert_down")


class Scales(AdapterForm, eq=True):
    """l * (x W^T), or (l * x) W^T where `of_inputs`: elements = n, or k. One kernel in float32 and the casts around it.

    Kept for the gradient of l: what it scales, in the type in which it stands there.
    Source: peft (tuners/ia3/layer.py, Linear.forward).
    """

    of_inputs: bool = False

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """One scale for each output, or for each input [-]."""
        return k if self.of_inputs else n

    def operators(self, at: Place) -> Iterator[Operator]:
        """Cast up, scale, cast down; backward, two products with the gradient, a sum over tokens and both casts."""
        width = at.k if self.of_inputs else at.n
        kept = at.size if self.of_inputs else at.element_bytes
        read = at.element_bytes + at.size
        forward, backward = 2.0 * read + 2.0 * at.size * float(self.of_inputs), 2.0 * read + 6.0 * at.size
        elements = at.tokens * width
        # The gradient, its cast and both products stand beside each other.
        temporary = elements * (3.0 * at.size + at.element_bytes)
        yield at.kernels("scales", elements * forward, elements * backward, (3.0, 5.0), elements * kept, temporary)


@register(
    "ia3", label="IA3", settings=("lora",), targets=("k", "v", "down"), aliases=("(ia)3", "ia^3", "(ia)^3"), place=6
)
def ia3(model: ModelShape, options: AdapterOptions) -> Trained:
    """Scales of outputs, but of inputs where the weight stands behind the activation of an MLP."""
    return on_weights(model, options, lambda name: Scales(of_inputs=name in BEHIND_ACTIVATIONS))


# Biases alone: BitFit trains those of the model (Ben Zaken et al. 2021, arXiv:2106.10199), BEFT adds its own.


class Bias(AdapterForm, eq=True):
    """x W^T + b: elements = n. Nothing is kept: the gradient is that of the output, summed over the tokens.

    added : beside the weight and in the adapter's type, so that the output is cast; else it is the weight's own
    Source: peft (tuners/beft/layer.py, Linear.forward).
    """

    added: bool = True

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """One for each output [-]."""
        return n

    def operators(self, at: Place) -> Iterator[Operator]:
        """The sum and the cast of the output; backward, the casts of its gradient and the sum over tokens."""
        elements, read = at.tokens * at.n, at.element_bytes + at.size
        if not self.added:
            yield at.kernels("bias", 0.0, elements * at.element_bytes, (0.0, 1.0))
            return
        temporary = elements * (at.size + at.element_bytes)
        yield at.kernels(
            "bias", 2.0 * elements * read, elements * (2.0 * read + at.size), (2.0, 3.0), temporary_bytes=temporary
        )


@register("beft", label="BEFT", settings=("lora",), targets=("v",))
def beft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A bias of its own beside each projection."""
    return on_weights(model, options, Bias())


@register("bitfit", label="BitFit", aliases=("bias-only",))
def bitfit(model: ModelShape, options: AdapterOptions) -> Trained:
    """The biases that the model has. Raises InputError for a model without any."""
    weights = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    forms = {name: Bias(added=False) for name, weight in weights.items() if weight.kind == "linear" and weight.bias}
    if not forms:
        raise InputError(
            Problem(f"{model.name} has no biases that could learn (bitfit)", hint="other adapters add weights")
        )
    return Trained(build_learning(options, adapters=forms))


# Small parts of the model itself: its norms (Zhao et al. 2023, arXiv:2312.11420), or rows of its embedding.

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
    return round(layers + sum(weight.parameters for weight in ends if weight.module == NORM))


@register("ln-tuning", label="LN tuning", aliases=("ln_tuning", "lntuning"))
def ln_tuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """Every norm learns; what it normalised is kept for its gradient.

    Source: peft (tuners/ln_tuning/layer.py).
    """
    return Trained(build_learning(options, norms=True), added_parameters=norm_parameters(model))


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
    learning = build_learning(options, before=True)
    return Trained(learning, added_parameters=options.virtual_tokens * width, added_bytes=head)
