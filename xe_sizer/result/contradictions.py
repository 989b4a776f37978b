"""What a saved answer says against itself: an answer that was written by a command has none of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from itertools import pairwise

import msgspec

from xe_sizer.result.check import CheckResult, check_result
from xe_sizer.result.common import Range
from xe_sizer.result.serving import Span
from xe_sizer.result.studies import OBJECTIVES, Comparison, PlanResult
from xe_sizer.result.training import Price

ROUNDING = 1e-9  # share by which sums in another order may differ [-]


def contradictions(part: object, path: str = "") -> Iterator[str]:
    """Sentences on an answer or a part of one, and on all below it.

    path : keys from the answer to the part, with dots; empty for the answer itself
    """
    if isinstance(part, tuple):
        for place, each in enumerate(part):
            yield from contradictions(each, f"{path}[{place}]")
    elif isinstance(part, msgspec.Struct):
        for sentence in of_part(part):
            yield f"{path}: {sentence}" if path else sentence
        for name in part.__struct_fields__:
            yield from contradictions(getattr(part, name), f"{path}.{name}" if path else name)


@singledispatch
def of_part(part: object) -> Iterator[str]:
    """Sentences on one part, without those on its own parts."""
    yield from ()


@of_part.register(Range)
@of_part.register(Price)
@of_part.register(Span)
def _of_range(span: Range | Price | Span) -> Iterator[str]:
    known = [(name, value) for name in ("low", "expected", "high") if (value := getattr(span, name)) is not None]
    for (name, value), (next_name, next_value) in pairwise(known):
        if value > next_value + ROUNDING * abs(next_value):
            yield f"'{name}' ({value:g}) is more than '{next_name}' ({next_value:g})"


@of_part.register
def _of_comparison(answer: Comparison) -> Iterator[str]:
    alternatives = len(answer.alternatives)
    if not alternatives:
        yield "it compares no alternatives"
    for part in answer.differences:
        if len(part.total_s) != alternatives:
            yield f"'{part.name}' has {len(part.total_s)} times for {alternatives} alternatives"


@of_part.register
def _of_check(answer: CheckResult) -> Iterator[str]:
    counted = msgspec.structs.asdict(check_result(answer.scenarios).summary)
    for name, stated in msgspec.structs.asdict(answer.summary).items():
        if stated != counted[name]:
            yield f"'summary.{name}' is {stated}, but the scenarios make it {counted[name]}"


@of_part.register
def _of_plan(answer: PlanResult) -> Iterator[str]:
    if answer.objective not in OBJECTIVES:
        yield f"'objective' must be one of {', '.join(OBJECTIVES)}, not '{answer.objective}'"
    candidates = len(answer.candidates)
    for name, place in msgspec.structs.asdict(answer.answers).items():
        if place is not None and not 0 <= place < candidates:
            yield f"'answers.{name}' is candidate {place}, but there are {candidates}, counted from 0"
