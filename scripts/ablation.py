"""What each term of the model explains: python scripts/ablation.py FILE...

Every measured run is predicted again with one term switched off, its layout held fixed: errors of times and of peaks of
publications that development looks at, and of those left out of it (scripts/held_out.py). A term that does not change
the errors explains nothing; one that helps the first and not the second was fitted, not found.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from held_out import held_out
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.evidence.predict import PredictedRecord, predict_records, predicted_peak_bytes, step_time
from xe_sizer.evidence.records import Record, measured_peak_bytes, read_records
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.laws.device import Efficiency
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.laws.operator_time import Device
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.training import layout, rank
from xe_sizer.training.device import build_device
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import OFFLOAD, SCHEDULES, V_SHAPED, Layouts
from xe_sizer.training.memory import Ledger, at_level, ledger_of
from xe_sizer.training.step_time import timeline
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

T = TypeVar("T")
FOUR = 4  # bits
Vector = NDArray[np.float64]
Change = Callable[[Job], Job]
MOVED = 0.02  # a run whose figure changes by more
NO_HOST = {
    "forward_launch_us": 0.0, "backward_launch_us": 0.0, "step_overhead_ms": 0.0, "micro_batch_overhead_ms": 0.0,
    "sharded_adapter_us": 0.0,
}  # fmt: skip


def _stack(section: str, **values: bool | float | str) -> Change:
    """A job whose stack has other values in one section."""

    def change(job: Job) -> Job:
        old = getattr(job.stack, section)
        part = msgspec.structs.replace(old, **values)
        return job if part == old else replace(job, stack=msgspec.structs.replace(job.stack, **{section: part}))

    return change


def _device(change: Callable[[Device], Device]) -> Change:
    return lambda job: replace(job, device=change(job.device))


def _matmul(change: Callable[[MatmulLaw], MatmulLaw]) -> Change:
    return _device(lambda device: replace(device, matmul=change(device.matmul)))


def _newest_attention(job: Job) -> Job:
    laws = job.server.accelerator.laws.attention
    return replace(job, device=replace(job.device, attention=laws[max(laws)]))


def _training(job: Job, **changes: Any) -> Job:
    """The job with something else that learns, or that is kept otherwise."""
    return replace(job, method=replace(job.method, trained=replace(job.method.trained, **changes)))


def _free_dequantisation(job: Job) -> Job:
    held = job.method.held
    if held is None:
        return job
    free = {"forward_bytes": 0.0, "backward_bytes": 0.0, "input_bytes": 0.0, "output_bytes": 0.0}
    width = msgspec.structs.replace(held.width, **free)
    return _training(job, held=replace(held, width=width))


def _narrow_activations(job: Job) -> Job:
    held = job.method.held
    if held is None:
        return job
    narrow = _training(job, held=replace(held, quantised_from_bytes=SIXTEEN_BIT))
    device = build_device(job.server.accelerator, job.stack, narrow.method, job.precision, Efficiency())
    return replace(narrow, device=device)


def _drops_inputs(job: Job) -> Job:
    held = job.method.held
    if held is None or held.width.bits != FOUR:
        return job
    width = msgspec.structs.replace(held.width, keeps_input=False)
    return _training(job, held=replace(held, width=width))


def _no_dropout(job: Job) -> Job:
    learning = replace(job.method.learning, adapter_dropout=False)
    kernels = msgspec.structs.replace(job.stack.kernels, dropout=False)
    stack = msgspec.structs.replace(job.stack, kernels=kernels)
    return replace(_training(job, learning=learning), stack=stack)


def _newest_release(job: Job) -> Job:
    newest = load_stack(job.stack.name)
    dtype = job.stack.defaults.weights_dtype
    return replace(job, stack=newest.loaded_in(dtype) if dtype in newest.weights_dtypes else newest)


def _fused_norms(job: Job) -> Job:
    if job.stack.kernels.norm != "eager":
        return job
    return replace(job, stack=job.stack.with_fused(["norm"]))


def _loaded_in_float32(job: Job) -> Job:
    stack = job.stack
    if stack.defaults.weights_dtype != "bf16" or "fp32" not in stack.weights_dtypes:
        return job
    return replace(job, stack=stack.loaded_in("fp32"))


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
    "matrix sides that fill no whole lines": _matmul(lambda law: replace(law, misaligned=1.0)),
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
        lambda device: replace(
            device, scan_matmul=replace(device.matmul, floor_s=0.0, memory_efficiency=math.inf), scan_law_holds=False
        )
    ),
    "padding and waiting for the longest": lambda job: job if job.padding == "packed" else replace(job, padding="none"),
}
COMPONENTS = ("recompute", "pipeline bubble", "pipeline transfers", "optimizer", "offload")


def _same(value: T) -> T:
    return value


@dataclass(frozen=True)
class Switch:
    """A term that is off: of the job, of the layout, in a function's place, or in the ledger alone.

    applies : whether a layout has the term at all; patch : owner, name and what stands there without the term
    """

    job: Change = _same
    layouts: Callable[[Layouts], Layouts] = _same
    applies: Callable[[Job, Layouts], bool] = lambda job, layouts: True
    patch: tuple[Any, str, Any] | None = None
    ledger: Callable[[Ledger], Ledger] = _same

    def changes(self, job: Job, layouts: Layouts) -> bool:
        """Whether the run has the term."""
        more = self.patch is not None or self.ledger is not _same or self.layouts is not _same
        return self.applies(job, layouts) and (more or self.job(job) is not job)


def _one_after_one(layouts: Layouts) -> Layouts:
    """1F1B; the two chunks of a V become one."""
    straight = np.where(V_SHAPED[layouts.schedule], 1, layouts.vpp)
    return replace(layouts, schedule=np.full_like(layouts.schedule, SCHEDULES.index("1f1b")), vpp=straight)


def _as_full_as_the_fullest(whole: float, pp: Any, *_: Any) -> Any:
    return np.ceil(whole / pp)


def _in_float32(job: Job, layouts: Layouts) -> float:
    return FLOAT32 if job.casts_weights else job.element_bytes


ON_CARD = np.array([OFFLOAD.index(name.removesuffix("activations").rstrip("+") or "none") for name in OFFLOAD])
SWITCHES: dict[str, Switch] = {
    "orders of pipelines beyond 1F1B": Switch(
        layouts=_one_after_one,
        applies=lambda job, layouts: bool(layouts.schedule[0] != SCHEDULES.index("1f1b")),
    ),
    "fewer layers at the ends of a pipeline": Switch(
        patch=(layout, "_spread", _as_full_as_the_fullest), applies=lambda job, layouts: bool(layouts.pp[0] > 1)
    ),
    "FSDP inside pipeline stages": Switch(
        layouts=lambda layouts: replace(layouts, zero=np.zeros_like(layouts.zero)),
        applies=lambda job, layouts: bool(layouts.gathers_stages[0]),
    ),
    "16-bit hidden state under FSDP": Switch(
        patch=(rank, "_residual_element_bytes", _in_float32),
        applies=lambda job, layouts: job.casts_weights and bool(layouts.zero[0] == 3),
    ),
    "float32 copies of what learns or is quantised": Switch(
        job=_stack("states", sharded_upcast=False, quantised_upcast=False)
    ),
    "inputs that old products in 4 bit keep": Switch(job=_drops_inputs),
    "gradients a second time in buckets": Switch(job=_stack("memory", copied_gradients=False)),
    "copies while the optimizer runs": Switch(job=_stack("memory", optimizer_transient="fused")),
    "weights loaded in 16 bit": Switch(job=_loaded_in_float32),
    "norms written out in Python": Switch(job=_fused_norms),
    "activations in host memory": Switch(
        layouts=lambda layouts: replace(layouts, offload=ON_CARD[layouts.offload]),
        applies=lambda job, layouts: bool(layouts.hosts_activations[0]),
    ),
    "blocks that the allocator keeps": Switch(ledger=lambda ledger: replace(ledger, cached_bytes=np.zeros(1))),
}


@dataclass(frozen=True)
class Errors:
    """Median and 90 % quantile of errors, publications weighted alike [-], and their number."""

    median: float
    high: float
    publications: int


@dataclass(frozen=True)
class Row:
    """One term off: errors of publications looked at and left out, and the share of runs that it moves."""

    term: str
    shown: Errors
    left_out: Errors
    moved: float


@dataclass(frozen=True)
class Figure:
    """A measured time [s] or peak [bytes] of a run, and how to predict it from a job and a layout."""

    run: PredictedRecord
    measured: float
    predict: Callable[[Job, Layouts, Switch], float]


def figures(records: Iterable[Record]) -> tuple[list[Figure], list[Figure]]:
    """Times and peaks of runs that say what decides them."""
    times, peaks = [], []
    for run in predict_records(record for record in records if not record.serves):
        if isinstance(run, PredictedRecord):
            times += [Figure(run, float(one.measured), _step_s) for one in step_time(run) if not one.guessed]
            peak = measured_peak_bytes(run.record.measured)
            if peak is not None and not run.memory_guessed:
                peaks.append(Figure(run, peak[0].value, partial(_peak_bytes, metric=peak[1])))
    return times, peaks


def ablate(measured: Sequence[Figure], terms: Mapping[str, Switch]) -> list[Row]:
    """Errors with all terms, then without each; terms that move no run are left away."""
    full = np.array([one.predict(_job(one.run), one.run.sized.layouts, Switch()) for one in measured])
    rows = [_row("all terms", measured, full, full)]
    for name, switch in terms.items():
        part = np.array([without_term(switch, *pair) for pair in zip(measured, full, strict=True)])
        if np.any(np.abs(part / full - 1.0) > MOVED):
            rows.append(_row(name, measured, part, full))
    return rows


def without_components(times: Sequence[Figure]) -> list[Row]:
    """The same of whole parts of a step, taken off its time."""
    steps = [timeline(_job(one.run), one.run.sized.layouts) for one in times]
    full = np.array([float(step.step_s[0]) for step in steps])
    parts = {name: np.array([float(step.components[name][0]) for step in steps]) for name in COMPONENTS}
    return [_row(name, times, full - part, full) for name, part in parts.items()]


def _row(name: str, measured: Sequence[Figure], predicted: Vector, full: Vector) -> Row:
    error = np.abs(predicted / np.array([one.measured for one in measured]) - 1.0)
    titles = np.array([one.run.record.title for one in measured])
    out = np.array([held_out(title) for title in titles])
    moved = float(np.mean(np.abs(predicted / full - 1.0) > MOVED))
    return Row(name, _errors(error[~out], titles[~out]), _errors(error[out], titles[out]), moved)


def _errors(error: Vector, titles: NDArray[np.str_]) -> Errors:
    weights = source_weights(list(titles))
    median, high = (weighted_quantile(error, weights, share) for share in (0.5, 0.9)) if len(error) else (0.0, 0.0)
    return Errors(median, high, len(set(titles)))


def _job(run: PredictedRecord) -> Job:
    return run.sized.resolved.job


def without_term(switch: Switch, figure: Figure, full: float) -> float:
    """The figure without a term; `full`, what it is with all, where the run does not have it."""
    job, layouts = _job(figure.run), figure.run.sized.layouts
    if not switch.changes(job, layouts):
        return full
    with _patched(switch.patch):
        return figure.predict(switch.job(job), switch.layouts(layouts), switch)


@contextmanager
def _patched(patch: tuple[Any, str, Any] | None) -> Iterator[None]:
    if patch is None:
        yield
        return
    owner, name, stand_in = patch
    kept = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def _step_s(job: Job, layouts: Layouts, _: Switch) -> float:
    return float(timeline(job, layouts).step_s[0])


def _peak_bytes(job: Job, layouts: Layouts, switch: Switch, metric: str) -> float:
    evaluation = Evaluation(job, layouts)
    ledger = at_level(ledger_of(evaluation), evaluation, "typical")
    return predicted_peak_bytes(switch.ledger(ledger), metric)


TIME_TERMS = {name: Switch(job=change) for name, change in TERMS.items()} | SWITCHES
OF_MEMORY = (
    "what older releases of a stack did", "float32 activations of quantised models", "dropout",
    "whole gradients reduced under ZeRO-1", "experts each on their own", "masks of PyTorch's attention",
    "imbalance of experts",
)  # fmt: skip
PEAK_TERMS = {name: switch for name, switch in TIME_TERMS.items() if name in (*OF_MEMORY, *SWITCHES)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    times, peaks = figures(record for file in files for record in read_records(file).records)
    for title, rows in (
        ("times", [*ablate(times, TIME_TERMS), *without_components(times)]),
        ("peaks", ablate(peaks, PEAK_TERMS)),
    ):
        print(f"== {title}")
        for row in rows:
            both = "  ".join(f"median {one.median:6.1%} 90 % {one.high:6.1%}" for one in (row.shown, row.left_out))
            print(f"{row.term:46} {both}  runs moved {row.moved:6.1%}")


if __name__ == "__main__":
    main()
