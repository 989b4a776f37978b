"""Parquet, row by row, of the columns that hold what is trained on (extra: parquet)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.samples.rows import Broken, Row

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.rows import Read

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
