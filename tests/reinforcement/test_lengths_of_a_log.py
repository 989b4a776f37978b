"""Lengths of prompts and responses from the log of a rollout, in place of means and a spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import REGISTRY

import xe_sizer.training.jobs  # noqa: F401  the names of jobs
from xe_sizer.datasets.rollout_log import rollout_lengths
from xe_sizer.errors import InputError
from xe_sizer.reinforcement.answers import logged_answers
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

JOB = {
    "model": "qwen2.5-0.5b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "rollout.prompts": 64, "train.steps": 10,
}  # fmt: skip
SHORT_AND_LONG = [100] * 90 + [4000] * 10


def asked(**keys: object) -> Result:
    given = {name.replace("__", "."): value for name, value in keys.items()}
    return estimate(read_scenario(None, JOB | given, {}), REGISTRY)


def written(path: Path, responses: list[int], prompt: int = 200) -> str:
    path.write_text("".join(f'{{"prompt_tokens": {prompt}, "response_tokens": {one}}}\n' for one in responses))
    return str(path)


def test_json_lines_and_csv_tell_the_same(tmp_path: Path) -> None:
    lines, table, groups = tmp_path / "a.jsonl", tmp_path / "a.csv", tmp_path / "b.jsonl"
    lines.write_text('{"prompt_length": 7, "completion_length": 3}\n\n{"prompt_length": 9, "completion_length": 5}\n')
    table.write_text("step,prompt_length,completion_length\n1,7,3\n1,9,5\n")
    groups.write_text('{"prompt_lengths": [7, 9], "response_lengths": [3, 5]}\n')
    for path in (lines, table, groups):
        prompts, responses = rollout_lengths(path)
        assert prompts.tolist() == [7, 9]
        assert responses.tolist() == [3, 5]


def test_everything_that_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"response_tokens": 5}\n{"tokens": 5}\n{"response_tokens": "many"}\nnot json\n')
    with pytest.raises(InputError) as caught:
        rollout_lengths(path)
    told = str(caught.value)
    assert "bad.jsonl:2: the row has no length of a response" in told
    assert "bad.jsonl:3: 'response_tokens' is no number of tokens: 'many'" in told
    assert "bad.jsonl:4: not JSON" in told
    with pytest.raises(InputError, match="no such file"):
        rollout_lengths(tmp_path / "none.jsonl")
    table = tmp_path / "bad.csv"
    table.write_bytes(b"response_tokens\n5\n\xe9\n")
    with pytest.raises(InputError, match=r"bad\.csv:3:1: this byte is not valid UTF-8"):
        rollout_lengths(table)


def test_the_distribution_is_that_of_the_log() -> None:
    found = logged_answers(SHORT_AND_LONG, 4000)
    assert found.mean == pytest.approx(np.mean(SHORT_AND_LONG))
    assert (found.longest, found.cut_share) == (4000, pytest.approx(0.1))
    assert logged_answers(SHORT_AND_LONG, 50).mean == 50
    assert logged_answers([1, 2, 3], 3).cut_share == 0


def test_an_iteration_takes_the_lengths_of_the_log(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", SHORT_AND_LONG)
    logged = asked(rollout__lengths=path)
    rollout = logged.scenario["rollout"]
    assert (rollout["input_tokens"], rollout["output_tokens"]) == (200, 490)
    assert rollout["max_output_tokens"] == 4000
    even = asked(rollout__lengths=written(tmp_path / "even.jsonl", [490] * 100))
    assert logged.time is not None
    assert even.time is not None
    assert logged.time.step_s.expected > 1.5 * even.time.step_s.expected  # the last responses decide
    assert not any("are assumed" in one and "responses" in one for one in logged.warnings)


def test_a_mean_beside_a_log_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", SHORT_AND_LONG)
    with pytest.raises(InputError, match="does not go with 'lengths'"):
        asked(rollout__lengths=path, rollout__output_tokens=100)
