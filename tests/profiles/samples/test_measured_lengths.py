"""Token lengths of small files: every kind of sample, broken rows, and a profile that is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample_files import measured

from xe_sizer.datasets.profile import build_profile, profile_yaml
from xe_sizer.datasets.tokens import read_sample
from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import load_dataset


@pytest.mark.parametrize(
    ("row", "kind", "sequences"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, "chat", 1),
        ({"conversations": [{"from": "human", "value": "a"}]}, "chat", 1),
        ({"instruction": "a", "input": "b", "output": "c"}, "instruction", 1),
        ({"prompt": "a", "completion": "b"}, "prompt and completion", 1),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference pairs", 2),
        ({"prompt": "a"}, "prompts", 1),
        ({"input_ids": [1, 2, 3]}, "token ids", 1),
        ({"text": "a"}, "text", 1),
        ("a", "text", 1),
    ],
)
def test_kinds_of_samples_are_told_apart(row: Any, kind: str, sequences: int) -> None:
    sample = read_sample(row)
    assert (sample.kind, len(sample.sequences)) == (kind, sequences)


def test_token_ids_are_counted_exactly(tmp_path: Path) -> None:
    file = tmp_path / "ids.jsonl"
    file.write_text("".join(json.dumps({"input_ids": [7] * size}) + "\n" for size in (3, 5, 10)))
    found = measured(file)
    assert found.counted
    assert found.mean[1] == 6
    assert (found.shortest.tokens, found.longest.tokens, found.longest.number) == (3, 10, 3)


def test_broken_rows_are_counted_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    file.write_text('{"text": "hello"}\n{"text": \n{"other": 1}\n\n{"text": NaN, "input_ids": [1, 2]}\n')
    found = measured(file)
    assert found.scan.samples == 2
    assert [each.location.line for each in found.sources[0].broken.problems if each.location] == [2, 3]


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"\x1f\x8b rest", b"[" * 100_000, b'{"a": 1}\n', b"PAR1 no"])
def test_what_has_no_samples_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError):
        measured(file)


def test_a_profile_is_read_back_with_its_histogram(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"text": "word " * size}) + "\n" for size in range(1, 300)))
    found = measured(file)
    written = tmp_path / "mine.yaml"
    written.write_text(profile_yaml(build_profile(found, "mine"), ["a remark"]))
    profile = load_dataset(str(written))
    assert profile.histogram is not None
    assert len(profile.histogram.lengths) <= 64
    assert sum(profile.histogram.counts) == profile.samples == 299
    mean = sum(a * b for a, b in zip(profile.histogram.lengths, profile.histogram.counts, strict=True)) / 299
    assert mean == pytest.approx(profile.mean_tokens, rel=0.005)
    assert profile.mean_tokens_low is not None
    assert profile.mean_tokens_high is not None
    assert profile.mean_tokens_low < profile.mean_tokens < profile.mean_tokens_high
