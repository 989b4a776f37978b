"""Expansions of shell words: variables, arithmetic, patterns and substitutions."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop.readers.shell_syntax import (
    HINT,
    AndOr,
    Arithmetic,
    Assignment,
    Literal,
    Parameter,
    Pipeline,
    Simple,
    Text,
)

if TYPE_CHECKING:
    from xe_sizer.interop.readers.shell_syntax import Part, Parts, Substitution


class NoValueError(Exception):
    """An expression that has no value, or is not read."""


class UnknownNamesError(NoValueError):
    """An expression with variables whose value is not known; `names` are theirs."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


# What operators of `${...}` make of text, and whole-number arithmetic of shells.

_LONGEST_CUT = 500  # characters
_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper, ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:], ",": lambda text: text[:1].lower() + text[1:],
}  # fmt: skip


def _operated(operator: str, text: str, pattern: str, replacement: str) -> str:
    """What an operator on text makes of it: `#` and `%` cut off, `/` replaces, `^` and `,` change the case.

    Raises NoValueError: it is not computed.
    """
    if operator in _CASES and not pattern:
        return _CASES[operator](text)
    if operator in {"/", "//"} and pattern and not re.search(r"[*?\[]", pattern):
        return text.replace(pattern, replacement, 1 if operator == "/" else -1)
    if operator[0] not in "#%" or len(text) > _LONGEST_CUT:
        raise NoValueError
    places = range(len(text) + 1) if operator in {"#", "%%"} else range(len(text), -1, -1)
    if operator[0] == "#":
        return next((text[at:] for at in places if fnmatchcase(text[:at], pattern)), text)
    return next((text[:at] for at in places if fnmatchcase(text[at:], pattern)), text)


_MAX_EXPRESSION = 1_000  # characters
_MAX_NUMBER = 2**63
_READ = re.compile(r"(?:[\w\s+\-*/%()]|\?|:|&&|\|\||[<>=!]=|[<>])*", re.ASCII)
_CHOICE = re.compile(r"([^?:]*)\?([^?:]*):([^?:]*)")


def _quotient(a: int, b: int) -> int:
    """Division towards zero."""
    if b == 0:
        raise NoValueError
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATORS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _quotient,
    ast.Mod: lambda a, b: a - b * _quotient(a, b), ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(text: str, lookup: Callable[[str], int | None]) -> int:
    """The value of an expression; the operators that are read bind in Python as they do in shells.

    lookup : a variable's value; None: it is not set

    Raises NoValueError where the expression has no value, assigns one or is not read, UnknownNamesError where a
    variable's is not known.
    """
    if len(text) > _MAX_EXPRESSION or not _READ.fullmatch(text):
        raise NoValueError
    choice = _CHOICE.fullmatch(text)
    python = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})" if choice else text
    try:
        tree = ast.parse(python.replace("&&", " and ").replace("||", " or ").strip(), mode="eval")
        return _value(tree.body, lookup)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise NoValueError from error


def _value(node: ast.expr, lookup: Callable[[str], int | None]) -> int:
    value: int | None = None
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Name):
        value = lookup(node.id)
        if value is None:
            raise UnknownNamesError(node.id)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_value(node.left, lookup), _value(node.right, lookup))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        value = int(_OPERATORS[type(node.ops[0])](_value(node.left, lookup), _value(node.comparators[0], lookup)))
    elif isinstance(node, ast.BoolOp):
        either = any if isinstance(node.op, ast.Or) else all
        value = int(either(_value(each, lookup) for each in node.values))
    elif isinstance(node, ast.IfExp):
        value = _value(node.body if _value(node.test, lookup) else node.orelse, lookup)
    if value is None or abs(value) >= _MAX_NUMBER:
        raise NoValueError
    return value


# What variables hold: text whose characters know where they stand, and what was not known of it.

MAX_WORDS, MAX_CHARACTERS = 100_000, 4 * 2**20
"""The most words and characters that all expansions of a script may make."""
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
        if piece is not Break and (piece.quoted or piece.unknown):
            current.append(piece)
            continue
        fields = list(_FIELD.finditer(piece.text)) if piece is not Break else []
        if current and (piece is Break or piece.text[:1].isspace()):
            words.append(tuple(current))
            current = []
        for field in fields:
            current.append(piece.part(*field.span()))  # type: ignore[union-attr]
            if field.end() < len(field.string):
                words.append(tuple(current))
                current = []
    return words


def as_pattern(runs: Runs) -> str | None:
    """A pattern in which quoted text stands for itself; None where a part is not known."""
    if unknown_in(runs):
        return None
    return "".join([re.sub(r"([*?\[])", r"[\1]", run.text) if run.quoted else run.text for run in runs])


class Budget:
    """Counts what a script makes of its text, so that no script makes much of little."""

    def __init__(self) -> None:
        self.words = self.characters = 0

    def spend(self, words: int, characters: int) -> None:
        """Raises InputError when a script makes more than `MAX_WORDS` words or `MAX_CHARACTERS`."""
        self.words += words
        self.characters += characters
        if self.words > MAX_WORDS or self.characters > MAX_CHARACTERS:
            limits = f"{MAX_WORDS:,} words or {MAX_CHARACTERS // 2**20} MiB"
            raise InputError(Problem(f"the script expands to more than {limits}", hint=HINT))


class Variables:
    """Names with what they hold; functions have arguments of their own, what the user gave wins over assignments."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.values: dict[str, Value] = {}
        self.exported: dict[str, None] = {}  # in the order of the file
        numbers = range(1, 1 + next(at for at in range(len(given) + 1) if str(at + 1) not in given))
        self.arguments: list[tuple[Runs, ...]] = [tuple((Run(given[str(at)], 0, moves=False),) for at in numbers)]
        self._shifted = 0  # arguments of the script that `shift` passed over though they are not known

    def get(self, name: str, at: int) -> Value | None:
        """What a name holds; None where it is not set. `at` is the place of values that stand in no file.

        What a program would have given is known to readers by the variable that holds it, as users can set that.
        """
        if name.isdigit() and name != "0":  # of the script it is not known, of a function empty
            absent = () if len(self.arguments) > 1 else None
            return next(iter(self.arguments[-1][int(name[:6]) - 1 :]), absent)
        if name in self.given:
            return (Run(self.given[name], at, moves=False),)
        value = self.values.get(name)
        if value is None or isinstance(value, Array) or not computed_in(value):
            return value
        if len(value) == 1:
            return (value[0]._replace(text=f"${{{name}}}", moves=False, unknown=(name,)),)
        return tuple([run._replace(unknown=(name,)) if run.computed else run for run in value])

    def lacks_arguments(self) -> bool:
        """Whether the arguments are those of the script and none was given."""
        return len(self.arguments) == 1 and not self.arguments[0]

    def name_of_argument(self, name: str) -> str:
        """`$1` by its place when the script was started, also after `shift`."""
        return str(int(name[:6]) + self._shifted) if name.isdigit() and name != "0" else name

    def shift(self, count: int) -> None:
        if self.lacks_arguments():
            self._shifted += count
        self.arguments[-1] = self.arguments[-1][count:]

    def set(self, name: str, value: Value) -> None:
        if name not in self.given:
            self.values[name] = value


def list_items(value: Value | None) -> tuple[Runs, ...]:
    """The items of a list, or the text as the only one."""
    if value is None:
        return ()
    return value.items if isinstance(value, Array) else (value,)


def appended(old: Value | None, new: Value) -> Value:
    """`+=`: text after text, items after items."""
    if isinstance(new, Array):
        return Array((*(list_items(old) if old else ()), *new.items))
    if isinstance(old, Array):
        first, *rest = old.items or ((),)
        return Array(((*first, *new), *rest))
    return (*(old or ()), *new)


# Words become text: variables, lists, arithmetic and the few substitutions that need no program.


class Expander:
    """Expands parts of words; `own_name` is the file that is read."""

    def __init__(self, variables: Variables, budget: Budget, own_name: str) -> None:
        self.variables, self.budget, self.own_name = variables, budget, own_name

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

    def number(self, runs: Runs | str, at: int) -> int:
        """The value of an arithmetic expression; a variable may hold one itself. Raises NoValueError."""
        if not isinstance(runs, str) and (unknown := unknown_in(runs)):
            raise UnknownNamesError(*unknown)
        text = runs if isinstance(runs, str) else text_of(runs)
        self.budget.spend(1, len(text))

        def lookup(name: str) -> int | None:
            value = self.variables.get(name, at)
            if value is None:
                return None
            first = next(iter(list_items(value)), ())
            return self.number(first if text_of(first).strip() else "0", at)

        return evaluate(text, lookup)

    def _pieces(self, parts: Iterable[Part]) -> Iterator[Run | None]:
        for part in parts:
            if isinstance(part, Literal):
                unknown = (part.text,) if part.placeholder else ()
                yield Run(part.text, part.at, True, part.quoted, unknown, computed=part.placeholder)
            elif isinstance(part, Parameter):
                yield from self._parameter(part)
            elif isinstance(part, Arithmetic):
                try:
                    number = self.number(self.text(part.expression), part.at)
                    yield Run(str(number), part.at, False, part.quoted)
                except UnknownNamesError as problem:
                    yield Run(part.raw, part.at, True, part.quoted, problem.names)
                except NoValueError:
                    yield Run(part.raw, part.at, True, part.quoted, (part.raw,), computed=True)
            else:
                found = substituted(part, self)
                if found is None:
                    yield Run(part.raw, part.at, True, part.quoted, (part.raw,), computed=True)
                else:
                    yield from _quoted_as(found, part)

    def _missing(self, part: Parameter) -> Run:
        name = self.variables.name_of_argument(part.name)
        return Run(f"${{{name}}}", part.at, False, part.quoted, (name,))

    def _items(self, part: Parameter, listed: bool) -> tuple[Runs, ...] | None:
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
        if listed:
            return value.items
        try:
            return (value.items[self.number(self.text(part.index) if part.index else "0", at)],)
        except (NoValueError, IndexError):
            return None

    def _parameter(self, part: Parameter) -> Iterator[Run | None]:
        index = part.index[0] if part.index and len(part.index) == 1 else None
        listed = part.name in {"@", "*"} or (isinstance(index, Literal) and index.text in {"@", "*"})
        items, operator = self._items(part, listed), part.operator
        if part.counted:
            count = (
                len(items or ()) if listed else len(text_of(items[0])) if items and not unknown_in(items[0]) else None
            )
            yield self._missing(part) if count is None else Run(str(count), part.at, False, part.quoted)
        elif operator[-1:] in {"-", "=", "+", "?"}:
            yield from self._default(part, items)
        elif items is not None:
            for at, item in enumerate(items):
                yield from (Break,) if at else ()
                yield from _quoted_as(self._changed(part, item) if operator else item, part)
        elif not listed:
            yield self._missing(part)

    def _default(self, part: Parameter, items: tuple[Runs, ...] | None) -> Iterator[Run | None]:
        """`:-`, `:=`, `:+` and `:?`; what is not set at all counts as empty, as it does when the script runs."""
        runs = [run for item in items or () for run in item]
        is_empty = not plain_text(runs) if part.operator[0] == ":" or unknown_in(runs) else items is None
        kind = part.operator[-1]
        if kind == "+":
            yield from () if is_empty else self._pieces(part.arguments[0])
        elif not is_empty:
            yield from self._parameter(replace(part, operator=""))
        elif kind == "?":
            yield self._missing(part)
        else:
            if kind == "=":
                self.variables.set(part.name, self.text(part.arguments[0]))
            pieces = list(self._pieces(part.arguments[0]))
            yield from pieces or ([Run("", part.at, False, True)] if part.quoted else [])

    def _changed(self, part: Parameter, item: Runs) -> Runs:
        """What an operator on text makes of one item."""
        pattern = as_pattern(self.text(part.arguments[0]))
        replacement = self.text(part.arguments[1]) if len(part.arguments) > 1 else ()
        if pattern is not None and not unknown_in((*item, *replacement)):
            self.budget.spend(0, len(text_of(item)))
            try:
                changed = _operated(part.operator, text_of(item), pattern, text_of(replacement))
                return (Run(changed, item[0].at if item else part.at, moves=False),)
            except NoValueError:
                pass
        names = unknown_in(item) or (part.name,)
        return (Run(f"${{{part.name}}}", part.at, False, False, names, computed_in(item)),)


def _quoted_as(runs: Runs, part: Parameter | Substitution) -> Iterator[Run]:
    """Text of a variable is quoted where the variable is; an empty one is a word there."""
    for run in runs:
        yield run._replace(quoted=part.quoted)
    if not runs and part.quoted:
        yield Run("", part.at, False, True)


# Command substitutions whose text follows from their words alone. Nothing is run: all others are not known.

_MAX_SEQUENCE = 10_000


def substituted(part: Substitution, expander: Expander) -> Runs | None:
    """What the commands would print, without ends of lines at its end; None where a program would have to run."""
    node = part.body[0] if len(part.body) == 1 else None
    if isinstance(node, AndOr) and isinstance(node.left, Simple) and isinstance(node.right, Simple):
        words = _words(node.left, expander) or []  # `cd FOLDER && pwd` is FOLDER
        folder, right = [word for word in words if not word.startswith("-")], _words(node.right, expander) or []
        is_path = node.operator == "&&" and folder[:1] == ["cd"] and len(folder) == 2 and right[:1] == ["pwd"]
        return (Run(folder[1], node.left.at, moves=False),) if is_path else None
    first, *stages = node.stages if isinstance(node, Pipeline) else (node,)
    found = _printed(first, expander) if isinstance(first, Simple) else None
    for stage in stages:
        filters = _words(stage, expander) if isinstance(stage, Simple) else None
        if found is None or not filters or filters[0] not in _FILTERS or unknown_in(found):
            return None
        text = _FILTERS[filters[0]](text_of(found), filters[1:])
        found = None if text is None else (Run(text, part.at, moves=False),)
    while found and (shorter := found[-1].text.rstrip("\n")) != found[-1].text:
        found = (*found[:-1], *([found[-1]._replace(text=shorter)] if shorter else []))
    return found


def _printed(node: Simple, expander: Expander) -> Runs | None:
    """What one command would print."""
    bodies = [each.body for each in node.redirections if each.body is not None]
    words = _words(node, expander)
    if words == ["cat"] and len(bodies) == 1:
        return expander.text(bodies[0])
    if not words or any(each.operator.startswith("<") for each in node.redirections):
        return None
    text = _PRINTERS[words[0]](words[1:]) if words[0] in _PRINTERS else None
    if words[0] == "expr":
        try:
            text = str(expander.number(" ".join(words[1:]), node.at))
        except NoValueError:
            return None
    return None if text is None else (Run(text, node.at, moves=False),)


def _words(node: Simple, expander: Expander) -> list[str] | None:
    """The words of a command; None where one is not known."""
    if node.assignments or any(isinstance(word, Assignment) for word in node.words):
        return None
    words = [each for word in node.words if not isinstance(word, Assignment) for each in expander.words(word)]
    return None if any(map(unknown_in, words)) else list(map(text_of, words))


def _basename(words: Sequence[str]) -> str | None:
    if not words or words[0].startswith("-"):
        return None
    name, ending = posixpath.basename(words[0].rstrip("/")), words[1] if len(words) > 1 else ""
    return name.removesuffix(ending) if name != ending else name


def _sequence(words: Sequence[str]) -> str | None:
    """`seq FIRST STEP LAST`."""
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words):
        return None
    first, step, last = (1, 1, int(words[0])) if len(words) == 1 else (int(words[0]), int(words[-2]), int(words[-1]))
    step = 1 if len(words) == 2 else step
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return "\n".join(map(str, found)) if len(found) <= _MAX_SEQUENCE else None


def _translated(text: str, words: Sequence[str]) -> str | None:
    """`tr A B` of one character each."""
    old, new = [word.replace("\\n", "\n") for word in words] if len(words) == 2 else ("", "")
    return text.replace(old, new) if len(old) == len(new) == 1 else None


_PRINTERS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "echo": lambda words: " ".join(words) + "\n" if not words or not words[0].startswith("-") else None,
    "basename": _basename,
    "dirname": lambda words: (posixpath.dirname(words[0]) or ".") if len(words) == 1 else None,
    "pwd": lambda words: "." if not words or words[0].startswith("-") else None,
    **dict.fromkeys(("realpath", "readlink"), lambda words: words[-1] if words and words[-1][:1] != "-" else None),
    "seq": _sequence,
}
_FILTERS: Mapping[str, Callable[[str, Sequence[str]], str | None]] = {
    "tr": _translated,
    "wc": lambda text, words: {"-l": str(text.count("\n")), "-w": str(len(text.split()))}.get("".join(words)),
}
"""The commands that count the items of a list: `echo $GPUS | tr ',' '\\n' | wc -l`."""
