"""Which files below a folder `check` reads, and what it says of the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from xe_sizer.cli.output import in_repository
from xe_sizer.studies import check

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]
EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = "model: m\njob: lora\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs/deep").mkdir(parents=True)
    Path("jobs/a.yaml").write_text(GOOD)


def checked(cli: Cli, *names: str) -> tuple[list[str], list[str], int]:
    ran = cli("check", *names, "-f", "json")
    answer = json.loads(ran.out)
    files = [entry["file"] for entry in answer["scenarios"]]
    return files, [entry["file"] for entry in answer["skipped"]], ran.code


def test_both_endings_are_read(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/deep/b.yml").write_text("model: m\njob: sft\n")
    Path("jobs/C.YML").write_text(GOOD)
    assert checked(cli, "jobs") == (["jobs/C.YML", "jobs/a.yaml", "jobs/deep/b.yml"], [], 1)


@pytest.mark.parametrize(
    "text",
    [
        "- name: x\n- name: y\n",
        "services: {db: {image: x}}\nversion: '3'\n",
        "name: ci\non: push\njobs: {}\n",
        "base: &base {a: 1}\nother: *base\n",
        "a: 1\n---\nb: 2\n",
        "just words\n",
    ],
)
def test_what_is_no_scenario_is_skipped_and_said(cli: Cli, estimator: Estimator, text: str) -> None:
    Path("jobs/other.yaml").write_text(text)
    assert checked(cli, "jobs") == (["jobs/a.yaml"], ["jobs/other.yaml"], 0)
    ran = cli("check", "jobs")
    assert ran.err == "note: jobs/other.yaml: skipped: not a scenario (no 'model')\n"
    assert "- jobs/other.yaml: not a scenario (no 'model')" in ran.out


@pytest.mark.parametrize(
    "text",
    [
        "modle: m\n",
        "models: m\nstuff: 1\nmore: 2\n",
        "gpu: h100-sxm-80gb\njob: lora\ntrain: {steps: 3}\n",
        "model: m\nservices: 1\na: 2\n",
        "{model: m\n",
        "model: m\n---\nmodel: m\n",
        "\tx",
    ],
)
def test_a_scenario_with_a_mistake_is_bad_input(cli: Cli, estimator: Estimator, text: str) -> None:
    Path("jobs/wrong.yaml").write_text(text)
    assert checked(cli, "jobs") == (["jobs/a.yaml", "jobs/wrong.yaml"], [], 2)


def test_a_file_that_is_named_is_never_skipped(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/list.yaml").write_text("- 1\n")
    assert checked(cli, "jobs/a.yaml", "jobs/list.yaml") == (["jobs/a.yaml", "jobs/list.yaml"], [], 2)


def test_a_folder_without_a_scenario_does_not_pass(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/deep/list.yaml").write_text("- 1\n")
    assert checked(cli, "jobs/deep") == (["jobs/deep"], ["jobs/deep/list.yaml"], 2)


def test_hidden_files_and_folders_are_left_out(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/.git").mkdir()
    Path("jobs/.git/x.yaml").write_text("modle: m\n")
    Path("jobs/.pre-commit.yaml").write_text("modle: m\n")
    assert checked(cli, "jobs") == (["jobs/a.yaml"], [], 0)


def test_links_in_a_circle_end(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/deep/up").symlink_to("..")
    Path("jobs/self.yaml").symlink_to("self.yaml")
    Path("team").mkdir()
    Path("team/b.yaml").write_text(GOOD)
    Path("jobs/team").symlink_to("../team")
    assert checked(cli, "jobs") == (["jobs/a.yaml", "jobs/team/b.yaml"], [], 0)


def test_a_folder_that_vanishes_is_no_defect(cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = check.os.walk

    def vanishing(*arguments: object, **options: object) -> object:
        for place, below, names in walk(*arguments, **options):  # type: ignore[call-overload]
            if Path(place).name == "deep":
                shutil.rmtree(place)
            yield place, below, [*names, "gone.yaml"]

    monkeypatch.setattr(check.os, "walk", vanishing)
    assert checked(cli, "jobs") == (["jobs/a.yaml"], [], 0)


@pytest.mark.parametrize("bound", ["MOST_FILES", "MOST_FOLDERS"])
def test_a_folder_may_be_too_large(cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    Path("jobs/b.yaml").write_text(GOOD)
    monkeypatch.setattr(check, bound, 1)
    ran = cli("check", "jobs")
    assert (ran.code, ran.out, estimator.given) == (2, "", [])
    assert ran.err.startswith("jobs: more than ")


def test_the_shipped_examples_are_a_gate(cli: Cli) -> None:
    files, skipped, code = checked(cli, str(EXAMPLES))
    everything = {str(file) for file in EXAMPLES.rglob("*.yaml")}
    calendars = map(str, sorted((EXAMPLES / "calendar").glob("*.yaml")))
    assert (skipped, code) == ([*calendars, str(EXAMPLES / "plan" / "questions.yaml")], 1)
    assert set(files) == everything - set(skipped)


def test_annotations_name_files_from_the_root_of_the_repository(
    cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("jobs/deep/bad.yaml").write_text("modle: m\n")
    place = "::error file={},line=1,col=1,"
    absolute = str(tmp_path / "jobs" / "deep")
    assert cli("check", absolute, "-f", "github").out.startswith(place.format("jobs/deep/bad.yaml"))
    Path("jobs/.git").mkdir()
    for name in ("jobs", "./jobs/deep", absolute):
        assert cli("check", name, "-f", "github").out.startswith(place.format("deep/bad.yaml")), name
    monkeypatch.chdir("jobs/deep")
    assert cli("check", "bad.yaml", "-f", "github").out.startswith(place.format("deep/bad.yaml"))


def test_without_a_repository_the_workspace_is_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("jobs")
    assert in_repository("a.yaml") == "a.yaml"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert in_repository("a.yaml") == "jobs/a.yaml"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "else"))
    assert in_repository("a.yaml") == "a.yaml"
    assert in_repository("/nowhere/a.yaml") == "/nowhere/a.yaml"


def test_a_file_has_one_annotation_with_all_that_is_wrong(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/bad.yaml").write_text("model: llama-2-7b\ntrain: {steps: -3}\ngpu: t4\nlayout: {tp: -1}\n")
    (line,) = cli("check", "jobs", "-f", "github").out.splitlines()
    assert line.startswith("::error file=jobs/bad.yaml,line=2,col=16,title=xe-sizer%3A bad input::'steps' ")
    assert "%0Ajobs/bad.yaml:4:14: " in line


def test_a_no_is_annotated_and_a_plain_yes_is_not(cli: Cli, estimator: Estimator) -> None:
    Path("jobs/b.yaml").write_text("model: m\njob: sft\n")
    (line,) = cli("check", "jobs", "-f", "github").out.splitlines()
    assert line.startswith("::error file=jobs/b.yaml,line=1,title=xe-sizer%3A does not fit::")
    assert cli("estimate", "jobs/a.yaml", "-f", "github").out == ""
