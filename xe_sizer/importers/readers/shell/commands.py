"""Commands of a script, read into a tree; nothing in it is run. Broken syntax is noted and stepped over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell.simple_commands import SimpleReader
from xe_sizer.importers.readers.shell.syntax import (
    AndOr,
    Calculation,
    Case,
    For,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Pipeline,
    Test,
)

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.syntax import (
        Node,
        Parts,
    )

_RESERVED = re.compile(r"(if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function)(?=[\s;&|()<>]|$)")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_NAMED_FUNCTION = re.compile(r"function[ \t]+([\w.:-]+)[ \t]*(\([ \t]*\))?")
_FOR = re.compile(r"(?:for|select)\s+([A-Za-z_]\w*)")
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

    def _for(self) -> Node:
        at, name, start = self.at(), "", ()  # type: int, str, Parts
        words: tuple[Parts, ...] | None = ()
        heading = _FOR.match(self.text, self.position)
        if heading:
            self.position, name = heading.end(), heading[1]
            words = self._for_words()
        else:
            self.position += len("for")
            self.blanks()
            expression = self.arithmetic(self.position + 2) if self.starts("((") else None
            start = expression or ()
        self.blank_lines()
        return For(name, words, start, self._do(), at)

    def _for_words(self) -> tuple[Parts, ...] | None:
        self.lines()
        if not re.compile(r"in(?=[\s;]|$)").match(self.text, self.position):
            return None
        self.position += 2
        words = []
        self.blanks()
        while word := self.word():
            words.append(word)
            self.blanks()
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
    "for": CommandReader._for,
    "select": CommandReader._for,
    "while": CommandReader._loop,
    "until": CommandReader._loop,
    "case": CommandReader._case,
    "function": CommandReader._named_function,
}
