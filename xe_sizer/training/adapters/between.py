"""Few numbers between frozen low-rank matrices: TinyLoRA (arXiv:2602.04118), PSOFT (arXiv:2505.11235)."""

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

TINY = 64  # published: numbers of each weight (peft's default)
SOLVES = 5.0  # counted: r by r matrices of a rotation's equations that are kept


@frozen(eq=True)
class Between(AdapterForm):
    """x A^T M B^T beside x W^T: A and B are the weight's own singular directions and do not learn; M (r by r) is made.

    tiny : M is a sum of `TINY` random matrices with scales that learn: elements = 64
    else : M is a rotation between two scales: elements = r (r - 1) / 2 + 2 r
    Source: peft (tuners/tinylora/layer.py and tuners/psoft/layer.py, Linear.forward).
    """

    rank: int
    tiny: bool

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Numbers that M is made of [-]."""
        own = TINY if self.tiny else self.rank * (self.rank - 1) / 2 + 2 * self.rank
        return own + 0.0 * n

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """A, B and the random matrices in float32 [bytes]."""
        return FLOAT32 * (self.rank * (n + k) + (TINY * self.rank * self.rank if self.tiny else 0.0))

    def operators(self, at: Place) -> Iterator[Operator]:
        """Three products of the tokens, of which the middle one's matrix alone has a gradient."""
        rank, square = float(self.rank), float(self.rank * self.rank) * at.size
        solved = 0.0 if self.tiny else SOLVES
        yield at.kernels("made", 20.0 * square, 30.0 * square, (10.0, 16.0), solved * square)
        yield at.product("A", at.tokens, rank, at.k, learns=False)
        yield at.product("M", at.tokens, rank, rank, at.tokens * rank * at.size, computed_bytes=square)
        yield at.product("B", at.tokens, at.n, rank, learns=False)
        yield at.sum()


@register("tinylora", label="TinyLoRA", settings=("lora",), rank=2)
def tinylora(model: ModelShape, options: AdapterOptions) -> Trained:
    """64 numbers a weight."""
    return on_weights(model, options, Between(options.lora_rank, tiny=True))


@register("psoft", label="PSOFT", settings=("lora",), rank=32)
def psoft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A rotation inside the weight's largest directions."""
    return on_weights(model, options, Between(options.lora_rank, tiny=False))
