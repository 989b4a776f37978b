"""What each term of the time model explains: python scripts/ablation.py FILE...

Every measured run is predicted again with one term switched off, its layout held fixed. A term that does not change the
errors explains nothing.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.evidence.training import PredictedRecord
from xe_sizer.evidence.validate import timed
from xe_sizer.laws.device import Efficiency
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.laws.operator_time import Device
from xe_sizer.software.stack import load_stack
from xe_sizer.training.device import device_of
from xe_sizer.training.job import Job
from xe_sizer.training.step import timeline
from xe_sizer.units import SIXTEEN_BIT

Change = Callable[[Job], Job]
Row = tuple[str, float, float, float]
NO_HOST = {
    "forward_launch_us": 0.0, "backward_launch_us": 0.0, "step_overhead_ms": 0.0, "micro_batch_overhead_ms": 0.0,
    "sharded_adapter_us": 0.0,
}  # fmt: skip


def _stack(section: str, **values: bool | float | str) -> Change:
    """A job whose stack has other values in one section."""

    def change(job: Job) -> Job:
        part = msgspec.structs.replace(getattr(job.stack, section), **values)
        return replace(job, stack=msgspec.structs.replace(job.stack, **{section: part}))

    return change


def _device(change: Callable[[Device], Device]) -> Change:
    return lambda job: replace(job, device=change(job.device))


def _matmul(change: Callable[[MatmulLaw], MatmulLaw]) -> Change:
    return _device(lambda device: replace(device, matmul=change(device.matmul)))


def _newest_attention(job: Job) -> Job:
    laws = job.server.accelerator.laws.attention
    return replace(job, device=replace(job.device, attention=laws[max(laws)]))


def _free_dequantisation(job: Job) -> Job:
    held = job.method.held
    if held is None:
        return job
    free = {"forward_bytes": 0.0, "backward_bytes": 0.0, "input_bytes": 0.0, "output_bytes": 0.0}
    width = msgspec.structs.replace(held.width, **free)
    return replace(job, method=replace(job.method, held=replace(held, width=width)))


def _narrow_activations(job: Job) -> Job:
    held = job.method.held
    if held is None:
        return job
    method = replace(job.method, held=replace(held, quantised_from_bytes=SIXTEEN_BIT))
    device = device_of(job.server.accelerator, job.stack, method, job.precision, Efficiency())
    return replace(job, method=method, device=device)


def _no_dropout(job: Job) -> Job:
    learning = replace(job.method.learning, adapter_dropout=False)
    kernels = msgspec.structs.replace(job.stack.kernels, dropout=False)
    stack = msgspec.structs.replace(job.stack, kernels=kernels)
    return replace(job, stack=stack, method=replace(job.method, learning=learning))


def _newest_release(job: Job) -> Job:
    newest = load_stack(job.stack.name)
    dtype = job.stack.defaults.weights_dtype
    return replace(job, stack=newest.loaded_in(dtype) if dtype in newest.weights_dtypes else newest)


EVERYTHING_HIDDEN = dict.fromkeys(
    ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline", "data_parallel", "sharding"), 1.0
)
TERMS: dict[str, Change] = {
    "kernel launches and host": _stack("host", **NO_HOST),
    "memory-bound kernels": _device(
        lambda device: replace(device, memory_bound_efficiency=1e9, memory_bound_floor_s=0.0)
    ),
    "attention kernel by age of the stack": _newest_attention,
    "what older releases of a stack did": _newest_release,
    "matrix shapes (floor, bandwidth)": _matmul(lambda law: replace(law, floor_s=0.0, memory_efficiency=math.inf)),
    "sustained clocks": _matmul(lambda law: replace(law, sustained_flops_efficiency=None)),
    "dequantisation of frozen weights": _free_dequantisation,
    "float32 activations of quantised models": _narrow_activations,
    "masks of PyTorch's attention": _stack("kernels", attention_mask="none"),
    "dropout": _no_dropout,
    "casts to 8 and 4 bit": _device(lambda device: replace(device, casts=None)),
    "head and router in 16 bit": _device(lambda device: replace(device, wide_modules=frozenset())),
    "exposed exchanges": _stack("overlap", **EVERYTHING_HIDDEN),
    "how pipeline stages hand tensors on": _stack("boundaries", scattered=False, paired=True),
    "whole gradients reduced under ZeRO-1": _stack("defaults", reduces_whole_gradients=False),
    "imbalance of experts": lambda job: replace(
        job, stack=msgspec.structs.replace(job.stack, expert_imbalance=1.0, tuned_expert_spread=0.0)
    ),
    "tokens cross the network once per node": _stack("kernels", dispatch="per-expert"),
    "grouped products of experts": _device(lambda device: replace(device, expert_matmul=device.matmul)),
    "experts each on their own": _stack("kernels", experts="grouped"),
    "scans of state-space layers": _device(
        lambda device: replace(device, scan_matmul=replace(device.matmul, floor_s=0.0, memory_efficiency=math.inf))
    ),
    "padding and waiting for the longest": lambda job: job if job.padding == "packed" else replace(job, padding="none"),
}
COMPONENTS = ("recompute", "pipeline bubble", "pipeline transfers", "optimizer", "offload")


def ablate(records: Iterable[Record]) -> list[Row]:
    """Per term: median and 90th percentile of the error, sources weighted alike, and runs that move by over 2 %."""
    pairs = list(timed(records))
    runs = [run for run, _ in pairs]
    measured = np.array([float(prediction.measured) for _, prediction in pairs])
    full = np.array([float(timeline(_job(run), run.sized.layouts).step_s[0]) for run in runs])
    weights = source_weights([run.record.title for run in runs])

    def row(name: str, predicted: np.ndarray) -> Row:
        error = np.abs(predicted / measured - 1.0)
        moved = float(np.mean(np.abs(predicted / full - 1.0) > 0.02))
        return name, weighted_quantile(error, weights, 0.5), weighted_quantile(error, weights, 0.9), moved

    rows = [row("all terms", full)]
    for name, change in TERMS.items():
        rows.append(row(name, np.array([_step_s(run, change) for run in runs])))
    for name in COMPONENTS:
        part = [float(timeline(_job(run), run.sized.layouts).components[name][0]) for run in runs]
        rows.append(row(name, full - np.array(part)))
    return rows


def _job(run: PredictedRecord) -> Job:
    return run.sized.resolved.job


def _step_s(run: PredictedRecord, change: Change) -> float:
    return float(timeline(change(_job(run)), run.sized.layouts).step_s[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    for name, median, high, moved in ablate(record for file in files for record in read_records(file).records):
        print(f"{name:40} median {median:6.1%}  90 % {high:6.1%}  runs moved {moved:6.1%}")


if __name__ == "__main__":
    main()
