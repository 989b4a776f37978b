"""What the repository's host reads: workflows pinned to commits, and forms whose examples the tool can read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from xe_sizer.cli.main import COMMANDS, main
from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import read_all

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_run_what_was_reviewed_and_may_do_little(file: Path) -> None:
    used = re.findall(r"uses: (.+)", file.read_text(encoding="utf-8"))
    assert used
    assert [use for use in used if not PINNED.fullmatch(use)] == []
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing <= {"build", "publish"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def test_a_release_is_published_from_a_tag_or_on_request_alone() -> None:
    publish = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["publish"]
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/') || inputs.publish"
    assert publish["permissions"] == {"id-token": "write"}


@pytest.mark.parametrize("file", [file for file in FORMS if file.stem != "config"], ids=lambda file: file.stem)
def test_forms_are_forms(file: Path) -> None:
    form = read(file)
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "checkboxes"]
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
    for page in re.findall(r"docs/[\w-]+\.md", file.read_text(encoding="utf-8")):
        assert (ROOT / page).is_file()


def test_the_record_of_the_form_can_be_read_and_predicted(tmp_path: Path) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong-prediction.yml")
    (field,) = (field for field in form["body"] if field["id"] == "record")
    (tmp_path / "run.yaml").write_text(field["attributes"]["value"], encoding="utf-8")
    read_records = read_all([tmp_path / "run.yaml"])
    assert not read_records.notes
    accuracy = validate(read_records.records)
    assert {each.quantity for each in accuracy.records} == {"step_time", "peak_memory", "oom"}
    assert not accuracy.skipped


SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", re.findall(r"^xe-sizer (.+)$", SKILL, re.MULTILINE), ids=lambda line: line.split()[0]
)
def test_the_examples_of_the_skill_answer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.startswith("FITS")


def test_the_skill_names_commands_that_there_are() -> None:
    named = set(re.findall(r"`xe-sizer (\w+)`", SKILL))
    assert named
    assert named <= set(COMMANDS)


def test_the_image_is_built_of_what_the_wheel_is_built_of() -> None:
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", docker, re.MULTILINE) for name in line.split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {"pyproject.toml", *project["project"]["license-files"]}
    assert needed <= copied
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(allowed) == copied
    assert re.search(r"^USER (?!0|root)\S+$", docker, re.MULTILINE)
