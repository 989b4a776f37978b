"""The host at hand: what software takes on it, where it was measured what a launch takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.stack import Stack

    Software = TypeVar("Software", Stack, Engine)

# Fitted: from one small kernel to the next on a host for which the launch times of stacks hold. On the host of 40 runs
# whose conditions are all known it is 11 us, and their steps take 2.2 times as long between their kernels
# (xe_sizer/evidence/data/measured.jsonl: 16 virtual cores of a 2.1 GHz Xeon). That of engines' runs is assumed alike.
USUAL_LAUNCH_S = 5e-6
DURATIONS = ("_us", "_ms")  # how names of times end
AROUND = ("step_overhead_ms",)  # what is around a step: it stays, as the 40 runs say, and part of it is the card's work


def host_slowdown(gpu: Accelerator) -> float:
    """What a launch takes on the host at hand over what it takes on the usual one [-]; 1 where nobody measured it."""
    return 1.0 if gpu.laws.launch_s is None else gpu.laws.launch_s / USUAL_LAUNCH_S


def on_host(software: Software, gpu: Accelerator) -> Software:
    """Return the stack or engine with the times of its host in proportion to what a launch takes on the host at hand.

        t = t of the stack or engine x launch / 5 us

    Times of Python's work grow alike from one host to another; where nobody measured a launch they stay.
    """
    slower, host = host_slowdown(gpu), software.host
    if slower == 1.0:
        return software
    times = {
        name: getattr(host, name) for name in host.__struct_fields__ if name.endswith(DURATIONS) and name not in AROUND
    }
    scaled = {name: time * slower for name, time in times.items() if time is not None}
    return msgspec.structs.replace(software, host=msgspec.structs.replace(host, **scaled))
