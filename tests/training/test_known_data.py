"""Files of samples that a scenario names: counted where they lie, once, with what is assumed said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import BadScenarioError, read_scenario
from xe_sizer.training.resolve import resolve
from xe_sizer.training.workload import Workload, workload

ASSUMED = "are assumed from bytes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario's folder with samples of 3, 5 and 10 token ids, the same as text, and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    sizes = (3, 5, 10)
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"input_ids": [7] * size}) + "\n" for size in sizes))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": "word " * size}) + "\n" for size in sizes))
    made = Tokenizer(models.WordLevel({"word": 0, "unknown": 1}, unk_token="unknown"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def asked(
    folder: Path, data: str, flags: dict[str, object] | None = None, registry: Registry | None = None
) -> Workload:
    (folder / "job.yaml").write_text(f"model: gpt2\ngpu: h100-sxm-80gb\ndata: {{{data}}}\n")
    scenario = read_scenario(folder / "job.yaml", flags or {}, {})
    return workload(scenario, 1024, 1, "to-seq-len", registry or Registry())


@pytest.mark.parametrize(
    "data",
    [
        "file: ids.jsonl",
        "profile: ids.jsonl",
        "file: train.jsonl, tokenizer: tokenizer.json",
        "file: train.jsonl, tokenizer: .",
    ],
)
def test_samples_beside_the_scenario_are_counted(folder: Path, data: str) -> None:
    made = asked(folder, data)
    assert (made.known_samples, made.steps) == (3, 3)
    assert (made.lengths.mean, made.lengths.longest) == (6, 10)
    assert not [text for text in made.warnings if ASSUMED in text]


def test_without_a_tokenizer_the_range_is_said(folder: Path) -> None:
    made = asked(folder, "file: train.jsonl")
    said = [text for text in made.warnings if ASSUMED in text]
    assert len(said) == 1
    assert "between" in said[0]
    assert said[0].endswith("--tokenizer counts them")


def test_paths_of_options_start_at_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ids.jsonl").write_text('{"input_ids": [1, 2]}\n')
    monkeypatch.chdir(elsewhere)
    made = asked(folder, "file: train.jsonl, tokenizer: tokenizer.json", {"data.profile": "ids.jsonl"})
    assert (made.known_samples, made.lengths.mean) == (1, 2)


def test_rows_that_cannot_be_read_are_told(folder: Path) -> None:
    (folder / "ids.jsonl").write_text('{"input_ids": [1, 2]}\nno json\n')
    assert "1 row of 2 could not be read and is left out" in asked(folder, "file: ids.jsonl").warnings


def test_a_file_is_counted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xe_sizer.datasets import profile

    calls: list[Path] = []
    measure = profile.measure
    monkeypatch.setattr(profile, "measure", lambda paths, *rest: calls.extend(paths) or measure(paths, *rest))
    registry = Registry()
    for _ in range(2):
        asked(folder, "file: ids.jsonl", registry=registry)
        resolve(read_scenario(folder / "job.yaml", {}, {}), registry)
    assert calls == [folder / "ids.jsonl"]


def test_a_tokenizer_of_nothing_is_told(folder: Path) -> None:
    said = "--tokenizer has no effect without a file of samples: --dataset train.jsonl, for example"
    for data in ("profile: alpaca, tokenizer: .", "samples: 5, tokenizer: ."):
        assert said in asked(folder, data).warnings


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("file: none.jsonl", "no such file"),
        ("profile: none.parquet", "no such file"),
        ("file: train.jsonl, tokenizer: none", "no such file or folder"),
        ("file: train.jsonl, tokenizer: train.jsonl", "not a tokenizer that can be read"),
        ("file: job.yaml", "job.yaml"),
    ],
)
def test_what_cannot_be_counted_is_bad_input(folder: Path, data: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        asked(folder, data)


def test_a_profile_and_a_file_are_one_too_many(folder: Path) -> None:
    with pytest.raises(BadScenarioError, match="'profile' and 'file' are both given"):
        asked(folder, "profile: alpaca, file: train.jsonl")
