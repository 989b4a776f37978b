"""WaveFT: some coefficients of the weight update's wavelet transform (Bilican et al. 2025, arXiv:2505.12532)."""

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

FREQUENCIES = 2592  # published: coefficients of each weight (peft's default)


@frozen(eq=True)
class Wavelets(AdapterForm):
    """D = inverse wavelet transform of `frequencies` coefficients, x D^T beside x W^T: elements = frequencies.

    Of an element of D in float32: zeros (1), the four bands stacked (2), the transposed convolution (2), the scale
    (2); the
    stack is kept. Backward, the scale (2), the convolution (2), and each band laid into zeros twice and summed.
    Source: peft (tuners/waveft/layer.py, get_delta_weight; waverec2d.py).
    """

    frequencies: int

    tensors = 1

    def elements(self, n: Size, k: Size) -> Size:
        """The same number for every weight [-]."""
        return self.frequencies + 0.0 * n

    def operators(self, at: Place) -> Iterator[Operator]:
        """The transform, and the tokens times what it gives."""
        weight = at.n * at.k * at.size
        yield at.kernels("transform", 7.0 * weight, 24.0 * weight, (20.0, 20.0), weight, 4.0 * weight)
        yield from at.delta()


@register("waveft", label="WaveFT", settings=("lora",))
def waveft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight from a few thousand numbers."""
    return on_weights(model, options, Wavelets(options.frequencies or FREQUENCIES))
