import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a-good.yaml").write_text("model: m\njob: lora\n")
    (tmp_path / "deep" / "b-big.yaml").write_text("model: m\njob: sft\n")
    (tmp_path / "note.txt").write_text("no scenario")
    return tmp_path


def test_a_folder_means_all_yaml_files_below(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    ran = cli("check", jobs, "--format", "json")
    answer = json.loads(ran.out)
    assert ran.code == 1
    assert [entry["file"] for entry in answer["scenarios"]] == [
        str(jobs / "a-good.yaml"),
        str(jobs / "deep" / "b-big.yaml"),
    ]
    assert answer["summary"]["failed"] == 1


def test_exit_codes(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    good, big, bad = jobs / "a-good.yaml", jobs / "deep" / "b-big.yaml", jobs / "bad.yaml"
    bad.write_text("modle: m\n")
    assert cli("check", good).code == 0
    assert cli("check", good, big).code == 1
    assert cli("check", big, "--exit-zero").code == 0
    assert cli("check", big, bad, good, "--exit-zero").code == 2


def test_bad_input_does_not_stop_the_others(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    bad = jobs / "bad.yaml"
    bad.write_text("model: m\ntrain: {steps: no}\nlayout: {tp: -1}\n")
    ran = cli("check", bad, jobs / "missing.yaml", jobs / "a-good.yaml")
    assert ran.code == 2
    assert ran.out.startswith("FAIL  3 scenarios: 1 passed, 0 failed, 2 with bad input")
    assert f"{bad}:2:" in ran.err
    assert f"{jobs / 'missing.yaml'}" in ran.err


def test_a_file_named_twice_is_checked_once(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    cli("check", jobs / "a-good.yaml", jobs)
    assert len(estimator.given) == 2


def test_an_empty_folder_is_bad_input(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    ran = cli("check", tmp_path)
    assert ran.code == 2
    assert "no *.yaml file below" in ran.err


def test_without_files_it_says_what_to_write(cli: Cli) -> None:
    ran = cli("check")
    assert ran.code == 2
    assert "xe-sizer check scenarios/*.yaml" in ran.err


def test_a_format_for_one_result_only_is_refused(cli: Cli, estimator: Estimator, jobs: Path) -> None:
    assert cli("check", jobs, "--format", "csv").code == 2
    assert estimator.given == []
