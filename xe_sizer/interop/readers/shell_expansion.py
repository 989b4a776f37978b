"""Expansions of shell words: variables, arithmetic, patterns and substitutions."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop.readers.shell_syntax import (
    AndOr,
    Arithmetic,
    Assignment,
    Literal,
    Parameter,
    Pipeline,
    Simple,
    Substitution,
    Text,
)

if TYPE_CHECKING:
    from xe_sizer.interop.readers.shell_syntax import Node, Part, Parts

# Patterns of shells (`*`, `?`, `[a-z]`) and the operators of `${...}` that use them.

_SPECIAL = re.compile(r"([*?\[\]\\])")
_PATTERN_PART = re.compile(r"(\*+)|(\?)|\[([!^]?)([^\]]+)\]|\\?(.)", re.DOTALL)
_IN_CLASS = re.compile(r"([\\\[&|~^])")
_MAX_STARS = 2


def escaped(text: str) -> str:
    """Text that stands for itself in a pattern."""
    return _SPECIAL.sub(r"\\\1", text)


def _expression(pattern: str, *, longest: bool = True) -> str:
    """A pattern as a regular expression. Raises NoValueError: it has more `*` than are tried, or is none."""
    found, stars = "", 0
    for any_number, one, negated, members, character in _PATTERN_PART.findall(pattern):
        stars += bool(any_number)
        if any_number:
            found += ".*" if longest else ".*?"
        elif one:
            found += "."
        elif members:
            found += f"[{'^' * bool(negated)}{_IN_CLASS.sub(_BACKSLASHED, members)}]"
        else:
            found += re.escape(character)
    try:
        re.compile(found)
    except re.error:
        stars = _MAX_STARS + 1
    if stars > _MAX_STARS:
        raise NoValueError(f"'{pattern}' is not compared")
    return f"(?s:{found})"


def steps(text: str, pattern: str) -> int:
    """How many steps an operation takes at most; a `*` is tried from every place of the text."""
    return len(pattern) * int((1 + len(text)) ** (1 + min(pattern.count("*"), _MAX_STARS)))


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text fits the pattern. Raises NoValueError."""
    return re.fullmatch(_expression(pattern), text) is not None


def _operated(operator: str, text: str, pattern: str, replacement: str) -> str:
    """What an operator on text makes of it: `#` and `%` cut off, `/` replaces, `^` and `,` change the case.

    Raises NoValueError: the operator or its pattern is not computed.
    """
    if operator in _CASES:
        return _CASES[operator](text)
    if operator[0] not in "#%/":
        raise NoValueError(f"'{operator}' is not computed")
    body = _expression(pattern, longest=operator not in {"#", "%"})
    if operator == "%":
        rest = re.fullmatch(f"((?s:.*)){body}", text)
        return rest[1] if rest else text
    if operator in {"#", "##", "/#"}:
        body = rf"\A{body}"
    elif operator in {"%%", "/%"}:
        body = rf"{body}\Z"
    return re.sub(body, lambda found: replacement if found[0] else "", text, count=0 if operator == "//" else 1)


_BACKSLASHED = r"\\\1"
_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper, ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:], ",": lambda text: text[:1].lower() + text[1:],
}  # fmt: skip


# Whole-number arithmetic of shells, in 64 bits as they have it.

Lookup = Callable[[str], "int | None"]
_WORD_BITS = 64
_MAX_EXPRESSION = 1_000  # characters
_READ = re.compile(r"(?:[\w\s+\-*/%()?:]|<<|>>|&&|\|\||[<>=!]=|[<>])*", re.ASCII)
_CHOICE = re.compile(r"([^?:]*)\?([^?:]*):([^?:]*)")


class NoValueError(Exception):
    """An expression that has no value, or is not read."""


class UnknownNamesError(NoValueError):
    """An expression with variables whose value is not known; `names` are theirs."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


def _quotient(a: int, b: int) -> int:
    """Division towards zero."""
    if b == 0:
        raise NoValueError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if b < 0:
        raise NoValueError("an exponent below zero")
    return int(pow(a, b, 2**_WORD_BITS))


_OPERATORS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _quotient, ast.Pow: _power,
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
    ast.LShift: lambda a, b: a << (b % _WORD_BITS), ast.RShift: lambda a, b: a >> (b % _WORD_BITS),
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(text: str, lookup: Lookup) -> int:
    """The value of an expression; the operators that are read bind in Python as they do in shells.

    lookup : a variable's value; None: it is not set

    Raises NoValueError where the expression has no value or assigns one, UnknownNamesError where a variable's is not
    known.
    """
    if len(text) > _MAX_EXPRESSION or not _READ.fullmatch(text):
        raise NoValueError(f"'{text}' is not read")
    choice = _CHOICE.fullmatch(text)
    python = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})" if choice else text
    python = python.replace("&&", " and ").replace("||", " or ").strip()
    try:
        return _value(ast.parse(python, mode="eval").body, lookup)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise NoValueError(f"'{text}' is no expression") from error


def _value(node: ast.expr, lookup: Lookup) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _wrapped(node.value)
    if isinstance(node, ast.Name):
        value = lookup(node.id)
        if value is None:
            raise UnknownNamesError(node.id)
        return value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _wrapped(_OPERATORS[type(node.op)](_value(node.left, lookup), _value(node.right, lookup)))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        left, right = _value(node.left, lookup), _value(node.comparators[0], lookup)
        return int(_OPERATORS[type(node.ops[0])](left, right))
    if isinstance(node, ast.BoolOp):
        either = any if isinstance(node.op, ast.Or) else all
        return int(either(_value(each, lookup) for each in node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand, lookup)
        return _wrapped(-value) if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, lookup) else node.orelse, lookup)
    raise NoValueError("no expression that is read")


def _wrapped(value: int) -> int:
    half = 1 << (_WORD_BITS - 1)
    return (value + half) % (2 * half) - half


# What variables hold: text whose characters know where they stand, and what was not known of it.

MAX_WORDS, MAX_CHARACTERS = 100_000, 4 * 2**20
"""The most words and characters that all expansions of a script may make."""
_STEPS = 8
_FIELD = re.compile(r"[^ \t\r\n]+")


class Run(NamedTuple):
    """Characters from one place.

    `unknown` names what is missing where the text only stands for a value;
    `computed` where a program would have given it, so that it is known not to be empty.
    """

    text: str
    at: int
    moves: bool = True
    quoted: bool = False
    unknown: tuple[str, ...] = ()
    computed: bool = False

    def part(self, start: int, end: int) -> Run:
        return self._replace(text=self.text[start:end], at=self.at + start if self.moves else self.at)


Runs: TypeAlias = tuple[Run, ...]


class Array(NamedTuple):
    """A list."""

    items: tuple[Runs, ...]


Value: TypeAlias = "Runs | Array"
Break = None
"""Stands between the items of an array that was expanded."""


def text_of(runs: Iterable[Run]) -> str:
    return "".join([run.text for run in runs])


def unknown_in(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of what is not known, each once."""
    return tuple(dict.fromkeys(name for run in runs for name in run.unknown))


def computed_in(runs: Iterable[Run]) -> bool:
    return any(run.computed for run in runs)


def plain_text(runs: Iterable[Run]) -> str:
    """The text where variables that are not set are empty, as a shell takes them."""
    return "".join([run.text for run in runs if run.computed or not run.unknown])


def moving_text(runs: Iterable[Run]) -> Text:
    """Runs as one text that can be read again, every character at its own place."""
    offsets: list[int] = []
    for run in runs:
        offsets += range(run.at, run.at + len(run.text)) if run.moves else [run.at] * len(run.text)
    offsets.append(offsets[-1] if offsets else 0)
    return Text(text_of(runs), offsets)


def split_words(pieces: Iterable[Run | None]) -> list[Runs]:
    """Words: unquoted text splits at blanks, quoted text and text that is not known never does."""
    words: list[Runs] = []
    current: list[Run] = []
    for piece in [*pieces, Break]:
        if piece is Break:
            words += [tuple(current)] if current else []
            current = []
        elif piece.quoted or piece.unknown:
            current.append(piece)
        else:
            for field, ends in _fields(piece):
                if field:
                    current.append(field)
                if ends and current:
                    words.append(tuple(current))
                    current = []
    return words


def _fields(run: Run) -> Iterator[tuple[Run | None, bool]]:
    """Fields of an unquoted run, and whether a blank ends them; a blank in front ends what stood before."""
    text = run.text
    if text[:1].isspace():
        yield None, True
    for match in _FIELD.finditer(text):
        yield run.part(match.start(), match.end()), match.end() < len(text)


class Budget:
    """Counts what a script makes of its text, so that no script makes much of little."""

    def __init__(self) -> None:
        self.words = self.characters = 0

    def work(self, steps: int) -> None:
        """Counts steps of a comparison, a character for `_STEPS` of them."""
        self.spend(0, steps // _STEPS)

    def spend(self, words: int, characters: int) -> None:
        """Raises InputError when a script makes more than `MAX_WORDS` words or `MAX_CHARACTERS`."""
        self.words += words
        self.characters += characters
        if self.words > MAX_WORDS or self.characters > MAX_CHARACTERS:
            limits = f"{MAX_WORDS:,} words or {MAX_CHARACTERS // 2**20} MiB"
            raise InputError(Problem(f"the script expands to more than {limits}", hint="give the command it runs"))


# The variables of a reading: what the user gave wins over what the script assigns.


class Variables:
    """Names with what they hold; functions have arguments of their own."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self._shifted = 0  # arguments of the script that `shift` passed over though they are not known
        self.values: dict[str, Value] = {}
        self.exported: dict[str, None] = {}  # in the order of the file
        self.arguments: list[tuple[Runs, ...]] = [tuple(self._given_arguments())]

    def get(self, name: str, at: int) -> Value | None:
        """What a name holds; None where it is not set. `at` is the place of values that stand in no file."""
        if name.isdigit() and name != "0":
            arguments = self.arguments[-1]
            return arguments[int(name) - 1] if len(name) < 6 and int(name) <= len(arguments) else self._missing()
        if name in self.given:
            return (Run(self.given[name], at, moves=False),)
        value = self.values.get(name)
        return value if value is None or isinstance(value, Array) else _named(name, value)

    def _given_arguments(self) -> Iterator[Runs]:
        at = 1
        while str(at) in self.given:
            yield (Run(self.given[str(at)], 0, moves=False),)
            at += 1

    def lacks_arguments(self) -> bool:
        """Whether the arguments are those of the script and none was given."""
        return len(self.arguments) == 1 and not self.arguments[0]

    def argument_name(self, name: str) -> str:
        """`$1` by its place when the script was started, also after `shift`."""
        return str(int(name) + self._shifted) if name.isdigit() and len(name) < 6 and name != "0" else name

    def shift(self, count: int) -> None:
        if self.lacks_arguments():
            self._shifted += count
        self.arguments[-1] = self.arguments[-1][count:]

    def _missing(self) -> Runs | None:
        """An argument that is not there: of the script not known, of a function empty."""
        return () if len(self.arguments) > 1 else None

    def set(self, name: str, value: Value) -> None:
        if name not in self.given:
            self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)

    def call(self, arguments: tuple[Runs, ...]) -> None:
        self.arguments.append(arguments)

    def leave(self) -> None:
        """The end of a function; names that it calls its own stay."""
        self.arguments.pop()


def _named(name: str, value: Runs) -> Runs:
    """What a program would have given is known to readers by the variable that holds it, as users can set that."""
    if not computed_in(value):
        return value
    whole = len(value) == 1
    return tuple(
        run._replace(text=f"${{{name}}}" if whole else run.text, moves=run.moves and not whole, unknown=(name,))
        if run.computed
        else run
        for run in value
    )


def items_of(value: Value | None) -> tuple[Runs, ...]:
    """The items of a list, or the text as the only one."""
    if value is None:
        return ()
    return value.items if isinstance(value, Array) else (value,)


def appended(old: Value | None, new: Value) -> Value:
    """`+=`: text after text, items after items."""
    if isinstance(new, Array):
        return Array((*(items_of(old) if old else ()), *new.items))
    if isinstance(old, Array):
        first, *rest = old.items or ((),)
        return Array(((*first, *new), *rest))
    return (*(old or ()), *new)


def is_known(value: Runs) -> bool:
    return not unknown_in(value)


def known_text(value: Runs) -> str | None:
    """The text, or None where a part of it is not known."""
    return text_of(value) if is_known(value) else None


# Words become text: variables, lists, arithmetic and the few substitutions that need no program.

Substitute: TypeAlias = Callable[[Substitution], "Runs | None"]


class Expander:
    """Expands parts of words. `substitute` computes a command substitution, or gives None where it cannot be known."""

    def __init__(self, variables: Variables, budget: Budget, substitute: Substitute, own_name: str) -> None:
        self.variables, self.budget, self.substitute, self.own_name = variables, budget, substitute, own_name

    def words(self, parts: Parts) -> list[Runs]:
        """The words that one word of the script becomes: none, one or many."""
        found = split_words(self._pieces(parts))
        self.budget.spend(len(found), sum(len(run.text) for word in found for run in word))
        return found

    def text(self, parts: Parts) -> Runs:
        """The text that a value, a quoted word or a here-document becomes: never split, lists joined by blanks."""
        found: list[Run] = []
        for piece in self._pieces(parts):
            found.append(piece if piece is not Break else Run(" ", found[-1].at if found else 0, moves=False))
        self.budget.spend(0, sum(len(run.text) for run in found))
        return tuple(run for run in found if run.text)

    def number(self, text: str, at: int) -> int:
        """The value of an arithmetic expression; a variable may hold one itself. Raises NoValueError."""
        self.budget.spend(1, len(text))

        def lookup(name: str) -> int | None:
            value = self.variables.get(name, at)
            if value is None:
                return None
            first = next(iter(items_of(value)), ())
            if unknown := unknown_in(first):
                raise UnknownNamesError(*unknown)
            return self.number(text_of(first).strip() or "0", at)

        return evaluate(text, lookup)

    def _pieces(self, parts: Iterable[Part]) -> Iterator[Run | None]:
        for part in parts:
            if isinstance(part, Literal):
                unknown = (part.text,) if part.placeholder else ()
                yield Run(part.text, part.at, part.moves, part.quoted, unknown, computed=part.placeholder)
            elif isinstance(part, Parameter):
                yield from self._parameter(part)
            elif isinstance(part, Arithmetic):
                yield self._arithmetic(part)
            else:
                yield from self._substitution(part)

    def _arithmetic(self, part: Arithmetic) -> Run:
        expression = self.text(part.expression)
        try:
            if unknown := unknown_in(expression):
                raise UnknownNamesError(*unknown)
            return Run(str(self.number(text_of(expression), part.at)), part.at, False, part.quoted)
        except UnknownNamesError as problem:
            return Run(part.raw, part.at, True, part.quoted, problem.names)
        except NoValueError:
            return Run(part.raw, part.at, True, part.quoted, (part.raw,), computed=True)

    def _substitution(self, part: Substitution) -> Iterator[Run]:
        found = self.substitute(part)
        if found is None:
            yield Run(part.raw, part.at, True, part.quoted, (part.raw,), computed=True)
            return
        yield from _quoted_as(found, part.quoted, part.at)

    def _parameter(self, part: Parameter) -> Iterator[Run | None]:
        if part.prefix == "#":
            yield self._length(part)
        elif part.prefix == "!":
            yield self._missing(part)
        else:
            items = self._items(part)
            listed = part.name in {"@", "*"} or (part.index is not None and _is_all(part.index))
            yield from self._with_operator(part, items, listed)

    def _length(self, part: Parameter) -> Run:
        items = self._items(part)
        listed = part.index is not None and _is_all(part.index)
        if listed or part.name in {"@", "*"}:
            return Run(str(len(items or ())), part.at, False, part.quoted)
        text = known_text(items[0]) if items else None
        if text is None:
            return self._missing(part)
        return Run(str(len(text)), part.at, False, part.quoted)

    def _missing(self, part: Parameter) -> Run:
        name = self.variables.argument_name(part.name)
        return Run(f"${{{name}}}", part.at, False, part.quoted, (name,))

    def _items(self, part: Parameter) -> tuple[Runs, ...] | None:
        """What the name holds, one item unless all of a list are asked for; None where it is not set."""
        name, at = part.name, part.at
        if name in {"@", "*"}:
            return self.variables.arguments[-1]
        if name in {"#", "?", "0"} or (name == "BASH_SOURCE" and name not in self.variables.values):
            missing = ("#",) if name == "#" and self.variables.lacks_arguments() else ()
            texts = {"#": str(len(self.variables.arguments[-1])), "?": "0"}
            return ((Run(texts.get(name, self.own_name), at, moves=False, unknown=missing),),)
        value = self.variables.get(name, at)
        if value is None and name == "PWD":
            return ((Run(".", at, moves=False),),)
        if not isinstance(value, Array):
            return None if value is None else (value,)
        if part.index is not None and _is_all(part.index):
            return value.items
        try:
            return (value.items[self.number(text_of(self.text(part.index)) if part.index else "0", at)],)
        except (NoValueError, IndexError):
            return None

    def _with_operator(self, part: Parameter, items: tuple[Runs, ...] | None, listed: bool) -> Iterator[Run | None]:
        operator = part.operator
        if operator.rstrip("-=+?") in {"", ":"} and operator not in {"", ":"}:
            yield from self._default(part, items)
            return
        if items is None:
            yield from () if listed else (self._missing(part),)
            return
        for at, item in enumerate(items):
            yield from (Break,) if at else ()
            changed = self._changed(part, item) if operator else item
            yield from _quoted_as(changed, part.quoted, part.at, listed=listed)

    def _default(self, part: Parameter, items: tuple[Runs, ...] | None) -> Iterator[Run | None]:
        """`:-`, `:=`, `:+` and `:?`; what is not set at all counts as empty, as it does when the script runs."""
        runs = [run for item in items or () for run in item]
        is_empty = not plain_text(runs) if part.operator[0] == ":" or unknown_in(runs) else items is None
        kind = part.operator[-1]
        if kind == "+":
            yield from () if is_empty else self._pieces(part.arguments[0])
        elif not is_empty:
            yield from self._with_operator(replace(part, operator=""), items, part.name in {"@", "*"})
        elif kind == "?":
            yield self._missing(part)
        else:
            if kind == "=":
                self.variables.set(part.name, self.text(part.arguments[0]))
            found = False
            for piece in self._pieces(part.arguments[0]):
                found = True
                yield piece
            if not found and part.quoted:
                yield Run("", part.at, False, True)

    def _changed(self, part: Parameter, item: Runs) -> Runs:
        """What an operator on text makes of one item."""
        text = known_text(item)
        arguments = [_pattern(self.text(argument)) for argument in part.arguments]
        if text is not None and None not in arguments:
            replacement = text_of(self.text(part.arguments[1])) if len(part.arguments) > 1 else ""
            self.budget.work(steps(text, arguments[0] or ""))
            with suppress(NoValueError):
                changed = _operated(part.operator, text, arguments[0] or "", replacement)
                return (Run(changed, item[0].at if item else part.at, moves=False),)
        names = unknown_in(item) or (part.name,)
        return (Run(f"${{{part.name}}}", part.at, False, False, names, computed_in(item)),)


def _pattern(runs: Runs) -> str | None:
    """A pattern in which quoted text stands for itself; None where a part is not known."""
    if unknown_in(runs):
        return None
    return "".join([escaped(run.text) if run.quoted else run.text for run in runs])


def _is_all(index: Parts) -> bool:
    return len(index) == 1 and isinstance(index[0], Literal) and index[0].text in {"@", "*"}


def _quoted_as(runs: Runs, quoted: bool, at: int, *, listed: bool = False) -> Iterator[Run]:
    """Text of a variable is quoted where the variable is; an empty one is a word there, and an item always."""
    for run in runs:
        yield run._replace(quoted=quoted)
    if not runs and quoted:
        yield Run("", at, False, True)


pattern_of = _pattern


# Command substitutions whose text follows from their words alone. Nothing is run: all others are not known.

_MAX_SEQUENCE = 10_000
_MAX_PIPED = 10_000
_FIELD_COUNT = re.compile(r"\{\s*print\s+NF\s*;?\s*\}")
_COUNTS = {"-l": lambda text: text.count("\n"), "-w": lambda text: len(text.split()), "-c": len}


def substituted(part: Substitution, expander: Expander) -> Runs | None:
    """What the commands would print, without ends of lines at its end; None where a program would have to run."""
    if part.body is None or len(part.body) != 1:
        return None
    found = _printed(part.body[0], expander)
    return None if found is None else _without_end(found)


def _printed(node: Node, expander: Expander) -> Runs | None:
    if isinstance(node, Simple):
        return _simple(node, expander)
    if isinstance(node, AndOr) and node.operator == "&&":
        return _changed_folder(node, expander)
    if not isinstance(node, Pipeline) or node.negated:
        return None
    found = _printed(node.stages[0], expander)
    for stage in node.stages[1:]:
        if found is None or unknown_in(found) or not isinstance(stage, Simple) or len(text_of(found)) > _MAX_PIPED:
            return None
        words = _words(stage, expander)
        text = _FILTERS[words[0]](text_of(found), words[1:]) if words and words[0] in _FILTERS else None
        found = None if text is None else _made(text, stage.at)
    return found


def _changed_folder(node: AndOr, expander: Expander) -> Runs | None:
    """`cd FOLDER && pwd` is FOLDER."""
    left = _words(node.left, expander) if isinstance(node.left, Simple) else None
    right = _words(node.right, expander) if isinstance(node.right, Simple) else None
    folder = [word for word in left or () if not word.startswith("-")]
    if not left or folder[:1] != ["cd"] or len(folder) != 2 or not right or right[0] != "pwd":
        return None
    return _made(folder[1], node.left.at) if isinstance(node.left, Simple) else None


def _words(node: Simple, expander: Expander) -> list[str] | None:
    """The words of a command; None where one is not known."""
    if node.assignments:
        return None
    found: list[str] = []
    for word in node.words:
        runs = [] if isinstance(word, Assignment) else expander.words(word)
        if any(unknown_in(each) for each in runs):
            return None
        found += map(text_of, runs)
    return found


def _simple(node: Simple, expander: Expander) -> Runs | None:
    bodies = [each.body for each in node.redirections if each.body is not None]
    words = _words(node, expander)
    if words == ["cat"] and len(bodies) == 1:
        return expander.text(bodies[0])
    if not words or bodies or any(each.operator.startswith("<") for each in node.redirections):
        return None
    if words[0] == "expr":
        return _calculated(words[1:], node.at, expander)
    text = _PRINTERS[words[0]](words[1:]) if words[0] in _PRINTERS else None
    return None if text is None else _made(text, node.at)


def _made(text: str, at: int) -> Runs:
    return (Run(text, at, moves=False),)


def _without_end(runs: Runs) -> Runs:
    kept = list(runs)
    while kept and (shorter := kept[-1].text.rstrip("\n")) != kept[-1].text:
        kept[-1:] = [kept[-1]._replace(text=shorter)] if shorter else []
    return tuple(kept)


def _calculated(words: Sequence[str], at: int, expander: Expander) -> Runs | None:
    try:
        return _made(str(expander.number(" ".join(words), at)), at)
    except NoValueError:
        return None


def _echo(words: Sequence[str]) -> str:
    kept = list(words)
    while kept and kept[0] in {"-n", "-e", "-E", "-ne", "-en"}:
        kept.pop(0)
    return " ".join(kept) + "\n"


def _basename(words: Sequence[str]) -> str | None:
    if not words or words[0].startswith("-"):
        return None
    name, ending = posixpath.basename(words[0].rstrip("/")), words[1] if len(words) > 1 else ""
    return name.removesuffix(ending) if name != ending else name


def _same(words: Sequence[str]) -> str | None:
    kept = [word for word in words if not word.startswith("-")]
    return kept[0] if len(kept) == 1 else None


def _sequence(words: Sequence[str]) -> str | None:
    separator = "\n"
    kept = list(words)
    if kept[:1] == ["-s"] and len(kept) > 1:
        separator, kept = kept[1], kept[2:]
    if not 1 <= len(kept) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in kept):
        return None
    numbers = [int(word) for word in kept]
    first, step, last = {1: (1, 1, numbers[-1]), 2: (numbers[0], 1, numbers[-1])}.get(
        len(numbers), (numbers[0], numbers[min(1, len(numbers) - 1)], numbers[-1])
    )
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return separator.join(map(str, found)) if len(found) <= _MAX_SEQUENCE else None


def _translated(text: str, words: Sequence[str]) -> str | None:
    if list(words[:1]) == ["-d"] and len(words) == 2:
        return "".join([each for each in text if each not in _escapes(words[1])])
    if len(words) != 2:
        return None
    old, new = (_escapes(word) for word in words)
    if {old, new} <= {"a-z", "A-Z", "[:upper:]", "[:lower:]"}:
        return text.upper() if new in {"A-Z", "[:upper:]"} else text.lower()
    if not old or not new or "-" in old[1:-1] or "[:" in old + new:
        return None
    new = new.ljust(len(old), new[-1])
    return text.translate({ord(each): new[at] for at, each in enumerate(old)})


def _escapes(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _counted(text: str, words: Sequence[str]) -> str | None:
    count = _COUNTS.get(words[0]) if len(words) == 1 else None
    return str(count(text)) if count else None


def _cut(text: str, words: Sequence[str]) -> str | None:
    """`cut -d, -f1` of one line."""
    match = re.fullmatch(r"-d ?(.) -f ?(\d{1,4})", " ".join(words))
    lines = text.splitlines()
    if not match or len(lines) != 1:
        return None
    fields, at = lines[0].split(match[1]), int(match[2])
    return fields[at - 1] if 1 <= at <= len(fields) else ""


def _awk(text: str, words: Sequence[str]) -> str | None:
    """`awk -F, '{print NF}'`: how many fields one line has."""
    match = re.fullmatch(r"-F ?(.) (.*)", " ".join(words))
    lines = text.splitlines()
    if not match or len(lines) != 1 or not _FIELD_COUNT.fullmatch(match[2]):
        return None
    return str(len(lines[0].split(match[1])))


_PRINTERS: dict[str, Callable[[Sequence[str]], str | None]] = {
    "echo": _echo,
    "basename": _basename,
    "dirname": lambda words: (posixpath.dirname(words[0]) or ".") if len(words) == 1 else None,
    "pwd": lambda words: "." if not words or words[0].startswith("-") else None,
    "realpath": _same,
    "readlink": _same,
    "seq": _sequence,
}
_FILTERS: dict[str, Callable[[str, Sequence[str]], str | None]] = {
    "tr": _translated,
    "wc": _counted,
    "cut": _cut,
    "awk": _awk,
}
