"""MiSS: a matrix that is repeated over the inputs, also known as Bone (Kang and Yin 2024, arXiv:2409.15371)."""

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


@frozen(eq=True)
class Shards(AdapterForm):
    """The inputs' k / r shards are summed and multiplied with one matrix: elements = r n. The sum is kept.

    Source: peft (tuners/miss/layer.py, MissLinear.forward).
    """

    rank: int

    tensors = 1
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """One matrix [-]."""
        return self.rank * n

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """That matrix [-]."""
        return ((n, self.rank),)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The sum of the shards, the product, and the addition; the gradient is copied to every shard."""
        inputs, latent = at.tokens * at.k * at.size, at.tokens * self.rank * at.size
        yield at.kernels("shards", inputs + latent, 2.0 * inputs, (1.0, 1.0), 0.0, inputs)
        yield at.product("B", at.tokens, at.n, self.rank, latent)
        yield at.sum()


@register("miss", label="MiSS", settings=("lora",), rank=64, aliases=("bone",))
def miss(model: ModelShape, options: AdapterOptions) -> Trained:
    """One matrix of the rank for each weight."""
    return on_weights(model, options, Shards(options.lora_rank))
