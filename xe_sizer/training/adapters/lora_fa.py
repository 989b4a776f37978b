"""LoRA-FA: low-rank adapters whose first matrix stays as it was drawn (Zhang et al. 2023, arXiv:2308.03303)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.low_rank import LowRank
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@register("lora-fa", label="LoRA-FA", settings=("lora",))
def lora_fa(model: ModelShape, options: AdapterOptions) -> Trained:
    """B alone learns, so that nothing as wide as the input is kept."""
    return on_weights(model, options, LowRank(options.lora_rank, options.dora, freezes_first=True))
