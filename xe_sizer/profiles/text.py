"""Text and scalars of profile files: how a file is read, and what a plain word stands for."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.profiles.convert import shorten, show

# Unquoted scalars of YAML, of flags and of environment variables: read strictly, nothing is guessed.
#
# They follow the YAML 1.2 core schema with the traps closed: what PyYAML reads as text (`1e9`), as octal (`017`), in
# base 60 (`1:30`) or as a bool (`no`) is either the number it looks like or an error that says what to write.

_MAX_NUMBER, _EXACT = 1e30, 2.0**53  # the largest number; below the other a float holds every whole number
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_YES_NO = re.compile(r"yes|no|on|off", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?")
_BASES = (
    (re.compile(r"[-+]?0[0-7]{1,40}"), 8),
    (re.compile(r"[-+]?0x[0-9a-fA-F]{1,40}"), 16),
    (re.compile(r"[-+]?0b[01]{1,128}"), 2),
)


@lru_cache(maxsize=4096)  # files have the same keys and words again and again
def parse_scalar(text: str) -> bool | int | float | str | None:
    """The value of an unquoted YAML scalar; also for command-line flags and environment variables.

    Raises
    ------
    InputError    (without a location) for yes/no/on/off, leading zeros, base 60, underscores in numbers,
                  infinities, NaN, and numbers beyond 1e30
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "0123456789+-.":
        if _NUMBER.fullmatch(text):
            return _number(text)
        if _BASE_60.fullmatch(text):
            raise _bad_scalar(f"{show(text)} is read in base 60 by some tools", "write one number")
        if "_" in text and _NUMBER.fullmatch(text.replace("_", "")):
            raise _bad_scalar(f"{show(text)} has underscores", f"write {shorten(text.replace('_', ''))}")
    if _YES_NO.fullmatch(text):
        raise _bad_scalar(f"'{text}' is a bool to some tools and text to others", "write true or false")
    if _NOT_FINITE.fullmatch(text):
        raise _bad_scalar(f"{show(text)} is not a finite number", "leave the key out")
    return text


def _number(text: str) -> int | float:
    if _LEADING_ZERO.match(text):
        plain = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text)
        raise _bad_scalar(f"{show(text)} has a leading zero", f"write {shorten(plain)}")
    value = float(text)
    if abs(value) > _MAX_NUMBER:
        raise _bad_scalar(f"{show(text)} is too large a number", "numbers go up to 1e30")
    exact = "e" in text.lower() and value.is_integer() and abs(value) < _EXACT  # counts are written as 1e5 too
    return int(text) if _WHOLE.fullmatch(text) else int(value) if exact else value


def _bad_scalar(message: str, hint: str) -> InputError:
    return InputError(Problem(message, None, hint))


def foreign_scalar(text: str) -> bool | int | float | str | None:
    """What an unquoted scalar of another tool's file says.

    As PyYAML reads it (`yes` is a bool, `017` is octal), but numbers in any spelling are numbers (`1e-5`, `500_000`),
    infinities and NaN too, and base 60 and dates stay text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _YES_NO.fullmatch(text):
        return text.lower() in {"yes", "on"}
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    digits = text.replace("_", "") if text[0] in "0123456789+-." else ""
    base = next((base for pattern, base in _BASES if pattern.fullmatch(digits)), 10)
    if base != 10:
        return int(digits, base)
    if not _NUMBER.fullmatch(digits) or (_LEADING_ZERO.match(digits) and _WHOLE.fullmatch(digits)):
        return text
    value = float(digits)
    exact = "e" in digits.lower() and abs(value) < _EXACT and value.is_integer()
    return int(digits) if _WHOLE.fullmatch(digits) and abs(value) < _MAX_NUMBER else int(value) if exact else value


# Text files that users name: read with a cap, as UTF-8, with the place of what is not text.

MAX_FILE_BYTES = 10_000_000
MOST_LOG_BYTES = 1_000_000_000  # of the log of a service or of rollouts, which is read as a whole
MAX_JOB_BYTES = 1_000_000  # of a scenario or a configuration; the largest that people write have a tenth of it
MOST_BESIDE = 1000  # files of a folder among which a name is looked for
LONGEST_NAME, MOST_WORDS = 60, 3  # characters of a pasted command that messages repeat, else so many words of it
STDIN = Path("-")
YAML_ENDINGS = (".yaml", ".yml")
# One class for all of them would be compiled to a table of 65,536 characters, in every start of the command.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ud800-\udfff]|\ufffe|\uffff")
_UTF_16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def at_home(name: str | Path) -> Path:
    """A path with `~` as the folder of the user; where there is no such user, or no home, it stays as it is written."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def missing(path: Path) -> Problem:
    """What to say of a file that is not there: files beside it that are called nearly so, and where commands go."""
    if " --" in str(path):
        hint = "launch commands of servers and trainers are read, as in 'vllm serve MODEL --tensor-parallel-size 8'"
        return Problem("no such file, and no command that is known here", Location(name_of(path)), hint)
    try:
        beside = [entry.name for entry in islice(path.parent.iterdir(), MOST_BESIDE)]
    except (OSError, ValueError):
        beside = []
    return Problem("no such file", Location(name_of(path)), did_you_mean(path.name, beside))


def pasted(path: Path) -> str | None:
    """A command line that stands where a file could, as people paste it: several words that name no file."""
    text = str(path)
    try:
        return text if len(text.split()) > 1 and not path.exists() else None
    except OSError:  # too long for a name
        return text


def read_text(path: Path, most_bytes: int = MAX_FILE_BYTES) -> str:
    """The text of a UTF-8 file, or of stdin for `-`, of at most `most_bytes`.

    Raises
    ------
    InputError    missing, a folder, not readable, too large, binary, another encoding
    """
    where = Location(name_of(path))
    try:
        data = start_of(path, most_bytes + 1)
    except FileNotFoundError:
        raise InputError(missing(path)) from None
    except IsADirectoryError:
        raise InputError(Problem("this is a folder, not a file", where)) from None
    except PermissionError:
        raise InputError(Problem("no permission to read this file", where)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem(f"cannot read this file: {reason}", where)) from None
    if len(data) > most_bytes:
        hint = "no scenario and no configuration is so large" if most_bytes == MAX_JOB_BYTES else None
        raise InputError(Problem(f"the file is larger than {most_bytes // 1_000_000} MB", where, hint))
    return _decode(data, where.name)


def name_of(path: Path) -> str:
    """What messages call a file: its path, or stdin; of a pasted command its beginning."""
    if path == STDIN:
        return "stdin"
    text = str(path)
    return text if len(text) <= LONGEST_NAME or pasted(path) is None else f"{' '.join(text.split()[:MOST_WORDS])} ..."


def start_of(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file. Raises OSError, ValueError."""
    if path == STDIN:
        return _start_of_stdin(sys.stdin.buffer)
    with path.open("rb") as stream:
        # A pipe does not know its size; a buffer that is larger than the file takes longer than the reading.
        size = os.fstat(stream.fileno()).st_size or most_bytes
        return stream.read(min(size + 1, most_bytes))


@cache
def _start_of_stdin(stream: BinaryIO) -> bytes:
    """As `start_of`; a question may read its scenario twice."""
    return stream.read(MAX_FILE_BYTES + 1)


def _decode(data: bytes, name: str) -> str:
    if data.startswith(_UTF_16_OR_32):
        where = Location(name, 1, 1)
        raise InputError(Problem("the file is UTF-16 or UTF-32 text", where, "save it as UTF-8"))
    if b"\x00" in data:
        where = _place(name, data[: data.index(b"\x00")])
        raise InputError(Problem("this is a binary file, not text", where))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place(name, error.object[: error.start])
        raise InputError(Problem("this byte is not valid UTF-8", place, "save the file as UTF-8")) from None
    bad = _UNPRINTABLE.search(text)
    if bad:
        place = _place(name, text[: bad.start()].encode())
        raise InputError(Problem(f"control character {bad[0]!r} in the text", place))
    return text


def _place(name: str, before: bytes) -> Location:
    """The position that follows these bytes."""
    last_line = before.rsplit(b"\n", 1)[-1].decode("utf-8", "replace")
    return Location(name, before.count(b"\n") + 1, len(last_line) + 1)


_PLAIN = re.compile(r"[A-Za-z0-9_./@+-][A-Za-z0-9_./@+ -]*")


def scalar(value: object) -> str:
    """A value as YAML has it on one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(scalar(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {scalar(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        return value if _reads_back(value) else json.dumps(value, ensure_ascii=False)
    return "null" if value is None else json.dumps(value)


def told(value: object) -> str:
    """A value as a message shows it: text as it is, all else as YAML has it."""
    return value if isinstance(value, str) else scalar(value)


def _reads_back(word: str) -> bool:
    """Whether text without quotes is read as the same text."""
    try:
        return bool(_PLAIN.fullmatch(word)) and word == word.strip() and parse_scalar(word) == word
    except InputError:
        return False
