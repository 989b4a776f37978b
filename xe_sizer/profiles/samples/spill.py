"""What a pass over files keeps of every sequence: a few numbers in a temporary file, so that memory stays bounded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.samples.classes import CLASSES

UNKNOWN: Final = -1
_CHUNK: Final = 1 << 16
RECORD: Final = np.dtype(
    [
        ("file", "<u2"),
        ("part", "u1"),
        ("place", "<u8"),
        ("number", "<u8"),
        ("messages", "<u4"),
        ("tokens", "<i8"),
        ("classes", "<u4", (CLASSES,)),
    ]
)
"""Where a sequence stands (file, row, which of the row), and what is known of it.

tokens : UNKNOWN where they have not been counted; classes : characters of each class
"""
Records = NDArray[np.void]


def keys_of(records: Records) -> NDArray[np.uint64]:
    """A number for each record that no other has."""
    place = records["place"].astype(np.uint64) << np.uint64(1) | records["part"]
    return np.asarray(records["file"].astype(np.uint64) << np.uint64(48) | place)


class Spill:
    """Records of sequences, added one by one and read back in chunks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="xe-sizer-")  # noqa: SIM115  closed with the block
        self._chunk = np.zeros(_CHUNK, RECORD)
        self._filled = 0
        self.count = 0

    def add(self, record: tuple[object, ...]) -> None:
        """Adds a record, its fields in the order of RECORD. Raises InputError: the disk is full."""
        self._chunk[self._filled] = record
        self._filled += 1
        self.count += 1
        if self._filled == _CHUNK:
            self._write()

    def chunks(self) -> Iterator[Records]:
        """All records, in order."""
        self._write()
        self._file.seek(0)
        while data := self._file.read(_CHUNK * RECORD.itemsize):
            yield np.frombuffer(data, RECORD)
        self._file.seek(0, 2)

    def _write(self) -> None:
        try:
            self._file.write(self._chunk[: self._filled].tobytes())
        except OSError as error:
            place = Location(tempfile.gettempdir())
            hint = "set TMPDIR to a folder with room for about 5 % of the files"
            raise InputError(Problem(f"cannot write a temporary file: {error.strerror}", place, hint)) from None
        self._filled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
