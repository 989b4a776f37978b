"""IA3: vectors that scale keys, values and the inputs of the MLP (Liu et al. 2022, arXiv:2205.05638)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

BEHIND_ACTIVATIONS = ("down", "expert_down", "shared_expert_down")


@frozen(eq=True)
class Scales(AdapterForm):
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


@register("ia3", label="IA3", settings=("lora",), targets=("k", "v", "down"), aliases=("(ia)3", "ia^3", "(ia)^3"))
def ia3(model: ModelShape, options: AdapterOptions) -> Trained:
    """Scales of outputs, but of inputs where the weight stands behind the activation of an MLP."""
    return on_weights(model, options, lambda name: Scales(of_inputs=name in BEHIND_ACTIVATIONS))
