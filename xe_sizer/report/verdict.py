"""The answer in one word and one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from xe_sizer.report import serve_words
from xe_sizer.report.format import NOT_A_NUMBER, byte_size, clean, duration, duration_range, gib, number, percent
from xe_sizer.report.names import profile_name
from xe_sizer.report.phrases import missed_text, reason_text
from xe_sizer.result.serving import OVERLOADED, Answer, ServeResult
from xe_sizer.result.training import Memory, Result
from xe_sizer.units import GIB


def verdict_word(result: Answer) -> str:
    if not result.verdict.fits:
        return "DOES NOT FIT"
    if any(reason.code == OVERLOADED for reason in result.verdict.reasons):
        return "OVERLOADED"
    if not result.verdict.meets_limits:
        return "MISSES LIMITS"
    yes = "SERVES" if isinstance(result, ServeResult) else "FITS"
    return f"{yes}, TIGHT" if is_tight(result) else yes


def is_tight(result: Answer) -> bool:
    """Whether it fits by less than the model may be wrong."""
    return result.verdict.fits and result.verdict.margin == "tight"


def caution(result: Answer) -> str:
    """What a reader must know although the answer may be yes; empty where there is room."""
    if isinstance(result, ServeResult):
        return serve_words.caution(result)
    return _tight(result) if is_tight(result) else ""


def _tight(result: Result) -> str:
    """What tight means here and how to rule it out."""
    memory = result.memory
    error_bytes = memory.error_share * memory.peak_bytes
    text = (
        f"tight: {gib(memory.headroom_bytes)} GiB of headroom is inside the error of the model, {gib(error_bytes)} GiB "
        f"({percent(memory.error_share)} of the peak), so a run may still run out of memory"
    )
    asked = max((limit.limit for limit in result.verdict.limits if limit.name == "min_headroom_gib"), default=0.0)
    if asked * GIB >= error_bytes:
        return text
    room = f"{math.ceil(10 * error_bytes / GIB) / 10:.1f}"
    return f"{text}; 'min_headroom_gib: {room}' under 'limits' (--min-headroom-gib {room}) makes that room a limit"


def subject(result: Answer) -> str:
    """What was sized: `LoRA of llama-2-70b on 16 x h100-sxm-80gb (2 x dell-xe9680-h100)`."""
    if isinstance(result, ServeResult):
        return serve_words.subject(result)
    return f"{job_words(result.scenario)} on {hardware(result)}"


def job_words(scenario: Mapping[str, Any]) -> str:
    """The job and its model: `LoRA of llama-2-70b`."""
    names = scenario.get("names") or {}
    job = str(names.get("job") or scenario.get("job", "training"))
    model = clean(names.get("model") or scenario.get("model") or "the model")
    return f"{clean(job)} of {model}"


def hardware(result: Result) -> str:
    gpu, server = profile_name(result, "gpu"), profile_name(result, "server")
    accelerators = f"{result.gpus.count} x {gpu or 'GPU'}"
    return f"{accelerators} ({result.gpus.nodes} x {server})" if server else accelerators


def headline(result: Answer) -> str:
    """Subject and outcome in one line; see `subject` and `outcome`."""
    return f"{subject(result)}: {outcome(result)}"


def outcome(result: Answer) -> str:
    if isinstance(result, ServeResult):
        return serve_words.outcome(result)
    if not result.verdict.fits:
        return _shortage(result)
    missed, figures = missed_text(result.verdict), f"{_memory_use(result)}, {_run(result)}"
    return f"{missed}: {figures}" if missed else figures


def _memory_use(result: Result) -> str:
    return f"{gib(result.memory.peak_bytes)} of {gib(result.memory.usable_bytes)} GiB per GPU used"


def _run(result: Result) -> str:
    span = result.time.total_s
    hours = number(result.cost.gpu_hours.expected)
    return f"{duration(span.expected)} ({duration_range(span)}{uncalibrated(result)}), {hours} GPU-hours"


def uncalibrated(result: Result) -> str:
    """A mark for ranges that no measurement stands behind."""
    return "" if result.time.calibrated else ", uncalibrated"


def _shortage(result: Result) -> str:
    memory = result.memory
    where = f"({clean(memory.gpu)}, {clean(memory.phase)})"
    if memory.headroom_bytes < 0:
        return (
            f"needs {gib(memory.peak_bytes)} GiB per GPU, {gib(memory.usable_bytes)} GiB available, "
            f"{gib(-memory.headroom_bytes)} GiB missing {where}"
        )
    return clean(result.verdict.reasons[0].message) if result.verdict.reasons else "no layout fits"


def pace(result: Answer) -> str:
    """How long it takes, in a word: the whole job, or a token of an answer."""
    if isinstance(result, ServeResult):
        tpot_s = result.latency.tpot_s.expected
        return NOT_A_NUMBER if tpot_s is None else f"{duration(tpot_s)} a token"
    return duration(result.time.total_s.expected) if result.verdict.fits else NOT_A_NUMBER


def missing_memory(result: Answer) -> str:
    """How much is missing where, in a few words: `80.0 GiB missing`."""
    memory = result.memory
    if memory.headroom_bytes < 0:
        return f"{gib(-memory.headroom_bytes)} GiB missing"
    available = memory.host_available_bytes if isinstance(memory, Memory) else None
    if isinstance(memory, Memory) and available is not None and memory.host_bytes > available:
        return f"{byte_size(memory.host_bytes - available)} of host memory missing"
    return "no layout fits"


def reasons_beyond(result: Answer) -> tuple[str, ...]:
    """Reasons of the verdict without what the headline already says."""
    said = headline(result)
    texts = []
    for reason in result.verdict.reasons:
        if clean(reason.message) not in said:
            texts.append(reason_text(reason))
        elif reason.fix:
            texts.append(f"Fix: {clean(reason.fix)}")
    return tuple(texts)
