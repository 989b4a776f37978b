"""Adapters that learn some coefficients of a transform of the weight's update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.graph.inputs import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.low_rank import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

# WaveFT: some coefficients of the weight update's wavelet transform (Bilican et al. 2025, arXiv:2505.12532).

WAVEFT_FREQUENCIES = 2592  # published: coefficients of each weight (peft's default)


class Wavelets(AdapterForm, eq=True):
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
    return on_weights(model, options, Wavelets(options.frequencies or WAVEFT_FREQUENCIES))


# FourierFT: some coefficients of the weight update's Fourier transform (Gao et al. 2024, arXiv:2405.03003).

FOURIERFT_FREQUENCIES = 1000  # published: coefficients of each weight (peft's default, and the paper's)


class Spectrum(AdapterForm, eq=True):
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
    return on_weights(model, options, Spectrum(options.frequencies or FOURIERFT_FREQUENCIES))


# C3A: circular convolutions in place of a matrix (Chen et al. 2024, arXiv:2407.19342).

C3A_BLOCK = 256  # published: width of a convolution (peft's default)


class Circular(AdapterForm, eq=True):
    """x D^T beside x W^T, D of circulant blocks of b by b, after a Fourier transform: elements = n k / b.

    At each of b frequencies the tokens' k / b coefficients meet n / b by k / b complex ones: 4 multiplications each.
    Source: peft (tuners/c3a/layer.py; utils.py, BlockCircularConvolution).
    """

    block: int

    tensors = 1

    def elements(self, n: Size, k: Size) -> Size:
        """The first row of each block [-]."""
        return n * k / self.block

    def operators(self, at: Place) -> Iterator[Operator]:
        """Transforms of tokens and blocks, the product at each frequency, and the transform back, all complex."""
        block = float(self.block)
        inputs, outputs = at.tokens * at.k * at.size, at.tokens * at.n * at.size
        yield at.product("frequencies", at.tokens, at.n / block, at.k / block, at.input_bytes, copies=4.0 * block)
        forward, backward = 10.0 * inputs + 10.0 * outputs, 22.0 * inputs + 10.0 * outputs
        yield at.kernels("transforms", forward, backward, (6.0, 14.0), 0.0, 4.0 * inputs + 3.0 * outputs)
        yield at.sum()


@register("c3a", label="C3A", settings=("lora",))
def c3a(model: ModelShape, options: AdapterOptions) -> Trained:
    """Blocks as wide as `block_size`."""
    return on_weights(model, options, Circular(options.block_size or C3A_BLOCK))
