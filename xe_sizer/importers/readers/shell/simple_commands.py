"""Simple commands: assignments, words, redirections and the here-documents below them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.importers.readers.shell.places import Text
from xe_sizer.importers.readers.shell.syntax import Assignment, Element, Literal, Redirection, Simple
from xe_sizer.importers.readers.shell.words import PLACEHOLDER, WordReader

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.places import Places
    from xe_sizer.importers.readers.shell.syntax import Parts

DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_MAX_BROKEN = 100
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[|\+?=)", re.ASCII)
_REDIRECTION = re.compile(r"(?:\d*|\{\w+\})(<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>?")
_BLANK = re.compile(r"(?:[ \t]|\\\r?\n|\r(?=\n))+")


class SimpleReader(WordReader):
    """Reads simple commands; `broken` are the places of what could not be read."""

    def __init__(self, source: Text, places: Places, depth: int = 0) -> None:
        super().__init__(source, places, depth)
        self.broken: list[int] = []
        self._pending: list[Redirection] = []

    def is_broken(self) -> None:
        """Notes a place that cannot be read. Raises InputError where there are so many that this is no script."""
        self.broken.append(self.at())
        if len(self.broken) > _MAX_BROKEN:
            raise InputError(Problem("this does not read as a shell script", self.places.locate(self.broken[0])))

    def simple(self, at: int) -> Simple | None:
        assignments: list[Assignment] = []
        words: list[Parts | Assignment] = []
        redirections: list[Redirection] = []
        declares = False
        while True:
            self.blanks()
            redirection = self.redirection()
            if redirection:
                redirections.append(redirection)
                continue
            assignment = self._assignment() if declares or not words else None
            if assignment:
                (words or assignments).append(assignment)
                continue
            word = () if self.starts("#") else self.word()
            if not word:
                break
            words.append(word)
            declares = declares or (len(words) == 1 and isinstance(word[0], Literal) and word[0].text in DECLARATIONS)
        if not (assignments or words or redirections):
            return None
        return Simple(tuple(assignments), tuple(words), tuple(redirections), at)

    def redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.position)
        if not match or PLACEHOLDER.match(self.text, self.position):
            return None
        found = Redirection(match[0], (), self.at())
        self.position = match.end()
        self.blanks()
        found.target = self.word()
        if match[1] in {"<<", "<<-"}:
            self._pending.append(found)
        return found

    def _assignment(self) -> Assignment | None:
        match = _ASSIGNED.match(self.text, self.position)
        if not match:
            return None
        at, start, index, operator = self.at(), self.position, None, match[2]
        self.position = match.end()
        if operator == "[":
            self.position -= 1
            index = self._index()
            ending = re.compile(r"\+?=").match(self.text, self.position)
            if not ending:
                self.position = start
                return None
            operator, self.position = ending[0], ending.end()
        items = self._items() if self.starts("(") else None
        value = self.word() if items is None else ()
        return Assignment(match[1], index, operator == "+=", value, items, at)

    def _items(self) -> tuple[Element, ...]:
        """What stands between the parentheses of an array."""
        items: list[Element] = []
        self.position += 1
        while True:
            self.lines()
            if self.position >= len(self.text) or self.starts(")"):
                self.position = min(self.position + 1, len(self.text))
                return tuple(items)
            start, key = self.position, None
            if self.starts("["):
                key = self._index()
                key, self.position = (key, self.position + 1) if self.starts("=") else (None, start)
            value = self.word()
            if value or key:
                items.append(Element(key, value))
            else:
                self.is_broken()
                self.position += 1

    def blank_lines(self) -> None:
        while self.position < len(self.text):
            self.blanks()
            if self.starts("\n"):
                self._new_line()
            elif self.starts("#"):
                self.position = self._find("\n", self.position)
            elif self.starts(";", "&") and not self.starts(";;", ";&", "&>"):
                self.position += 1
            else:
                return

    def blanks(self) -> None:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def lines(self) -> None:
        """Blanks, comments and ends of lines after an operator."""
        self.blanks()
        while self.starts("\n", "#"):
            if self.starts("#"):
                self.position = self._find("\n", self.position)
            else:
                self._new_line()
            self.blanks()

    def _new_line(self) -> None:
        """Steps over the end of a line, and over the here-documents that were announced on it."""
        self.position += 1
        pending, self._pending = self._pending, []
        for each in pending:
            self._here_document(each)

    def _here_document(self, redirection: Redirection) -> None:
        delimiter = "".join(part.text for part in redirection.target if isinstance(part, Literal))
        quoted = any(part.quoted for part in redirection.target)
        tabs = redirection.operator.endswith("-")
        kept: list[int] = []  # positions of the characters that belong to the body
        while self.position < len(self.text):
            start, end = self.position, self._find("\n", self.position)
            self.position = min(end + 1, len(self.text))
            while tabs and self.text.startswith("\t", start):
                start += 1
            if self.text[start:end].rstrip("\r") == delimiter:
                break
            kept.extend(range(start, self.position))
        body = Text("".join([self.text[at] for at in kept]), [self.source.offsets[at] for at in [*kept, self.position]])
        redirection.body = _literals(body) if quoted else self.inside(body).parts("", "", quoted=True)


def _literals(text: Text) -> Parts:
    """A text that stands as it is, in parts whose characters follow each other in the file."""
    parts: list[Literal] = []
    start = 0
    for at in range(1, len(text.characters) + 1):
        if at == len(text.characters) or text.offsets[at] != text.offsets[at - 1] + 1:
            parts.append(Literal(text.characters[start:at], text.offsets[start], True))
            start = at
    return tuple(parts)
