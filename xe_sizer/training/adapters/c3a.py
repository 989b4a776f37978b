"""C3A: circular convolutions in place of a matrix (Chen et al. 2024, arXiv:2407.19342)."""

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

BLOCK = 256  # published: width of a convolution (peft's default)


@frozen(eq=True)
class Circular(AdapterForm):
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
    return on_weights(model, options, Circular(options.block_size or BLOCK))
