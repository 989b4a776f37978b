"""Supervised fine-tuning under the names of what learns: LoRA, QLoRA, P-tuning."""

from __future__ import annotations

from xe_sizer.training.methods.full import sft
from xe_sizer.training.methods.method import register

register("lora", label="LoRA", evidence="sft", adapter="lora", lighter="qlora")(sft)
register("qlora", label="QLoRA", evidence="sft", adapter="qlora")(sft)
register("p-tuning", label="P-tuning", evidence="sft", adapter="p-tuning")(sft)
