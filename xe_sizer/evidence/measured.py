"""What a record measured, as seconds per optimizer step, bytes per GPU and a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.units import GIB, HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from xe_sizer.evidence.record_parts import Measured
    from xe_sizer.evidence.records import Record

UNSTATED = "unstated"
METRICS = ("allocated", "reserved", "nvidia-smi", UNSTATED)


@frozen(eq=True)
class Step:
    """The estimated step that a rate refers to.

    samples : sequences of one optimizer step; micro_batches : per replica and step
    tokens : tokens of a sequence as the source would count them; `lengths_stated` unless they are assumed
    """

    samples: int
    micro_batches: int
    tokens: float
    gpus: int
    lengths_stated: bool


@frozen(eq=True)
class Conversion:
    """A measured figure in SI units, and how it was derived where the source does not state it as such."""

    value: float
    assumed: str | None = None


def measured_step_s(record: Record, step: Step, counts_micro_batches: bool) -> Conversion | None:
    """Seconds of one optimizer step, from the most direct figure that the record has; None where it has none.

    tokens_per_s_per_gpu        first where lengths are not stated: a rate in tokens depends least on them
    step_time_s                 as stated; x micro-batches where the framework calls each of them a step
    samples_per_s               global batch / rate
    minutes or seconds, steps   time / steps
    seconds, rows, epochs       global batch x time / (rows x epochs), one epoch where none is stated
    tokens_per_s_per_gpu        global batch x tokens / (rate x GPUs)
    gpu_hours, tokens           global batch x tokens x hours / (all tokens x GPUs)
    """
    m = record.measured
    share = step.micro_batches if counts_micro_batches else 1
    unit = "a step is one micro-batch in this framework" if counts_micro_batches and share > 1 else None
    whole_s = m.seconds or (m.minutes * MINUTE_S if m.minutes else None)
    rate = _tokens_per_s(m, step)
    if rate and not step.lengths_stated:
        return Conversion(step.samples * step.tokens / rate, "compared by tokens per second: lengths not stated")
    if m.step_time_s:
        return Conversion(m.step_time_s * share, unit)
    if m.samples_per_s:
        return Conversion(step.samples / m.samples_per_s)
    if whole_s and m.steps:
        return Conversion(whole_s / m.steps * share, unit or "the whole job's time over its steps")
    if rate:
        return Conversion(step.samples * step.tokens / rate)
    if whole_s and m.rows:
        epochs = "" if m.epochs else ", one epoch"
        return Conversion(step.samples * whole_s / (m.rows * (m.epochs or 1.0)), f"the whole job over its rows{epochs}")
    if m.gpu_hours and m.tokens:
        seconds = step.samples * step.tokens * m.gpu_hours * HOUR_S / (m.tokens * step.gpus)
        return Conversion(seconds, "GPU-hours of the whole job over its tokens")
    return None


def _tokens_per_s(m: Measured, step: Step) -> float | None:
    """Tokens per second of all GPUs."""
    if m.tokens_per_s_per_gpu:
        return m.tokens_per_s_per_gpu * step.gpus
    return m.tokens_per_s_total


def measured_peak_bytes(measured: Measured) -> tuple[Conversion, str] | None:
    """Peak memory of a GPU and its metric; a figure of no stated metric stays one.

    Publications that do not say print what PyTorch allocated or reserved about as often as what a monitor shows.
    """
    for value, metric in (
        (measured.peak_memory_gib, measured.memory_metric or UNSTATED),
        (measured.reserved_memory_gib, "reserved"),
        (measured.nvidia_smi_gib, "nvidia-smi"),
    ):
        if value:
            known = metric if metric in METRICS else "nvidia-smi"
            note = None if known == metric else f"memory metric '{metric}' read as nvidia-smi"
            if metric == UNSTATED:
                note = "memory metric not stated: between allocated and nvidia-smi"
            return Conversion(value * GIB, note), known
    return None


def measured_oom(measured: Measured) -> bool | None:
    """Whether the run met the end of memory: as stated, else false where anything else was measured."""
    if measured.oom is not None:
        return measured.oom
    figures = (
        measured.step_time_s, measured.samples_per_s, measured.tokens_per_s_per_gpu, measured.tokens_per_s_total,
        measured.minutes, measured.seconds, measured.gpu_hours, measured.peak_memory_gib, measured.nvidia_smi_gib,
        measured.ttft_ms, measured.prefill_ms, measured.tpot_ms, measured.tpot_ms_p50, measured.output_tokens_per_s,
        measured.total_tokens_per_s, measured.requests_per_s, measured.iteration_s, measured.rollout_s,
        measured.train_s,
    )  # fmt: skip
    return False if measured.fits or any(figures) else None
