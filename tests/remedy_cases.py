"""Answers on 8 H100 that remedies are asked about, and what these propose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from cases import REGISTRY, ask
from msgspec.structs import replace

from xe_sizer.scenario.read import Change
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.search import size

# Llama 2 7B: 32 heads, 32 layers. Batches of 48 sequences of 4,096 tokens on 8 H100.
FIXED = {
    "stack": "megatron-lm", "gpus": 8, "train.seq_len": 4096, "train.global_batch": 48, "train.micro_batch": 6,
    "layout.tp": 1, "layout.pp": 1, "layout.dp": 8, "layout.zero": 1, "layout.recompute": "full",
}  # fmt: skip
ADAPTERS = {
    "job": "lora", "stack": "deepspeed", "gpus": 8, "layout.zero": 3, "lora.rank": 40, "lora.targets": ["all-linear"],
    "train.seq_len": 1024,
}  # fmt: skip
HIDDEN_AWAY = {**ADAPTERS, "layout.offload": "params+activations"}


def sized(flags: Mapping[str, object], **more: object) -> TrainingEstimate:
    asked = {"model": "llama-2-7b", "job": "sft", **flags, **more}
    return size(ask({key: value for key, value in asked.items() if value is not None}))


def with_layout(estimate: TrainingEstimate, **sizes: int) -> TrainingEstimate:
    """The estimate as if its layout had these sizes."""
    arrays = {name: np.array([value]) for name, value in sizes.items()}
    layouts = replace(estimate.layouts, **arrays)
    return replace(estimate, choice=replace(estimate.choice, evaluation=Evaluation(estimate.choice.job, layouts)))


def with_fixed(estimate: TrainingEstimate, **fixed: int) -> TrainingEstimate:
    return replace(estimate, resolved=replace(estimate.resolved, fixed=fixed))


def proposed(
    remedy: Callable[[TrainingEstimate, Any], Iterator[Change]], estimate: TrainingEstimate
) -> list[tuple[str, dict[str, object], int]]:
    return [(change.words, dict(change.values), change.effort) for change in remedy(estimate, REGISTRY)]
