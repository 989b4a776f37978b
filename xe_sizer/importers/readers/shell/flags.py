"""Flags, Hydra overrides and positional arguments of a command."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.errors import Location

_NUMBER = re.compile(r"-\.?\d")
_FLAG = re.compile(r"--?([A-Za-z_][^=\s]*)(=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"(\+\+?|~)?([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_REMOVED = re.compile(r"~([A-Za-z_][\w./@-]*)")
_FURTHER_FLAGS = re.compile(r"ARG|OPT|FLAG|PARAM|EXTRA|CMD|COMMAND|[@*]", re.IGNORECASE)


@frozen
class Word:
    """One word of a command and its place. What is not known stands as `${NAME}`; `unknown` are the names."""

    text: str
    where: Location
    unknown: tuple[str, ...] = ()


@frozen
class Flag:
    """`--name value...` or an override `name=value`.

    `name` is without dashes and with `_` for `-`. `sign` is "+", "++" or "~" of an override. `earlier` are the
    same flag's occurrences before this one.
    """

    name: str
    values: tuple[Word, ...]
    where: Location
    override: bool = False
    sign: str = ""
    earlier: tuple[Flag, ...] = ()


@frozen
class Arguments:
    """What follows a program's name: flags by name in the order of their last occurrence, and all other words."""

    flags: Mapping[str, Flag]
    positionals: tuple[Word, ...]


class _Occurrence(NamedTuple):
    """One occurrence of a flag while its words are gathered."""

    name: str
    where: Location
    values: list[Word]
    override: bool = False
    sign: str = ""

    def flag(self, earlier: tuple[Flag, ...] = ()) -> Flag:
        return Flag(self.name, tuple(self.values), self.where, self.override, self.sign, earlier)


class _Sorter:
    """Sorts words one after the other; `current` is the flag that takes what follows, `room` how many words more."""

    def __init__(self, switches: Collection[str], single: Collection[str]) -> None:
        self.switches, self.single = switches, single
        self.found: dict[str, list[_Occurrence]] = {}
        self.positionals: list[Word] = []
        self.only_positionals = False
        self.current: list[Word] = []
        self.room = 0.0

    def arguments(self) -> Arguments:
        flags = {
            name: last.flag(tuple([each.flag() for each in earlier])) for name, (*earlier, last) in self.found.items()
        }
        return Arguments(flags, tuple(self.positionals))

    def take(self, word: Word) -> None:
        if self.only_positionals:
            self.positionals.append(word)
        elif word.text == "--":
            self.only_positionals = True
        elif (flag := _FLAG.fullmatch(word.text)) and not _NUMBER.match(word.text):
            self._open(flag[1].replace("-", "_"), flag[3], word)
        elif self._overrides(word):
            self._override(word)
        elif self.room > 0 and not self._is_further(word):
            self.current.append(word)
            self.room -= 1
        else:
            self.positionals.append(word)

    def _open(self, name: str, value: str | None, word: Word) -> None:
        values = [] if value is None else [Word(value, word.where, word.unknown)]
        self._add(_Occurrence(name, word.where, values))
        self.room = 0 if value is not None or name in self.switches else 1 if name in self.single else math.inf

    def _override(self, word: Word) -> None:
        assigned = _OVERRIDE.fullmatch(word.text)
        if assigned:
            value = Word(assigned[3], word.where, word.unknown)
            self._add(_Occurrence(assigned[2], word.where, [value], True, assigned[1] or ""))
        else:
            self._add(_Occurrence(word.text[1:], word.where, [], True, "~"))
        self.room = 0

    def _add(self, occurrence: _Occurrence) -> None:
        before = self.found.pop(occurrence.name, [])  # flags stand in the order of their last occurrence
        before.append(occurrence)
        self.found[occurrence.name] = before
        self.current = occurrence.values

    def _overrides(self, word: Word) -> bool:
        """`a.b=c` is an override wherever it stands; `a=c` is one unless the flag in front takes such words."""
        match = _OVERRIDE.fullmatch(word.text)
        if not match:
            return bool(_REMOVED.fullmatch(word.text))
        if self.room <= 0 or match[1] or "." in match[2]:
            return True
        return bool(self.current) and not _OVERRIDE.fullmatch(self.current[0].text)

    def _is_further(self, word: Word) -> bool:
        """Whether a word that is not known holds further flags rather than a value of the one in front."""
        if len(word.unknown) != 1 or word.text != f"${{{word.unknown[0]}}}":
            return False
        return bool(self.current or _FURTHER_FLAGS.search(word.unknown[0]))


def flags_of(
    words: Iterable[Word],
    switches: Collection[str] = frozenset(),
    single: Collection[str] = frozenset(),
) -> Arguments:
    """Flags of a command's words, without its program.

    A flag takes all words up to the next flag or override, `--flag=value` just that one. `switches` are names that
    take none, `single` names that take one: the words behind stay positional.
    """
    sorter = _Sorter(switches, single)
    for word in words:
        sorter.take(word)
    return sorter.arguments()
