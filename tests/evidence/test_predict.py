"""Published runs of encoders and encoder-decoders that ship: all are predicted, and how far off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xe_sizer
from xe_sizer.errors import Location
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record, seconds_at_peak, validate
from xe_sizer.evidence.records import Batch, Lora, Measured, Record, read_records, records_of
from xe_sizer.training.job import Job

RECORDS = Path(xe_sizer.__file__).parent / "evidence" / "data" / "encoders.jsonl"


def test_none_is_left_out_and_the_times_are_near() -> None:
    """74 runs of BERT, BART and ELECTRA from four publications."""
    records = read_records(RECORDS).records
    found = validate(records, ("step_time",))
    assert (len(records), len(found.skipped)) == (74, 0)
    errors = [abs(one.ratio - 1.0) for one in found.records if one.ratio is not None]
    assert np.median(errors) < 0.12


# NVIDIA's published runs that pre-train ELECTRA base: a step without its generator comes out a third short.

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


# Seconds at the peak: FLOPs of the parameters that a token meets, by hand.

PEAK = 312e12  # of an A100 in bf16
PARAMETERS = 6_738_415_616  # of Llama 2 7B, as its publication's checkpoint counts them
ACTIVE = 12_879_925_248  # of Mixtral 8x7B, two of eight experts


def job(kind: str, model: str) -> Job:
    record = Record(
        id="r", job=kind, model=model, gpu="a100-sxm-80gb", gpus=8, batch=Batch(micro=1, total=64), seq_len=2048,
        precision="bf16", lora=Lora(rank=8), measured=Measured(step_time_s=1.0),
    )  # fmt: skip
    return predict_record(record, RecordRegistry()).sized.resolved.job


@pytest.mark.parametrize(
    ("kind", "model", "passes", "parameters"),
    [
        ("pretrain", "llama-2-7b", 6, PARAMETERS),
        ("lora", "llama-2-7b", 4, PARAMETERS),
        ("sft", "mixtral-8x7b", 6, ACTIVE),
    ],
)
def test_flops_of_the_parameters_over_the_peak(kind: str, model: str, passes: int, parameters: int) -> None:
    expected = passes * parameters * 64 * 2048 / (PEAK * 8)
    assert seconds_at_peak(job(kind, model), 8, 2048.0) == pytest.approx(expected, rel=1e-6)
