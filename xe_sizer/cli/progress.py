"""How far a long search is: one line on a terminal's stderr, wiped when the answer comes."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

QUIET_S = 1.0  # what takes less says nothing
OFTEN_S = 0.5
WIPE = "\r\033[K"


class Progress:
    """A line that is written over, from `QUIET_S` on and at most every `OFTEN_S`; none without a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._due = time.monotonic() + QUIET_S
        self._shown = False
        self._total = self._before = 0

    def layouts(self, considered: int) -> None:
        """`considered`: layouts that the search of one kind of GPU has seen; the next kind begins again at zero."""
        self._total += considered - self._before if considered >= self._before else considered
        self._before = considered
        self._say(f"{self._total:,} layouts tried")

    def plans(self, done: int, total: int) -> None:
        self._say(f"{done} of {total} plans")

    def bytes(self, done: int, total: int) -> None:
        """How much of some files has been read."""
        self._say(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB read" if done < total else "counting tokens")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if self._terminal and now >= self._due:
            self._due, self._shown = now + OFTEN_S, True
            print(f"{WIPE}{text}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print(WIPE, end="", file=sys.stderr, flush=True)
