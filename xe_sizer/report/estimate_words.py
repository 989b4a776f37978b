"""The answer of `estimate` in one sentence: what is trained on what, how long, and what a reader must know."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import spanned
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    byte_size,
    clean,
    duration,
    duration_range,
    gib,
    number,
    percent,
    whole,
)
from xe_sizer.report.iterations import round_noun
from xe_sizer.report.premises import assumed_run
from xe_sizer.report.verdict import (
    currency_of,
    gpu_memory_missing,
    is_tight,
    job_words,
    missed_text,
    profile_name,
    unsure_of_host,
)
from xe_sizer.units import BARE_SERVER, GIB

if TYPE_CHECKING:
    from xe_sizer.result.training import Memory, Result

YES = "FITS"


def subject(result: Result) -> str:
    return f"{job_words(result.scenario)} on {hardware(result)}"


def hardware(result: Result) -> str:
    gpu, server = profile_name(result, "gpu"), profile_name(result, "server")
    accelerators = f"{result.gpus.count:,} x {gpu or 'GPU'}"
    named = server and not server.startswith(BARE_SERVER)
    return f"{accelerators} ({result.gpus.nodes:,} x {server})" if named else accelerators


def outcome(result: Result) -> str:
    """Memory and time, or what is missing."""
    if not result.verdict.fits:
        return _shortage(result)
    missed, figures = missed_text(result.verdict, currency_of(result)), f"{_memory_use(result)}, {_run(result)}"
    return f"{missed}: {figures}" if missed else figures


def _memory_use(result: Result) -> str:
    return f"{gib(result.memory.peak_bytes)} of {gib(result.memory.usable_bytes)} GiB per GPU used"


def _run(result: Result) -> str:
    hours = number(result.cost.gpu_hours.expected)
    return f"{spanned(result.time.total_s, result.time.calibrated)}, {hours} GPU-hours"


def pace_words(result: Result) -> str:
    """Behind the time of the whole job: the steps that it is of, and whether anybody gave them."""
    assumed = assumed_run(result.scenario)
    noun = round_noun(result.scenario)
    name = noun if result.time.steps == 1 else f"{noun}s"
    words = f"{result.time.steps:,.9g} {name} of {duration(result.time.step_s.expected)}"
    words += _between(result)
    return f" {assumed} ({words})" if assumed else f", {words}"


def _between(result: Result) -> str:
    """What checkpoints, evaluations and failures take of the whole job: `; of it checkpoints 3 %, failures 1 %`."""
    parts = [f"{clean(part.name)} {percent(part.share)}" for part in result.time.run[1:]]
    return f"; of it {', '.join(parts)}" if parts else ""


def stack_words(result: Result) -> str:
    """The stack, what shares its states out where that is said, and that it was chosen where nobody named one."""
    chosen = (result.scenario.get("origin") or {}).get("stack") == "default"
    stack, backend = result.scenario.get("stack", ""), (result.scenario.get("train") or {}).get("backend")
    on = f" on {clean(backend)}" if backend not in (None, stack) else ""
    return f"stack {clean(stack)}{on}{', chosen' if chosen else ''}"


def _shortage(result: Result) -> str:
    if result.verdict.reasons:
        return clean(result.verdict.reasons[0].message)
    return gpu_memory_missing(result.memory) or "no layout fits"


def caution(result: Result) -> str:
    """What changes the meaning of the answer; what tight or unsure means here and how to rule it out."""
    return "; ".join(filter(None, (*map(clean, result.cautions), _doubt(result))))


def _doubt(result: Result) -> str:
    if not is_tight(result):
        return ""
    return _host_doubt(result) if unsure_of_host(result) else _little_room(result)


def _host_doubt(result: Result) -> str:
    needed = whole(math.ceil(result.memory.host_bytes / GIB))
    return (
        f"unsure: offloading needs {needed} GiB of host memory per node, and how much a node has is not known; "
        "'host_memory_gib: N' in the scenario (--host-memory-gib N) sets it"
    )


def _little_room(result: Result) -> str:
    memory = result.memory
    error_bytes = memory.error_share * memory.peak_bytes
    if memory.headroom_bytes >= error_bytes and memory.host_available_bytes:
        return _little_on_the_host(memory, memory.host_available_bytes)
    text = (
        f"tight: {gib(memory.headroom_bytes)} GiB of headroom is less than {percent(memory.error_share)} of the peak, "
        f"{gib(error_bytes)} GiB, so a run may still run out of memory"
    )
    asked = max((limit.limit for limit in result.verdict.limits if limit.name == "min_headroom_gib"), default=0.0)
    if asked * GIB >= error_bytes:
        return text
    room = f"{math.ceil(10 * error_bytes / GIB) / 10:.1f}"
    return f"{text}; 'min_headroom_gib: {room}' under 'limits' (--min-headroom-gib {room}) enforces it"


def _little_on_the_host(memory: Memory, available_bytes: float) -> str:
    left = gib(available_bytes - memory.host_reserve_bytes - memory.host_bytes)
    return (
        f"tight: offloading leaves {left} GiB of the node's memory free beside the {gib(memory.host_reserve_bytes)} "
        f"GiB kept for the system, less than the error of the model ({percent(memory.error_share)})"
    )


def pace(result: Result) -> tuple[str, float | None, str]:
    """The whole job."""
    if not result.verdict.fits:
        return "total_s", None, NOT_A_NUMBER
    return "total_s", result.time.total_s.expected, duration(result.time.total_s.expected)


def pace_range(result: Result) -> str:
    return duration_range(result.time.total_s) if result.verdict.fits else ""


def missing_memory(result: Result) -> str:
    """Of a GPU, else of the host: `80.0 GiB missing`."""
    memory = result.memory
    missing = gpu_memory_missing(memory)
    if missing:
        return missing
    available = memory.host_available_bytes
    if available is not None and memory.host_bytes > available - memory.host_reserve_bytes:
        lacks = memory.host_bytes - max(available - memory.host_reserve_bytes, 0.0)
        return f"{byte_size(lacks)} of host memory missing"
    return "no layout fits"
