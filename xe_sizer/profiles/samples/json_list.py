"""JSON: one list of rows, or an object in which one is. The file is mapped; only one row at a time is decoded."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.samples.json_lines import decoded
from xe_sizer.profiles.samples.rows import MAX_ROW_BYTES, Broken, Row

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.rows import Read

_BOM = b"\xef\xbb\xbf"


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
