"""Seconds at the peak: FLOPs of the parameters that a token meets, by hand."""

import pytest

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record, seconds_at_peak
from xe_sizer.evidence.records import Batch, Lora, Measured, Record
from xe_sizer.training.job import Job

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
