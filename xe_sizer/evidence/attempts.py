"""A record's scenario is tried as it is, and where it cannot be, with less and less of its layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from xe_sizer.errors import InputError
from xe_sizer.evidence.prediction import reason_of
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import read_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.evidence.scenario_of import Asked
    from xe_sizer.scenario.read import Given

T = TypeVar("T")

# What is given up, in this order, where a record's layout is none that its stack could run.
GIVE_UP = (
    "layout.schedule", "layout.vpp", "layout.sequence_parallel", "layout.offload", "layout.ep", "layout.zero",
    "layout.dp", "train.micro_batch", "rollout.tp", "rollout.engine", "rollout.asynchronous", "layout.cp", "layout.pp",
    "layout.tp",
)  # fmt: skip
NEVER_GIVEN_UP = ("model", "server", "gpus", "stack", "job", "train.global_batch")
KEY_OF_FLAG = {f"--{option}": key for option, key in OPTIONS.items()}


def first_possible(asked: Asked, attempt: Callable[[Given], T]) -> tuple[Asked, T]:
    """What an attempt makes of the scenario; keys that it refuses are given up one after the other.

    Raises
    ------
    InputError : why it cannot be, with nothing left to give up
    """
    for _ in range(len(asked.flags)):
        try:
            return asked, attempt(read_scenario(None, asked.flags, {}))
        except InputError as error:
            asked = _without_the_impossible(asked, error)
    raise AssertionError("a scenario lost all its keys and still could not be predicted")


def _without_the_impossible(asked: Asked, error: InputError) -> Asked:
    """The scenario without the key that the error points at, or without the next that may be given up.

    Raises the error again where nothing is left to give up.
    """
    named = [KEY_OF_FLAG.get(problem.location.name) if problem.location else None for problem in error.problems]
    keys = [key for key in named if key and key in asked.flags and key not in NEVER_GIVEN_UP]
    key = next(iter(keys), None) or next((key for key in GIVE_UP if key in asked.flags), None)
    if key is None:
        raise error
    left = {name: value for name, value in asked.flags.items() if name != key}
    text = f"{key} {asked.flags[key]} is not possible here and left open: {reason_of(error)}"
    return replace(asked, flags=left, assumed=(*asked.assumed, text))
