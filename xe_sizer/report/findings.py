"""What is judged, as test cases and as remarks: for formats that show verdicts and no details."""

from __future__ import annotations

from collections.abc import Iterable
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


def judgement(ok: bool, word: str, said: Iterable[str], doubtful: bool, file: str | None) -> Remark:
    """A verdict as a remark: an error, or a warning where it is doubtful; a plain yes is a notice.

    word : the verdict in a word or two; said : its lines
    """
    level: Level = "error" if not ok else "warning" if doubtful else "notice"
    return Remark(level, f"{TOOL}: {word}", "\n".join(said), file)


@frozen
class Finding:
    """Verdicts on one thing: a scenario file, an alternative, a plan. `properties` are figures beside them."""

    name: str
    cases: tuple[Case, ...]
    remarks: tuple[Remark, ...]
    properties: tuple[tuple[str, str], ...] = ()
