"""Constants of a module as its source states them: name, value, and the comment that says where it comes from."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

# Modules that read, choose, hand on, sum up or put into words. Their functions are no equations unless they state a
# formula and a source, and their constants are chosen unless they say otherwise.
CHOICES = frozenset({
    "advice", "conflicts", "device", "estimate", "evaluation", "job", "load", "parts", "rank", "resolve", "resolved",
    "search", "search_space", "summary", "trace", "uncertainty", "workload",
})  # fmt: skip


@dataclass(frozen=True)
class Constant:
    """One assignment at the top of a module; `comment` is empty where there is none."""

    name: str
    value: str
    comment: str


def constants(module: ModuleType) -> Iterator[Constant]:
    """Numbers, and tables of numbers, that a module names in capitals.

    A comment stands at the end of the line, or above a block of assignments without a blank line between them.
    """
    source = inspect.getsource(module)
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _has_number(node.value):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target).strip("()")
            if name.isupper() and not name.startswith("_"):
                own = _trailing(lines[(node.end_lineno or node.lineno) - 1], node.end_col_offset or 0)
                yield Constant(name, _written(node.value), own or _above(lines, node.lineno - 1))


def _has_number(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Constant) and type(node.value) in (int, float) for node in ast.walk(value))


def _written(value: ast.expr) -> str:
    """The value as code; the brackets of several constants on one line are left out."""
    if isinstance(value, ast.Tuple):
        return ", ".join(ast.unparse(element) for element in value.elts)
    return ast.unparse(value)


def _trailing(line: str, column: int) -> str:
    return line[column:].strip().removeprefix("#").strip() if line[column:].strip().startswith("#") else ""


def _above(lines: list[str], index: int) -> str:
    """The comment above the block of lines that the line belongs to."""
    while index > 0 and lines[index - 1] and not lines[index - 1].startswith("#"):
        index -= 1
    end = index
    while index > 0 and lines[index - 1].startswith("#"):
        index -= 1
    return " ".join(line.removeprefix("#").strip() for line in lines[index:end])
