"""Low-rank adapters from a bank of vectors: VB-LoRA (Li et al. 2024, arXiv:2405.15179), Uni-LoRA (arXiv:2506.00799)."""

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

# Published: vectors of the bank, their length, and how many of them each piece mixes (peft's defaults).
VECTORS, LENGTH, CHOSEN = 256, 256, 2
THETA = 256  # published: numbers of Uni-LoRA (peft's default)
INDEX_AND_SCALE = 12.0  # published: bytes of an element's place in the bank, and of its scale (peft, unilora/layer.py)


@frozen(eq=True)
class Mixed(AdapterForm):
    """A and B of pieces, each a mixture of the `CHOSEN` vectors with the largest logits: elements = r (k + n) N / b.

    The vectors that are mixed are kept, and the matrices that they make.
    Source: peft (tuners/vblora/layer.py, _get_lora_matrices).
    """

    rank: int
    length: int

    def elements(self, n: Size, k: Size) -> Size:
        """Logits over the vectors for each piece [-]."""
        return self.rank * (k + n) * VECTORS / self.length

    def operators(self, at: Place) -> Iterator[Operator]:
        """The choice and the mixture, and the products of a low-rank adapter."""
        factors = self.rank * (at.n + at.k) * at.size
        logits, mixed = factors * VECTORS / self.length, CHOSEN * factors
        yield at.kernels(
            "mixture", logits + 4.0 * mixed, 2.0 * logits + 6.0 * mixed, (12.0, 16.0), mixed + factors, logits
        )
        yield from at.chain(self.rank)
        yield at.sum()


@frozen(eq=True)
class Looked(AdapterForm):
    """A and B whose elements are looked up among `THETA` numbers and scaled: elements = 0 beside what all share.

    Source: peft (tuners/unilora/layer.py, Linear.forward).
    """

    rank: int

    tensors = 0

    def elements(self, n: Size, k: Size) -> Size:
        """None of a weight's own [-]."""
        return 0.0 * n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Where each element is, and its scale [bytes]."""
        return INDEX_AND_SCALE * self.rank * (n + k)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The lookup and the scale of both matrices, which are kept, and their products."""
        factors = self.rank * (at.n + at.k) * at.size
        yield at.kernels("lookup", 7.0 * factors, 7.0 * factors, (4.0, 7.0), factors, factors)
        yield from at.chain(self.rank)
        yield at.sum()


@register("vblora", label="VB-LoRA", settings=("lora",), rank=4, aliases=("vb-lora",))
def vblora(model: ModelShape, options: AdapterOptions) -> Trained:
    """One bank for all layers."""
    length = options.block_size or LENGTH
    return on_weights(model, options, Mixed(options.lora_rank, length), added_parameters=VECTORS * length)


@register("unilora", label="Uni-LoRA", settings=("lora",), rank=4, aliases=("uni-lora",))
def unilora(model: ModelShape, options: AdapterOptions) -> Trained:
    """A few numbers for all layers."""
    return on_weights(model, options, Looked(options.lora_rank), added_parameters=options.frequencies or THETA)
