"""Parts of a model beside its layers, an encoder of images or its projector, each of which learns by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import adapters_on

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Learning
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weight import Weight

WeightGroups = tuple[tuple[float, tuple["Weight", ...]], ...]
"""How often a group of weights exists [-], and its weights."""


GENERATOR = "generator"
"""Name of the part that replaces tokens for the model."""


@frozen
class Part:
    """A part of a model on the first stage of a pipeline.

    name : as scenarios freeze it; groups : its weights; learning : what of it learns
    split : tensor-parallel ranks share its weights as they share those of the layers; else each has all of them
    """

    name: str
    groups: WeightGroups
    learning: Learning
    split: bool = False

    @property
    def parameters(self) -> int:
        """Parameters without adapters [-]."""
        return int(sum(count * weight.parameters for count, weights in self.groups for weight in weights))

    @property
    def learns(self) -> bool:
        """Whether anything of it gets a gradient."""
        return self.learning.base or self.adapter_parameters > 0

    @property
    def adapter_parameters(self) -> int:
        """Parameters of its adapters [-]."""
        learning = self.learning
        found = (
            (count, adapter) for count, weights in self.groups for adapter in adapters_on(weights, learning.adapters)
        )
        return int(sum(count * adapter.parameters for count, adapter in found))

    @property
    def learning_parameters(self) -> int:
        """Parameters that get a gradient [-]."""
        return (self.parameters if self.learning.base else 0) + self.adapter_parameters

    def matrices_on_rank(self, tp: Array) -> Array:
        """Elements of matrices on a tensor-parallel rank, shape (layout,) [-]."""
        return self._on_rank(tp, ("linear",))

    def others_on_rank(self, tp: Array) -> Array:
        """Elements of norms, tables and other vectors on a tensor-parallel rank, shape (layout,) [-]."""
        return self._on_rank(tp, ("vector", "embedding"))

    def adapters_on_rank(self, tp: Array) -> Array:
        """Elements of adapters on a tensor-parallel rank, shape (layout,) [-]."""
        ranks, learning = self._ranks(tp), self.learning
        held = [
            count * adapter.on_rank(ranks)
            for count, weights in self.groups
            for adapter in adapters_on(weights, learning.adapters)
        ]
        return np.asarray(np.sum([np.zeros_like(ranks), *held], axis=0))

    def _ranks(self, tp: Array) -> Array:
        return np.asarray(tp, dtype=float) if self.split else np.ones(np.shape(tp))

    def _on_rank(self, tp: Array, kinds: Iterable[str]) -> Array:
        ranks = self._ranks(tp)
        held = [
            count * weight.on_rank(weight.matrix_elements, weight.bias_elements, ranks, np.ones_like(ranks))
            for count, weights in self.groups
            for weight in weights
            if weight.kind in kinds
        ]
        return np.asarray(np.sum([np.zeros_like(ranks), *held], axis=0))
