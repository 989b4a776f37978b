"""RoAd: pairs of outputs turned and scaled (Liao and Monz 2024, arXiv:2409.00119)."""

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
class Turned(AdapterForm):
    """y_i a cos(t) - y_j a sin(t) of each pair of outputs: elements = n. Two float32 copies of the output are kept.

    Source: peft (tuners/road/layer.py, Linear.forward and _apply_road).
    """

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """An angle and a scale for each pair [-]."""
        return n

    def operators(self, at: Place) -> Iterator[Operator]:
        """Cast, the turned pairs, two products and a sum, cast; backward, both products' gradients and their sum."""
        outputs, cast = at.tokens * at.n * at.size, at.tokens * at.n * (at.size + at.element_bytes)
        yield at.kernels(
            "turned",
            2.0 * cast + 11.0 * outputs,
            2.0 * cast + 24.0 * outputs,
            (12.0, 26.0),
            2.0 * outputs,
            4.0 * outputs,
        )


@register("road", label="RoAd", settings=("lora",))
def road(model: ModelShape, options: AdapterOptions) -> Trained:
    """One angle and one scale for each pair of outputs (road_1)."""
    return on_weights(model, options, Turned())
