"""Polytropon: low-rank adapters mixed from an inventory of skills (Ponti et al. 2022, arXiv:2202.13914)."""

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

TASKS, SKILLS = 1, 4  # published: peft's defaults


@frozen(eq=True)
class Skilled(AdapterForm):
    """x A^T B^T, A and B mixtures of `SKILLS` for each sequence: elements = skills r (k + n) + tasks skills.

    Source: peft (tuners/poly/layer.py, Linear.forward).
    """

    rank: int

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """Every skill's A and B, and the tasks' logits over them [-]."""
        return SKILLS * self.rank * (k + n) + TASKS * SKILLS

    def operators(self, at: Place) -> Iterator[Operator]:
        """The mixtures, which are kept for every sequence, and the products with them."""
        batch = at.block.inputs.rank.batch
        mixed = batch * self.rank * (at.n + at.k) * at.size
        yield at.kernels("mixture", 2.0 * SKILLS * mixed, 3.0 * SKILLS * mixed, (6.0, 12.0), mixed, mixed)
        yield from at.chain(self.rank)
        yield at.sum()


@register("poly", label="Polytropon", settings=("lora",), rank=8, aliases=("polytropon",))
def poly(model: ModelShape, options: AdapterOptions) -> Trained:
    """Four skills, one task."""
    return on_weights(model, options, Skilled(options.lora_rank))
