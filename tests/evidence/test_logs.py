"""Logs of trainers and exports of trackers as records; lines are those that the tools print, numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli.main import main
from xe_sizer.errors import InputError
from xe_sizer.evidence.logs import is_log, read_log, read_runs
from xe_sizer.evidence.records import Measured

MEGATRON = """\
(min, max) time across ranks (ms):
 [2026-11-27 10:00:20] iteration        1/      50 | consumed samples:           64 | elapsed time per iteration (ms): \
19812.3 | throughput per GPU (TFLOP/s/GPU): 12.1 | learning rate: 1.000000E-05 | global batch size:    64 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 30000.1 | max allocated: 40960.0 | reserved: 45000.0 | max \
reserved: 45056.0
 [2026-11-27 10:00:21] iteration        2/      50 | elapsed time per iteration (ms): 1200.0 |
 [2026-11-27 10:00:22] iteration        3/      50 | elapsed time per iteration (ms): 810.0 |
 [2026-11-27 10:00:23] iteration        4/      50 | elapsed time per iteration (ms): 800.0 |
 [2026-11-27 10:00:24] iteration        5/      50 | elapsed time per iteration (ms): 820.0 |
"""
TORCHTITAN = "\n".join(
    f"[rank0]:[titan] 2026-11-27 10:00:0{step} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 10.0000  "
    f"\x1b[38;2;180;60;0mgrad_norm:  1.0000  \x1b[38;2;54;234;195mmemory: {memory:5.2f}GiB(50.10%)  "
    f"\x1b[34mtps: {rate:,}  \x1b[36mtflops: 190.00  \x1b[35mmfu: 19.00%\x1b[39m"
    for step, memory, rate in ((1, 30.0, 512), (2, 39.5, 3000), (3, 40.25, 3600), (4, 40.25, 3500), (5, 40.25, 3550))
)
DEEPSPEED = "\n".join(
    f"[2026-11-27 10:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step={10 * step}/global_step={step}, "
    f"RunningAvgSamplesPerSec=4.0, CurrSamplesPerSec={rate}, MemAllocated=10.2GB, MaxMemAllocated=20.5GB"
    for step, rate in ((10, 2.0), (20, 4.0), (30, 4.1), (40, 4.2), (50, 4.3))
)
TRAINER = "{'train_runtime': 120.5, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.25, 'train_loss': 1.5}"
STATE = json.dumps({
    "global_step": 40,
    "log_history": [
        {"loss": 2.0, "learning_rate": 1e-5, "epoch": 0.5, "step": 20},
        {"epoch": 1.0, "step": 40, "total_flos": 1.0, "train_loss": 1.8, "train_runtime": 100.0},
    ],
})  # fmt: skip
TENSORBOARD = "Wall time,Step,Value\n" + "\n".join(
    f"{1000.0 + 2.5 * step},{step},{3.0 - step / 10}" for step in range(8)
)
TRACKER = '"Step","run - train/train_steps_per_second","run - train/train_steps_per_second__MIN"\n40,0.5,0.4\n'
HISTORY = "_step,_runtime,train/loss\n" + "\n".join(f"{10 * at},{15.0 * at},1.0" for at in range(8))
TITAN_TRACKER = "Step,throughput(tps),memory/max_reserved(GiB)\n" + "\n".join(
    f"{step},4000,{step}.5" for step in range(1, 7)
)


@pytest.mark.parametrize(
    ("name", "text", "measured"),
    [
        ("run.log", MEGATRON, {"step_time_s": 0.81, "peak_memory_gib": 40.0, "memory_metric": "allocated"}),
        ("run.log", TORCHTITAN, {"tokens_per_s_per_gpu": 3550.0, "reserved_memory_gib": 40.25}),
        ("run.out", DEEPSPEED, {"samples_per_s": 4.2, "peak_memory_gib": 20.5, "memory_metric": "allocated"}),
        ("run.txt", TRAINER, {"step_time_s": 4.0}),
        ("trainer_state.json", STATE, {"step_time_s": 2.5}),
        ("loss.csv", TENSORBOARD, {"step_time_s": 2.5}),
        ("wandb.csv", TRACKER, {"step_time_s": 2.0}),
        ("history.csv", HISTORY, {"step_time_s": 1.5}),
        ("titan.csv", TITAN_TRACKER, {"tokens_per_s_per_gpu": 4000.0, "reserved_memory_gib": 6.5}),
    ],
)
def test_what_each_tool_prints(tmp_path: Path, name: str, text: str, measured: dict[str, Any]) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert is_log(file)
    found = read_log(file, {"job": "sft"}).measured
    expected = Measured(**measured)
    assert found.memory_metric == expected.memory_metric
    for key in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "peak_memory_gib", "reserved_memory_gib"):
        assert getattr(found, key) == (pytest.approx(value) if (value := getattr(expected, key)) else None), key


@pytest.mark.parametrize("name", ["run.log", "run.csv", "trainer_state.json"])
@pytest.mark.parametrize("text", ["", "nothing of use\n", "{", '{"log_history": 3}', "Step,Value\n1,2\n", "a,b\n\x00"])
def test_a_log_without_times_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_log(file, {"job": "sft"})
    assert "run" in str(caught.value.problems[0]) or "trainer" in str(caught.value.problems[0])


JOB = """\
model: llama-3.1-8b
gpu: h100-sxm-80gb
gpus: 8
job: pretrain
stack: megatron-lm
train: {steps: 10, micro_batch: 1, global_batch: 64, seq_len: 4096}
layout: {tp: 2, pp: 1}
"""
LORA = """\
model: qwen2.5-7b
server: dell-xe9680-h100
gpus: 8
job: lora
stack: hf-trainer
data: {samples: 10000, mean_tokens: 512, max_tokens: 2048}
train: {epochs: 1, micro_batch: 2, global_batch: 64, seq_len: 2048, weights_dtype: bf16}
layout: {zero: 3, recompute: full}
lora: {rank: 32, targets: [q, v]}
"""


@pytest.mark.parametrize("text", [JOB, LORA])
def test_a_log_is_predicted_as_its_scenario_is(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the record says of its run is what the scenario says: the same step, and the same memory."""
    scenario, log = tmp_path / "job.yaml", tmp_path / "run.log"
    scenario.write_text(text)
    log.write_text(MEGATRON)
    assert main(["estimate", str(scenario), "--format", "json", "--exit-zero"]) == 0
    estimated = json.loads(capsys.readouterr().out)["time"]["step_s"]["expected"]
    assert main(["validate", str(log), "--scenario", str(scenario), "--format", "json"]) == 0
    rows = {row["quantity"]: row for row in json.loads(capsys.readouterr().out)["records"]}
    assert rows["step_time"]["measured"] == pytest.approx(0.81)
    assert rows["step_time"]["predicted"] == pytest.approx(estimated, rel=0.02)
    assert not rows["step_time"]["guessed"]


def test_several_logs_calibrate_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "job.yaml"
    scenario.write_text(JOB)
    logs = []
    for place in range(3):
        logs.append(tmp_path / f"run-{place}.log")
        logs[-1].write_text(MEGATRON.replace("810.0", f"{4000 + place}.0").replace("8", "9"))
    out = tmp_path / "mine.yaml"
    code = main(["calibrate", *map(str, logs), "--scenario", str(scenario), "-o", str(out)])
    assert code == 0, capsys.readouterr().err
    assert "calibrated_on" in out.read_text()


def test_a_log_needs_the_scenario_that_it_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text(MEGATRON)
    assert main(["validate", str(log)]) == 2
    said = capsys.readouterr().err
    assert "a log says nothing of its job" in said
    assert "--scenario" in said


def test_records_beside_logs_stay_as_they_are(tmp_path: Path) -> None:
    record = {
        "id": "mine",
        "job": "sft",
        "model": "llama-2-7b",
        "gpu": "a100-sxm-80gb",
        "measured": {"step_time_s": 1.0},
    }
    (tmp_path / "records.jsonl").write_text(json.dumps(record))
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "run.log").write_text(MEGATRON)
    files = [tmp_path / "records.jsonl", tmp_path / "run.log"]
    found = read_runs(files, tmp_path / "job.yaml", ()).records
    assert [one.id for one in found] == ["mine", f"{tmp_path.name}/run.log"]
    assert found[1].batch.total == 64
