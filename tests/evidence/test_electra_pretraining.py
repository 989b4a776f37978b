"""NVIDIA's published runs that pre-train ELECTRA base: a step without its generator comes out a third short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from xe_sizer.errors import Location
from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import records_of

# NVIDIA DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA/README.md, "Training performance results":
# GPUs, sequences per GPU, accumulation, sequence length, sequences per second.
RUNS = {
    ("a100-sxm-40gb", 8, "tf32"): (
        (1, 88, 768, 128, 533), (8, 88, 96, 128, 4202), (1, 12, 2304, 512, 90), (8, 12, 288, 512, 716),
    ),
    ("a100-sxm-40gb", 8, "fp16"): (
        (1, 176, 384, 128, 955), (8, 176, 48, 128, 7512), (1, 24, 1152, 512, 171), (8, 24, 144, 512, 1347),
    ),
    ("v100-sxm-16gb", 8, "fp32"): (
        (1, 40, 1689, 128, 116), (8, 40, 211, 128, 920), (1, 6, 4608, 512, 24), (8, 6, 576, 512, 190),
    ),
    ("v100-sxm-16gb", 8, "fp16"): (
        (1, 88, 768, 128, 444), (8, 88, 96, 128, 3475), (1, 12, 2304, 512, 84), (8, 12, 288, 512, 656),
    ),
    ("v100-sxm-32gb", 16, "fp32"): (
        (1, 88, 768, 128, 128), (8, 88, 96, 128, 1011), (16, 88, 48, 128, 2018),
        (1, 12, 2304, 512, 27), (8, 12, 288, 512, 213), (16, 12, 144, 512, 426),
    ),
    ("v100-sxm-32gb", 16, "fp16"): (
        (1, 176, 384, 128, 500), (8, 176, 48, 128, 3916), (16, 176, 24, 128, 7773),
        (1, 24, 1152, 512, 96), (8, 24, 144, 512, 754), (16, 24, 72, 512, 1506),
    ),
}  # fmt: skip


def records() -> Iterator[dict[str, Any]]:
    for (gpu, gpus_per_node, precision), runs in RUNS.items():
        for gpus, micro, accum, seq_len, per_s in runs:
            yield {
                "id": f"{gpu} {precision} {gpus}x s{seq_len}", "source": {"title": "NVIDIA DeepLearningExamples"},
                "job": "pretrain", "stack": "nvidia-electra", "model": "electra-base-discriminator", "gpu": gpu,
                "gpus": gpus, "gpus_per_node": gpus_per_node, "precision": precision,
                "layout": {"dp": gpus, "zero": 0},
                "batch": {"micro": micro, "grad_accum": accum, "global": gpus * micro * accum}, "seq_len": seq_len,
                "attention": "eager", "recompute": "none", "optimizer": "lamb", "measured": {"samples_per_s": per_s},
            }  # fmt: skip


def test_times_are_near_in_both_precisions_and_lengths() -> None:
    """A third too short or more before there was a generator: the median run was predicted at 0.68 of its time."""
    read = records_of(records(), Location("runs"))
    found = validate(read.records, ("step_time",))
    assert (len(found.records), len(found.skipped)) == (28, 0)
    ratios = np.array([one.predicted / one.measured for one in found.records])
    assert 0.85 < np.median(ratios) < 1.1
    assert ratios.min() > 0.8
    assert ratios.max() < 1.3
