"""Low-rank adapters on the weights of a layer (LoRA, Hu et al. 2021, arXiv:2106.09685): which there are, how large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.parameters import adapted_weights, layer_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.parameters import Weight


@frozen
class Adapter:
    """x A^T B^T beside x W^T: A has `rank` rows, B as many columns. W are the `members`, which share their input.

    magnitudes : the norm of each row of W + B A is an own parameter (DoRA, Liu et al. 2024, arXiv:2402.09353)
    """

    rank: int
    members: tuple[Weight, ...]
    magnitudes: bool = False

    @property
    def parameters(self) -> int:
        """Elements of A and B [-]: r (inputs + outputs), and as many magnitudes as outputs."""
        outputs = sum(weight.outputs for weight in self.members)
        return self.rank * (self.members[0].inputs + outputs) + outputs * int(self.magnitudes)

    def on_rank(self, tp: Array) -> Array:
        """Elements of A and B on a tensor-parallel rank.

            elements = r (inputs + outputs / s)       column-parallel: A is whole, B is split as the weight is, s <= tp
            elements = r (inputs / tp + outputs)      row-parallel: A is split, B is whole

        Parameters
        ----------
        tp : tensor-parallel ranks, shape (layout,) [-]

        Returns
        -------
        ndarray of float, shape (layout,) [-]

        Source: ParallelLinearAdapter of NeMo; LoRA (arXiv:2106.09685).
        """
        split, inputs = self.members[0].split, self.members[0].inputs
        held_inputs = inputs / tp if split == "row" else as_array(inputs)
        shards = [weight.output_shards(tp) if split == "column" else 1.0 for weight in self.members]
        held_outputs = sum(weight.outputs / part for weight, part in zip(self.members, shards, strict=True))
        return np.asarray(self.rank * (held_inputs + held_outputs) + held_outputs * float(self.magnitudes))


def adapters_on(weights: Iterable[Weight], ranks: Mapping[str, int], magnitudes: bool = False) -> Iterator[Adapter]:
    """The adapters on these weights. ranks : name of a weight, or of several kept as one matrix, to the rank [-]."""
    known = {weight.name: weight for weight in weights}
    for name, rank in ranks.items():
        members = tuple(known[part] for part in adapted_weights(name) if part in known)
        if members:
            yield Adapter(rank, members, magnitudes)


def model_adapters(
    model: ModelShape, ranks: Mapping[str, int], magnitudes: bool = False
) -> Iterator[tuple[int, Adapter]]:
    """The adapters of each kind of layer, with the number of layers of the kind."""
    for kind, layers in model.layer_kinds:
        for adapter in adapters_on(layer_weights(model, kind), ranks, magnitudes):
            yield layers, adapter
