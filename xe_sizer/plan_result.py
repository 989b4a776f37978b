"""What a search answers, in SI units; the names are the JSON contract of `plan`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from xe_sizer.result import Layout, Range, Verdict


class Rule(Struct, frozen=True):
    """A rule of the search space and how many groupings (tp, pp, cp, dp) or layouts it removed."""

    name: str
    reason: str
    removed: int
    unit: str


class Search(Struct, frozen=True):
    """How much was searched. `complete` is false where an interrupt ended it."""

    layouts_considered: int
    layouts_feasible: int
    seconds: float
    complete: bool = True
    rules: tuple[Rule, ...] = ()


class Candidate(Struct, frozen=True):
    """The best layout on one number of one kind of GPU.

    pareto : no other candidate needs as few GPUs and as little time, price and energy, and less of one of them
    bound : what limits a step; command : the estimate of it
    """

    gpu: str
    server: str
    gpus: int
    nodes: int
    layout: Layout
    step_s: float
    total_s: Range
    gpu_hours: float
    peak_bytes: float
    headroom_bytes: float
    bound: str
    pareto: bool
    meets_limits: bool
    price: float | None = None
    currency: str | None = None
    energy_kwh: float | None = None
    tokens_per_s: float = 0.0
    command: str = ""


class Answers(Struct, frozen=True):
    """Places in `candidates`: the fewest GPUs that fit, the fastest, the cheapest; `chosen` is the plan.

    nearest : where no candidate meets the limits, the one that misses them by least; it is chosen then
    """

    smallest: int | None = None
    fastest: int | None = None
    cheapest: int | None = None
    chosen: int | None = None
    nearest: int | None = None


class LeftOut(Struct, frozen=True):
    """Hardware that has no candidate, and why."""

    name: str
    reason: str


class PlanResult(Struct, frozen=True):
    schema_version: int
    tool_version: str
    scenario: dict[str, Any]
    objective: str
    verdict: Verdict
    search: Search
    candidates: tuple[Candidate, ...]
    answers: Answers
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
