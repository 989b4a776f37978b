"""Words of a script: quotes, escapes and everything that begins with a dollar sign."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.importers.readers.shell.syntax import Arithmetic, Literal, Parameter, Substitution

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.places import Places, Text
    from xe_sizer.importers.readers.shell.syntax import Node, Part, Parts

MAX_NESTING = 50
METACHARACTERS = " \t\r\n;&|()<>"
_QUOTES = "'\""
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]", re.ASCII)
PLACEHOLDER = re.compile(r"""<[A-Za-z][^<>|&;\n"'$()`\\]*(?<!\s)>(?=[\s/,"']|$)""")
"""`<path of the model>`, where people are to write something of their own."""
_OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//|/[#%]?|\^\^?|,,?|@|:")
_ANSI_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


@lru_cache(maxsize=64)
def _plain(stop: str, quotes: str) -> re.Pattern[str]:
    """Characters that stand for themselves until one of `stop`, a quote, a dollar sign, a backtick or a backslash."""
    return re.compile(f"[^{re.escape(stop + quotes)}\\\\$`]+")


class WordReader(ABC):
    """Reads words from a text; `position` counts its characters."""

    def __init__(self, source: Text, places: Places, depth: int = 0) -> None:
        self.source, self.places, self.depth = source, places, depth
        self.text, self.position = source.characters, 0

    @abstractmethod
    def commands(self, *closers: str) -> tuple[Node, ...]:
        """Commands up to one of the reserved words, a closing parenthesis or the end."""

    def at(self, position: int | None = None) -> int:
        return self.source.offsets[self.position if position is None else position]

    def inside(self, text: Text) -> WordReader:
        """A reader of a part of this text, one level deeper."""
        self._deeper()
        self.depth -= 1
        return type(self)(text, self.places, self.depth + 1)

    def starts(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.position)

    def word(self, stop: str = METACHARACTERS) -> Parts:
        """One word; empty where a metacharacter stands."""
        if self.starts("<(", ">("):
            return (self._process(),)
        found = self.parts(stop, _QUOTES, quoted=False)
        while placeholder := PLACEHOLDER.match(self.text, self.position):
            found = (*found, Literal(placeholder[0], self.at(), True, placeholder=True))
            self.position = placeholder.end()
            found += self.parts(stop, _QUOTES, quoted=False)
        return found

    def parts(self, stop: str, quotes: str, *, quoted: bool) -> Parts:
        """Parts up to one of the characters `stop`; `quotes` are the quotation marks that count here."""
        found: list[Part] = []
        plain = _plain(stop, quotes)
        while self.position < len(self.text) and (character := self.text[self.position]) not in stop:
            match = plain.match(self.text, self.position)
            if match:
                found.append(Literal(match[0], self.at(), quoted))
                self.position = match.end()
            elif character == "\\":
                found += self._escape(stop, quotes, quoted)
            elif character in quotes:
                found += self._quoted(character)
            elif character == "`":
                found.append(self._backticks(quoted))
            else:
                found += self._dollar(quoted, quotes)
        return tuple(found)

    def _escape(self, stop: str, quotes: str, quoted: bool) -> list[Part]:
        start, character = self.position, self.text[self.position + 1 : self.position + 2]
        if character == "\r" and self.text.startswith("\n", start + 2):  # a file written on Windows
            self.position += 3
            return []
        self.position += 2
        if character == "\n":
            return []
        kept = quoted and character not in f"$`\\{stop}{quotes}"  # in double quotes most backslashes stay
        if kept or not character:
            return [Literal(self.text[start : self.position], self.at(start), True)]
        return [Literal(character, self.at(start + 1), True)]

    def _quoted(self, mark: str) -> list[Part]:
        start = self.position
        self.position += 1
        if mark == '"':
            self._deeper()
            found = list(self.parts('"', "", quoted=True))
            self.depth -= 1
            self.position += 1
            return found or [Literal("", self.at(start), True)]
        end = self._find("'", self.position)
        self.position = min(end + 1, len(self.text))
        return [Literal(self.text[start + 1 : end], self.at(start + 1), True)]

    def _find(self, mark: str, start: int) -> int:
        end = self.text.find(mark, start)
        return len(self.text) if end < 0 else end

    def _dollar(self, quoted: bool, quotes: str) -> list[Part]:
        start = self.position
        if self.starts("$'") and "'" in quotes:
            return [self._ansi()]
        if self.starts('$"') and '"' in quotes:
            self.position += 1
            return self._quoted('"')
        self._deeper()
        try:
            if self.starts("$(("):
                return [self._arithmetic(quoted)]
            if self.starts("$("):
                return [self._substitution(quoted)]
            if self.starts("${"):
                return [self._braced(quoted)]
        finally:
            self.depth -= 1
        name = _NAME.match(self.text, start + 1)
        self.position = name.end() if name else start + 1
        return [Parameter(name[0], self.at(start), quoted) if name else Literal("$", self.at(start), quoted)]

    def _ansi(self) -> Part:
        start = self.position
        end = start + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        end = min(end, len(self.text))
        self.position = min(end + 1, len(self.text))
        text = _ANSI_ESCAPE.sub(_ansi_character, self.text[start + 2 : end])
        return Literal(text, self.at(start), True, moves=False)

    def _process(self) -> Substitution:
        """`<(...)`: what the commands inside write is not known."""
        start = self.position
        self._deeper()
        found = self._substitution(quoted=True)
        self.depth -= 1
        return Substitution(None, self.text[start : self.position], found.at, True)

    def _substitution(self, quoted: bool) -> Substitution:
        start = self.position
        self.position += 2
        body = self.commands()
        self.position = min(self.position + 1, len(self.text))
        return Substitution(body, self.text[start : self.position], self.at(start), quoted)

    def _backticks(self, quoted: bool) -> Substitution:
        start = self.position
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        end = min(end, len(self.text))
        body = self.inside(self.source.part(start + 1, end)).commands()
        self.position = min(end + 1, len(self.text))
        return Substitution(body, self.text[start : self.position], self.at(start), quoted)

    def _arithmetic(self, quoted: bool) -> Part:
        start = self.position
        expression = self.arithmetic(start + 3)
        if expression is None:  # `$((` opened a subshell, not a calculation
            self.position = start
            return self._substitution(quoted)
        return Arithmetic(expression, self.text[start : self.position], self.at(start), quoted)

    def arithmetic(self, start: int) -> Parts | None:
        """The expression that begins at `start` and ends with `))`; None where no such end is found."""
        depth, end = 0, start
        while end < len(self.text) and (depth or not self.text.startswith("))", end)):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            if depth < 0:
                return None
            end += 1
        if end >= len(self.text):
            return None
        self.position = end + 2
        return self.inside(self.source.part(start, end)).parts("", '"', quoted=True)

    def _braced(self, quoted: bool) -> Part:
        """`${...}`; what cannot be told apart stands as it is written."""
        start = self.position
        self.position += 2
        prefix = ""
        if self.starts("#", "!") and _BRACED_NAME.match(self.text, self.position + 1):
            prefix, self.position = self.text[self.position], self.position + 1
        name = _BRACED_NAME.match(self.text, self.position)
        if not name:
            return self._as_written(start, quoted)
        self.position = name.end()
        index = self._index()
        operator = _OPERATOR.match(self.text, self.position)
        arguments: tuple[Parts, ...] = ()
        if operator:
            self.position = operator.end()
            arguments = self._arguments(operator[0], quoted)
        if not self.starts("}"):
            return self._as_written(start, quoted)
        self.position += 1
        return Parameter(name[0], self.at(start), quoted, prefix, index, operator[0] if operator else "", arguments)

    def _as_written(self, start: int, quoted: bool) -> Literal:
        line_end = self._find("\n", start)
        end = self.text.find("}", self.position, line_end) + 1
        self.position = max(self.position, end or line_end)
        return Literal(self.text[start : self.position], self.at(start), quoted)

    def _index(self) -> Parts | None:
        if not self.starts("["):
            return None
        self.position += 1
        index = self.parts("]", _QUOTES, quoted=False)
        self.position += 1
        return index

    def _arguments(self, operator: str, quoted: bool) -> tuple[Parts, ...]:
        quotes = '"' if quoted else _QUOTES
        divider = {"/": "/", ":": ":"}.get(operator[0] if operator[1:] not in {"-", "=", "+", "?"} else "", "")
        found = [self.parts("}" + divider, quotes, quoted=quoted)]
        if divider and self.starts(divider):
            self.position += 1
            found.append(self.parts("}", quotes, quoted=quoted))
        return tuple(found)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            place = self.places.locate(self.at(min(self.position, len(self.text))))
            raise InputError(Problem(f"a script is nested at most {MAX_NESTING} deep", place))


def _ansi_character(match: re.Match[str]) -> str:
    hexadecimal, unicode, octal, letter = match.groups()
    if letter:
        return _ANSI_LETTERS.get(letter, letter)
    code = int(octal, 8) if octal else int(hexadecimal or unicode, 16)
    return chr(code) if not 0xD800 <= code <= 0xDFFF else "\ufffd"
