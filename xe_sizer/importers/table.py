"""Tables of a tool's keys: which scenario key each sets, what is filled in without it, and what has no counterpart."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from xe_sizer.frozen import frozen
from xe_sizer.importers.values import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.importers.values import Converter

Effect = Literal["memory or time", "none", "unknown", "refused"]
NOTHING = object()
"""The default of a key that the tool does not fill in."""


@frozen
class Key:
    """A key of a tool that sets a scenario key.

    names : what the tool calls it, the newest name first; dotted
    to : the scenario key; empty where the tool's own file reads the key
    read : its value as scenarios have it
    default : what the tool fills in where the key is absent, as a scenario value
    since, until : releases of the tool between which the key, or this default, holds; `until` is the first without
    """

    names: tuple[str, ...]
    to: str = ""
    read: Converter = text
    default: object = NOTHING
    since: str | None = None
    until: str | None = None


@frozen
class Loss:
    """Keys that change memory or time and have no counterpart in scenarios.

    names : keys, dotted; `*` stands for any text
    why : what they change, in a few words that follow the key: "runs evaluations, which are not counted"
    harmless : values that change nothing beside those that are empty, false or zero
    unless : the keys change something where they are switched off, not where they are on
    effect : of the keys; a file with refused ones is not read, as the answer would be that of another job
    """

    names: tuple[str, ...]
    why: str
    harmless: tuple[object, ...] = ()
    unless: bool = False
    effect: Effect = "memory or time"


@frozen
class Table:
    """All that is known about the keys of a tool.

    silent : keys that change neither memory nor time; `*` stands for any text
    """

    keys: tuple[Key, ...]
    losses: tuple[Loss, ...] = ()
    silent: tuple[str, ...] = ()

    def loss(self, name: str) -> Loss | None:
        """What is lost with a key."""
        return next((loss for loss in self.losses if _among(name, loss.names)), None)

    def is_silent(self, name: str) -> bool:
        """Whether a key is known to change neither memory nor time."""
        return _among(name, self.silent)

    def at(self, version: str | None) -> Iterator[Key]:
        """The keys of a release; those of the newest one where no release is named."""
        return (key for key in self.keys if _holds(key, version))


def names(words: str) -> tuple[str, ...]:
    """Names between blanks and line ends."""
    return tuple(words.split())


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _holds(key: Key, version: str | None) -> bool:
    """Whether a key has its default in a release; without a release those that still hold do."""
    if version is None:
        return key.until is None
    since, until = (parsed(each) if each else None for each in (key.since, key.until))
    found = parsed(version)
    return (since is None or found >= since) and (until is None or found < until)


def parsed(version: str) -> tuple[int, ...]:
    """The numbers of a release: 0.12.1 is (0, 12, 1)."""
    parts = (part for part in version.lstrip("v").split("."))
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)
