"""DoRA: low-rank adapters with the norm of each output's weights apart (Liu et al. 2024, arXiv:2402.09353)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.low_rank import LowRank
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@register("dora", label="DoRA", settings=("lora",), lighter="lora", aliases=("qdora",))
def dora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Low-rank adapters as with `lora.dora`."""
    return on_weights(model, options, LowRank(options.lora_rank, magnitudes=True))
