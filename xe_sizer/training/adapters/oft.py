"""OFT: inputs turned by orthogonal blocks (Qiu et al. 2023, arXiv:2306.07280; v2: arXiv:2506.19847)."""

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

BLOCK = 32  # published: inputs of a block (peft's default)
NEUMANN = 5  # published: terms of the series in place of an inverse (peft's default)


@frozen(eq=True)
class Rotation(AdapterForm):
    """(x R) W^T: R has k / b blocks of b by b, each from b (b - 1) / 2 angles: elements = k (b - 1) / 2.

    The blocks come from a series of `NEUMANN` terms, b by b each. The turned input is laid out anew and cast back;
    autograd keeps the float32 copy of the input.
    Source: peft (tuners/oft/layer.py, OFTRotationModule.forward).
    """

    block: int

    tensors = 1

    def elements(self, n: Size, k: Size) -> Size:
        """Angles [-]."""
        return k * (self.block - 1) / 2

    def operators(self, at: Place) -> Iterator[Operator]:
        """Blocks, cast of the input, the products of tokens with blocks, and the turned input's copy and cast."""
        blocks, angles = at.k / self.block, at.k * self.block * at.size
        yield at.product("blocks", self.block, self.block, self.block, 4.0 * angles, copies=(NEUMANN - 2) * blocks)
        wide, read = at.tokens * at.k * at.size, at.tokens * at.k * (at.element_bytes + at.size)
        yield at.product("R", at.tokens, self.block, self.block, wide, copies=blocks)
        yield at.kernels("turned", 2.0 * read + 2.0 * wide, 2.0 * read + 2.0 * wide, (12.0, 15.0), 0.0, 2.0 * wide)


@register("oft", label="OFT", settings=("lora",), aliases=("oftv2", "qoft"))
def oft(model: ModelShape, options: AdapterOptions) -> Trained:
    """Rotations of each projection's inputs, in blocks."""
    return on_weights(model, options, Rotation(options.block_size or BLOCK))
