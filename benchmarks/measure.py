"""Predicts six small training jobs on this CPU before and after measuring it.

    python benchmarks/measure.py [--folder DIR] [--rounds 3]

Before: a profile that has nothing but the peaks of the processor, with the kernels' laws of the catalogue, as a user
would write one from a data sheet. After: what `xe-sizer measure --quick` makes of the same processor. Both predict jobs
that neither has seen, with models of four layers. Times are those of one thread by the time that the processor works
(time.process_time), so that who else uses the machine counts as little as can be; memory is that of live storages.
The exit code is 1 where a predicted step is off by more than 25 %, or by more than before, or a peak by more than 10 %.

    --folder DIR   keep samples, profile and records there, and go on with what is there
    --only TEXT    only jobs with this in their name
    --rounds 3     measure and predict so often, and count the median of each job
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from xe_sizer.measure import session
from xe_sizer.measure.profile import profile_yaml, summarise
from xe_sizer.measure.samples import SAMPLES, Samples
from xe_sizer.measure.timer import CPU, Timer
from xe_sizer.measure.trial import measure_job
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.measurement import MeasuredJob

# One thread, and an allocator that keeps its pages, as PyTorch's guide to CPUs has it: glibc gives tensors of 32 MiB
# and more back to the system, and touching new pages takes longer than all that is computed on them.
WANTED = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**28),
}
NEAR, MEMORY_NEAR = 0.25, 0.10  # what issue and readers were promised of predictions after measuring
NAME = "this-cpu"
SHAPE = {
    "name": "four-layers", "family": "llama", "layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 8, "head_dim": 64,
    "ffn": 2816, "vocab": 16384, "max_positions": 4096, "tied_embeddings": False, "norm": "rmsnorm",
    "activation": "swiglu", "position": "rope",
}  # fmt: skip
TRAIN = {"steps": 10, "micro_batch": 2, "global_batch": 2, "seq_len": 256, "weights_dtype": "fp32", "padding": "packed"}
PLAIN: dict[str, Any] = {"model": SHAPE, "stack": "pytorch-fsdp", "job": "sft", "precision": "fp32", "train": TRAIN}
JOBS: dict[str, dict[str, Any]] = {
    "all weights, fp32": PLAIN,
    "all weights, bf16": PLAIN | {"precision": "bf16", "train": TRAIN | {"weights_dtype": "bf16"}},
    "LoRA": PLAIN | {"job": "lora", "lora": {"rank": 16, "targets": ["all-linear"]}},
    "recomputation": PLAIN | {"layout": {"recompute": "full"}},
    "longer sequences": PLAIN | {"train": TRAIN | {"seq_len": 1024, "micro_batch": 1, "global_batch": 1}},
    "eager attention": PLAIN | {"attention": "eager", "train": TRAIN | {"seq_len": 512, "global_batch": 2}},
}


def measured(folder: Path) -> dict[str, Any]:
    """Measure the processor once more, and write its profile."""
    registry = Registry()
    machine, timer = session.machine(CPU), Timer(CPU, time.process_time)
    samples = Samples(folder / SAMPLES, machine)
    rates = session.look(CPU, timer, machine.memory_bytes, quick=True)
    models = [registry.model(name) for name in registry.names("model")]
    kernels = session.kernels_of(CPU, rates, models, quick=True)
    session.walk(kernels, CPU, samples, timer, session.QUICK_S)
    profile = summarise(machine, samples.samples, registry, NAME, None).profile
    (folder / f"{NAME}.yaml").write_text(profile_yaml(profile), encoding="utf-8")
    return profile


def without_laws(profile: dict[str, Any], folder: Path) -> None:
    """The same processor as a data sheet would have it: its laws are borrowed."""
    plain = {key: value for key, value in profile.items() if key not in ("laws", "measured")}
    (folder / f"{NAME}.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")


def predicted(job: Path, folder: Path, steps: int) -> MeasuredJob:
    """A job run and predicted with a folder's profile."""
    found = measure_job(job, steps, CPU, folder, Registry((folder,)), print, time.process_time, gpu=NAME)
    assert found is not None
    assert found.job is not None
    return found.job


def one_round(folder: Path, plain: Path, steps: int, only: str) -> dict[str, tuple[float, float, float]]:
    """Of each job predicted over measured: the step before, the step after, and the peak of memory."""
    without_laws(measured(folder), plain)
    ratios = {}
    for name, scenario in JOBS.items():
        if only not in name:
            continue
        file = folder / "job.yml"
        file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
        after = predicted(file, folder, steps)
        before = predicted(file, plain, 1)
        file.unlink()
        assert before.predicted_s is not None
        assert after.predicted_s is not None
        assert after.predicted_peak_bytes is not None
        assert after.peak_bytes is not None
        ratios[name] = (
            before.predicted_s / after.step_s, after.predicted_s / after.step_s,
            after.predicted_peak_bytes / after.peak_bytes,
        )  # fmt: skip
        print(f"  {name:20} step before x{ratios[name][0]:.2f}, after x{ratios[name][1]:.2f}, "
              f"peak x{ratios[name][2]:.2f}", flush=True)  # fmt: skip
    return ratios


def main() -> int:
    """Print a line for each job and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default="", help="jobs with this in their name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, plain = options.folder or Path(made) / "after", Path(made) / "before"
        folder.mkdir(parents=True, exist_ok=True)
        plain.mkdir()
        rounds = [one_round(folder, plain, options.steps, options.only) for _ in range(options.rounds)]
    failed = 0
    print(f"{'predicted / measured':22} {'before':>8} {'after':>8} {'memory':>8}")
    for name in rounds[0]:
        before, after, memory = (statistics.median(found[name][place] for found in rounds) for place in range(3))
        near = abs(after - 1.0) <= NEAR and abs(memory - 1.0) <= MEMORY_NEAR
        closer = max(after, 1.0 / after) < max(before, 1.0 / before)
        failed += not (near and closer)
        print(f"{name:22} {before:8.2f} {after:8.2f} {memory:8.2f}  {'' if near and closer else 'off'}")
    return int(failed > 0)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in WANTED.items()):  # which libraries read when they load
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WANTED})
    sys.exit(main())
