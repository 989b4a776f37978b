"""Biases alone: BitFit trains those of the model (Ben Zaken et al. 2021, arXiv:2106.10199), BEFT adds its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.graph.parameters import layer_weights
from xe_sizer.training.adapters.adapter import Trained, register
from xe_sizer.training.adapters.on_weights import learning_of, on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions


@frozen(eq=True)
class Bias(AdapterForm):
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
    return Trained(learning_of(options, adapters=forms))
