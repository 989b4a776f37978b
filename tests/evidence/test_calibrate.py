"""A stack fitted to runs: known factors are found again, unknown ones stay, strays are not followed."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import ask
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.evidence.calibrate import (
    FACTORS,
    Calibration,
    calibrate,
    error_of_new_runs,
    fit_memory,
    left_out_residuals,
    robust,
    shrinkage,
    student_tail,
)
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record
from xe_sizer.evidence.records import Batch, LayoutStated, Measured, Record
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import default_name
from xe_sizer.training.device import build_device
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline

SLOWER_MATMUL = 0.7


def record(place: int, seq_len: int, micro: int, gpus: int) -> Record:
    return Record(
        id=f"run-{place}", job="pretrain", stack="megatron-lm", model="llama-2-7b", gpu="h100-sxm-80gb", gpus=gpus,
        gpus_per_node=8, precision="bf16", layout=LayoutStated(tp=gpus, pp=1, dp=1, zero=0),
        batch=Batch(micro=micro, total=16), seq_len=seq_len, recompute="full", attention="flash",
        measured=Measured(step_time_s=1.0),
    )  # fmt: skip


def on_a_slower_cluster(plain: Record) -> Record:
    """The record with the time of a stack whose matrix products reach 0.7 of the parent's rate."""
    predicted = predict_record(plain, RecordRegistry()).sized
    job = predicted.resolved.job
    slower = msgspec.structs.replace(job.stack.efficiency, matmul=SLOWER_MATMUL)
    stack = msgspec.structs.replace(job.stack, efficiency=slower)
    device = build_device(job.server.accelerator, stack, job.method, job.precision, predicted.resolved.efficiency)
    step_s = float(timeline(replace(job, stack=stack, device=device), predicted.layouts).step_s[0])
    return msgspec.structs.replace(plain, measured=Measured(step_time_s=step_s))


RUNS = [
    on_a_slower_cluster(record(place, seq_len, micro, gpus))
    for place, (seq_len, micro, gpus) in enumerate(
        (length, size, cards) for length in (512, 2048, 8192) for size in (1, 4) for cards in (1, 4)
    )
]


def factor(found: Calibration, name: str) -> float:
    return next(one.value for one in found.factors if one.name == name)


def test_a_known_factor_is_found_again() -> None:
    found = calibrate(RUNS, "megatron-lm", "ours")
    assert factor(found, "matmul") == pytest.approx(SLOWER_MATMUL, rel=0.05)
    assert found.after < 0.02 < found.before
    assert found.left_out < 0.03
    assert found.parts == len(RUNS)
    assert found.stack.efficiency.matmul == pytest.approx(factor(found, "matmul"))
    assert (found.stack.name, found.stack.parent) == ("ours", "megatron-lm")


def test_one_wild_run_does_not_matter() -> None:
    wild = msgspec.structs.replace(RUNS[0], id="wild", measured=Measured(step_time_s=60.0))
    assert factor(calibrate([*RUNS, wild], "megatron-lm", "ours"), "matmul") == pytest.approx(SLOWER_MATMUL, rel=0.08)


def test_what_no_run_determines_stays() -> None:
    """One GPU says nothing about collectives; its standard error is that of the prior."""
    alone = [run for run in RUNS if run.gpus == 1]
    found = calibrate(alone, "megatron-lm", "ours")
    collectives = next(one for one in found.factors if one.name == "collectives")
    assert collectives.value == pytest.approx(1)
    assert collectives.error == pytest.approx(np.expm1(0.35))
    assert [one.name for one in found.factors] == list(FACTORS)


def test_the_range_narrows_with_different_runs_and_not_with_repeats() -> None:
    few = calibrate(RUNS[:4], "megatron-lm", "ours")
    repeated = calibrate([*RUNS[:4], *RUNS[:4]], "megatron-lm", "ours")
    all_of_them = calibrate(RUNS, "megatron-lm", "ours")
    assert few.stack.uncertainty > 0.13, "four runs that agree say little about a fifth"
    assert repeated.parts == 4
    assert repeated.stack.uncertainty == pytest.approx(few.stack.uncertainty, rel=0.1)
    assert all_of_them.stack.uncertainty < 0.7 * few.stack.uncertainty


def renamed(run: Record, stack: str | None, framework: str | None = None) -> Record:
    return msgspec.structs.replace(run, stack=stack, framework=framework)


def test_the_fit_starts_from_the_stack_and_release_that_the_records_name() -> None:
    runs = [renamed(run, "hf-trainer", "transformers 4.36") for run in RUNS if run.gpus == 1]
    other = renamed(RUNS[1], "megatron-lm")
    found = calibrate([other, *runs], None, "ours")
    assert (found.parent, found.stack.parent) == ("hf-trainer@4.36", "hf-trainer@4.36")
    assert found.skipped == ((other.id, "runs on megatron-lm, which --stack megatron-lm fits"),)
    assert found.stack.kernels == load_stack("hf-trainer@4.36").kernels
    newest = calibrate(runs, "hf-trainer@5.0", "ours")
    assert newest.parent == "hf-trainer@5.0"
    assert newest.before != pytest.approx(found.before), "the release that is asked for, not that of the records"


def test_records_that_name_nothing_start_from_the_usual_stack() -> None:
    found = calibrate([renamed(run, None) for run in RUNS if run.gpus == 1], None, "ours")
    assert found.parent == default_name("stack")


def test_what_is_guessed_is_not_fitted() -> None:
    guessed = msgspec.structs.replace(RUNS[0], id="guessed", seq_len=None, batch=Batch())
    found = calibrate([*RUNS, guessed], "megatron-lm", "ours")
    assert found.skipped == (("guessed", "lengths, batch or the number of GPUs are not stated"),)


def test_a_file_of_ones_own_is_no_start(tmp_path: Path) -> None:
    own = tmp_path / "ours.yaml"
    own.write_text("name: ours\nparent: generic\ndescribes: ours\nsource: ours\n")
    with pytest.raises(InputError) as caught:
        calibrate(RUNS, str(own), "again")
    assert "is no shipped stack" in caught.value.problems[0].message


def test_without_a_time_there_is_nothing_to_fit() -> None:
    untimed = msgspec.structs.replace(RUNS[1], measured=Measured())
    with pytest.raises(InputError) as caught:
        calibrate([untimed], "megatron-lm", "ours")
    (problem,) = caught.value.problems
    assert "0 records with a time are too few" in problem.message
    assert "run-1: no time measured" in (problem.hint or "")


def test_one_run_moves_the_stack_part_of_the_way() -> None:
    """It is 0.7 times as fast in its products: the prediction comes nearer, and does not reach it."""
    one, several = calibrate(RUNS[:1], "megatron-lm", "ours"), calibrate(RUNS, "megatron-lm", "ours")
    assert 0.0 < one.after < one.before
    assert SLOWER_MATMUL < factor(one, "matmul") < 1.0
    assert one.stack.uncertainty > several.stack.uncertainty


def test_runs_alike_say_most() -> None:
    """Long sequences on one card at 0.7 of the rate of products, short ones on four at 1.4 of it."""
    slow = [run for run in RUNS if run.gpus == 1 and run.seq_len == 8192]
    fast = [
        msgspec.structs.replace(run, measured=Measured(step_time_s=(run.measured.step_time_s or 0.0) / 2.0))
        for run in RUNS
        if run.gpus == 4 and run.seq_len == 512
    ]
    like = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "stack": "megatron-lm", "job": "pretrain"}
    of_long, of_short = (
        calibrate([*slow, *fast], "megatron-lm", "ours", ask({**like, "gpus": cards, "train.seq_len": length}))
        for cards, length in ((1, 8192), (4, 512))
    )
    assert factor(of_long, "matmul") < factor(of_short, "matmul")


def test_peaks_of_memory_scale_live_tensors_in_part() -> None:
    """Three runs, one of them repeated, of 1.2 times the tensors: 3 x 0.2^2 / (3 x 0.2^2 + 0.1^2) = 92 % of it."""
    found = fit_memory([math.log(1.2)] * 4, ["a", "b", "c", "c"])
    assert found is not None
    assert (found.runs, found.parts) == (4, 3)
    assert found.weight == pytest.approx(0.12 / 0.13)
    assert found.scale == pytest.approx(1.2 ** (0.12 / 0.13))
    assert found.before == pytest.approx(1.0 - 1.0 / 1.2)
    assert found.left_out == pytest.approx(1.0 - 1.2 ** -(1.0 - 0.08 / 0.09))
    assert fit_memory([], []) is None
    assert shrinkage(1) == pytest.approx(0.8)


def test_a_fitted_stack_predicts_the_peaks_that_it_was_fitted_to_better() -> None:
    """A run that allocated 1.3 times what its parent predicts."""
    plain = record(0, 2048, 1, 1)
    ledger = predict_record(plain, RecordRegistry()).sized.ledger
    allocated = float(ledger.tensor_peak_bytes[0])
    measured = Measured(step_time_s=1.0, peak_memory_gib=1.3 * allocated / 2**30, memory_metric="allocated")
    found = calibrate([msgspec.structs.replace(plain, measured=measured)], "megatron-lm", "ours")
    assert found.memory is not None
    assert found.stack.memory.tensor_scale == pytest.approx(1.3**0.8, rel=1e-3)
    assert found.fitted_keys["memory"] == {"tensor_scale": found.stack.memory.tensor_scale}
    job = predict_record(plain, RecordRegistry()).sized.resolved.job
    layouts = predict_record(plain, RecordRegistry()).sized.layouts
    fitted = memory_ledger(replace(job, stack=found.stack), layouts)
    assert float(fitted.tensor_peak_bytes[0]) == pytest.approx(allocated * 1.3**0.8, rel=1e-3)


# What a fit says of runs that it has not seen: pinned by tables and arithmetic, and true of simulated runs.


@pytest.mark.parametrize(("freedom", "tail"), [(2, 1.8856), (3, 1.6377), (5, 1.4759), (10, 1.3722), (30, 1.3104)])
def test_the_tail_is_that_of_printed_tables(freedom: int, tail: float) -> None:
    assert student_tail(freedom) == pytest.approx(tail, rel=0.004)


def test_the_parents_range_counts_as_one_run() -> None:
    """Four runs that are 2 % off beside a parent that is 23 % off: sqrt((0.23^2 + 4 x 0.02^2) / 5) x 1.476."""
    found = error_of_new_runs(np.full(4, 0.02), list("abcd"), 0.23)
    assert found == pytest.approx(1.4759 * math.sqrt((0.23**2 + 4 * 0.02**2) / 5), rel=0.001)
    assert found == pytest.approx(0.154, abs=0.001)


def test_more_runs_that_agree_narrow_it_down_to_what_runs_differ_by() -> None:
    widths = [error_of_new_runs(np.full(runs, 0.02), list(map(str, range(runs))), 0.5) for runs in (2, 4, 8, 16, 300)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.473, abs=0.001)
    assert widths[-1] == pytest.approx(math.log(1.08))


def test_repeats_say_no_more_than_one_run() -> None:
    alone = error_of_new_runs(np.array([0.1, -0.2]), ["a", "b"], 0.3)
    assert error_of_new_runs(np.array([0.1, -0.2, -0.2, 0.2]), ["a", "b", "b", "b"], 0.3) == pytest.approx(alone)


def test_one_stray_among_ten_counts_as_three_deviations() -> None:
    residuals = np.array([0.1, -0.1] * 5 + [4.0])
    held = error_of_new_runs(residuals, list(map(str, range(11))), 0.1)
    at_three = np.append(residuals[:-1], 3 * 1.4826 * 0.1)
    assert held == pytest.approx(student_tail(12) * math.sqrt((0.1**2 + float(at_three @ at_three)) / 12))
    few = error_of_new_runs(np.array([0.1, 0.1, 4.0]), ["a", "b", "c"], 0.1)
    assert few > 2.0, "of three runs none can be called a stray"


def test_a_run_is_predicted_by_the_others() -> None:
    slopes, linear = np.array([[0.9], [0.8], [0.7]]), np.array([0.3, 0.3, -0.4])
    found = left_out_residuals(slopes, linear, np.ones(3), ["a", "b", "c"])
    others, _ = robust(slopes[:2], linear[:2], np.ones(2))
    assert found[2] == pytest.approx(-0.4 - 0.7 * others[0])
    alone = left_out_residuals(slopes, linear, np.ones(3), ["a", "a", "a"])
    assert alone == pytest.approx(linear), "nothing is left to fit, so the parent's factors stay"


@pytest.mark.parametrize("runs", [2, 4, 10])
@pytest.mark.parametrize(("noise", "parent"), [(0.1, 0.25), (0.25, 0.25), (0.4, 0.25), (0.3, 0.55)])
def test_four_in_five_new_runs_lie_inside(runs: int, noise: float, parent: float) -> None:
    """Simulated clusters: true factors, jobs that spend their time differently, and noise with long tails."""
    random = np.random.default_rng(runs)
    inside = []
    for _ in range(120):
        slopes = random.dirichlet([6.0, 1.5, 2.0, 1.5, 0.7], runs + 1) * 0.95
        linear = slopes @ random.normal(0, 0.25, 5) + noise * random.standard_t(5, runs + 1) / math.sqrt(5 / 3)
        seen, weights = slice(runs), np.ones(runs)
        factors, _ = robust(slopes[seen], linear[seen], weights)
        parts = list(map(str, range(runs)))
        unseen = left_out_residuals(slopes[seen], linear[seen], weights, parts)
        inside.append(abs(linear[-1] - slopes[-1] @ factors) <= error_of_new_runs(unseen, parts, parent))
    assert np.mean(inside) >= 0.71  # 0.8 less two and a half standard errors
