"""Shell text to commands and words, with their places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeAlias

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable

# What a script is made of: parts of words, and commands.


class Literal(Immutable):
    """Text as it stands, or a `placeholder` that users are to replace: `<path of the model>`."""

    text: str
    at: int
    quoted: bool
    placeholder: bool = False


class Parameter(Immutable):
    """`$NAME` and `${...}`: counted where `#` stands in front, arguments are what follows the operator."""

    name: str
    at: int
    quoted: bool
    counted: bool = False
    index: Parts | None = None
    operator: str = ""
    arguments: tuple[Parts, ...] = ()


class Arithmetic(Immutable):
    """`$((...))`."""

    expression: Parts
    raw: str
    at: int
    quoted: bool


class Substitution(Immutable):
    """`$(...)` and backticks; none is ever run. What is not read at all, such as `<(...)`, has no body."""

    body: tuple[Node, ...]
    raw: str
    at: int
    quoted: bool


Part: TypeAlias = Literal | Parameter | Arithmetic | Substitution
Parts: TypeAlias = tuple[Part, ...]


class Assignment(Immutable):
    """`NAME=value`, `NAME+=value`, `NAME=(items)`; `NAME[0]=value` sets an `item`."""

    name: str
    item: bool
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


class Simple(Immutable):
    assignments: tuple[Assignment, ...]
    words: tuple[Parts | Assignment, ...]
    redirections: tuple[Redirection, ...]
    at: int


class Pipeline(Immutable):
    stages: tuple[Node, ...]
    negated: bool


class AndOr(Immutable):
    left: Node
    operator: str
    right: Node


class If(Immutable):
    arms: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]


class Case(Immutable):
    subject: Parts
    arms: tuple[tuple[tuple[Parts, ...], tuple[Node, ...]], ...]


class Loop(Immutable):
    """`for`, `while`, `until` and `select`, with what stands before `do`."""

    kind: str
    heading: tuple[Node, ...]
    body: tuple[Node, ...]
    at: int


class Function(Immutable):
    name: str
    body: Node


class Group(Immutable):
    """`{ ...; }` and `( ... )`."""

    body: tuple[Node, ...]
    subshell: bool


class Test(Immutable):
    """`[[ ... ]]`: operands and operators, the latter as plain literals."""

    words: tuple[Parts, ...]
    at: int


class Calculation(Immutable):
    """`(( ... ))`."""

    expression: Parts
    at: int


Node: TypeAlias = Simple | Pipeline | AndOr | If | Case | Loop | Function | Group | Test | Calculation

HINT = "write the command that starts the job, with its values, into a file of its own and import that"


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
        text = text.replace("\r\n", "\n")
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

    def refuse(self, what: str, offset: int) -> NoReturn:
        """Raises InputError: what stands here is no part of the shell language that is read."""
        raise InputError(Problem(f"{what} is not read", self.locate(offset), HINT))


# Words of a script: quotes, escapes and everything that begins with a dollar sign.

MAX_NESTING = 50
DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
PLACEHOLDER = re.compile(r"""<[A-Za-z][^<>|&;\n"'$()`\\]*(?<!\s)>(?=[\s/,"']|$)""")
"""`<path of the model>`, where people are to write something of their own."""
_METACHARACTERS = " \t\r\n;&|()<>"
_QUOTES = "'\""
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED = re.compile(r"\$\{(#?)([A-Za-z_]\w*|\d+|[@*#?$-])(?=[\[}:=+?#%/^,@-])(\[)?", re.ASCII)
_OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//?|\^\^?|,,?|@|:")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^]\s]*\])?(\+?=)", re.ASCII)
_REDIRECTION = re.compile(r"\d*(<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>?")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_RESERVED = re.compile(r"(if|then|elif|else|fi|for|select|while|until|do|done|case|esac)(?=[\s;&|()<>]|$)")
_FUNCTION = re.compile(r"function[ \t]+([\w.:-]+)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_TEST_OPERATOR = re.compile(r"&&|\|\||[()<>!](?=\s|\()|[()<>]")


@lru_cache(maxsize=64)
def _plain(stop: str, quotes: str) -> re.Pattern[str]:
    """Characters that stand for themselves until one of `stop`, a quote, a dollar sign, a backtick or a backslash."""
    return re.compile(f"[^{re.escape(stop + quotes)}\\\\$`]+")


class CommandReader:
    """Reads commands from a text into a tree; nothing in it is run. `position` counts the text's characters."""

    def __init__(self, source: Text, places: Places, depth: int = 0) -> None:
        self.source, self.places, self.depth = source, places, depth
        self.text, self.position = source.characters, 0
        self._pending: list[Redirection] = []

    def script(self) -> tuple[Node, ...]:
        """All commands up to the end of the text. Raises InputError: its syntax is not clear."""
        found = self._commands()
        if self.position < len(self.text):
            self._broken()
        return found

    def _broken(self) -> NoReturn:
        raise InputError(Problem("this does not read as a shell script", self._place(), HINT))

    def _place(self) -> Location:
        return self.places.locate(self._at(min(self.position, len(self.text))))

    def _at(self, position: int | None = None) -> int:
        return self.source.offsets[self.position if position is None else position]

    def _starts(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.position)

    def _find(self, mark: str, start: int) -> int:
        end = self.text.find(mark, start)
        return len(self.text) if end < 0 else end

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InputError(Problem(f"a script is nested at most {MAX_NESTING} deep", self._place()))

    def _inside(self, text: Text) -> CommandReader:
        """A reader of a part of this text, one level deeper."""
        self._deeper()
        self.depth -= 1
        return CommandReader(text, self.places, self.depth + 1)

    def _word(self) -> Parts:
        """One word; empty where a metacharacter stands."""
        if self._starts("<(", ">("):  # what the commands inside write is not known
            inner = self._substitution(quoted=True)
            return (Substitution((), inner.raw, inner.at, True),)
        found = self._parts(_METACHARACTERS, _QUOTES, quoted=False)
        while placeholder := PLACEHOLDER.match(self.text, self.position):
            found = (*found, Literal(placeholder[0], self._at(), True, placeholder=True))
            self.position = placeholder.end()
            found += self._parts(_METACHARACTERS, _QUOTES, quoted=False)
        return found

    def _parts(self, stop: str, quotes: str, *, quoted: bool) -> Parts:
        """Parts up to one of the characters `stop`; `quotes` are the quotation marks that count here."""
        found: list[Part] = []
        plain = _plain(stop, quotes)
        while self.position < len(self.text) and (character := self.text[self.position]) not in stop:
            start = self.position
            if match := plain.match(self.text, start):
                found.append(Literal(match[0], self._at(), quoted))
                self.position = match.end()
            elif character == "\\":
                self.position += 2
                escaped = self.text[start + 1 : start + 2]
                if not escaped or (quoted and escaped not in f"$`\\\n{stop}{quotes}"):  # most backslashes stay there
                    found.append(Literal(self.text[start : self.position], self._at(start), True))
                elif escaped != "\n":
                    found.append(Literal(escaped, self._at(start + 1), True))
            elif character == '"' and character in quotes:
                self.position += 1
                self._deeper()
                found += self._parts('"', "", quoted=True) or [Literal("", self._at(start), True)]
                self.depth -= 1
                self.position = min(self.position + 1, len(self.text))
            elif character == "'" and character in quotes:
                end = self._find("'", start + 1)
                found.append(Literal(self.text[start + 1 : end], self._at(start + 1), True))
                self.position = min(end + 1, len(self.text))
            else:
                self._deeper()
                found.append(self._dollar(quoted, quotes))
                self.depth -= 1
        return tuple(found)

    def _dollar(self, quoted: bool, quotes: str) -> Part:
        """`$NAME`, `${...}`, `$(...)`, `$((...))`, backticks, and a dollar sign that is none of these."""
        start = self.position
        if self._starts("`"):
            end = start + 1
            while end < len(self.text) and self.text[end] != "`":
                end += 2 if self.text[end] == "\\" else 1
            end = min(end, len(self.text))
            body = self._inside(self.source.part(start + 1, end))._commands()
            self.position = min(end + 1, len(self.text))
            return Substitution(body, self.text[start : self.position], self._at(start), quoted)
        if self._starts("$'") and "'" in quotes:  # with escapes of its own
            end = self._find("'", start + 2)
            self.position = min(end + 1, len(self.text))
            return Substitution((), self.text[start : self.position], self._at(start), True)
        if self._starts("$(("):
            self.position += len("$((")
            expression = self._arithmetic()
            return Arithmetic(expression, self.text[start : self.position], self._at(start), quoted)
        if self._starts("$("):
            return self._substitution(quoted)
        if self._starts("${"):
            return self._braced(quoted)
        name = _NAME.match(self.text, start + 1)
        self.position = name.end() if name else start + 1
        return Parameter(name[0], self._at(start), quoted) if name else Literal("$", self._at(start), quoted)

    def _substitution(self, quoted: bool) -> Substitution:
        start = self.position
        self.position += len("$(")
        body = self._commands()
        self.position = min(self.position + 1, len(self.text))
        return Substitution(body, self.text[start : self.position], self._at(start), quoted)

    def _arithmetic(self) -> Parts:
        """The expression that begins here and ends with `))`."""
        depth, end = 0, self.position
        while end < len(self.text) and (depth or not self.text.startswith("))", end)):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            if depth < 0:
                self._broken()
            end += 1
        inner = self._inside(self.source.part(self.position, end))
        self.position = min(end + len("))"), len(self.text))
        return inner._parts("", '"', quoted=True)

    def _braced(self, quoted: bool) -> Part:
        """`${...}`; what is no parameter there is not read."""
        start = self.position
        name = _BRACED.match(self.text, start)
        if name is None:
            self.position = min(self._find("}", start), self._find("\n", start) - 1) + 1
            return Substitution((), self.text[start : self.position], self._at(start), quoted)
        self.position = name.end()
        index = None
        if name[3]:
            index = self._parts("]", _QUOTES, quoted=False)
            self.position += 1
        operator = _OPERATOR.match(self.text, self.position)
        arguments: list[Parts] = []
        if operator:
            self.position = operator.end()
            quotes, divider = '"' if quoted else _QUOTES, "/" if operator[0][0] == "/" else ""
            arguments.append(self._parts("}" + divider, quotes, quoted=quoted))
            if divider and self._starts(divider):
                self.position += 1
                arguments.append(self._parts("}", quotes, quoted=quoted))
        if not self._starts("}"):
            self._broken()
        self.position += 1
        sign = operator[0] if operator else ""
        return Parameter(name[2], self._at(start), quoted, bool(name[1]), index, sign, tuple(arguments))

    # Simple commands: assignments, words, redirections and the here-documents below them.

    def _simple(self) -> Simple | None:
        at = self._at()
        assignments: list[Assignment] = []
        words: list[Parts | Assignment] = []
        redirections: list[Redirection] = []
        declares = False
        while True:
            self._blanks()
            redirection = self._redirection()
            if redirection:
                redirections.append(redirection)
                continue
            assignment = self._assignment() if declares or not words else None
            if assignment:
                (words or assignments).append(assignment)
                continue
            word = () if self._starts("#") else self._word()
            if not word:
                break
            words.append(word)
            declares = declares or (len(words) == 1 and isinstance(word[0], Literal) and word[0].text in DECLARATIONS)
        if not (assignments or words or redirections):
            return None
        return Simple(tuple(assignments), tuple(words), tuple(redirections), at)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.position)
        if not match or PLACEHOLDER.match(self.text, self.position):
            return None
        found = Redirection(match[0], (), self._at())
        self.position = match.end()
        self._blanks()
        found.target = self._word()
        if match[1] in {"<<", "<<-"}:
            self._pending.append(found)
        return found

    def _assignment(self) -> Assignment | None:
        match = _ASSIGNED.match(self.text, self.position)
        if not match:
            return None
        at = self._at()
        self.position = match.end()
        items: list[Parts] | None = None
        value: Parts = ()
        if self._starts("("):
            items = []
            self.position += 1
            self._lines()
            while self.position < len(self.text) and not self._starts(")"):
                items.append(self._word() or self._broken())
                self._lines()
            self.position = min(self.position + 1, len(self.text))
        else:
            value = self._word()
        listed = None if items is None else tuple(items)
        return Assignment(match[1], bool(match[2]), match[3] == "+=", value, listed, at)

    def _blanks(self) -> None:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def _lines(self) -> None:
        """Blanks, comments and ends of lines; steps over the here-documents that were announced on a line."""
        self._blanks()
        while self._starts("\n", "#"):
            self.position = self._find("\n", self.position)
            if self.position < len(self.text):
                self.position += 1
                pending, self._pending = self._pending, []
                for each in pending:
                    self._here_document(each)
            self._blanks()

    def _here_document(self, redirection: Redirection) -> None:
        delimiter = "".join(part.text for part in redirection.target if isinstance(part, Literal))
        tabs = redirection.operator.endswith("-")
        lines: list[Text] = []
        while self.position < len(self.text):
            start, self.position = self.position, min(self._find("\n", self.position) + 1, len(self.text))
            while tabs and self.text.startswith("\t", start):
                start += 1
            line = self.source.part(start, self.position)
            if line.characters.rstrip("\n") == delimiter:
                break
            lines.append(line)
        if any(part.quoted for part in redirection.target):
            redirection.body = tuple([Literal(line.characters, line.offsets[0], True) for line in lines])
        else:
            offsets = [offset for line in lines for offset in line.offsets[:-1]]
            body = Text("".join([line.characters for line in lines]), [*offsets, self._at()])
            redirection.body = self._inside(body)._parts("", "", quoted=True)

    # Compound commands.

    def _commands(self, *closers: str) -> tuple[Node, ...]:
        """Commands up to one of the reserved words, a closing parenthesis or the end."""
        self._deeper()
        found: list[Node] = []
        while not self._closed(closers):
            found.append(self._and_or() or self._broken())
        self.depth -= 1
        return tuple(found)

    def _closed(self, closers: tuple[str, ...] = ()) -> bool:
        """Whether the list of commands ends here, after blank lines, separators and comments."""
        self._lines()
        while self._starts(";", "&") and not self._starts(";;", ";&", "&>"):
            self.position += 1
            self._lines()
        if self.position >= len(self.text) or self._starts(")", ";;", ";&"):
            return True
        word = _RESERVED.match(self.text, self.position)
        return bool(word and word[1] in closers) or ("}" in closers and self._starts("}"))

    def _and_or(self) -> Node | None:
        left = self._pipeline()
        self._blanks()
        while left is not None and self._starts("&&", "||"):
            operator = self.text[self.position : self.position + 2]
            self.position += 2
            self._lines()
            left = AndOr(left, operator, self._pipeline() or self._broken())
            self._blanks()
        return left

    def _pipeline(self) -> Node | None:
        negated = False
        while self._starts("! "):
            negated, self.position = not negated, self.position + 1
            self._blanks()
        stages: list[Node] = []
        while (stage := self._command()) is not None:
            stages.append(stage)
            self._blanks()
            if not self._starts("|") or self._starts("||"):
                break
            self.position += 2 if self._starts("|&") else 1
            self._lines()
        if not stages:
            return None
        return stages[0] if len(stages) == 1 and not negated else Pipeline(tuple(stages), negated)

    def _command(self) -> Node | None:
        """One command, a compound one without its redirections."""
        self._deeper()
        at = self._at()
        word = _RESERVED.match(self.text, self.position)
        function = _FUNCTION.match(self.text, self.position)
        found: Node | None
        if word and word[1] == "if":
            found = self._if()
        elif word and word[1] == "case":
            found = self._case()
        elif word and word[1] in {"for", "select", "while", "until"}:
            self.position = word.end()
            heading = self._commands("do", "done")
            self._reserved("do")
            found = Loop(word[1], heading, self._commands("done"), at)
            self._reserved("done")
        elif self._starts("(("):
            self.position += len("((")
            found = Calculation(self._arithmetic(), at)
        elif self._starts("(", "{ ", "{\n"):
            end = ")" if self._starts("(") else "}"
            self.position += 1
            found = Group(self._commands(end), subshell=end == ")")
            self.position += self._starts(end)
        elif self._starts("[[ "):
            found = self._test(at)
        elif function:
            self.position = function.end()
            self._lines()
            found = Function(function[1] or function[2], self._command() or self._broken())
        else:
            found = self._simple()
        self._blanks()
        while not isinstance(found, Simple | None) and self._redirection() is not None:
            self._blanks()
        self.depth -= 1
        return found

    def _reserved(self, word: str) -> None:
        """Steps over a reserved word where it stands."""
        self._closed()
        match = _RESERVED.match(self.text, self.position)
        if match and match[1] == word:
            self.position = match.end()

    def _if(self) -> Node:
        arms = []
        self.position += len("if")
        while True:
            condition = self._commands("then", "fi")
            self._reserved("then")
            arms.append((condition, self._commands("elif", "else", "fi")))
            if not self._starts("elif"):
                break
            self.position += len("elif")
        otherwise: tuple[Node, ...] = ()
        if self._starts("else"):
            self.position += len("else")
            otherwise = self._commands("fi")
        self._reserved("fi")
        return If(tuple(arms), otherwise)

    def _case(self) -> Node:
        arms = []
        self.position += len("case")
        self._blanks()
        subject = self._word()
        self._lines()
        self.position += len("in") if self._starts("in") else 0
        while not self._closed(("esac",)):
            self.position += self._starts("(")
            patterns = []
            while pattern := self._word():
                patterns.append(pattern)
                self._blanks()
                self.position += self._starts("|")
                self._blanks()
            if not self._starts(")"):
                self._broken()
            self.position += 1
            arms.append((tuple(patterns), self._commands("esac")))
            if self._starts(";;&", ";&"):
                self.places.refuse("a branch that goes on into the next one", self._at())
            self.position += 2 if self._starts(";;") else 0
        self._reserved("esac")
        return Case(subject, tuple(arms))

    def _test(self, at: int) -> Node:
        self.position += len("[[")
        words: list[Parts] = []
        while True:
            self._lines()
            operator = _TEST_OPERATOR.match(self.text, self.position)
            if operator:
                words.append((Literal(operator[0], self._at(), False),))
                self.position = operator.end()
                continue
            is_expression = words and isinstance(words[-1][0], Literal) and words[-1][0].text == "=~"
            start = self.position
            word = self._parts(" \t\n", _QUOTES, quoted=False) if is_expression else self._word()
            if not word or self.text[start : self.position] == "]]":
                return Test(tuple(words), at)
            words.append(word)
