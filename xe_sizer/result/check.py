"""What `check` says about many scenarios: the JSON contract, frozen."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from xe_sizer.errors import EXIT_BAD_INPUT, Problem
from xe_sizer.result.changes import Change
from xe_sizer.result.common import SCHEMA_VERSION, Answer, Sized, Struct, assumed_hardware


class CheckProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with a file, and where; or how many more problems are like those before it."""

    file: str | None
    line: int | None
    column: int | None
    message: str
    hint: str | None
    count: int = 1

    def __str__(self) -> str:
        """In one line: place, message, hint."""
        parts = [self.file, *(str(part) for part in (self.line, self.column) if part is not None)]
        where = f"{':'.join(part for part in parts if part)}: " if self.file else ""
        return f"{where}{self.message}{f' ({self.hint})' if self.hint else ''}"


class Checked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scenario file: its result, of any kind, or what kept it from one.

    lines : dotted keys that the file gives, with their lines, from 1
    assumed : keys of the hardware that a file of another tool does not name
    """

    file: str
    ok: bool
    result: Sized | None = None
    problems: tuple[CheckProblem, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


class Skipped(Struct, frozen=True, kw_only=True):
    """A file below a named folder that is no scenario, and why."""

    file: str
    reason: str


class CheckSummary(Struct, frozen=True, kw_only=True):
    """How many scenarios fit and meet their limits, do not, and could not be read."""

    total: int
    passed: int
    failed: int
    invalid: int


class CheckResult(Answer, frozen=True, kw_only=True):
    """What a gate says of many scenarios.

    compared_to, changes : the saved run that this one was compared with, and what differs; None where nobody asked
    """

    question: ClassVar[str] = "check"

    scenarios: tuple[Checked, ...]
    summary: CheckSummary
    skipped: tuple[Skipped, ...] = ()
    compared_to: str | None = None
    changes: tuple[Change, ...] | None = None

    @property
    def ok(self) -> bool:
        return self.summary.passed == self.summary.total

    @property
    def exit_code(self) -> int:
        """Bad input outweighs a failed scenario, which outweighs success."""
        return EXIT_BAD_INPUT if self.summary.invalid else super().exit_code


def answered(file: str, result: Sized, lines: dict[str, int] | None = None) -> Checked:
    return Checked(file=file, ok=result.ok, result=result, lines=lines or {}, assumed=assumed_hardware(result.scenario))


def refused(file: str, problems: tuple[Problem, ...]) -> Checked:
    return Checked(file=file, ok=False, problems=tuple(map(_problem, problems)))


def _problem(problem: Problem) -> CheckProblem:
    where = problem.location
    return CheckProblem(
        file=where.name if where else None,
        line=where.line if where else None,
        column=where.column if where else None,
        message=problem.message,
        hint=problem.hint,
        count=problem.count,
    )


def check_result(scenarios: tuple[Checked, ...], skipped: tuple[Skipped, ...] = ()) -> CheckResult:
    """The scenarios in their order, counted, and the files that are none."""
    passed = sum(one.ok for one in scenarios)
    invalid = sum(one.result is None for one in scenarios)
    summary = CheckSummary(
        total=len(scenarios), passed=passed, failed=len(scenarios) - passed - invalid, invalid=invalid
    )
    return CheckResult(schema_version=SCHEMA_VERSION, scenarios=scenarios, summary=summary, skipped=skipped)
