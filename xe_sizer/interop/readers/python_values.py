"""Python files and notebooks as syntax trees: parsed, never compiled, imported or executed."""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.values import Written

if TYPE_CHECKING:
    from xe_sizer.interop.values import Keys

# What a Python file says, as data: plain values, names, calls, and what is not known.

CALLED = "_target_"
"""The key of what is called, in dotted keys of a call."""
BY_PLACE = "_args_"
"""The key of arguments without a keyword."""


class Name(Immutable, eq=True):
    """Something that another file defines, by its full dotted name: `torch.bfloat16`."""

    text: str

    def __str__(self) -> str:
        return self.text


class Call(Immutable):
    """A call of something that the file does not define as a function, and what is assigned to its result later.

    name : what is called, dotted, with imports resolved; empty for a part of an object of which only some attributes
        are known
    args : arguments without a keyword
    kwargs : arguments by keyword, defaults of a class of the file, and attributes assigned later
    where : the place of the call
    bases : what the class that is called derives from, where its file is at hand
    made_by : functions of other files at hand that gave it, the innermost first
    """

    name: str
    args: tuple[Written, ...]
    kwargs: Mapping[str, Written]
    where: Location
    bases: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()

    def is_a(self, *names: str) -> bool:
        """Whether it calls one of these, or a class derived from one, or was given by a function of this name.

        `Trainer.Config` is the end of a longer name.
        """
        known = (self.name, *self.bases, *self.made_by)
        return any(each == name or each.endswith(f".{name}") for each in known for name in names)


def call_keys(written: Written) -> Keys:
    """Values by dotted key: of `Config(training=Training(steps=5))` there are `training.steps`, `training._target_`.

    Keys are those that Hydra has for calls: `_target_` is what is called, `_args_` are arguments without a keyword.
    A list of plain values is one value; calls and groups in a list have their number in the key. Nothing has a key
    where the value is neither a call nor a group.
    """
    return {".".join(path): each for path, each in _leaves(written, ()) if path}


def _leaves(written: Written, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Written]]:
    value = written.value
    if isinstance(value, Call):
        if value.name:
            yield (*path, CALLED), Written(value.name, value.where)
        for place, each in enumerate(value.args):
            yield from _leaves(each, (*path, BY_PLACE, str(place)))
        yield from _of_group(value.kwargs, path)
    elif isinstance(value, dict) and value:
        yield from _of_group(value, path)
    elif isinstance(value, tuple) and any(isinstance(each.value, (Call, dict, tuple)) for each in value):
        yield from _of_group(dict(enumerate(value)), path)
    elif isinstance(value, tuple):
        yield path, Written([each.value for each in value], written.where)
    else:
        yield path, written


def _of_group(
    group: Mapping[str, Written] | dict[int, Written], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Written]]:
    for key, each in group.items():
        yield from _leaves(each, (*path, str(key)))


MAX_CHARACTERS = 4 * 1024 * 1024  # of a notebook, most of which are pictures
MAX_CODE = 300_000  # characters; a syntax tree takes some 700 bytes for each
_LONG_NAME = re.compile(r"(?<!\w)(?:\w+[\s\\]*\.[\s\\]*){64}")
"""A dotted name of so many parts, for which Python's parser takes memory in the square of their number."""
_LONG_LINE = 10_000  # bytes of a line whose characters are counted
_SHOWN = 80  # characters of an expression that is told
_SKIPPED_CELLS = ("%%bash", "%%sh", "%%writefile", "%%html", "%%javascript", "%%script", "%%markdown")


class PythonText:
    """The statements of a Python file or notebook, and where they stand.

    A notebook is its code cells, one after the other; a place in it names the cell and counts lines from its start.
    """

    def __init__(self, text: str, name: str) -> None:
        """Raises InputError: larger than MAX_CHARACTERS or MAX_CODE, no valid Python, no valid notebook."""
        self.name = name
        self.cells: list[tuple[int, int]] = []  # of a notebook: the line before each code cell, and its number
        if name.endswith(".ipynb"):
            _require_size(text, MAX_CHARACTERS, name)
            self.body = self._cells(text)
        else:
            _require_size(text, MAX_CODE, name)
            self.body = self._parsed(text)
            self.lines = text.split("\n")

    def where(self, node: ast.AST) -> Location:
        """The place of a node, with the column in characters."""
        number = getattr(node, "lineno", 1)
        line = self.lines[number - 1] if number <= len(self.lines) else ""
        offset = getattr(node, "col_offset", 0)
        if line.isascii():
            return self._place(number, offset + 1)
        known = len(line) <= _LONG_LINE
        return self._place(number, len(line.encode()[:offset].decode(errors="ignore")) + 1 if known else None)

    def segment(self, node: ast.AST) -> str:
        """The text of a node, at most its first line, shortened."""
        number, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        line = self.lines[number - 1] if number <= len(self.lines) else ""
        start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None) if last == number else None
        if line.isascii():
            text = line[start:end][: _SHOWN + 1].strip()
        elif len(line) <= _LONG_LINE:
            text = line.encode()[start:end].decode(errors="ignore").strip()
        else:
            return f"{line[:_SHOWN]}..."
        return text if last == number and len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def _place(self, line: int, column: int | None) -> Location:
        cell = bisect_right([start for start, _ in self.cells], line - 1) - 1
        if cell < 0:
            return Location(self.name, line, column)
        start, number = self.cells[cell]
        return Location(f"{self.name} cell {number}", line - start, column)

    def _parsed(self, text: str) -> list[ast.stmt]:
        try:
            return _parse(text).body
        except SyntaxError as error:
            place = Location(self.name, error.lineno, error.offset)
            raise InputError(Problem(f"not valid Python: {error.msg}", place)) from None
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) if isinstance(error, ValueError) else "nested too deep"
            raise InputError(Problem(f"not valid Python: {reason}", Location(self.name))) from None

    def _cells(self, text: str) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        self.lines = []
        cells = _code_cells(text, self.name)
        _require_size("".join(source for _, source in cells), MAX_CODE, self.name)
        for number, source in cells:
            start = len(self.lines)
            self.cells.append((start, number))
            self.lines += source.split("\n")
            try:
                tree = _parse(_without_magics(source))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue  # a cell that is not valid Python is left out
            body += ast.increment_lineno(tree, start).body
        return body


def _require_size(text: str, most: int, name: str) -> None:
    """Raises InputError: more characters than are read."""
    if len(text) > most:
        raise InputError(Problem(f"the file has more than {most:,} characters of code or notebook", Location(name)))


def _parse(text: str) -> ast.Module:
    if _LONG_NAME.search(text):
        raise ValueError("a name has too many parts")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in the texts of others
        return ast.parse(text)


def _code_cells(text: str, name: str) -> list[tuple[int, str]]:
    """Number and text of each code cell. Raises InputError: no notebook."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(Problem("not a valid notebook", Location(name))) from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise InputError(Problem("not a valid notebook: it has no cells", Location(name)))
    found = []
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            found.append((number, "".join(map(str, source)) if isinstance(source, list) else str(source)))
    return found


def _without_magics(source: str) -> str:
    """A cell with the lines that are commands of the notebook or of the shell left out."""
    if source.lstrip().startswith(_SKIPPED_CELLS):
        return ""
    lines = []
    goes_on = False
    for line in source.split("\n"):
        body = line.lstrip()
        if goes_on or body.startswith(("%", "!", "?")):
            lines.append("" if goes_on else f"{line[: len(line) - len(body)]}pass")
            goes_on = line.endswith("\\")
        else:
            lines.append(line)
    return "\n".join(lines)
