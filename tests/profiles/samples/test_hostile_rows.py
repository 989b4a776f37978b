"""Rows that are made to harm: lines without end, nesting, broken text. Each is told, and what is left is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_files import measured

from xe_sizer.datasets import files
from xe_sizer.errors import InputError

GOOD = '{"text": "one of the good rows"}'


def test_a_line_without_end_is_left_out_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ROW_BYTES", 1 << 10)
    monkeypatch.setattr(files, "_SKIP_BYTES", 1 << 8)
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{GOOD}\n{{"text": "{"x" * 100_000}"}}\n{GOOD}\n{"y" * 5000}')
    found = measured(file)
    assert found.scan.samples == 2
    assert found.longest.number in (1, 3)
    broken = found.sources[0].broken
    assert (broken.count, [each.location.line for each in broken.problems if each.location]) == (2, [2, 4])


def test_a_row_of_a_list_may_be_as_long_as_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ROW_BYTES", 1 << 10)
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{"text": "x" * 5000}, {"text": "fine"}], indent=1))
    found = measured(file)
    assert (found.scan.samples, found.sources[0].broken.count) == (1, 1)


@pytest.mark.parametrize(
    "row",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"text": "\xff\xfe"}',
        b'{"text": "unfinished',
        b'{"text": "a"} {"text": "b"}',
        b"\x00" * 50,
        b"1" * 5000,
        b'{"messages": [[[[]]]]}',
        b'{"text": {"text": {"text": 1}}}',
        b'{"input_ids": "ids"}',
        b'"\\ud800',
        b"null",
        b"$(rm -rf x)",
    ],
)
def test_a_broken_row_costs_only_itself(tmp_path: Path, row: bytes) -> None:
    file = tmp_path / "rows.jsonl"
    behind_the_start = b'{"other": "' + b"x" * 70_000 + b'"}'  # of which the format is told
    file.write_bytes(b"\n".join((GOOD.encode(), behind_the_start, row, GOOD.encode(), b"")))
    found = measured(file)
    assert found.scan.samples == 2
    broken = found.sources[0].broken
    assert [each.location.line for each in broken.problems if each.location] == [2, 3]


def test_half_a_surrogate_pair_is_text(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "\\ud83d half"}\n')
    assert measured(file).scan.samples == 1


def test_a_file_of_broken_rows_alone_names_the_first(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("no\njson\n")
    with pytest.raises(InputError) as caught:
        measured(file)
    first = caught.value.problems[0].location
    assert first is not None
    assert (first.name, first.line) == (str(file), 1)
