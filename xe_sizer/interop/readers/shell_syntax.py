"""Shell text to commands and words, with their places."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable

# What a script is made of: parts of words, and commands.


class Literal(Immutable, eq=True):
    """Text as it stands; `moves` where its characters stand one after the other in the file.

    A `placeholder` is what users are to replace: `<path of the model>`.
    """

    text: str
    at: int
    quoted: bool
    moves: bool = True
    placeholder: bool = False


class Parameter(Immutable, eq=True):
    """`$NAME` and `${...}`: prefix is "#" (length) or "!" (indirect), arguments are what follows the operator."""

    name: str
    at: int
    quoted: bool
    prefix: str = ""
    index: Parts | None = None
    operator: str = ""
    arguments: tuple[Parts, ...] = ()


class Arithmetic(Immutable, eq=True):
    expression: Parts
    raw: str
    at: int
    quoted: bool


class Substitution(Immutable, eq=True):
    """`$(...)`, backticks and `<(...)`; none is ever run. Without a body it is a process substitution."""

    body: tuple[Node, ...] | None
    raw: str
    at: int
    quoted: bool


Part: TypeAlias = Literal | Parameter | Arithmetic | Substitution
Parts: TypeAlias = tuple[Part, ...]


class Assignment(Immutable, eq=True):
    """`NAME=value`, `NAME[index]+=value`, `NAME=(items)`."""

    name: str
    index: Parts | None
    append: bool
    value: Parts
    items: tuple[Parts, ...] | None
    at: int


@dataclass
class Redirection:
    """`> target`, or a here-document, whose body stands below the command and is filled in when it is read."""

    operator: str
    target: Parts
    at: int
    body: Parts | None = None


class Simple(Immutable, eq=True):
    assignments: tuple[Assignment, ...]
    words: tuple[Parts | Assignment, ...]
    redirections: tuple[Redirection, ...]
    at: int


class Pipeline(Immutable, eq=True):
    stages: tuple[Node, ...]
    negated: bool


class AndOr(Immutable, eq=True):
    left: Node
    operator: str
    right: Node


class If(Immutable, eq=True):
    arms: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]
    at: int


class Case(Immutable, eq=True):
    subject: Parts
    arms: tuple[tuple[tuple[Parts, ...], tuple[Node, ...]], ...]
    at: int


class Loop(Immutable, eq=True):
    """`for`, `while`, `until` and `select`; what is in it is not read."""

    body: tuple[Node, ...]
    at: int


class Function(Immutable, eq=True):
    name: str
    body: Node


class Group(Immutable, eq=True):
    body: tuple[Node, ...]
    subshell: bool


class Test(Immutable, eq=True):
    """`[[ ... ]]`: operands and operators, the latter as plain literals."""

    words: tuple[Parts, ...]
    at: int


class Calculation(Immutable, eq=True):
    """`(( ... ))`."""

    expression: Parts
    at: int


Node: TypeAlias = Simple | Pipeline | AndOr | If | Case | Loop | Function | Group | Test | Calculation


# Where each character of a script stands, also after it went through variables.

MAX_CHARACTERS = 2**20
"""Longest script that is read."""


class Text(NamedTuple):
    """Characters with the offset of each one, and of the end, among all texts of a reading."""

    characters: str
    offsets: Sequence[int]

    def part(self, start: int, end: int) -> Text:
        return Text(self.characters[start:end], self.offsets[start : end + 1])


class _Origin(NamedTuple):
    begins: int
    location: Location
    line_starts: tuple[int, ...]


class Places:
    """All texts of a reading, one after the other, so that one number says file, line and column."""

    def __init__(self) -> None:
        self._origins: list[_Origin] = []
        self._end = 0

    def add(self, text: str, location: Location) -> Text:
        """The text with its places; its first character stands at `location`.

        Raises InputError where the text is longer than `MAX_CHARACTERS`.
        """
        if len(text) > MAX_CHARACTERS:
            raise InputError(Problem(f"a script has at most {MAX_CHARACTERS:,} characters", location))
        begins, self._end = self._end, self._end + len(text) + 1
        starts = (0, *(at + 1 for at, character in enumerate(text) if character == "\n"))
        self._origins.append(_Origin(begins, location, starts))
        return Text(text, range(begins, self._end))

    def locate(self, offset: int) -> Location:
        """File, line and column of an offset; a text without lines of its own has one place."""
        begins, location, starts = self._origins[bisect_right(self._origins, offset, key=lambda each: each.begins) - 1]
        if location.line is None:
            return location
        row = bisect_right(starts, offset - begins) - 1
        column = offset - begins - starts[row]
        return Location(location.name, location.line + row, column + ((location.column or 1) if row == 0 else 1))


# Words of a script: quotes, escapes and everything that begins with a dollar sign.

MAX_NESTING = 50
METACHARACTERS = " \t\r\n;&|()<>"
_QUOTES = "'\""
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]", re.ASCII)
PLACEHOLDER = re.compile(r"""<[A-Za-z][^<>|&;\n"'$()`\\]*(?<!\s)>(?=[\s/,"']|$)""")
"""`<path of the model>`, where people are to write something of their own."""
_OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//|/[#%]?|\^\^?|,,?|@|:")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}  # of `$'...'`


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
        text = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), self.text[start + 2 : end])
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


# Simple commands: assignments, words, redirections and the here-documents below them.

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

    def _items(self) -> tuple[Parts, ...]:
        """What stands between the parentheses of an array."""
        items: list[Parts] = []
        self.position += 1
        while True:
            self.lines()
            if self.position >= len(self.text) or self.starts(")"):
                self.position = min(self.position + 1, len(self.text))
                return tuple(items)
            value = self.word()
            if value:
                items.append(value)
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


# Commands of a script, read into a tree; nothing in it is run. Broken syntax is noted and stepped over.

_RESERVED = re.compile(r"(if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function)(?=[\s;&|()<>]|$)")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_NAMED_FUNCTION = re.compile(r"function[ \t]+([\w.:-]+)[ \t]*(\([ \t]*\))?")
_TEST_OPERATOR = re.compile(r"&&|\|\||[()<>!](?=\s|\()|[()<>]")


class CommandReader(SimpleReader):
    """Reads a whole script."""

    def script(self) -> tuple[Node, ...]:
        """All commands up to the end of the text."""
        found: list[Node] = []
        while True:
            found += self.commands()
            if self.position >= len(self.text):
                return tuple(found)
            self.is_broken()  # a parenthesis or ';;' that closes nothing
            self.position += 1

    def commands(self, *closers: str) -> tuple[Node, ...]:
        self._deeper()
        found: list[Node] = []
        while not self._closed(closers):
            start = self.position
            node = self._and_or()
            if node is not None:
                found.append(node)
            if self.position == start:
                self.is_broken()
                self.position = max(start + 1, self._find("\n", start))
        self.depth -= 1
        return tuple(found)

    def _closed(self, closers: tuple[str, ...]) -> bool:
        """Whether the list of commands ends here, after blank lines, separators and comments."""
        self.blank_lines()
        if self.position >= len(self.text) or self.starts(")", ";;", ";&"):
            return True
        if "}" in closers and self.starts("}"):
            return True
        word = _RESERVED.match(self.text, self.position)
        return bool(word and word[1] in closers)

    def _and_or(self) -> Node | None:
        left = self._pipeline()
        self.blanks()
        while left is not None and self.starts("&&", "||"):
            operator = self.text[self.position : self.position + 2]
            self.position += 2
            self.lines()
            right = self._pipeline()
            if right is None:
                break
            left = AndOr(left, operator, right)
            self.blanks()
        return left

    def _pipeline(self) -> Node | None:
        negated = False
        while re.compile(r"!\s").match(self.text, self.position):
            negated, self.position = not negated, self.position + 1
            self.blanks()
        stages: list[Node] = []
        while (stage := self._command()) is not None:
            stages.append(stage)
            self.blanks()
            if not self.starts("|") or self.starts("||"):
                break
            self.position += 2 if self.starts("|&") else 1
            self.lines()
        if not stages:
            return None
        return stages[0] if len(stages) == 1 and not negated else Pipeline(tuple(stages), negated)

    def _command(self) -> Node | None:
        self._deeper()
        found = self._compound()
        self.depth -= 1
        return found

    def _compound(self) -> Node | None:
        at = self.at()
        word = _RESERVED.match(self.text, self.position)
        reader = _COMPOUNDS.get(word[1]) if word else None
        if reader:
            found = reader(self)
            return None if found is None else self._with_redirections(found)
        if self.starts("((") and (expression := self.arithmetic(self.position + 2)) is not None:
            return Calculation(expression, at)
        if self.starts("("):
            self.position += 1
            body = self.commands()
            self.position += self.starts(")")
            return self._with_redirections(Group(body, subshell=True))
        if re.compile(r"\{\s").match(self.text, self.position):
            self.position += 1
            body = self.commands("}")
            self.position += self.starts("}")
            return self._with_redirections(Group(body, subshell=False))
        if re.compile(r"\[\[\s").match(self.text, self.position):
            return self._test(at)
        function = _FUNCTION.match(self.text, self.position)
        return self._function(function) if function else self.simple(at)

    def _with_redirections(self, node: Node) -> Node:
        self.blanks()
        while self.redirection() is not None:
            self.blanks()
        return node

    def _reserved(self, word: str) -> None:
        """Steps over a reserved word where it stands."""
        self.blank_lines()
        match = _RESERVED.match(self.text, self.position)
        if match and match[1] == word:
            self.position = match.end()

    def _if(self) -> Node:
        at, arms = self.at(), []
        self.position += len("if")
        while True:
            condition = self.commands("then", "fi")
            self._reserved("then")
            arms.append((condition, self.commands("elif", "else", "fi")))
            if not self.starts("elif"):
                break
            self.position += len("elif")
        otherwise: tuple[Node, ...] = ()
        if self.starts("else"):
            self.position += len("else")
            otherwise = self.commands("fi")
        self._reserved("fi")
        return If(tuple(arms), otherwise, at)

    def _loop(self) -> Node:
        at, heading = self.at(), _RESERVED.match(self.text, self.position)
        self.position = heading.end() if heading else self.position
        self.commands("do", "done")
        self._reserved("do")
        body = self.commands("done")
        self._reserved("done")
        return Loop(body, at)

    def _case(self) -> Node:
        at, arms = self.at(), []
        self.position += len("case")
        self.blanks()
        subject = self.word()
        self.lines()
        self.position += 2 if self.starts("in") else 0
        self.blank_lines()
        while self.position < len(self.text) and not re.compile(r"esac\b").match(self.text, self.position):
            start = self.position
            patterns = self._patterns()
            body = self.commands("esac")
            arms.append((patterns, body))
            match = re.compile(r";;&|;;|;&").match(self.text, self.position)
            self.position = match.end() if match else self.position
            self.blank_lines()
            if self.position == start:
                break
        self._reserved("esac")
        return Case(subject, tuple(arms), at)

    def _patterns(self) -> tuple[Parts, ...]:
        patterns = []
        self.position += self.starts("(")
        self.blanks()
        while pattern := self.word():
            patterns.append(pattern)
            self.blanks()
            if not self.starts("|"):
                break
            self.position += 1
            self.blanks()
        self.position += self.starts(")")
        return tuple(patterns)

    def _named_function(self) -> Node | None:
        match = _NAMED_FUNCTION.match(self.text, self.position)
        return self._function(match) if match else self.simple(self.at())

    def _function(self, heading: re.Match[str]) -> Node:
        self.position = heading.end()
        self.lines()
        return Function(heading[1], self._command() or Group((), subshell=False))

    def _test(self, at: int) -> Node:
        self.position += 2
        words: list[Parts] = []
        while True:
            self.lines()
            operator = _TEST_OPERATOR.match(self.text, self.position)
            if operator:
                words.append((Literal(operator[0], self.at(), False),))
                self.position = operator.end()
                continue
            expression = words and words[-1] == (Literal("=~", words[-1][0].at, False),)
            word = self.parts(" \t\n", "'\"", quoted=False) if expression else self.word()
            if not word or word == (Literal("]]", word[0].at, False),):
                return self._with_redirections(Test(tuple(words), at))
            words.append(word)


_COMPOUNDS = {
    "if": CommandReader._if,
    **dict.fromkeys(("for", "select", "while", "until"), CommandReader._loop),
    "case": CommandReader._case,
    "function": CommandReader._named_function,
}
