"""`xe-sizer render`: turn a saved answer into another format."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from xe_sizer.cli.command import Invocation, answering
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text import missing
from xe_sizer.report.answers import reporters
from xe_sizer.report.format import clean
from xe_sizer.result.common import SCHEMA_VERSION, Answer, Sized
from xe_sizer.result.contradictions import contradictions

# Answers that were saved as JSON. They come from outside: whatever is wrong with one is bad input.

LARGEST_BYTES = 64 << 20
_CONTRADICTORY = "not an answer of xe-sizer: its figures contradict each other"
_BYTE = re.compile(r" \(byte (\d+)\)")
_HINT = "every command that answers writes one with --format json -o FILE"
_AT = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `(.+)`, got `(.+)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_KINDS = {
    "object": "an object",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}


class _Head(msgspec.Struct):
    schema_version: int


def read_answer(name: str) -> Answer:
    """Decode a saved answer of any kind; `-` is stdin.

    Raises
    ------
    InputError : unreadable, too large, no answer, another version, figures that contradict each other
    """
    place = place_of(name)
    data = _read(name, place)
    try:
        version = msgspec.json.decode(data, type=_Head).schema_version
        if version != SCHEMA_VERSION:
            message = f"schema_version is {version}; this xe-sizer reads {SCHEMA_VERSION}"
            raise InputError(Problem(message, Location(place)))
        keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
        answer = msgspec.json.decode(data, type=_kind(keys), dec_hook=_within)
    except UnicodeDecodeError as error:
        problem = Problem("not a saved result: it is not UTF-8 text", Location(place), _HINT)
        raise InputError(problem) from error
    except msgspec.DecodeError as error:
        raise InputError(_problem(error, place, data)) from error
    except RecursionError as error:
        raise InputError(Problem("not a saved result: nested too deeply", Location(place), _HINT)) from error
    first = next(contradictions(answer), None)
    if first is not None:
        raise InputError(Problem(f"{_CONTRADICTORY}: {clean(first)}", Location(place), _HINT))
    return answer


def place_of(name: str) -> str:
    return "stdin" if name == "-" else name


@contextmanager
def from_outside(names: Sequence[str]) -> Iterator[None]:
    """What fails while saved answers are shown is due to figures that do not belong together. Raises InputError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if not names:
            raise
        place = ", ".join(map(place_of, names))
        raise InputError(Problem(_CONTRADICTORY, Location(place), _HINT)) from error


def _kind(keys: Any) -> type[Answer]:
    """The kind of answer that has most of the keys."""
    return max((each.ANSWER for each in reporters()), key=lambda kind: len(keys & set(kind.__struct_fields__)))


def _within(kind: Any, value: Any) -> Any:
    """An answer about one scenario inside another answer."""
    if kind is not Sized or not isinstance(value, dict):
        raise msgspec.ValidationError("Expected the answer to a scenario")
    return msgspec.convert(value, _kind(value.keys()))


def _read(name: str, place: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(missing(Path(name))) from None
    except OSError as error:
        raise InputError(Problem(f"cannot read: {error.strerror}", Location(place))) from error
    if len(data) > LARGEST_BYTES:
        raise InputError(Problem(f"larger than a saved result may be, {LARGEST_BYTES >> 20} MiB", Location(place)))
    return data


def _problem(error: msgspec.DecodeError, place: str, data: bytes) -> Problem:
    """The decoder counts bytes; people count lines."""
    found = _BYTE.search(str(error))
    message = f"not a saved result: {_words(_BYTE.sub('', str(error)), data)}"
    if found is None:
        return Problem(message, Location(place), _HINT)
    before = data[: int(found.group(1))]
    column = len(before) - (before.rfind(b"\n") + 1) + 1
    return Problem(message, Location(place, before.count(b"\n") + 1, column))


def _words(said: str, data: bytes) -> str:
    """What the decoder says, in the words of who wrote the file."""
    at = _AT.search(said)
    key, said = clean(at.group(1)) if at else "", _AT.sub("", said)
    named = f"'{key}'" if key else "it"
    if not data.strip():
        return "the file is empty"
    if said == "Input data was truncated":
        return "it ends too early"
    if missing := _MISSING.fullmatch(said):
        return f"the key '{f'{key}.' if key else ''}{missing.group(1)}' is missing"
    if expected := _EXPECTED.fullmatch(said):
        wanted, found = (
            " or ".join(_KINDS.get(kind, kind) for kind in each.split(" | ")) for each in expected.groups()
        )
        return f"{named} must be {wanted}, not {found}"
    said = said.replace("JSON is malformed", "it is no JSON").replace("Expected", "it must be")
    return f"{named}: {said}" if key else said


app = typer.Typer(add_completion=False)
AnswerArgument = Annotated[
    str | None, typer.Argument(metavar="RESULT.json", help="The saved answer of any command; - reads stdin.")
]


@app.command("render", cls=TextCommand, help="Turn the saved JSON of any command into another format.")
@answering(without=("profiles", "download"))
def render_command(*, result_file: AnswerArgument = None, how: Invocation) -> int:
    if result_file is None:
        raise InputError(Problem("a saved result is missing", hint="xe-sizer render RESULT.json --format markdown"))
    answer = read_answer(result_file)
    with from_outside([result_file]):
        return how.show(answer, about=None if result_file == "-" else result_file)
