"""Text files that users name: read with a cap, as UTF-8, with the place of what is not text."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from xe_sizer.errors import InputError, Location, Problem, did_you_mean

MAX_FILE_BYTES = 10_000_000
MAX_JOB_BYTES = 1_000_000  # of a scenario or a configuration; the largest that people write have a tenth of it
MOST_BESIDE = 1000  # files of a folder among which a name is looked for
STDIN = Path("-")
YAML_ENDINGS = (".yaml", ".yml")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
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
        hint = "a command is read from stdin: echo '...' | xe-sizer serve -"
        return Problem("no such file", Location(name_of(path)), hint)
    try:
        beside = [entry.name for entry in islice(path.parent.iterdir(), MOST_BESIDE)]
    except (OSError, ValueError):
        beside = []
    return Problem("no such file", Location(name_of(path)), did_you_mean(path.name, beside))


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
    """What messages call a file: its path, or stdin."""
    return "stdin" if path == STDIN else str(path)


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
