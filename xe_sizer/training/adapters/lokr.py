"""LoKr: a Kronecker product of a small matrix and a low-rank one (Edalati et al. 2022, arXiv:2212.10650; LyCORIS)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


def factors(size: int) -> tuple[int, int]:
    """The divisors of a size that multiply to it and differ least, the smaller first; 1 and itself of a prime [-]."""
    small = next(each for each in range(int(size**0.5), 0, -1) if size % each == 0)
    return small, size // small


@frozen(eq=True)
class Kronecker(AdapterForm):
    """D = C (x) (B A), x D^T beside x W^T. n = n1 n2, k = k1 k2, as even as they divide; C is n1 by k1.

        elements = n1 k1 + r (n2 + k2)      n1 k1 + n2 k2 where r >= max(n2, k2) / 2

    Source: peft (tuners/lokr/layer.py, LoKrLayer.update_layer and get_delta_weight; lycoris_utils.py, factorization).
    """

    rank: int

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """C, and the low-rank factors of the other matrix or itself [-]."""
        return np.vectorize(self._elements, otypes=[float])(n, k)  # type: ignore[no-any-return]

    def _elements(self, n: float, k: float) -> float:
        (n1, n2), (k1, k2) = factors(round(n)), factors(round(k))
        return n1 * k1 + (self.rank * (n2 + k2) if self.rank < max(n2, k2) / 2 else n2 * k2)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The outer product and its scale; backward, two products with D's gradient and their sums."""
        weight = at.n * at.k * at.size
        yield at.kernels("made", 3.0 * weight, 10.0 * weight, (3.0, 7.0), temporary_bytes=3.0 * weight)
        yield from at.delta()


@register("lokr", label="LoKr", settings=("lora",))
def lokr(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight from very few parameters."""
    return on_weights(model, options, Kronecker(options.lora_rank))
