"""Measured figures as seconds, bytes and verdicts; expected numbers by hand."""

import numpy as np
import pytest

from xe_sizer.evidence.predict import predicted_peak_bytes
from xe_sizer.evidence.records import Measured, Record, Step, measured_oom, measured_peak_bytes, measured_step_s
from xe_sizer.training.memory import Ledger
from xe_sizer.units import GIB

STEP = Step(samples=128, micro_batches=4, tokens=2048.0, gpus=8, lengths_stated=True)


def seconds(**measured: float) -> float | None:
    found = measured_step_s(Record(id="r", job="sft", measured=Measured(**measured)), STEP, False)
    return found.value if found else None


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({"step_time_s": 6.12}, 6.12),
        ({"samples_per_s": 64.0}, 2.0),
        ({"minutes": 102.0, "steps": 1000}, 6.12),
        ({"seconds": 500.0, "steps": 100}, 5.0),
        ({"tokens_per_s_per_gpu": 4096.0}, 8.0),  # 128 x 2048 / (4096 x 8)
        ({"tokens_per_s_total": 32768.0}, 8.0),
        ({"minutes": 15.0, "rows": 52002, "epochs": 3}, 128 * 900 / 156006),
        ({"seconds": 100.0, "rows": 1280}, 10.0),
        ({"gpu_hours": 80.0, "tokens": 1e9}, 128 * 2048 * 288000 / (1e9 * 8)),
        ({"minutes": 90.0}, None),
        ({"peak_memory_gib": 40.0}, None),
    ],
)
def test_every_figure_becomes_seconds_of_a_step(measured: dict[str, float], expected: float | None) -> None:
    assert seconds(**measured) == pytest.approx(expected)


def test_a_stated_step_goes_before_a_derived_one() -> None:
    assert seconds(step_time_s=3.0, samples_per_s=1.0, minutes=90.0, steps=7) == 3.0


def test_steps_that_are_micro_batches_are_multiplied() -> None:
    record = Record(id="r", job="lora", measured=Measured(step_time_s=0.2))
    found = measured_step_s(record, STEP, True)
    assert found is not None
    assert found.value == pytest.approx(0.8)
    assert found.assumed


def test_rates_in_tokens_go_first_where_lengths_are_assumed() -> None:
    step = Step(samples=128, micro_batches=4, tokens=100.0, gpus=8, lengths_stated=False)
    record = Record(id="r", job="sft", measured=Measured(step_time_s=99.0, tokens_per_s_per_gpu=1600.0))
    found = measured_step_s(record, step, False)
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_memory_metrics() -> None:
    stated = measured_peak_bytes(Measured(peak_memory_gib=2.0, memory_metric="allocated"))
    assert stated is not None
    assert (stated[0].value, stated[1], stated[0].assumed) == (2 * GIB, "allocated", None)
    unstated = measured_peak_bytes(Measured(peak_memory_gib=2.0))
    assert unstated is not None
    assert unstated[1] == "unstated"
    assert "not stated" in (unstated[0].assumed or "")
    assert measured_peak_bytes(Measured(minutes=1.0)) is None


def test_each_metric_counts_its_part_of_the_ledger() -> None:
    sizes = {
        "weights": 10.0,
        "activations": 5.0,
        "library workspaces": 1.0,
        "allocator slack": 2.0,
        "CUDA context": 4.0,
        "NCCL buffers": 8.0,
    }
    ledger = Ledger({name: np.full((2, 3, 1), size) for name, size in sizes.items()}, np.zeros(1))
    found = [predicted_peak_bytes(ledger, metric) for metric in ("allocated", "reserved", "nvidia-smi")]
    assert found == [16.0, 18.0, 30.0]


@pytest.mark.parametrize(
    ("measured", "oom"),
    [
        (Measured(oom=True), True),
        (Measured(oom=False), False),
        (Measured(minutes=3.0), False),
        (Measured(peak_memory_gib=3.0), False),
        (Measured(fits=True), False),
        (Measured(steps=3.0), None),
    ],
)
def test_what_ran_did_fit(measured: Measured, oom: bool | None) -> None:
    assert measured_oom(measured) is oom
