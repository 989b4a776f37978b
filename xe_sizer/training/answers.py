"""What jobs that compare answers do otherwise than those that learn the next token: their batches, and their loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.software.stack import Objective
from xe_sizer.training.padding import LONGEST_IN_MICRO_BATCH, PACKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Method


def usual_padding(stack: Stack, method: Method) -> str:
    """What samples are padded to unless somebody says: packed where a model is made, else as the stack has it."""
    if not method.kind.fine_tunes:
        return PACKED
    usual, packs = stack.defaults.padding, stack.supports.packs_answers or not method.compares
    return LONGEST_IN_MICRO_BATCH if usual == PACKED and not packs else usual


def without_effect(given: Given, job: Job) -> Iterator[str]:
    """What of the scenario a job that compares answers has no use for."""
    if "loss" in given.origin and job.method.objective is not Objective.NEXT_TOKEN:
        yield f"{given.caller.setting('loss', given.values.loss)} has no effect on the job {job.method.name}"
    if "train.padding" in given.origin and job.padding == PACKED and not job.packs:
        yield f"{job.stack.name} does not pack the answers of {job.method.kind.label}: it pads them"
