"""Logs of trainers and exports of trackers as records: they say what was measured, a scenario under which conditions.

    Hugging Face Trainer    its last line ('train_steps_per_second'), and trainer_state.json
    Megatron-LM             elapsed time per iteration (ms); max allocated of its line on memory
    torchtitan              tps of a device; memory reserved
    DeepSpeed               CurrSamplesPerSec of all ranks; MaxMemAllocated
    Weights & Biases        CSV with a column of a rate, or of times and steps
    TensorBoard             CSV with wall time and step

Source: transformers trainer_utils.py (speed_metrics) and trainer_callback.py (TrainerState); Megatron-LM
megatron/training/training.py (training_log) and utils.py (report_memory); torchtitan components/metrics.py
(MetricsProcessor.log); DeepSpeed utils/timer.py (ThroughputTimer), whose batch is that of all ranks.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem, collecting
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import RecordFile, read_all, records_of
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE
from xe_sizer.training.padding import PACKED
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size
from xe_sizer.units import GIGA, MILLI

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.training.estimate import TrainingEstimate

ENDINGS = (".csv", ".log", ".txt", ".out")
STATE = "trainer_state.json"
WARM_UP = 2  # chosen: readings at the start that compile, allocate and fill caches
MOST_BYTES = 1e9  # chosen: what is read into memory
LEAST_READINGS = 3  # of which a median says something; of fewer all count
MIB_PER_GIB = 1024.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)"


def is_log(file: Path) -> bool:
    """Whether a file is read as a log or an export, and not as records."""
    return file.suffix.lower() in ENDINGS or file.name == STATE


def read_runs(files: Sequence[Path], scenario: Path | None, profiles: Sequence[Path]) -> RecordFile:
    """Records of all files: those of records as they are, logs under the conditions of a scenario.

    Raises
    ------
    InputError    what `read_all` and `read_log` refuse; logs without a scenario
    """
    logs = [file for file in files if is_log(file)]
    others = [file for file in files if not is_log(file)]
    read = read_all(others) if others or not logs else RecordFile(())
    if logs and scenario is None:
        hint = "--scenario job.yaml has the model, lengths, batch, layout and GPUs that they ran with"
        raise InputError(Problem("a log says nothing of its job", Location(str(logs[0])), hint))
    if scenario is None or not logs:
        return read
    ran = conditions_of(size(resolve(read_scenario(scenario, {}, {}), RecordRegistry(profiles))))
    records, problems = list(read.records), list[Problem]()
    for log in logs:
        with collecting(problems):
            records.append(read_log(log, ran))
    if problems:
        raise InputError(problems)
    return RecordFile(tuple(records), read.notes)


def read_log(file: Path, conditions: Mapping[str, Any]) -> Record:
    """The record of a log. conditions : of the run, by the keys of records

    Raises
    ------
    InputError    a file without any figure that is known
    """
    text = _text_of(file)
    readers = (_state,) if file.name == STATE else (_csv,) if file.suffix.lower() == ".csv" else _TEXTS
    measured = next((found for reader in readers if (found := reader(text))), None)
    if not measured:
        hint = "known are logs of the Hugging Face Trainer, Megatron-LM, torchtitan and DeepSpeed, and CSV of trackers"
        raise InputError(Problem("no time and no rate of a step is found in this log", Location(str(file)), hint))
    entry = {
        **conditions,
        "id": f"{file.parent.name}/{file.name}" if file.parent.name else file.name,
        "source": {"title": file.name},
        "date": datetime.fromtimestamp(file.stat().st_mtime, UTC).strftime("%Y-%m"),  # by which a release is chosen
        "measured": measured,
    }
    return records_of([entry], Location(str(file))).records[0]


def _middle(values: Iterable[float]) -> float | None:
    """The median without the first readings."""
    found = list(values)
    late = found[WARM_UP:] if len(found) >= WARM_UP + LEAST_READINGS else found
    return statistics.median(late) if late else None


def _all(pattern: str, text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(pattern, text)]


def _peak(name: str, metric: str, values: Iterable[float]) -> dict[str, Any]:
    most = max(values, default=None)
    if most is None:
        return {}
    return {name: most, "memory_metric": metric} if name == "peak_memory_gib" else {name: most}


# Texts.


def _megatron(text: str) -> dict[str, Any]:
    """` iteration  2/10 | ... elapsed time per iteration (ms): 812.3 |`; memory in MiB."""
    took = _middle(_all(rf"elapsed time per iteration \(ms\): {_NUMBER}", text))
    if took is None:
        return {}
    peaks = (mib / MIB_PER_GIB for mib in _all(rf"max allocated: {_NUMBER}", text))
    return {"step_time_s": took * MILLI, **_peak("peak_memory_gib", "allocated", peaks)}


def _torchtitan(text: str) -> dict[str, Any]:
    """`step:  2  loss: 12.1  memory: 40.2GiB(50.1%)  tps: 3,502`; of a device."""
    rates = _all(rf"\bstep:\s*\d+ .*?\btps: {_NUMBER}", text)
    rate = _middle(rates)
    if rate is None:
        return {}
    return {
        "tokens_per_s_per_gpu": rate,
        **_peak("reserved_memory_gib", "reserved", _all(rf"memory:\s*{_NUMBER}GiB", text)),
    }


def _deepspeed(text: str) -> dict[str, Any]:
    """`RunningAvgSamplesPerSec=.., CurrSamplesPerSec=4.1, MemAllocated=..GB, MaxMemAllocated=20.1GB`; GB are GiB."""
    rate = _middle(_all(rf"CurrSamplesPerSec={_NUMBER}", text))
    if rate is None:
        return {}
    return {"samples_per_s": rate, **_peak("peak_memory_gib", "allocated", _all(rf"MaxMemAllocated={_NUMBER}GB", text))}


def _trainer(text: str) -> dict[str, Any]:
    """`{'train_runtime': 12.3, 'train_samples_per_second': 4.0, 'train_steps_per_second': 0.5, ...}`."""
    rates = _all(rf"train_steps_per_second['\"]?\s*[:=]\s*['\"]?{_NUMBER}", text)
    if rates and rates[-1] > 0:
        return {"step_time_s": 1.0 / rates[-1]}
    return {}


_TEXTS: tuple[Callable[[str], dict[str, Any]], ...] = (_megatron, _torchtitan, _deepspeed, _trainer)


def _state(text: str) -> dict[str, Any]:
    """trainer_state.json of the Hugging Face Trainer: its last entry has the rates of the whole run."""
    try:
        history = json.loads(text).get("log_history", [])
    except (json.JSONDecodeError, AttributeError, RecursionError):
        return {}
    rows = [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []
    for row in reversed(rows):
        if row.get("train_runtime") and row.get("step"):
            return {"step_time_s": row["train_runtime"] / row["step"]}
    return {}


# Tables of trackers.

_TIMES = ("_runtime", "_timestamp", "wall time", "wall_time", "relative time (wall)", "relative time (process)")
_STEPS = ("train/global_step", "step", "_step", "global_step")
_RATES: tuple[tuple[str, Callable[[float], dict[str, float]]], ...] = (
    ("train_steps_per_second", lambda value: {"step_time_s": 1.0 / value}),
    ("iteration-time", lambda value: {"step_time_s": value}),
    ("step_time", lambda value: {"step_time_s": value}),
    ("throughput(tps)", lambda value: {"tokens_per_s_per_gpu": value}),
    ("samples_per_sec", lambda value: {"samples_per_s": value}),
    ("samples/sec", lambda value: {"samples_per_s": value}),
)  # fmt: skip
_MEMORY = (
    ("max_reserved(gib)", "reserved_memory_gib", "reserved"),
    ("max_active(gib)", "peak_memory_gib", "allocated"),
)


def _csv(text: str) -> dict[str, Any]:
    """A column of a rate or a time of steps, else times and steps, of which the differences count."""
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows:
        return {}
    columns = {name: [_figure(row.get(name)) for row in rows] for name in rows[0] if name}
    measured = _rated(columns) or _stepped(columns)
    for part, key, metric in _MEMORY if measured else ():
        found = [value for name, values in columns.items() if part in _plain(name) for value in values if value]
        if found and key not in measured:
            measured |= _peak(key, metric, found)
            break
    return measured


def _plain(name: str) -> str:
    return name.lower().replace(" ", "") if "(" in name else name.lower()


def _rated(columns: Mapping[str, list[float | None]]) -> dict[str, Any]:
    for part, turned in _RATES:
        for name, values in columns.items():
            if part in _plain(name) and not _plain(name).endswith(("__min", "__max")):
                middle = _middle(value for value in values if value)
                if middle:
                    return dict(turned(middle))
    return {}


def _stepped(columns: Mapping[str, list[float | None]]) -> dict[str, Any]:
    """Seconds of a step from what passed between readings."""
    times = next((columns[name] for wanted in _TIMES for name in columns if name.lower() == wanted), None)
    steps = next((columns[name] for wanted in _STEPS for name in columns if name.lower() == wanted), None)
    if times is None or steps is None:
        return {}
    known = [(at, step) for at, step in zip(times, steps, strict=True) if at is not None and step is not None]
    taken = [
        (later[0] - earlier[0]) / (later[1] - earlier[1])
        for earlier, later in pairwise(known)
        if later[1] > earlier[1] and later[0] > earlier[0]
    ]
    middle = _middle(taken)
    return {"step_time_s": middle} if middle else {}


def _figure(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _text_of(file: Path) -> str:
    """What a process printed: any bytes may be among it. Raises InputError: no such file, or one of a terabyte"""
    try:
        if file.stat().st_size > MOST_BYTES:
            hint = "cut it: grep has the lines with times"
            raise InputError(Problem(f"a log of more than {MOST_BYTES / GIGA:g} GB", Location(str(file)), hint))
        return _COLOUR.sub("", file.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise InputError(Problem(f"cannot read: {error.strerror}", Location(str(file)))) from error


# Conditions: what a scenario says of its runs, in the words of records.


def conditions_of(sized: TrainingEstimate) -> dict[str, Any]:
    """The conditions of a job as a record states them, with what was chosen for it."""
    job, layouts, values = sized.resolved.job, sized.layouts, sized.resolved.scenario.values
    size = {name: int(getattr(layouts, name)[0]) for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero")}
    stack, kind, shape = job.stack, job.method.kind, job.model
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
    adapted = "lora" in job.method.settings
    lora = {"rank": values.lora.rank or stack.defaults.lora_rank, "targets": list(values.lora.targets or ())}
    offload = OFFLOAD[int(layouts.offload[0])]
    return {
        "job": kind.name,
        "model": shape.name,
        "shape": {name: getattr(shape, name) for name in sizes},
        "stack": stack.name,
        **({"framework": f"{stack.name}@{stack.release}"} if stack.release else {}),
        "gpu": job.server.accelerator.name,
        "gpus": sized.gpus,
        "gpus_per_node": min(job.server.accelerators, sized.gpus),
        "precision": job.precision,
        **({"load_dtype": values.train.weights_dtype} if values.train.weights_dtype else {}),
        "layout": size,
        "batch": {
            "micro": int(layouts.micro_batch[0]),
            "global": job.global_batch,
            "grad_accum": int(layouts.grad_accum[0]),
        },
        **_lengths_of(sized),
        "attention": job.attention,
        "recompute": RECOMPUTE[int(layouts.recompute[0])],
        "optimizer": job.optimizer.name,
        **({"lora": {name: value for name, value in lora.items() if value}} if adapted else {}),
        **({"offload": offload} if offload != OFFLOAD[0] else {}),
    }


def _lengths_of(sized: TrainingEstimate) -> dict[str, Any]:
    """Sequences of one length where samples are packed, else what is known of the samples."""
    job, data = sized.resolved.job, sized.resolved.values.data
    if job.padding == PACKED:
        return {"seq_len": job.seq_len, "packing": True}
    stated = {"dataset": data.profile, "samples": data.samples, "longest_sample_tokens": data.max_tokens}
    mean = data.mean_tokens or (None if data.profile else job.lengths.mean)
    lengths = {**stated, "mean_tokens": mean, "max_seq_len": job.seq_len, "padding": job.padding}
    return {key: value for key, value in lengths.items() if value is not None}
