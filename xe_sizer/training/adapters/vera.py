"""VeRA: vectors around random matrices that all layers share (Kopiczko et al. 2023, arXiv:2310.11454), and PVeRA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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

PROBABILISTIC = 2.0  # counted: means and variances of each rank


@frozen(eq=True)
class Shared(AdapterForm):
    """b * (d * (x A^T)) B^T beside x W^T: elements = n + r. A and B do not learn and belong to no layer.

    drawn : d has a mean and a variance for each rank, and the latent is drawn from them (PVeRA, arXiv:2512.07703):
    elements = n + 2 r
    Source: peft (tuners/vera/layer.py and tuners/pvera/layer.py, Linear.forward).
    """

    rank: int
    drawn: bool = False

    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Scales of the ranks and of the outputs [-]."""
        return n + self.rank * (PROBABILISTIC if self.drawn else 1.0)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Two products whose matrices have no gradient, and two scales, each of which keeps what it scales."""
        columns = self.rank * (PROBABILISTIC if self.drawn else 1.0)
        yield at.product("A", at.tokens, columns, at.k, learns=False)
        yield at.product("B", at.tokens, at.n, self.rank, learns=False)
        # Drawn: beside the scaled latent its deviation and what was drawn are kept.
        latent = columns + (2.0 * self.rank if self.drawn else 0.0)
        scaled = at.tokens * (at.n + latent) * at.size
        yield at.kernels("scales", 2.0 * scaled, 6.0 * scaled, (2.0, 6.0), scaled, at.tokens * at.n * 2.0 * at.size)
        yield at.sum()


def _shared_bytes(model: ModelShape, options: AdapterOptions, columns: float) -> float:
    """A and B as wide and as high as the largest weight needs, once in float32 [bytes]."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    names = [part for name in resolve_targets(model, options.lora_targets) for part in adapted_weights(name)]
    inputs, outputs = (max(getattr(known[name], side) for name in names) for side in ("inputs", "outputs"))
    return float(FLOAT32 * (columns * inputs + options.lora_rank * outputs))


@register("vera", label="VeRA", settings=("lora",), rank=256)
def vera(model: ModelShape, options: AdapterOptions) -> Trained:
    """Two vectors a weight."""
    form = Shared(options.lora_rank)
    return on_weights(model, options, form, added_bytes=_shared_bytes(model, options, options.lora_rank))


@register("pvera", label="PVeRA", settings=("lora",), rank=256)
def pvera(model: ModelShape, options: AdapterOptions) -> Trained:
    """VeRA with a latent that is drawn."""
    form = Shared(options.lora_rank, drawn=True)
    return on_weights(
        model, options, form, added_bytes=_shared_bytes(model, options, PROBABILISTIC * options.lora_rank)
    )
