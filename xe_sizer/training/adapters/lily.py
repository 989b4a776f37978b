"""Lily: low-rank adapters with shared second matrices that a router mixes (Zhong et al. 2024, arXiv:2407.09946)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.graph.parameters import adapted_weights, layer_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

STRIDE, SHARED = 1, 2  # published: layers that share an A, and matrices B (peft's defaults)


@frozen(eq=True)
class Routed(AdapterForm):
    """x A^T M beside x W^T, M a mixture of S = `SHARED` matrices by a softmax: elements = r (k + S).

    Source: peft (tuners/lily/layer.py, Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """A and the router [-]."""
        return self.rank * (k + SHARED)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The two products, the router's, and the mixture of the shared matrices."""
        yield from at.chain(self.rank)
        mixture, shares = self.rank * at.n * at.size, at.tokens * SHARED * at.size
        yield at.product("router", at.tokens, SHARED, self.rank)
        moved = (SHARED + 1.0) * mixture + 3.0 * shares
        yield at.kernels("mixture", moved, 2.0 * moved, (4.0, 5.0), mixture + shares, SHARED * mixture)
        yield at.sum()


@register("lily", label="Lily", settings=("lora",), rank=32)
def lily(model: ModelShape, options: AdapterOptions) -> Trained:
    """Every layer has an A; a projection's matrices B serve all layers."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = resolve_targets(model, options.lora_targets)
    outputs = sum(known[part].outputs for name in names for part in adapted_weights(name))
    return on_weights(model, options, Routed(options.lora_rank), added_parameters=SHARED * options.lora_rank * outputs)
