"""Commands of a script, read into a tree; nothing in it is run. Broken syntax is noted and stepped over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell.places import Text
from xe_sizer.importers.readers.shell.syntax import (
    AndOr,
    Assignment,
    Calculation,
    Case,
    Element,
    For,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Pipeline,
    Redirection,
    Simple,
    Test,
)
from xe_sizer.importers.readers.shell.words import METACHARACTERS, WordReader

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.places import Places
    from xe_sizer.importers.readers.shell.syntax import (
        Node,
        Parts,
    )

DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_RESERVED = re.compile(r"(if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function)(?=[\s;&|()<>]|$)")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_NAMED_FUNCTION = re.compile(r"function[ \t]+([\w.:-]+)[ \t]*(\([ \t]*\))?")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[|\+?=)", re.ASCII)
_REDIRECTION = re.compile(r"(?:\d*|\{\w+\})(<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>?")
_FOR = re.compile(r"(?:for|select)\s+([A-Za-z_]\w*)")
_BLANK = re.compile(r"(?:[ \t]|\\\r?\n|\r(?=\n))+")
_TEST_OPERATOR = re.compile(r"&&|\|\||[()<>!](?=\s|\()|[()<>]")


class CommandReader(WordReader):
    """Reads a whole script; `broken` are the places of what could not be read."""

    def __init__(self, source: Text, places: Places, depth: int = 0) -> None:
        super().__init__(source, places, depth)
        self.broken: list[int] = []
        self._pending: list[Redirection] = []

    def script(self) -> tuple[Node, ...]:
        """All commands up to the end of the text."""
        found: list[Node] = []
        while True:
            found += self.commands()
            if self.position >= len(self.text):
                return tuple(found)
            self.broken.append(self.at())  # a parenthesis or ';;' that closes nothing
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
                self.broken.append(self.at())
                self.position = max(start + 1, self._find("\n", start))
        self.depth -= 1
        return tuple(found)

    def _closed(self, closers: tuple[str, ...]) -> bool:
        """Whether the list of commands ends here, after blank lines, separators and comments."""
        self._blank_lines()
        if self.position >= len(self.text) or self.starts(")", ";;", ";&"):
            return True
        if "}" in closers and self.starts("}"):
            return True
        word = _RESERVED.match(self.text, self.position)
        return bool(word and word[1] in closers)

    def _blank_lines(self) -> None:
        while self.position < len(self.text):
            self._blanks()
            if self.starts("\n"):
                self._new_line()
            elif self.starts("#"):
                self.position = self._find("\n", self.position)
            elif self.starts(";", "&") and not self.starts(";;", ";&", "&>"):
                self.position += 1
            else:
                return

    def _blanks(self) -> None:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position

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

    def _and_or(self) -> Node | None:
        left = self._pipeline()
        self._blanks()
        while left is not None and self.starts("&&", "||"):
            operator = self.text[self.position : self.position + 2]
            self.position += 2
            self._lines()
            right = self._pipeline()
            if right is None:
                break
            left = AndOr(left, operator, right)
            self._blanks()
        return left

    def _lines(self) -> None:
        """Blanks, comments and ends of lines after an operator."""
        self._blanks()
        while self.starts("\n", "#"):
            if self.starts("#"):
                self.position = self._find("\n", self.position)
            else:
                self._new_line()
            self._blanks()

    def _pipeline(self) -> Node | None:
        negated = False
        while re.compile(r"!\s").match(self.text, self.position):
            negated, self.position = not negated, self.position + 1
            self._blanks()
        stages: list[Node] = []
        while (stage := self._command()) is not None:
            stages.append(stage)
            self._blanks()
            if not self.starts("|") or self.starts("||"):
                break
            self.position += 2 if self.starts("|&") else 1
            self._lines()
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
        return self._function(function) if function else self._simple(at)

    def _with_redirections(self, node: Node) -> Node:
        self._blanks()
        while self._redirection() is not None:
            self._blanks()
        return node

    def _reserved(self, word: str) -> None:
        """Steps over a reserved word where it stands."""
        self._blank_lines()
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

    def _for(self) -> Node:
        at, name, start = self.at(), "", ()  # type: int, str, Parts
        words: tuple[Parts, ...] | None = ()
        heading = _FOR.match(self.text, self.position)
        if heading:
            self.position, name = heading.end(), heading[1]
            words = self._for_words()
        else:
            self.position += len("for")
            self._blanks()
            expression = self.arithmetic(self.position + 2) if self.starts("((") else None
            start = expression or ()
        self._blank_lines()
        return For(name, words, start, self._do(), at)

    def _for_words(self) -> tuple[Parts, ...] | None:
        self._lines()
        if not re.compile(r"in(?=[\s;]|$)").match(self.text, self.position):
            return None
        self.position += 2
        words = []
        self._blanks()
        while word := self.word():
            words.append(word)
            self._blanks()
        return tuple(words)

    def _do(self) -> tuple[Node, ...]:
        self._reserved("do")
        body = self.commands("done")
        self._reserved("done")
        return body

    def _loop(self) -> Node:
        at, until = self.at(), self.starts("until")
        self.position += len("until" if until else "while")
        condition = self.commands("do", "done")
        return Loop(condition, until, self._do(), at)

    def _case(self) -> Node:
        at, arms = self.at(), []
        self.position += len("case")
        self._blanks()
        subject = self.word()
        self._lines()
        self.position += 2 if self.starts("in") else 0
        self._blank_lines()
        while self.position < len(self.text) and not re.compile(r"esac\b").match(self.text, self.position):
            start = self.position
            patterns = self._patterns()
            body = self.commands("esac")
            arms.append((patterns, body))
            match = re.compile(r";;&|;;|;&").match(self.text, self.position)
            self.position = match.end() if match else self.position
            self._blank_lines()
            if self.position == start:
                break
        self._reserved("esac")
        return Case(subject, tuple(arms), at)

    def _patterns(self) -> tuple[Parts, ...]:
        patterns = []
        self.position += self.starts("(")
        self._blanks()
        while pattern := self.word():
            patterns.append(pattern)
            self._blanks()
            if not self.starts("|"):
                break
            self.position += 1
            self._blanks()
        self.position += self.starts(")")
        return tuple(patterns)

    def _named_function(self) -> Node | None:
        match = _NAMED_FUNCTION.match(self.text, self.position)
        return self._function(match) if match else self._simple(self.at())

    def _function(self, heading: re.Match[str]) -> Node:
        self.position = heading.end()
        self._lines()
        return Function(heading[1], self._command() or Group((), subshell=False))

    def _test(self, at: int) -> Node:
        self.position += 2
        words: list[Parts] = []
        while True:
            self._lines()
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

    def _simple(self, at: int) -> Node | None:
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
            word = () if self.starts("#") else self.word()
            if not word:
                break
            words.append(word)
            declares = declares or (len(words) == 1 and isinstance(word[0], Literal) and word[0].text in DECLARATIONS)
        if not (assignments or words or redirections):
            return None
        return Simple(tuple(assignments), tuple(words), tuple(redirections), at)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.position)
        if not match:
            return None
        found = Redirection(match[0], (), self.at())
        self.position = match.end()
        self._blanks()
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
            self._lines()
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
                self.broken.append(self.at())
                self.position += 1


_COMPOUNDS = {
    "if": CommandReader._if,
    "for": CommandReader._for,
    "select": CommandReader._for,
    "while": CommandReader._loop,
    "until": CommandReader._loop,
    "case": CommandReader._case,
    "function": CommandReader._named_function,
}


def _literals(text: Text) -> Parts:
    """A text that stands as it is, in parts whose characters follow each other in the file."""
    parts: list[Literal] = []
    start = 0
    for at in range(1, len(text.characters) + 1):
        if at == len(text.characters) or text.offsets[at] != text.offsets[at - 1] + 1:
            parts.append(Literal(text.characters[start:at], text.offsets[start], True))
            start = at
    return tuple(parts)


__all__ = ["DECLARATIONS", "METACHARACTERS", "CommandReader"]
