"""What the repository's host reads: workflows pinned to commits, and forms whose examples the tool can read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from xe_sizer import __version__
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
    assert [use for use in used if not PINNED.fullmatch(use) and not use.startswith("./ ")] == []
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing <= {"build", "publish"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def test_the_action_runs_what_was_reviewed() -> None:
    used = re.findall(r"uses: (.+)", (ROOT / "action.yml").read_text(encoding="utf-8"))
    assert used
    assert all(PINNED.fullmatch(use) for use in used)


def test_a_release_is_published_from_a_tag_alone_and_by_hand_not_unless_asked() -> None:
    workflow = read(ROOT / ".github" / "workflows" / "release.yml")
    publish = workflow["jobs"]["publish"]
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v') && (github.event_name == 'push' || inputs.publish)"
    assert publish["permissions"] == {"id-token": "write"}
    assert workflow[True]["workflow_dispatch"]["inputs"]["publish"]["default"] is False


def test_one_version_everywhere() -> None:
    """It is written in version.py; files that other programs read repeat it, and so do the examples of the pages."""
    assert read(ROOT / "CITATION.cff")["version"] == __version__
    component, _ = (ROOT / "templates" / "check.yml").read_text(encoding="utf-8").split("\n---\n")
    assert yaml.safe_load(component)["spec"]["inputs"]["version"]["default"] == __version__
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = [
        (page.name, version)
        for page in pages
        for version in re.findall(
            r"(?:xe[-_]sizer(?:/check)?(?:==|-|@)v?|rev: v|such as `|\| `|checkout v)(\d+\.\d+\.\d+)\b",
            page.read_text(encoding="utf-8"),
        )
    ]
    assert {"ci.md", "release.md"} <= {page for page, _ in named}
    assert [(page, version) for page, version in named if version != __version__] == []


def test_the_changelog_has_this_version_below_what_is_unreleased() -> None:
    """As https://keepachangelog.com has it: newest first, each with its date."""
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", head) for head in heads[1:]]
    numbers = [tuple(map(int, match.groups())) for match in released if match]
    assert len(numbers) == len(heads) - 1
    assert numbers == sorted(numbers, reverse=True)
    assert ".".join(map(str, numbers[0])) == __version__


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
