"""Supervised fine-tuning under the names of what learns: LoRA, QLoRA, P-tuning."""

from __future__ import annotations

from xe_sizer.training.methods.full import sft
from xe_sizer.training.methods.method import TASK, register

register("lora", label="LoRA", evidence="sft", adapter="lora", lighter="qlora", reads=(TASK,))(sft)
register("qlora", label="QLoRA", evidence="sft", adapter="qlora", reads=(TASK,))(sft)
register("p-tuning", label="P-tuning", evidence="sft", adapter="p-tuning", reads=(TASK,))(sft)
