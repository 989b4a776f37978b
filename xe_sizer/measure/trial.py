"""A job measured, and what is said of it: with the laws of this machine, and with those of the catalogue."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record, predictions
from xe_sizer.evidence.records import records_of
from xe_sizer.measure import collectives, job, session
from xe_sizer.measure.profile import find_known, slug
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.measurement import MeasuredJob, Measurement
from xe_sizer.scenario.read import changed, read_scenario
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.search import size as size_training

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xe_sizer.evidence.predict import PredictedRecord
    from xe_sizer.measure.collectives import Ranks
    from xe_sizer.measure.model import Plan
    from xe_sizer.measure.samples import Machine
    from xe_sizer.measure.timer import Clock

Said = dict[str, Any]
"""What a prediction says of a record: seconds and bytes by the names of `MeasuredJob`."""


def profile_of(machine: Machine, registry: Registry) -> str:
    """The profile that stands for the device: one that was measured here, else the catalogue's. Raises InputError."""
    known = find_known(machine, registry)
    if known is not None:
        return known.name
    own = slug(machine.device)
    if registry.find("gpu", own) is None:
        hint = "run 'xe-sizer measure' without --job first, with the same -o DIR"
        raise InputError(Problem(f"no profile is of this device, {machine.device}", Location("--job"), hint))
    return own


def measure_job(
    file: Path,
    steps: int,
    device: str,
    folder: Path,
    registry: Registry,
    say: Callable[[str], object],
    clock: Clock = time.perf_counter,
    gpu: str | None = None,
) -> Measurement | None:
    """Run a scenario's job for some steps and keep its record; None of ranks that have nothing to say.

    folder : of profiles that were measured, and where the record goes
    gpu : the profile of the device; None: that of its name

    Raises
    ------
    InputError    a job that cannot be run here, a device that no profile is of
    """
    ranks = collectives.started_ranks()
    own = collectives.join(device, ranks) if ranks else device
    try:
        machine = session.machine(own)
        gpu = gpu or profile_of(machine, registry)
        plan = _fitted(_planned(file, gpu, ranks, registry), machine, gpu, ranks, registry.user_folders)
        if plan.layers < plan.shape.layers:
            say(f"note: {plan.layers} of {plan.shape.layers} layers fit")
        done, error = _ran(plan, own, steps, ranks, clock)
        if ranks is not None and ranks.rank > 0:
            return None
        made = job.record(plan, done, machine, gpu, ranks, error)
        kept = folder / job.RECORDS
        job.keep(made, kept)
        return _report(made, plan, done, machine, gpu, kept, registry)
    finally:
        if ranks is not None:
            collectives.leave()


def _planned(file: Path, gpu: str, ranks: Ranks | None, registry: Registry) -> Plan:
    scenario = read_scenario(file, {}, os.environ)
    count = ranks.size if ranks else 1
    layout = {f"layout.{name}": 1 for name in ("tp", "pp", "cp") if f"layout.{name}" not in scenario.origin}
    if count > 1 and "layout.zero" not in scenario.origin:
        layout["layout.zero"] = job.DATA_PARALLEL
    asked = changed(scenario, {"gpu": gpu, "gpus": count, **layout})
    return job.plan_of(size_training(resolve_training(asked, registry)), file)


def _fitted(plan: Plan, machine: Machine, gpu: str, ranks: Ranks | None, folders: Sequence[Path]) -> Plan:
    """The plan with as many layers as fit, by halving what does not."""
    least, most = 0, plan.layers
    while least < most:
        tried = replace(plan, layers=(least + most + 1) // 2 if least else most)
        if _predicted(job.record(tried, None, machine, gpu, ranks), folders).fits:
            if tried.layers == plan.layers:
                return plan
            least = tried.layers
        else:
            most, least = tried.layers - 1, max(least, min(1, tried.layers - 1))
    return replace(plan, layers=max(least, 1))


def _ran(plan: Plan, device: str, steps: int, ranks: Ranks | None, clock: Clock) -> tuple[job.Steps | None, str]:
    """The steps, or None with the device's words where memory does not suffice."""
    try:
        return job.run(plan, device, steps, ranks, clock), ""
    except (RuntimeError, MemoryError) as error:
        if not job.is_out_of_memory(error):
            raise
        return None, str(error).split(". GPU")[0]


def _predicted(made: dict[str, Any], folders: Sequence[Path]) -> PredictedRecord:
    (record,) = records_of([made], Location("measured job")).records
    return predict_record(record, RecordRegistry(folders))


def _said(made: dict[str, Any], folders: Sequence[Path]) -> Said:
    found = {one.quantity: one for one in predictions(_predicted(made, folders))}
    said: Said = {}
    if (step := found.get("step_time")) is not None:
        said |= {"predicted_s": float(step.predicted), "low_s": step.low, "high_s": step.high}
    if (peak := found.get("peak_memory")) is not None:
        said["predicted_peak_bytes"] = float(peak.predicted)
    return said


def _report(
    made: dict[str, Any], plan: Plan, done: job.Steps | None, machine: Machine, gpu: str, kept: Path,
    registry: Registry,
) -> Measurement:  # fmt: skip
    here = registry.accelerator(gpu)
    said = _said(made, registry.user_folders)
    before: Said = {}
    if here.measured is not None and find_known(machine, Registry()) is not None:
        before = _said(made, ())
    ran = MeasuredJob(
        record=made["id"],
        file=str(kept),
        model=plan.shape.name,
        layers=plan.layers,
        of_layers=plan.shape.layers,
        steps=len(done.seconds) if done else 0,
        step_s=statistics.median(done.seconds) if done else 0.0,
        peak_bytes=done.peak_bytes if done else None,
        reserved_bytes=done.reserved_bytes if done else None,
        driver_bytes=done.driver_bytes if done else None,
        before_s=before.get("predicted_s"),
        out_of_memory=done is None,
        **said,
    )
    return Measurement(
        schema_version=SCHEMA_VERSION,
        device=machine.device,
        software=machine.software,
        host=machine.host,
        date=machine.date,
        conditions=done.conditions if done else "",
        profile=gpu,
        file="",
        inherits=None,
        samples=0,
        peaks_flops_per_s=dict(here.peak_flops_per_s),
        bandwidth_bytes_per_s=here.memory_bandwidth_bytes_per_s,
        measured_peaks=here.measured is not None and find_known(machine, Registry()) is None,
        laws=(),
        job=ran,
    )
