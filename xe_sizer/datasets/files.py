"""Files of samples as a stream of rows: JSON lines, JSON lists and Parquet, compressed or not."""

from __future__ import annotations

import json
import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text import missing

# Rows, whatever the format: each with its place, and what could not be read.

MAX_ROW_BYTES = 64 << 20  # chosen: 16 M tokens; what is longer is no sample
SHOWN_PROBLEMS = 5
Read = Callable[[int], None]
"""Is told how many bytes of the file have been read."""


class Row(NamedTuple):
    """One row as decoded. `place` finds it again, `number` is its line or its place in the list, from 1."""

    place: int
    number: int
    value: Any


@dataclass
class Broken:
    """Rows that could not be read: how many, and the first of them with the reason."""

    path: Path
    count: int = 0
    problems: list[Problem] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, reason: str) -> None:
        """One more row. `number` counts from 1."""
        self.count += 1
        self.reasons[reason if len(self.reasons) < SHOWN_PROBLEMS else "other"] += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(Problem(reason, Location(str(self.path), number)))


class Source(Protocol):
    """A file of rows.

    rows : all that can be read, in order; the others go to `broken`
    again : the rows at some places, ascending
    unit : what a row is called, line or row
    """

    path: Path
    size_bytes: int
    broken: Broken
    unit: str

    def rows(self, read: Read) -> Iterator[Row]: ...
    def again(self, places: Sequence[int]) -> Iterator[Row]: ...


# Parquet, row by row, of the columns that hold what is trained on (extra: parquet).

_BATCH = 256  # rows that are turned into Python's own values at once
_BATCH_MEMORY_BYTES = 1 << 30  # that reading these may take
_SIZE_OF_PROCESS = Path("/proc/self/statm")


@contextmanager
def _memory_for_a_batch() -> Iterator[None]:
    """Bounds what the block may take, where the system can: a file of 2 kB may hold 20 rows of 50 MB.

    No figure in a file says how much its rows take: pages are unpacked whole, and a value that many rows share is
    written out for each. Raises MemoryError in the block.
    """
    if not _SIZE_OF_PROCESS.exists():
        yield
        return
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(_SIZE_OF_PROCESS.read_text(encoding="ascii").split()[0])
    bound = pages * resource.getpagesize() + _BATCH_MEMORY_BYTES
    others = [limit for limit in (before, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([bound, *others]), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


class Parquet:
    """A Parquet file. `place` of a row is its number from 0."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        """Raises InputError: no reader is installed, or the file cannot be read."""
        self.path = path
        self.size_bytes = path.stat().st_size
        self.broken = Broken(path)
        self._file = self._opened()

    def rows(self, read: Read) -> Iterator[Row]:
        """All rows. Raises InputError: a part of the file cannot be read."""
        total = max(int(self._file.metadata.num_rows), 1)
        for place, value in self._of_groups(range(self._file.num_row_groups), 0):
            yield Row(place, place + 1, value)
            if place % _BATCH == 0:
                read(self.size_bytes * place // total)

    def again(self, places: Sequence[int]) -> Iterator[Row]:
        """The rows with these numbers; groups of rows without any are not read."""
        start, wanted = 0, iter(places)
        place = next(wanted, None)
        for group in range(self._file.num_row_groups):
            end = start + self._file.metadata.row_group(group).num_rows
            if place is not None and place < end:
                for number, value in self._of_groups([group], start):
                    while place == number:
                        yield Row(number, number + 1, value)
                        place = next(wanted, None)
            start = end

    def _of_groups(self, groups: Sequence[int] | range, start: int) -> Iterator[tuple[int, Any]]:
        columns = self._columns()
        try:
            batches = self._file.iter_batches(_BATCH, row_groups=list(groups), columns=columns)
            while True:
                with _memory_for_a_batch():
                    batch = next(batches, None)
                    rows = [] if batch is None else batch.to_pylist()
                if batch is None:
                    return
                yield from enumerate(rows, start)
                start += len(rows)
        except MemoryError:
            what = f"{_BATCH} of its rows take more than {_BATCH_MEMORY_BYTES >> 20:,} MiB of memory"
            raise InputError(Problem(what, Location(str(self.path)), "write it with smaller rows and pages")) from None
        except (OSError, ValueError, NotImplementedError) as error:
            raise self._refused(error) from None

    def _columns(self) -> list[str]:
        """Columns that can hold text or token ids; pictures and other bytes are left out."""
        schema = self._file.schema_arrow
        return [each.name for each in schema if "binary" not in str(each.type)]

    def _opened(self) -> Any:
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            hint = "pip install 'xe-sizer[parquet]'"
            raise InputError(Problem("Parquet needs pyarrow", Location(str(self.path)), hint)) from None
        try:
            return ParquetFile(self.path)
        except (OSError, ValueError, MemoryError, NotImplementedError) as error:
            raise self._refused(error) from None

    def _refused(self, error: BaseException) -> InputError:
        reason = str(error).partition("\n")[0][:200]
        return InputError(Problem(f"cannot read this Parquet file: {reason}", Location(str(self.path))))


# JSON Lines, read with bounded memory however long a line is.

_SKIP_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


class JsonLines:
    """A file with a JSON value in each line. `place` of a row is the byte at which its line starts."""

    unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = path.stat().st_size
        self.broken = Broken(path)

    def rows(self, read: Read) -> Iterator[Row]:
        """All lines that can be read, blank ones left out."""
        place = number = 0
        with self.path.open("rb") as stream:
            while line := stream.readline(MAX_ROW_BYTES + 1):
                start, number = place, number + 1
                place += len(line)
                if len(line) > MAX_ROW_BYTES and not line.endswith(b"\n"):
                    place += _skip_line(stream)
                    self.broken.add(number, f"the line is longer than {MAX_ROW_BYTES >> 20} MiB")
                elif line.strip():
                    yield from self._decoded(start, number, line)
                read(place)

    def again(self, places: Sequence[int]) -> Iterator[Row]:
        """The lines that start at these bytes; their numbers are not known any more."""
        with self.path.open("rb") as stream:
            for place in places:
                stream.seek(place)
                yield Row(place, 0, decoded(stream.readline(MAX_ROW_BYTES + 1).removeprefix(_BOM)))

    def _decoded(self, place: int, number: int, line: bytes) -> Iterator[Row]:
        try:
            value = decoded(line if place else line.removeprefix(_BOM))
        except ValueError as error:
            self.broken.add(number, str(error))
            return
        yield Row(place, number, value)


def _skip_line(stream: BinaryIO) -> int:
    """Bytes up to and with the end of the line, which are not kept."""
    skipped = 0
    while part := stream.readline(_SKIP_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def decoded(text: bytes | memoryview) -> Any:
    """A JSON value. Also what Python's own writer makes of NaN and of half a surrogate pair. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(bytes(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not valid UTF-8") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {str(error).partition(':')[0].lower()}") from None


# JSON: one list of rows, or an object in which one is. The file is mapped, and one row at a time decoded.


class JsonList:
    """A file that is one JSON value. `place` of a row is its place in the list."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = path.stat().st_size
        self.broken = Broken(path)

    def rows(self, read: Read) -> Iterator[Row]:
        """All rows that can be read. Raises InputError: the file is no JSON, or has no list of rows."""
        done = 0
        for place, raw in enumerate(self._raw):
            text = memoryview(raw)
            done += len(text)
            if len(text) > MAX_ROW_BYTES:
                self.broken.add(place + 1, f"the row is longer than {MAX_ROW_BYTES >> 20} MiB")
            else:
                yield from self._decoded(place, text)
            read(done)

    def again(self, places: Sequence[int]) -> Iterator[Row]:
        """The rows at these places of the list."""
        for place in places:
            yield Row(place, place + 1, decoded(memoryview(self._raw[place])))

    def _decoded(self, place: int, text: memoryview) -> Iterator[Row]:
        try:
            value = decoded(text)
        except ValueError as error:
            self.broken.add(place + 1, str(error))
            return
        yield Row(place, place + 1, value)

    @cached_property
    def _raw(self) -> list[msgspec.Raw]:
        """Every row as the bytes of the file."""
        with self.path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        data = memoryview(mapped)
        data = data[len(_BOM) :] if data[: len(_BOM)] == _BOM else data
        try:
            return _rows_of(data)
        except RecursionError:
            raise self._refused("nested too deeply") from None
        except UnicodeDecodeError:
            raise self._refused("not valid UTF-8") from None
        except msgspec.DecodeError as error:
            raise self._refused(f"not JSON that can be read as a list of samples: {str(error).lower()}") from None

    def _refused(self, message: str) -> InputError:
        hint = "a list of samples, or JSON Lines with a sample in each line"
        return InputError(Problem(message, Location(str(self.path)), hint))


def _rows_of(data: memoryview) -> list[msgspec.Raw]:
    """The list that the value is, else the longest list in the object. Raises msgspec.DecodeError."""
    value: Any = msgspec.json.decode(data, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    if isinstance(value, list):
        return value
    lists = [each for each in value.values() if bytes(memoryview(each)[:1]) == b"["]
    if not lists:
        raise msgspec.DecodeError("it has no list")
    return msgspec.json.decode(max(lists, key=lambda each: len(memoryview(each))), type=list[msgspec.Raw])


# The reader of a file, by how the file begins.


def open_source(path: Path) -> Source:
    """The reader of a file, chosen by how it begins. Raises InputError: missing, a folder, empty, no samples."""
    start = _start(path)
    if start.startswith(b"PAR1"):
        return Parquet(path)
    _refuse_other_formats(start, path)
    if _is_one_document(start):
        return JsonList(path)

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
