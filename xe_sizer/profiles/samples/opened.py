"""Which reader a file of samples gets, by how the file begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.samples.json_list import JsonList
from xe_sizer.profiles.samples.parquet import Parquet
from xe_sizer.profiles.text_file import missing

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.profiles.samples.rows import Source


def open_source(path: Path) -> Source:
    """The reader of a file, chosen by how it begins. Raises InputError: missing, a folder, empty, no samples."""
    start = _start(path)
    if start.startswith(b"PAR1"):
        return Parquet(path)
    _refuse_other_formats(start, path)
    if _is_one_document(start):
        return JsonList(path)
    from xe_sizer.profiles.samples.json_lines import JsonLines

    return JsonLines(path)


_MAGIC = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"PK\x03\x04": ("zip", "unzip"),
}
_START_BYTES = 1 << 16


def _start(path: Path) -> bytes:
    place = Location(str(path))
    try:
        with path.open("rb") as stream:
            start = stream.read(_START_BYTES)
    except FileNotFoundError:
        raise InputError(missing(path)) from None
    except IsADirectoryError:
        raise InputError(Problem("this is a folder, not a file", place, "name the files in it")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem(f"cannot read this file: {reason}", place)) from None
    if not path.is_file():
        raise InputError(Problem("not a regular file: it is read twice", place, "save it to a file first"))
    if not start.strip():
        raise InputError(Problem("the file is empty", place))
    return start


def _refuse_other_formats(start: bytes, path: Path) -> None:
    """Raises InputError for what is compressed, binary or in another encoding."""
    place = Location(str(path))
    for magic, (name, tool) in _MAGIC.items():
        if start.startswith(magic):
            raise InputError(Problem(f"the file is compressed with {name}", place, f"{tool} it first"))
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(Problem("the file is UTF-16 text", place, "save it as UTF-8"))
    if b"\x00" in start:
        raise InputError(Problem("this is a binary file", place, "JSON Lines, JSON and Parquet are read"))


def _is_one_document(start: bytes) -> bool:
    """Whether a file is one JSON value over many lines, and not a value in each line."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return not _is_value(text.partition(b"\n")[0]) or b"\n" not in text.strip()
    return text.startswith(b"{") and text.split(b"\n", 1)[0].strip() == b"{"


def _is_value(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
