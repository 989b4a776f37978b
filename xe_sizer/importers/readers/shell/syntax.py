"""What a script is made of: parts of words, and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Literal:
    """Text as it stands; `moves` where its characters stand one after the other in the file.

    A `placeholder` is what users are to replace: `<path of the model>`.
    """

    text: str
    at: int
    quoted: bool
    moves: bool = True
    placeholder: bool = False


@dataclass(frozen=True)
class Parameter:
    """`$NAME` and `${...}`: prefix is "#" (length) or "!" (indirect), arguments are what follows the operator."""

    name: str
    at: int
    quoted: bool
    prefix: str = ""
    index: Parts | None = None
    operator: str = ""
    arguments: tuple[Parts, ...] = ()


@dataclass(frozen=True)
class Arithmetic:
    expression: Parts
    raw: str
    at: int
    quoted: bool


@dataclass(frozen=True)
class Substitution:
    """`$(...)`, backticks and `<(...)`; none is ever run. Without a body it is a process substitution."""

    body: tuple[Node, ...] | None
    raw: str
    at: int
    quoted: bool


Part: TypeAlias = Literal | Parameter | Arithmetic | Substitution
Parts: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True)
class Element:
    """One item of an array's list, with its key in `[key]=value`."""

    key: Parts | None
    value: Parts


@dataclass(frozen=True)
class Assignment:
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


@dataclass(frozen=True)
class Simple:
    assignments: tuple[Assignment, ...]
    words: tuple[Parts | Assignment, ...]
    redirections: tuple[Redirection, ...]
    at: int


@dataclass(frozen=True)
class Pipeline:
    stages: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True)
class AndOr:
    left: Node
    operator: str
    right: Node


@dataclass(frozen=True)
class If:
    arms: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]
    at: int


@dataclass(frozen=True)
class Case:
    subject: Parts
    arms: tuple[tuple[tuple[Parts, ...], tuple[Node, ...]], ...]
    at: int


@dataclass(frozen=True)
class For:
    """`for name in words`; without words (None) over the script's arguments, without a name `for ((start; ...))`."""

    name: str
    words: tuple[Parts, ...] | None
    start: Parts
    body: tuple[Node, ...]
    at: int


@dataclass(frozen=True)
class Loop:
    condition: tuple[Node, ...]
    until: bool
    body: tuple[Node, ...]
    at: int


@dataclass(frozen=True)
class Function:
    name: str
    body: Node


@dataclass(frozen=True)
class Group:
    body: tuple[Node, ...]
    subshell: bool


@dataclass(frozen=True)
class Test:
    """`[[ ... ]]`: operands and operators, the latter as plain literals."""

    words: tuple[Parts, ...]
    at: int


@dataclass(frozen=True)
class Calculation:
    """`(( ... ))`."""

    expression: Parts
    at: int


Node: TypeAlias = Simple | Pipeline | AndOr | If | Case | For | Loop | Function | Group | Test | Calculation
