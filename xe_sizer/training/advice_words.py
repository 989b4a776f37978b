"""What a change leads to, in the words of advice: memory, time, and what the job needs more or less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.units import GIB, HOUR_S, MINUTE_S, three_digits

if TYPE_CHECKING:
    from xe_sizer.scenario.trials import Option
    from xe_sizer.training.estimate import TrainingEstimate

FROM_HOURS_S = 90 * MINUTE_S  # reports write 72.3 min


def effect(before: TrainingEstimate, option: Option[TrainingEstimate]) -> str:
    """Memory and time that the change leads to, and against a job that can run what it adds to its time."""
    after = option.after
    words = memory_words(after)
    host, has = float(after.ledger.host_bytes[0]), after.resolved.job.server.host_memory_bytes
    if host >= GIB:
        words += f", {host / GIB:,.0f}{f' of {has / GIB:,.0f}' if has else ''} GiB of host memory per node"
        words += " (if available)" if after.host_unknown else ""
    if before.resolved.gpus is None and after.gpus != before.gpus:
        words += f", on {after.gpus} instead of {before.gpus} GPUs"
    micro, other = int(before.layouts.micro_batch[0]), int(after.layouts.micro_batch[0])
    if micro != other and "train.micro_batch" not in option.change.values:
        words += f", micro-batch {other} instead of {micro}"
    words += f", {_time_words(after.total_s)}"
    return f"{words} instead of {_time_words(before.total_s)} ({_gain(before, after)})" if before.fits else words


def memory_words(after: TrainingEstimate) -> str:
    """What the fullest GPU holds, and whether an error of the model could turn that."""
    words = f"{three_digits(after.peak_bytes / GIB)} of {three_digits(after.usable_bytes / GIB)} GiB per GPU"
    return words if after.roomy else f"{words} (tight)"


def _gain(before: TrainingEstimate, after: TrainingEstimate) -> str:
    """Time, and on another number of GPUs GPU-hours, against the job as it was asked."""
    words = f"{_difference(before.total_s, after.total_s)} time"
    if after.gpus != before.gpus:
        words += f", {_difference(before.total_s * before.gpus, after.total_s * after.gpus)} GPU-hours"
    return words


def _difference(before: float, after: float) -> str:
    """A change as people say it: +18 %; no more than a factor where a share would be hard to read."""
    if after >= 2.95 * before:
        return f"{after / before:.3g} x the"
    share = round(100.0 * (after / before - 1.0))
    return f"{share:+d} %" if share else "same"


def _time_words(seconds: float) -> str:
    """A time in hours, and in minutes or seconds where reports have them so."""
    if seconds >= FROM_HOURS_S:
        hours = seconds / HOUR_S
        return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"
    return f"{three_digits(seconds / MINUTE_S)} min" if seconds >= MINUTE_S else f"{three_digits(seconds)} s"
