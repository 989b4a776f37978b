"""Words become text: variables, lists, arithmetic and the few substitutions that need no program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from xe_sizer.importers.readers.shell import patterns
from xe_sizer.importers.readers.shell.arithmetic import NoValueError, UnknownNamesError, evaluate, number
from xe_sizer.importers.readers.shell.braces import brace_expanded
from xe_sizer.importers.readers.shell.syntax import Arithmetic, Literal, Parameter, Substitution
from xe_sizer.importers.readers.shell.values import (
    Array,
    Break,
    Run,
    computed_in,
    plain_text,
    split_words,
    text_of,
    unknown_in,
)
from xe_sizer.importers.readers.shell.variables import items_of, known_text

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.syntax import Part, Parts
    from xe_sizer.importers.readers.shell.values import (
        Budget,
        Runs,
    )
    from xe_sizer.importers.readers.shell.variables import Variables

Substitute: TypeAlias = Callable[[Substitution], "Runs | None"]
_MAX_INDIRECTION = 20


class Expander:
    """Expands parts of words. `substitute` computes a command substitution, or gives None where it cannot be known."""

    def __init__(self, variables: Variables, budget: Budget, substitute: Substitute, own_name: str) -> None:
        self.variables, self.budget, self.substitute, self.own_name = variables, budget, substitute, own_name
        self._indirections = 0

    def words(self, parts: Parts) -> list[Runs]:
        """The words that one word of the script becomes: none, one or many."""
        found = [word for each in brace_expanded(parts) for word in split_words(self._pieces(each))]
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
        """The value of an arithmetic expression. Raises NoValueError."""

        def lookup(name: str) -> int | None:
            value = self.variables.get(name, at)
            if value is None:
                return None
            first = next(iter(items_of(value)), ())
            if unknown := unknown_in(first):
                raise UnknownNamesError(*unknown)
            return self._nested(text_of(first), at)

        def store(name: str, value: int) -> None:
            self.variables.set(name, (Run(str(value), at, moves=False),))

        return evaluate(text, lookup, store)

    def _nested(self, text: str, at: int) -> int:
        """The number a variable holds, which may be an expression itself."""
        try:
            return number(text.strip() or "0")
        except NoValueError:
            self.budget.spend(1, len(text))
            self._indirections += 1
            if self._indirections > _MAX_INDIRECTION:
                raise
            try:
                return self.number(text, at)
            finally:
                self._indirections -= 1

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
            yield from self._indirect(part)
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

    def _indirect(self, part: Parameter) -> Iterator[Run | None]:
        """`${!NAME}` is what the variable holds that NAME names, `${!NAME[@]}` the keys of a list."""
        value = self.variables.get(part.name, part.at)
        if part.index is not None and _is_all(part.index):
            for at, key in enumerate(value.items if isinstance(value, Array) else ()):
                yield from (Break,) if at else ()
                yield Run(key, part.at, False, part.quoted)
            return
        name = known_text(value) if value is not None and not isinstance(value, Array) else None
        if not name or not name.isidentifier():
            yield self._missing(part)
            return
        yield from self._parameter(replace(part, name=name, prefix=""))

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
            return tuple(value.items.values())
        found = value.items.get(self._key(part, value))
        return None if found is None else (found,)

    def _key(self, part: Parameter, value: Array) -> str:
        text = text_of(self.text(part.index)) if part.index is not None else "0"
        if value.named:
            return text
        try:
            at = self.number(text, part.at)
        except NoValueError:
            return text
        return str(at if at >= 0 else at + len(value.items))

    def _with_operator(self, part: Parameter, items: tuple[Runs, ...] | None, listed: bool) -> Iterator[Run | None]:
        operator = part.operator
        if operator.rstrip("-=+?") in {"", ":"} and operator not in {"", ":"}:
            yield from self._default(part, items)
            return
        if items is None:
            yield from () if listed else (self._missing(part),)
            return
        if operator == ":" and listed:
            items, operator = self._sliced(part, items), ""
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

    def _sliced(self, part: Parameter, items: tuple[Runs, ...]) -> tuple[Runs, ...]:
        first = 1 if part.name in {"@", "*"} else 0
        bounds = self._bounds(part)
        if bounds is None:
            return items
        start = max(bounds[0] - first, 0) if bounds[0] >= 0 else max(len(items) + bounds[0], 0)
        return items[start:] if bounds[1] is None else items[start : start + max(bounds[1], 0)]

    def _bounds(self, part: Parameter) -> tuple[int, int | None] | None:
        """Start and length of `${NAME:start:length}`; None where they are not known."""
        texts = [self.text(argument) for argument in part.arguments]
        try:
            numbers = [self.number(text_of(text) or "0", part.at) for text in texts if not unknown_in(text)]
        except NoValueError:
            return None
        if len(numbers) < len(texts) or not numbers:
            return None
        return numbers[0], numbers[1] if len(numbers) > 1 else None

    def _changed(self, part: Parameter, item: Runs) -> Runs:
        """What an operator on text makes of one item."""
        text = known_text(item)
        arguments = [_pattern(self.text(argument)) for argument in part.arguments]
        if text is None or any(argument is None for argument in arguments):
            names = unknown_in(item) or (part.name,)
            return (Run(f"${{{part.name}}}", part.at, False, False, names, computed_in(item)),)
        if part.operator == ":":
            changed = self._substring(part, text)
        else:
            replacement = text_of(self.text(part.arguments[1])) if len(part.arguments) > 1 else ""
            self.budget.work(patterns.steps(text, arguments[0] or ""))
            changed = _operated(part.operator, text, arguments[0] or "", replacement)
        return (Run(changed, item[0].at if item else part.at, moves=False),)

    def _substring(self, part: Parameter, text: str) -> str:
        bounds = self._bounds(part)
        if bounds is None:
            return text
        start, length = bounds
        end = len(text) if length is None else start + length if length >= 0 else length
        return text[start:end]


def _operated(operator: str, text: str, pattern: str, replacement: str) -> str:
    if operator[0] == "#":
        return patterns.without_prefix(text, pattern, longest=operator == "##")
    if operator[0] == "%":
        return patterns.without_suffix(text, pattern, longest=operator == "%%")
    if operator[0] == "/":
        return patterns.replaced(text, pattern, replacement, operator)
    cases = {"^^": text.upper(), "^": text[:1].upper() + text[1:], ",,": text.lower(), ",": text[:1].lower() + text[1:]}
    return cases.get(operator, text)


def _pattern(runs: Runs) -> str | None:
    """A pattern in which quoted text stands for itself; None where a part is not known."""
    if unknown_in(runs):
        return None
    return "".join([patterns.escaped(run.text) if run.quoted else run.text for run in runs])


def _is_all(index: Parts) -> bool:
    return len(index) == 1 and isinstance(index[0], Literal) and index[0].text in {"@", "*"}


def _quoted_as(runs: Runs, quoted: bool, at: int, *, listed: bool = False) -> Iterator[Run]:
    """Text of a variable is quoted where the variable is; an empty one is a word there, and an item always."""
    for run in runs:
        yield run._replace(quoted=quoted)
    if not runs and quoted:
        yield Run("", at, False, True)


pattern_of = _pattern
