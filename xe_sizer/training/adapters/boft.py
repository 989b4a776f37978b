"""BOFT: weights turned by a product of sparse orthogonal matrices, a butterfly (Liu et al. 2023, arXiv:2311.06243)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

BLOCK = 4  # published: inputs of a block (peft's default)


@frozen(eq=True)
class Butterfly(AdapterForm):
    """s * (x R) W^T: R = P^T blocks P, laid out as k by k: elements = k b + n.

    R's blocks come from one solution of b by b equations each; three products of k by k matrices make R, of which three
    of 16 bit are kept, and the permutation P stands beside every weight in float32.
    Source: peft (tuners/boft/layer.py, BOFTLayer and Linear.forward).
    """

    block: int

    shares_input = True

    def elements(self, n: Size, k: Size) -> Size:
        """Blocks, and a scale of each output [-]."""
        return k * self.block + n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The permutation [bytes]."""
        return FLOAT32 * k * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """R, the tokens times it, and the scale of the output."""
        square, e = at.k * at.k, at.element_bytes
        yield at.kernels(
            "blocks", square * (2.0 * at.size + 2.0 * e), square * 2.0 * at.size, (12.0, 12.0), 2.0 * square * e,
            square * (at.size + e),
        )  # fmt: skip
        yield at.product("butterfly", at.k, at.k, at.k, copies=3.0, computed_bytes=0.0, in_base=True)
        yield at.product("R", at.tokens, at.k, at.k, computed_bytes=square * e, in_base=True)
        outputs = at.tokens * at.n
        read = outputs * (at.size + e)
        yield at.kernels("scale", 2.0 * read, 2.0 * read + 4.0 * outputs * at.size, (2.0, 5.0), outputs * e, read * 2.0)


@register("boft", label="BOFT", settings=("lora",))
def boft(model: ModelShape, options: AdapterOptions) -> Trained:
    """Rotations of each projection's inputs, dense once they are laid out."""
    return on_weights(model, options, Butterfly(options.block_size or BLOCK))
