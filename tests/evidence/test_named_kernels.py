"""Kernels that records name: in their own field, in that of fused kernels, and in the name of their framework."""

from __future__ import annotations

import pytest

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import Batch, Record
from xe_sizer.evidence.training_scenario import scenario_of


def flags(**fields: object) -> dict[str, object]:
    record = Record(
        id="one", job="sft", model="llama-2-7b", gpu="h100-sxm-80gb", gpus=8, seq_len=2048,
        batch=Batch(micro=1, total=8), **fields,
    )  # fmt: skip
    return dict(scenario_of(record, RecordRegistry()).flags)


@pytest.mark.parametrize(
    ("kernel", "attention", "fused"),
    [
        ("flash_attention2 + RMS kernel", "flash", ("norm",)),
        ("flash_attention2", "flash", ("eager-norm",)),
        ("flash_attention1.0.8", "flash", ("eager-norm",)),
        ("flash_attention2, no fused norm", "flash", ("eager-norm",)),
        ("own kernels", None, None),
    ],
)
def test_a_run_named_by_its_kernels(kernel: str, attention: str | None, fused: tuple[str, ...] | None) -> None:
    found = flags(kernel=kernel)
    assert found.get("attention") == attention
    assert found.get("train.fused_kernels") == fused


def test_what_is_stated_of_attention_wins() -> None:
    assert flags(kernel="flash_attention2", attention="sdpa")["attention"] == "sdpa"


@pytest.mark.parametrize(
    ("stack", "framework", "fused"),
    [
        ("axolotl", "axolotl 0.8 with Liger", ("liger",)),
        ("trl", "TRL, cut cross entropy", ("linear-cross-entropy",)),
        ("nemo-automodel", "automodel, liger", None),  # its modules are its own
        ("halo", "halo (pytorch fsdp2, liger)", ("liger",)),  # another stack stands in
    ],
)
def test_kernels_in_the_name_of_a_framework(stack: str, framework: str, fused: tuple[str, ...] | None) -> None:
    assert flags(stack=stack, framework=framework).get("train.fused_kernels") == fused
