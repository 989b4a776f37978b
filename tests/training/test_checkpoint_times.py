"""Checkpoints, evaluations and failures of a run: sizes and times by hand."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from cases import job, layouts
from msgspec.structs import replace

from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job, Pauses
from xe_sizer.training.run import Run, best_interval_s, checkpoint, run_parts, run_time_s, time_with_failures_s
from xe_sizer.training.step_time import timeline

LLAMA_2_7B = 6_738_415_616


def parts(made: Job, step_s: float = 10.0, pauses: Pauses | None = None, **sizes: object) -> dict[str, float]:
    run = Run(Evaluation(replace(made, pauses=pauses or made.pauses), layouts(**sizes)), np.array([step_s]))
    return {name: float(value[0]) for name, value in run_parts(run).items()}


def test_mixed_precision_saves_fourteen_bytes_a_parameter() -> None:
    """16-bit weights; float32 masters and two moments. However the ranks share them."""
    made = job(stack="nemo")
    for sizes in ({}, {"tp": 4, "pp": 2, "dp": 2, "zero": 1}):
        saved = checkpoint(Evaluation(made, layouts(**sizes)))
        assert saved.weights[0] == 2 * LLAMA_2_7B
        assert saved.optimizer[0] == 12 * LLAMA_2_7B


def test_adapters_are_saved_alone() -> None:
    """Rank 16 on four square projections of 32 layers, float32 with two moments: 12 bytes each."""
    made = job(kind="lora", stack="hf-trainer", lora__rank=16)
    adapters = 32 * 4 * 16 * (4096 + 4096)
    assert made.stack.states.adapter_weight_bytes == 4.0
    assert checkpoint(Evaluation(made, layouts())).size[0] == 12 * adapters


def test_a_copy_is_shared_by_the_gpus_and_a_write_by_the_storage() -> None:
    """8 GPUs are one node, which writes 2 GB/s unless the storage is known."""
    made, size = job(stack="nemo"), 14 * LLAMA_2_7B
    saved = checkpoint(Evaluation(made, layouts(dp=8, zero=1)))
    assert saved.write_s[0] == pytest.approx(size / 2e9)
    assert saved.copy_s[0] == pytest.approx(size / 8 / (made.server.pcie_bytes_per_s * 0.88))
    two_nodes = checkpoint(Evaluation(made, layouts(dp=16, zero=1)))
    assert two_nodes.write_s[0] == pytest.approx(size / 4e9)
    known = replace(made, pauses=Pauses(write_bytes_per_s=1e10))
    assert checkpoint(Evaluation(known, layouts(dp=16, zero=1))).write_s[0] == pytest.approx(size / 1e10)


def test_training_waits_for_every_checkpoint_and_the_last_step_is_saved() -> None:
    """25 steps, one checkpoint every 10: after 10, 20 and 25."""
    made = replace(job(stack="nemo"), steps=25)
    saved = checkpoint(Evaluation(made, layouts()))
    found = parts(made, pauses=Pauses(checkpoint_every=10))
    assert found["steps"] == pytest.approx(250.0)
    assert found["checkpoints"] == pytest.approx(3 * (saved.copy_s[0] + saved.write_s[0]))
    assert found["evaluation"] == found["failures"] == 0.0


def test_an_asynchronous_checkpoint_stops_training_for_its_copy_and_for_the_one_before() -> None:
    """14 B x 6.74 billion at 2 GB/s are 47.2 s: hidden behind 10 steps of 10 s, not behind 10 of 3 s."""
    made = replace(job(stack="nemo"), steps=30)
    saved = checkpoint(Evaluation(made, layouts()))
    copy_s, write_s = saved.copy_s[0], 14 * LLAMA_2_7B / 2e9
    pauses = Pauses(checkpoint_every=10, asynchronous=True)
    assert parts(made, 10.0, pauses)["checkpoints"] == pytest.approx(3 * copy_s + write_s)
    assert parts(made, 3.0, pauses)["checkpoints"] == pytest.approx(3 * copy_s + 2 * (write_s - 30.0) + write_s)


def test_an_evaluation_is_the_forward_of_its_samples() -> None:
    """1,000 samples in micro-batches of 2 on 4 replicas are 125 passes; 4 evaluations in 100 steps."""
    made = replace(job(stack="generic", train__seq_len=1024), steps=100)
    pauses = Pauses(evaluate_every=25, evaluated_samples=1000)
    shape = {"dp": 4, "micro_batch": 2, "grad_accum": 4}
    line = timeline(made, layouts(**shape))
    forward_s = float(line.components["forward"][0]) / 4
    host_s = float(line.components["host waits"][0]) if "host waits" in line.components else 0.0
    assert host_s == 0.0
    assert parts(made, pauses=pauses, **shape)["evaluation"] == pytest.approx(4 * 125 * forward_s, rel=0.02)


def test_a_pipeline_fills_once_in_an_evaluation() -> None:
    """As many passes again as stages but one: 8 and 3 on 4 stages, against 800 and 3."""
    made = replace(job(stack="nemo", train__seq_len=1024), steps=1)
    few, many = (
        parts(made, pauses=Pauses(evaluate_every=1, evaluated_samples=samples), pp=4)["evaluation"]
        for samples in (8, 800)
    )
    assert many / few == pytest.approx(803 / 11)


def test_young_and_dalys_interval() -> None:
    """d = 100 s, M = 10,000 s: 1,414.2 (1 + 0.02357 + 0.00056) - 100; and M where a pause takes longer than that."""
    assert best_interval_s(100.0, 10_000.0) == pytest.approx(1348.33, abs=0.01)
    assert best_interval_s(100.0, 40.0) == 40.0


def test_the_interval_loses_least() -> None:
    """Against all intervals on a grid, with the expected time of a segment."""
    work = np.linspace(200.0, 5_000.0, 4801)
    lost = time_with_failures_s(work + 100.0, 300.0, 10_000.0) / work
    assert work[np.argmin(lost)] == pytest.approx(float(best_interval_s(100.0, 10_000.0)), rel=0.01)


def test_what_failures_make_of_a_segment() -> None:
    assert time_with_failures_s(1000.0, 100.0, 10_000.0) == pytest.approx(10_000 * exp(0.01) * (exp(0.1) - 1))
    assert np.isfinite(time_with_failures_s(1e9, 1e9, 1.0))


def test_a_run_with_failures_saves_as_often_as_loses_least() -> None:
    """8 GPUs at 0.1 a GPU and day fail every 108,000 s."""
    made = replace(job(stack="nemo"), steps=5000)
    asked = Pauses(failures_per_gpu_day=0.1)
    run = Run(Evaluation(replace(made, pauses=asked), layouts(dp=8, zero=1)), np.array([10.0]))
    assert run.mtbf_s[0] == pytest.approx(108_000.0)
    pause_s = float(checkpoint(Evaluation(made, layouts(dp=8, zero=1))).whole_s[0])
    assert run.every[0] == round(float(best_interval_s(pause_s, 108_000.0)) / 10.0)
    chosen = float(run_time_s(run)[0])
    for every in (50, 2000):
        other = replace(made, pauses=replace(asked, checkpoint_every=every))
        assert float(run_time_s(Run(Evaluation(other, run.layouts), run.step_s))[0]) > chosen


def test_a_run_without_pauses_is_its_steps() -> None:
    made = replace(job(), steps=7)
    assert run_time_s(Run(Evaluation(made, layouts()), np.array([3.0])))[0] == 21.0
