"""The job of a record: by its name, by another name of it, or the nearest that has equations."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.names import look_up, names, plain
from xe_sizer.evidence.record_parts import Lora
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.optimizer import optimizer_names
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import TASK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.evidence.flags import Flags
    from xe_sizer.evidence.records import Record
    from xe_sizer.training.adapters import AdapterKind
    from xe_sizer.training.methods import MethodKind


@cache
def _known() -> Mapping[str, MethodKind]:
    """Jobs by their names and their other names."""
    others = {alias: kind for kind in METHODS.values() for alias in kind.aliases}
    return others | METHODS


def kind_of(record: Record) -> MethodKind | None:
    """The job that a record names, or the nearest to it: of an optimizer's name, all learns. None: there is none."""
    stated = record.job.strip().lower()
    near = look_up(names().jobs, stated)
    named = METHODS.get(stated) or (METHODS.get(near) if near else None) or _known().get(plain(stated))
    if named is None and optimizer_of_job(record):
        return next(kind for kind in METHODS.values() if kind.default)
    return named


def optimizer_of_job(record: Record) -> str | None:
    """The optimizer that a record names as its job, as BAdam's and GaLore's authors do; None where it names none."""
    name = BUILT_IN.called("optimizer", record.job.strip().lower())
    return name if name in optimizer_names() and plain(record.job) not in _adapters() else None


@cache
def _adapters() -> Mapping[str, AdapterKind]:
    """Kinds of adapters by their names and their other names, spelt as records do."""
    others = {plain(alias): kind for kind in ADAPTERS.values() for alias in kind.aliases}
    return others | {plain(name): kind for name, kind in ADAPTERS.items()}


def adapter_of(record: Record) -> AdapterKind | None:
    """The kind of adapters that a record names as its optimizer (some keep to one kind) or its job; else None."""
    by_job = None if kind_of(record) else _adapters().get(plain(record.job))
    return _adapters().get(plain(record.optimizer or "")) or by_job


def job_of(record: Record, flags: Flags) -> MethodKind:
    """The nearest job with equations, with the adapters that quantised weights mean.

    What learns from its own answers, but was measured without writing any, is its training phase: fine-tuning.

    Raises
    ------
    InputError : a job that has no equation
    """
    kind = kind_of(record)
    if adapter := adapter_of(record):
        kind = _of_task(record, next(other for other in METHODS.values() if other.default), flags)
        flags.put("job", kind.name)
        flags.put("adapter", adapter.name)
        return kind
    if kind is None:
        raise InputError(Problem(f"job '{record.job}': no equation, and none is near"))
    if kind.rollout is not None and not record.reinforces:
        kind = next(other for other in METHODS.values() if other.default)
        if record.lora != Lora() and kind.lighter:
            kind = METHODS[kind.lighter]
        flags.assumed.append(f"job '{record.job}' predicted as {kind.name}: its training phase alone")
    elif kind.name != record.job.strip().lower():
        flags.assumed.append(f"job '{record.job}' predicted as {kind.name}")
    kind = _of_task(record, kind, flags)
    flags.put("job", kind.name)
    return _quantised(record, kind, flags)


def _of_task(record: Record, kind: MethodKind, flags: Flags) -> MethodKind:
    """The job that the record's task is, with the same adapters, or the same job with what its task reads."""
    if TASK not in kind.reads or record.task is None:
        return kind
    own = look_up(names().jobs_by_task, record.task)
    if own is None:
        flags.word(TASK, names().tasks, record.task)
        return kind
    flags.put("adapter", kind.adapter)
    flags.assumed.append(f"job '{record.job}' predicted as {own}: its task")
    return METHODS[own]


def _quantised(record: Record, kind: MethodKind, flags: Flags) -> MethodKind:
    """The job on quantised weights, where the record's are: under the name that means them, or with their adapters."""
    weights = plain(record.weights or "")
    if not any(word in weights for word in names().quantised_weights):
        return kind
    quantised = next(other for other in METHODS.values() if other.quantises)
    if kind.build is not quantised.build and kind.implies_adapter:
        flags.put("adapter", quantised.adapter, f"{record.weights} weights: with the adapters of {quantised.name}")
        return kind
    if kind is not quantised:
        flags.put("job", quantised.name, f"{record.weights} weights: predicted as {quantised.name}")
    return quantised
