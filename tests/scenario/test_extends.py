"""A scenario over another: which key holds, where messages point, and where paths start."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import BadScenarioError, read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.scenario.schema import scenario_json_schema

BASE = "model: llama-2-7b\nserver: dell-xe9680-h100\ngpus: 8\ntrain:\n  steps: 10\n  seq_len: 512\nlora:\n  rank: 4\n"


def written(folder: Path, own: str, base: str = BASE) -> Path:
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "base.yaml").write_text(base)
    path = folder / "own.yaml"
    path.write_text(own)
    return path


def read(folder: Path, own: str, base: str = BASE) -> Scenario:
    return read_scenario(written(folder, own, base), {}, {})


def problem(folder: Path, own: str, base: str = BASE) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read(folder, own, base)
    (found,) = caught.value.problems
    return str(found.location).replace(f"{folder}/", ""), found.message


def test_what_a_file_does_not_say_holds_as_in_the_one_that_it_extends(tmp_path: Path) -> None:
    values = read(tmp_path, "extends: shared/base.yaml\ntrain: {seq_len: 1024}\nlimits: {max_hours: 2}\n").values
    assert (values.model, values.gpus, values.train.steps, values.train.seq_len) == ("llama-2-7b", 8, 10, 1024)
    assert values.limits.max_hours == 2


def test_a_key_takes_the_place_of_those_that_say_the_same_otherwise(tmp_path: Path) -> None:
    found = read(tmp_path, "extends: shared/base.yaml\ngpu: h200-sxm-141gb\nnodes: 2\n")
    assert (found.values.server, found.values.gpu, found.values.gpus, found.values.nodes) == (
        None, "h200-sxm-141gb", None, 2,
    )  # fmt: skip
    assert {"server", "gpus"}.isdisjoint(found.origin)


def test_a_key_without_a_value_takes_the_other_s_out(tmp_path: Path) -> None:
    found = read(tmp_path, "extends: shared/base.yaml\ngpus:\ntrain: {seq_len: null}\nlora:\n")
    assert (found.values.gpus, found.values.train.seq_len, found.values.train.steps) == (None, None, 10)
    assert not {key for key in found.origin if key.startswith(("gpus", "lora", "train.seq_len"))}


def test_files_extend_one_another_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text("extends: shared/base.yaml\ngpus: 16\ntrain: {seq_len: 2048}\n")
    values = read(tmp_path, "extends: first.yaml\ntrain: {steps: 99}\n").values
    assert (values.gpus, values.train.seq_len, values.train.steps, values.model) == (16, 2048, 99, "llama-2-7b")


def test_flags_stand_over_both(tmp_path: Path) -> None:
    path = written(tmp_path, "extends: shared/base.yaml\ngpus: 16\n")
    assert read_scenario(path, {"gpus": 32, "train.steps": 5}, {}).values.gpus == 32


def test_messages_name_the_file_in_which_a_key_stands(tmp_path: Path) -> None:
    wrong = BASE.replace("seq_len: 512", "seq_len: -1")
    with pytest.raises(BadScenarioError) as caught:
        read(tmp_path, "extends: shared/base.yaml\ngpus: -3\n", wrong)
    assert [str(one.location).replace(f"{tmp_path}/", "") for one in caught.value.problems] == [
        "own.yaml:2:7", "shared/base.yaml:6:12",
    ]  # fmt: skip


def test_paths_start_at_the_file_in_which_they_stand(tmp_path: Path) -> None:
    base = f"{BASE}data: {{file: tokens.jsonl}}\n"
    found = read(tmp_path, "extends: shared/base.yaml\nstack: ./mine.yaml\n", base)
    assert found.folder_for("data.file") == tmp_path / "shared"
    assert found.folder_for("stack") == tmp_path


def test_what_cannot_be_extended_is_said_where_it_is_named(tmp_path: Path) -> None:
    assert problem(tmp_path, "gpus: 8\nextends: shared/bse.yaml\n") == (
        "own.yaml:2:10", "no scenario file 'shared/bse.yaml'",
    )  # fmt: skip
    assert problem(tmp_path, "extends: [a]\n") == ("own.yaml:1:10", "extends must name a scenario file, not a list")
    assert problem(tmp_path, "extends: own.yaml\n") == ("own.yaml:1:10", "'own.yaml' extends this file in turn")
    circle = problem(tmp_path, "extends: shared/base.yaml\n", "extends: ../own.yaml\n")
    assert circle == ("shared/base.yaml:1:10", "'../own.yaml' extends this file in turn")


def test_editors_ask_for_a_model_or_a_file_that_has_it() -> None:
    checker = Draft202012Validator(scenario_json_schema())
    assert checker.is_valid({"model": "llama-2-7b"})
    assert checker.is_valid({"extends": "base.yaml", "gpus": 8})
    assert not checker.is_valid({"gpus": 8})
