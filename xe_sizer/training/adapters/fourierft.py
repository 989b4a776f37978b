"""FourierFT: some coefficients of the weight update's Fourier transform (Gao et al. 2024, arXiv:2405.03003)."""

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

FREQUENCIES = 1000  # published: coefficients of each weight (peft's default, and the paper's)


@frozen(eq=True)
class Spectrum(AdapterForm):
    """D = real part of the inverse transform of `frequencies` coefficients, x D^T beside x W^T: elements = frequencies.

    Of an element of D in float32: zeros (1), to complex (1 + 2), the transform over two axes (2 x 4), the scale (1 +
    1 of
    every second). Backward, the scale (2), its place among complex ones (1 + 2), the transform (8), and the choice.
    Source: peft (tuners/fourierft/layer.py, get_delta_weight).
    """

    frequencies: int

    tensors = 1

    def elements(self, n: Size, k: Size) -> Size:
        """The same number for every weight [-]."""
        return self.frequencies + 0.0 * n

    def operators(self, at: Place) -> Iterator[Operator]:
        """The transform, and the tokens times what it gives. The complex gradient and its transform stand together."""
        weight = at.n * at.k * at.size
        yield at.kernels("transform", 15.0 * weight, 14.0 * weight, (7.0, 6.0), temporary_bytes=5.0 * weight)
        yield from at.delta()


@register("fourierft", label="FourierFT", settings=("lora",), aliases=("fourier-ft",))
def fourierft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight from a thousand numbers."""
    return on_weights(model, options, Spectrum(options.frequencies or FREQUENCIES))
