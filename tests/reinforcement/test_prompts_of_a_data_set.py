"""The samples of a data set are the prompts of the run; how long prompts and answers are, the rollout says."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import REGISTRY

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.errors import InputError
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

JOB = {
    "model": "qwen2.5-0.5b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "rollout.prompts": 64,
    "rollout.group": 8, "train.epochs": 2,
}  # fmt: skip
IN_A_PASS = 7473 // 64  # whole iterations; the last prompts fill none


def asked(**keys: object) -> Result:
    given = {name.replace("__", "."): value for name, value in keys.items()}
    return estimate(read_scenario(None, JOB | given, {}), REGISTRY)


def test_passes_over_the_prompts_of_a_data_set_make_the_iterations() -> None:
    by_name, by_number = asked(data__profile="gsm8k"), asked(data__samples=7473)
    assert by_name.time is not None
    assert by_number.time is not None
    assert by_name.time.steps == by_number.time.steps == 2 * IN_A_PASS
    assert by_name.data.samples == by_number.data.samples == 7473
    assert any("the number of prompts counts" in one for one in by_name.warnings)


def test_a_number_that_is_given_counts_more_than_the_data_set() -> None:
    found = asked(data__profile="gsm8k", data__samples=640)
    assert found.time is not None
    assert found.time.steps == 2 * 640 // 64
    assert any("without effect here" in one for one in found.warnings)


def test_a_file_of_prompts_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "What is two and two?", "completion": "4"}\n' * 128)
    found = asked(data__file=str(path))
    assert found.time is not None
    assert found.time.steps == 4


def test_a_data_set_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="gsm9k"):
        asked(data__profile="gsm9k")
