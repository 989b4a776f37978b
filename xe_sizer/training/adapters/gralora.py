"""GraLoRA: low-rank adapters on each of several blocks of a weight (Jung et al. 2025, arXiv:2505.20355)."""

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

BLOCKS = 2  # published: blocks along each side (peft's default)


@frozen(eq=True)
class Granular(AdapterForm):
    """g blocks of k / g inputs to the rank, exchanged, g blocks of the rank to n / g outputs: elements = r (k + n).

    Source: peft (tuners/gralora/layer.py, Linear.forward).
    """

    rank: int
    blocks: int

    def elements(self, n: Size, k: Size) -> Size:
        """All blocks of A and of B [-]."""
        return self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Two products for each block, and the copies that lay the blocks anew."""
        parts, latent = float(self.blocks), at.tokens * self.rank * self.blocks * at.size
        yield at.product("A", at.tokens, self.rank, at.k / parts, at.input_bytes, copies=parts)
        yield at.product("B", at.tokens, at.n / parts, self.rank, latent, copies=parts)
        outputs, inputs = at.tokens * at.n * at.size, at.tokens * at.k * at.size
        yield at.kernels("exchange", 2.0 * (latent + outputs), 2.0 * (latent + inputs), (2.0, 2.0), 0.0, outputs)
        yield at.sum()


@register("gralora", label="GraLoRA", settings=("lora",), rank=32)
def gralora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Two blocks along each side, or as many as fit `block_size`."""
    return on_weights(model, options, Granular(options.lora_rank, options.block_size or BLOCKS))
