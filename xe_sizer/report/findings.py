"""What is judged, as test cases and as remarks: for formats that show verdicts and no details."""

from __future__ import annotations

from typing import Literal

from xe_sizer.frozen import frozen

State = Literal["passed", "skipped", "failed", "error"]
Level = Literal["notice", "warning", "error"]
TOOL = "xe-sizer"


@frozen
class Case:
    """One question that has a yes or a no.

    kind, message, details : why it is not passed: a word, a line, lines
    output : what a reader may want to know of it in any case
    """

    name: str
    state: State = "passed"
    kind: str = ""
    message: str = ""
    details: str = ""
    output: str = ""


@frozen
class Remark:
    """What a reviewer should see, with the place in a file that it is about."""

    level: Level
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


@frozen
class Finding:
    """Verdicts on one thing: a scenario file, an alternative, a plan. `properties` are figures beside them."""

    name: str
    cases: tuple[Case, ...]
    remarks: tuple[Remark, ...]
    properties: tuple[tuple[str, str], ...] = ()
