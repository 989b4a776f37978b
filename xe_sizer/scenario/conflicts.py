"""What a scenario asks of its model and hardware that they cannot do, whichever wing answers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.errors import Problem
from xe_sizer.laws.device import supported_precisions
from xe_sizer.laws.precision import BF16, FP16

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.scenario.read import Given


def problem_at(given: Given, key: str, message: str, hint: str | None = None) -> Problem:
    """A problem at the place of a dotted key."""
    return Problem(message, given.locate(tuple(key.split("."))), hint)


def unknown_precision(given: Given, server: Server, precision: str | None, instead: str = "") -> Iterator[Problem]:
    """A number format that the accelerator does not multiply; `instead` goes on with the hint."""
    known = supported_precisions(server.accelerator)
    if precision is not None and precision not in known:
        has = f"it has {', '.join(known)}{instead}"
        narrow = f"write {given.caller.setting('precision', FP16)}; " if precision == BF16 and FP16 in known else ""
        yield problem_at(given, "precision", f"{server.accelerator.name} has no {precision}", f"{narrow}{has}")


def indivisible(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Heads that tensor parallelism does not divide, and experts that expert parallelism does not."""
    layout = given.values.layout
    if layout.tp and model.heads % layout.tp:
        message = f"tp {layout.tp} does not divide the {model.heads} heads of {model.name}"
        yield problem_at(given, "layout.tp", message)
    if not layout.ep or layout.ep == 1:
        return
    if model.experts is None:
        message = f"{model.name} has no experts to spread over ep {layout.ep} GPUs"
        yield problem_at(given, "layout.ep", message, "leave ep out, or choose a mixture-of-experts model")
    elif model.experts.count % layout.ep:
        message = f"ep {layout.ep} does not divide the {model.experts.count} experts of {model.name}"
        yield problem_at(given, "layout.ep", message)


def too_many_stages(
    given: Given, model: ModelShape, key: str, stages: int, words: str, ends: Sequence[str] = ()
) -> Iterator[Problem]:
    """More pipeline stages, or chunks of them, than the model has layers, and ends that take a layer's place."""
    most = model.layers + len(ends)
    if stages > most:
        beside = f", with {' and '.join(ends)} {most}" if ends else ""
        yield problem_at(given, key, f"{words} is more than the {model.layers} layers of {model.name}{beside}")
