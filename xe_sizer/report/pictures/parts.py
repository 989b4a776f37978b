"""Pictures that several kinds of answer have: memory, the parts of a step, and ranges against limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import byte_size, clean, duration, gib, percent, time_unit
from xe_sizer.report.names import component_name, memory_place
from xe_sizer.report.picture import Axis, Mark, Part, Stack
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.result.common import Sized, TimeComponent

MOST_PARTS = 8  # of a stack; the smallest are one part


def time_axis(label: str, longest_s: float, logarithmic: bool = False) -> Axis:
    """An axis of times, in the unit that fits the longest."""
    unit_s, name = time_unit(longest_s)
    return Axis(f"{label} [{name}]", unit_s, logarithmic)


def memory_picture(result: Sized) -> Picture:
    """The ledger of the worst GPU against what it can use."""
    memory = result.memory
    parts = merged([(component_name(result, part.name), part.bytes) for part in memory.components])
    usable, peak = memory.usable_bytes, memory.peak_bytes
    said = f"{gib(peak)} GiB of {gib(usable)} GiB usable"
    rest = f"{byte_size(memory.headroom_bytes)} free" if memory.headroom_bytes >= 0 else (
        f"{byte_size(-memory.headroom_bytes)} missing"
    )  # fmt: skip
    stack = Stack(
        Axis("Memory [GiB]", GIB),
        tuple(Part(name, size, f"{gib(size)} GiB", _share(size, usable)) for name, size in parts),
        Part(f"peak, {rest}", peak, f"{gib(peak)} GiB", _share(peak, usable)),
        (Mark(usable, f"usable {gib(usable)} GiB"),),
        usable,
    )
    note = f"Shares are of the usable memory ({memory_place(memory, memory.phase)})."
    return Picture("Memory of the worst GPU", f"{said}, {rest}: {_listed(stack.parts)}", stack, note)


def step_picture(title: str, components: Sequence[TimeComponent], step_s: float, marks: Sequence[Mark] = ()) -> Picture:
    """The parts of a step, the largest first."""
    parts = merged([(clean(part.name), part.seconds) for part in components])
    stack = Stack(
        time_axis("Time", step_s),
        tuple(Part(name, seconds, duration(seconds), _share(seconds, step_s)) for name, seconds in parts),
        Part("whole step", step_s, duration(step_s), percent(1.0)),
        tuple(marks),
    )
    return Picture(title, f"{duration(step_s)}: {_listed(stack.parts)}", stack)


def merged(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Parts by size; those beyond MOST_PARTS as one."""
    ranked = sorted(((name, value) for name, value in parts if value > 0), key=lambda part: -part[1])
    if len(ranked) <= MOST_PARTS:
        return ranked
    kept, rest = ranked[: MOST_PARTS - 1], ranked[MOST_PARTS - 1 :]
    return [*kept, (f"{len(rest)} smaller parts", sum(value for _, value in rest))]


def _share(value: float, whole: float) -> str:
    return percent(value / whole) if whole > 0 else ""


def _listed(parts: Sequence[Part]) -> str:
    return ", ".join(_said(parts))


def _said(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        yield f"{part.name} {part.text}"
