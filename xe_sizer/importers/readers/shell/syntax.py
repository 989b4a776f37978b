"""What a script is made of: parts of words, and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Literal(NamedTuple):
    """Text as it stands; `moves` where its characters stand one after the other in the file."""

    text: str
    at: int
    quoted: bool
    moves: bool = True


class Parameter(NamedTuple):
    """`$NAME` and `${...}`: prefix is "#" (length) or "!" (indirect), arguments are what follows the operator."""

    name: str
    at: int
    quoted: bool
    prefix: str = ""
    index: Parts | None = None
    operator: str = ""
    arguments: tuple[Parts, ...] = ()


class Arithmetic(NamedTuple):
    expression: Parts
    raw: str
    at: int
    quoted: bool


class Substitution(NamedTuple):
    """`$(...)`, backticks and `<(...)`; none is ever run. Without a body it is a process substitution."""

    body: tuple[Node, ...] | None
    raw: str
    at: int
    quoted: bool


Part: TypeAlias = Literal | Parameter | Arithmetic | Substitution
Parts: TypeAlias = tuple[Part, ...]


class Element(NamedTuple):
    """One item of an array's list, with its key in `[key]=value`."""

    key: Parts | None
    value: Parts


class Assignment(NamedTuple):
    """`NAME=value`, `NAME[index]+=value`, `NAME=(items)`; the value is a tuple of elements for a list."""

    name: str
    index: Parts | None
    append: bool
    value: Parts
    items: tuple[Element, ...] | None
    at: int


@dataclass
class Redirection:
    """`> target`, or a here-document, whose body stands below the command and is filled in when it is read."""

    operator: str
    target: Parts
    at: int
    body: Parts | None = None


class Simple(NamedTuple):
    assignments: tuple[Assignment, ...]
    words: tuple[Parts | Assignment, ...]
    redirections: tuple[Redirection, ...]
    at: int


class Pipeline(NamedTuple):
    stages: tuple[Node, ...]
    negated: bool


class AndOr(NamedTuple):
    left: Node
    operator: str
    right: Node


class If(NamedTuple):
    arms: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]
    at: int


class Case(NamedTuple):
    subject: Parts
    arms: tuple[tuple[tuple[Parts, ...], tuple[Node, ...]], ...]
    at: int


class For(NamedTuple):
    """`for name in words`; without words (None) over the script's arguments, without a name `for ((start; ...))`."""

    name: str
    words: tuple[Parts, ...] | None
    start: Parts
    body: tuple[Node, ...]
    at: int


class Loop(NamedTuple):
    condition: tuple[Node, ...]
    until: bool
    body: tuple[Node, ...]
    at: int


class Function(NamedTuple):
    name: str
    body: Node


class Group(NamedTuple):
    body: tuple[Node, ...]
    subshell: bool


class Test(NamedTuple):
    """`[[ ... ]]`: operands and operators, the latter as plain literals."""

    words: tuple[Parts, ...]
    at: int


class Calculation(NamedTuple):
    """`(( ... ))`."""

    expression: Parts
    at: int


Node: TypeAlias = Simple | Pipeline | AndOr | If | Case | For | Loop | Function | Group | Test | Calculation
