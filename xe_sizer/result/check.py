"""What `check` says about many scenarios: the JSON contract, frozen."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from msgspec import field

from xe_sizer.errors import EXIT_BAD_INPUT, Problem
from xe_sizer.result.common import CERTAINTIES, SCHEMA_VERSION, Answer, Sized, Struct, assumed_hardware
from xe_sizer.result.serving import OVERLOADED, QUEUES

Held = Literal["scenario", "job", "perhaps", "nothing"]
"""What a file holds: a scenario of ours, a job of another tool, YAML that may be meant as either."""


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

    service : which service of the file, where a file of another tool starts several
    lines : dotted keys that the file gives, with their lines, from 1
    assumed : keys of the hardware that a file of another tool does not name
    """

    file: str
    ok: bool
    result: Sized | None = None
    problems: tuple[CheckProblem, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    service: str | None = None

    @property
    def name(self) -> str:
        """The file, with the service where it starts several."""
        return name_of_job(self.file, self.service)


def name_of_job(file: str, service: str | None) -> str:
    return file if service is None else f"{file} ({service})"


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


def answered(file: str, result: Sized, lines: dict[str, int] | None = None, service: str | None = None) -> Checked:
    assumed = assumed_hardware(result.scenario)
    return Checked(file=file, ok=result.ok, result=result, lines=lines or {}, assumed=assumed, service=service)


def refused(file: str, problems: tuple[Problem, ...], service: str | None = None) -> Checked:
    return Checked(file=file, ok=False, problems=tuple(map(_problem, problems)), service=service)


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


# Changes between two runs of `check`, as between a branch and what it is to join.

Kind = Literal["worse", "better", "mixed", "same", "new", "removed"]
KINDS: tuple[Kind, ...] = ("worse", "better", "mixed", "new", "removed", "same")
"""In the order in which a reader wants to see them."""
PASSES, DOUBTFUL, MISSES = "passes", "passes, unsure", "misses limits"
TOO_MUCH, TOO_BIG, BAD = "overloaded", "does not fit", "bad input"
VERDICTS = (PASSES, DOUBTFUL, MISSES, TOO_MUCH, TOO_BIG, BAD)
"""From the best to the worst."""
_DOUBTS = tuple(word for word, least in CERTAINTIES.items() if least < CERTAINTIES["likely"])
TOLERANCE = 0.01  # share by which a figure may differ and count as the same [-]
LIMITS = "limits."
_ASKED = ("file", "env", "flag")  # origins of what somebody wrote
_LAX_BELOW = ("min_", "confidence")  # how the names of limits begin that allow more the lower they are


class Figures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run says of a scenario; None for what it has not got.

    certainty : the least of its memory and limits
    total_s : the whole job; tpot_s : a token of an answer; price : the whole job, or an hour of the service
    """

    verdict: str
    certainty: str | None = None
    gpus: int | None = None
    peak_bytes: float | None = None
    total_s: float | None = None
    tpot_s: float | None = None
    price: float | None = None
    currency: str | None = None


class Moved(Struct, frozen=True, kw_only=True):
    """A key of a scenario that is written otherwise than before; None where it was, or is, not given.

    relaxed : of a limit, whether it now allows more; None for other keys
    """

    key: str
    before: Any = None
    after: Any = None
    relaxed: bool | None = None


class Change(Struct, frozen=True, kw_only=True):
    """One scenario before and after; None where it was, or is, not among those that are checked.

    scenario : its keys that changed; none where either could not be read
    service : which service of the file, where it starts several
    """

    file: str
    kind: Kind
    before: Figures | None = None
    after: Figures | None = None
    scenario: tuple[Moved, ...] = ()
    service: str | None = None

    @property
    def name(self) -> str:
        """The file, with the service where it starts several."""
        return name_of_job(self.file, self.service)


def changes(before: CheckResult, after: CheckResult) -> tuple[Change, ...]:
    """Every scenario of either run, by the name of its file; those that are gone come last."""
    earlier = {_key(one): one for one in before.scenarios}
    now = {_key(one) for one in after.scenarios}
    found = [_change(one, earlier.get(_key(one)), one) for one in after.scenarios]
    gone = [_change(one, one, None) for key, one in earlier.items() if key not in now]
    return (*found, *gone)


def _key(one: Checked) -> tuple[str, str | None]:
    return os.path.normpath(one.file), one.service


def _change(of: Checked, before: Checked | None, after: Checked | None) -> Change:
    old, new = (None if one is None else figures(one) for one in (before, after))
    results = [one.result for one in (before, after) if one and one.result]
    moved = tuple(_moved(*results)) if len(results) == 2 else ()
    kind = kind_of_change(old, new, relaxed=any(each.relaxed for each in moved))
    return Change(file=of.file, kind=kind, before=old, after=new, scenario=moved, service=of.service)


def _moved(before: Sized, after: Sized) -> Iterator[Moved]:
    """The keys that differ, those of limits first: what was written, and every limit that is judged."""
    old, new = (dict(_asked(one.scenario)) for one in (before, after))
    for key in sorted({**old, **new}, key=lambda key: not key.startswith(LIMITS)):
        was, now = old.get(key), new.get(key)
        if was != now:
            yield Moved(key=key, before=was, after=now, relaxed=_relaxed(key, was, now))


def _asked(scenario: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values: what somebody wrote, and limits whoever set them."""
    for key, origin in (scenario.get("origin") or {}).items():
        if origin in _ASKED or key.startswith(LIMITS):
            value: Any = scenario
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            yield key, list(value) if isinstance(value, tuple) else value  # as a saved answer has it


def _relaxed(key: str, before: Any, after: Any) -> bool | None:
    """Whether a limit allows more than it did; one that is gone allows anything."""
    if not key.startswith(LIMITS):
        return None
    if before is None or after is None:
        return after is None
    return bool(after < before) if key.removeprefix(LIMITS).startswith(_LAX_BELOW) else bool(after > before)


def figures(one: Checked) -> Figures:
    """What two runs are compared by."""
    result = one.result
    if result is None:
        return Figures(verdict=BAD)
    return Figures(
        verdict=_verdict(one),
        certainty=result.verdict.certainty,
        gpus=result.gpus.count,
        peak_bytes=result.memory.peak_bytes,
        **result.compared,
    )


def _verdict(one: Checked) -> str:
    if one.result is None:
        return BAD
    if not one.result.verdict.fits:
        return TOO_BIG
    if any(reason.code in (OVERLOADED, QUEUES) for reason in one.result.verdict.reasons):
        return TOO_MUCH
    if not one.ok:
        return MISSES
    return DOUBTFUL if one.result.verdict.certainty in _DOUBTS else PASSES


def kind_of_change(before: Figures | None, after: Figures | None, *, relaxed: bool) -> Kind:
    """Worse where the verdict is. Else what it takes decides, and a better verdict where no limit allows more."""
    if before is None or after is None:
        return "new" if before is None else "removed"
    fall = VERDICTS.index(after.verdict) - VERDICTS.index(before.verdict)
    if fall > 0:
        return "worse"
    signs = set(_signs(before, after))
    if relaxed:
        return "worse" if signs == {1} else "mixed"
    if fall < 0:
        signs.add(-1)
    if not signs:
        return "same"
    if len(signs) == 2:
        return "mixed"
    return "worse" if signs == {1} else "better"


def _signs(before: Figures, after: Figures) -> Iterator[int]:
    """1 for each figure that grew, and for less certainty; -1 for each that fell, and for more."""
    names = ["gpus", "peak_bytes", "total_s", "tpot_s", *(["price"] if before.currency == after.currency else [])]
    for old, new in ((getattr(before, name), getattr(after, name)) for name in names):
        if old is not None and new is not None and abs(new - old) > TOLERANCE * max(abs(old), abs(new)):
            yield 1 if new > old else -1
    sureness = less_sure(before, after)
    if sureness is not None:
        yield 1 if sureness else -1


def less_sure(before: Figures, after: Figures) -> bool | None:
    """Whether a pass is less sure than before; None where it is as sure, or not both pass."""
    words = (before.certainty, after.certainty)
    if not before.verdict == after.verdict == PASSES or None in words or words[0] == words[1]:
        return None
    old, new = (CERTAINTIES[word] for word in words if word)
    return new < old
