"""RandLoRA: a full-rank sum of random low-rank matrices with learnt scales (Albert et al. 2025, arXiv:2502.00987)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.graph.parameters import adapted_weights, layer_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@frozen(eq=True)
class RandomBases(AdapterForm):
    """x (M B)^T beside x W^T. m = min(n, k): B (m by max) is random and shared, M (m by m) made of m / r scaled bases.

        elements = ceil(m / r) (r + m)

    Source: peft (tuners/randlora/layer.py, get_scaled_bases and Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """Scales of each base: one a rank, and one a column [-]."""
        smaller = np.minimum(n, k)
        return np.ceil(smaller / self.rank) * (self.rank + smaller)  # type: ignore[no-any-return]

    def operators(self, at: Place) -> Iterator[Operator]:
        """The bases scaled twice, a product with what is drawn and one with what is made of what learns."""
        smaller, larger = np.minimum(at.n, at.k), np.maximum(at.n, at.k)
        made, kept = smaller**2 * at.size, at.tokens * smaller * at.size
        yield at.kernels("bases", 4.0 * made, 10.0 * made, (2.0, 6.0), temporary_bytes=3.0 * made)
        yield at.product("drawn", at.tokens, smaller, larger, learns=False)
        yield at.product("made", at.tokens, smaller, smaller, kept, computed_bytes=made)
        yield at.sum()


@register("randlora", label="RandLoRA", settings=("lora",), rank=32)
def randlora(model: ModelShape, options: AdapterOptions) -> Trained:
    """The random bases are as large as the largest weight, once in float32."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = [part for name in resolve_targets(model, options.lora_targets) for part in adapted_weights(name)]
    larger = max(max(known[name].inputs, known[name].outputs) for name in names)
    smaller = max(min(known[name].inputs, known[name].outputs) for name in names)
    shared = FLOAT32 * smaller * (larger + options.lora_rank)
    return on_weights(model, options, RandomBases(options.lora_rank), added_bytes=shared)
