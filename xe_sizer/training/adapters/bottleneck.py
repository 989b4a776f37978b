"""Bottleneck adapters behind attention and MLP.

Houlsby et al. 2019, arXiv:1902.00751; Pfeiffer et al. 2020, arXiv:2005.00247. LLM-Adapters (Hu et al. 2023,
arXiv:2304.01933) calls the same the series adapter.
"""

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


class Bottleneck(AdapterForm, eq=True):
    """y + relu(y A^T + a) B^T + b of the output y: elements = 2 r n + r + n. The output and the latent are kept.

    Source: adapters of AdapterHub (methods/bottleneck.py, Adapter.forward).
    """

    rank: int

    tensors = 4
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Both matrices and their biases [-]."""
        return 2 * self.rank * n + self.rank + n

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        return ((self.rank, n), (n, self.rank))

    def operators(self, at: Place) -> Iterator[Operator]:
        """The way down, the activation, the way up and the sum."""
        latent, outputs = at.tokens * self.rank * at.size, at.tokens * at.n * at.size
        yield at.product("A", at.tokens, self.rank, at.n, at.tokens * at.n * at.read_bytes)
        yield at.kernels("activation", 2.0 * latent, 3.0 * latent, (1.0, 1.0), latent, latent)
        yield at.product("B", at.tokens, at.n, self.rank, latent)
        cast = at.tokens * at.n * (at.size + at.element_bytes)
        yield at.kernels("sum", 2.0 * cast + 3.0 * outputs, 2.0 * cast + 3.0 * outputs, (3.0, 3.0), 0.0, 2.0 * outputs)


@register("houlsby", label="Houlsby", settings=("lora",), targets=("o", "down"), rank=64, aliases=("series-adapter",))
def houlsby(model: ModelShape, options: AdapterOptions) -> Trained:
    """Behind attention and behind the MLP."""
    return on_weights(model, options, Bottleneck(options.lora_rank))


@register("pfeiffer", label="Pfeiffer", settings=("lora",), targets=("down",), rank=64, aliases=("bottleneck",))
def pfeiffer(model: ModelShape, options: AdapterOptions) -> Trained:
    """Behind the MLP alone."""
    return on_weights(model, options, Bottleneck(options.lora_rank))
