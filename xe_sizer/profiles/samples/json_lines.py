"""JSON Lines: a value in each line, read with bounded memory however long a line is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from xe_sizer.profiles.samples.rows import MAX_ROW_BYTES, Broken, Row

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.rows import Read

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
