"""Samples in Parquet: rows in many groups, columns that are not read, and files that are damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from sample_files import measured, tokenizer_of_words

from xe_sizer.datasets.profile import Asked
from xe_sizer.errors import InputError

SIZES = [(7 * place) % 50 + 1 for place in range(1000)]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Words in 1,000 rows of ten groups, beside a column of pictures."""
    table = pa.table({"text": ["word " * size for size in SIZES], "picture": [b"\xff" * 9] * len(SIZES)})
    parquet.write_table(table, tmp_path / "texts.parquet", row_group_size=100)
    return tmp_path / "texts.parquet"


def test_texts_in_parquet_are_counted(texts: Path) -> None:
    for sample in (1000, None):
        found = measured(texts, Asked(tokenizer_of_words(texts.parent / "tokenizer"), sample=sample))
        assert found.scan.samples == len(SIZES)
        assert found.mean[1] == pytest.approx(sum(SIZES) / len(SIZES))
        assert (found.longest.tokens, found.longest.number) == (50, SIZES.index(50) + 1)


def test_conversations_and_token_ids_in_parquet_are_read(tmp_path: Path) -> None:
    chat = [[{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]]
    parquet.write_table(pa.table({"messages": chat}), tmp_path / "chat.parquet")
    assert dict(measured(tmp_path / "chat.parquet").scan.kinds) == {"chat": 1}
    parquet.write_table(pa.table({"input_ids": [[1, 2], [1, 2, 3, 4]]}), tmp_path / "ids.parquet")
    found = measured(tmp_path / "ids.parquet")
    assert (found.counted, found.mean[1], found.longest.tokens) == (True, 3, 4)


def test_what_is_no_parquet_inside_is_bad_input(texts: Path) -> None:
    whole = texts.read_bytes()
    for damaged in (whole[:200], whole[:-8], b"PAR1" + b"\x00" * 100 + b"PAR1", whole[:300] + whole[400:]):
        texts.write_bytes(damaged)
        with pytest.raises(InputError, match="Parquet"):
            measured(texts)


def test_a_parquet_file_without_samples_is_bad_input(tmp_path: Path) -> None:
    for table in (pa.table({"number": [1, 2]}), pa.table({"text": pa.array([], pa.string())})):
        parquet.write_table(table, tmp_path / "none.parquet")
        with pytest.raises(InputError):
            measured(tmp_path / "none.parquet")


BOUNDED = """
import resource, sys
from pathlib import Path
from sample_files import measured
from xe_sizer.datasets import files
from xe_sizer.errors import InputError

files._BATCH_MEMORY_BYTES = 100 << 20
before = resource.getrlimit(resource.RLIMIT_AS)
try:
    measured(Path(sys.argv[1]))
except InputError as error:
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    print(error)
"""


def test_rows_that_unpack_to_more_than_is_bounded_are_refused(tmp_path: Path) -> None:
    """One text of 2 MB that 20,000 rows share: a file of a kilobyte, and 512 MB for each 256 of its rows.

    In a process of its own: what others have freed would be taken again without asking the system.
    """
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["a" * 2_000_000]))
    parquet.write_table(pa.table({"text": shared}), tmp_path / "bomb.parquet", compression="zstd")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(tmp_path / "bomb.parquet")],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert "256 of its rows take more than 100 MiB of memory" in done.stdout, done.stderr[-500:]
