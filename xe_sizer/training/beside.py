"""What each of the frozen weights beside a model takes of memory and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.result.training import Beside
from xe_sizer.training.frozen_weights import bytes_as_copy, on_host
from xe_sizer.training.run_time import beforehand, run_parts
from xe_sizer.training.step import timeline

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.methods.method import Frozen


def beside_rows(sized: TrainingEstimate) -> Iterator[Beside]:
    """Each of them, with what it adds to a step; of passes beforehand, what they add to the run."""
    method = sized.resolved.job.method
    for one in method.frozen:
        yield _row(sized, one, once=False, seconds=_seconds(sized, one))
    for one in method.before:
        seconds = float(run_parts(sized.run)[beforehand.name][0]) / len(method.before)
        yield _row(sized, one, once=True, seconds=seconds)


def _row(sized: TrainingEstimate, one: Frozen, *, once: bool, seconds: float) -> Beside:
    job, layouts = sized.resolved.job, sized.layouts
    stage, _ = sized.ledger.worst()
    on_card = one.copies * (1.0 - float(on_host(job, layouts)[0]))
    return Beside(
        name=one.words,
        model=(one.model or job.model).name,
        copies=one.copies,
        passes=one.forwards,
        beforehand=once,
        bytes=on_card * float(bytes_as_copy(job.beside(one), layouts)[stage, 0]),
        seconds=seconds,
    )


def _seconds(sized: TrainingEstimate, one: Frozen) -> float:
    """What a step takes less without its passes, gathers and transfers among it."""
    job = sized.resolved.job
    others = tuple(each for each in job.method.frozen if each is not one)
    without = timeline(replace(job, method=replace(job.method, frozen=others)), sized.layouts, sized.choice.sequences)
    return max(sized.step_s - float(without.step_s[0]), 0.0)
