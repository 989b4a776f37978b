"""The recipes for CI do what they say: their commands run in bash, on scenarios that pass, fail and cannot be read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
JOB = "model: gpt2\ngpu: h100-sxm-80gb\ngpus: 1\njob: sft\ntrain: {steps: 10}\n"
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
TYPO = ("jobs/typo.yaml", JOB.replace("model", "modle"))
TOO_SLOW = ("jobs/slow.yaml", JOB + "limits: {max_hours: 1e-9}\n")


def blocks(page: str) -> list[Any]:
    """YAML of a page; what is indented is a list of steps."""
    return [yaml.safe_load(text) for text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


def steps_of(block: Any) -> list[dict[str, Any]]:
    return block if isinstance(block, list) else block["jobs"]["check"]["steps"]


def checks(page: str) -> list[str]:
    """The steps of the page's workflows that check scenarios."""
    steps = [step for block in blocks(page) if isinstance(block, list) or "jobs" in block for step in steps_of(block)]
    return [step["run"] for step in steps if str(step.get("run", "")).startswith("xe-sizer check")]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout with a scenario that passes, a `xe-sizer` on the PATH, and the runner's files."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "xe-sizer"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xe_sizer "$@"\n')
    script.chmod(0o755)
    (tmp_path / "repository" / "scenarios").mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    (tmp_path / "repository" / "scenarios" / "good.yaml").write_text(JOB)
    (tmp_path / "summary").touch()
    return tmp_path / "repository"


def run(repository: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """As the runner of GitHub runs a step."""
    outside = repository.parent
    environment = {
        **os.environ,
        "PATH": f"{outside / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(outside / "summary"),
        "GITHUB_WORKSPACE": str(repository),
        **variables,
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=repository, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def all_reports_are_there(
    repository: Path, ran: subprocess.CompletedProcess[str], total: int, removed: int = 0
) -> None:
    assert json.loads((repository / "sizing.json").read_text())["summary"]["total"] == total
    assert len(ET.parse(repository / "sizing.xml").getroot()) == total + removed
    assert (repository.parent / "summary").read_text().startswith("### ")
    assert all(line.startswith("::") for line in ran.stdout.splitlines())


@pytest.mark.parametrize(
    ("files", "code", "annotation"),
    [
        ([], 0, None),
        ([TOO_SLOW], 1, "::error file=scenarios/jobs/slow.yaml,line=6,title=xe-sizer%3A fits%2C misses limits::"),
        ([TYPO, TOO_SLOW], 2, "::error file=scenarios/jobs/typo.yaml,line=1,col=1,title=xe-sizer%3A bad input::"),
    ],
)
def test_the_workflow_of_the_guide(
    repository: Path, files: list[tuple[str, str]], code: int, annotation: str | None
) -> None:
    command = checks("docs/ci.md")[0]
    (repository / "scenarios" / "jobs").mkdir()
    for name, text in files:
        (repository / "scenarios" / name).write_text(text)
    ran = run(repository, command)
    assert ran.returncode == code, ran.stderr
    all_reports_are_there(repository, ran, 1 + len(files))
    assert any(line.startswith(annotation) for line in ran.stdout.splitlines()) if annotation else ran.stdout == ""


def test_reports_are_kept_after_a_failure() -> None:
    workflows = [block for block in blocks("docs/ci.md") if isinstance(block, dict) and "jobs" in block]
    assert workflows
    for workflow in workflows:
        upload = steps_of(workflow)[-1]
        assert upload["uses"].startswith("actions/upload-artifact@")
        assert upload["if"] == "always()"


def test_what_a_pull_request_changes(repository: Path) -> None:
    lists = [block for block in blocks("docs/ci.md") if isinstance(block, list)]
    (steps,) = (block for block in lists if "--compare-to" in str(block[-1].get("run")))
    base = repository / ".base"
    assert steps[1]["run"].splitlines()[0] == 'git worktree add -q .base "origin/$GITHUB_BASE_REF"'
    (base / "scenarios").mkdir(parents=True)
    (base / "scenarios" / "good.yaml").write_text(JOB)
    (base / "scenarios" / "gone.yaml").write_text(TYPO[1])
    (repository / "scenarios" / "good.yaml").write_text(JOB.replace("steps: 10", "steps: 20"))
    assert steps[1]["run"].splitlines()[-1] == "git worktree remove --force .base"
    before = run(repository, steps[1]["run"].splitlines()[1])
    assert before.returncode == 0, before.stderr
    ran = run(repository, steps[2]["run"])
    assert ran.returncode == 0, ran.stderr
    all_reports_are_there(repository, ran, 1, removed=1)
    assert ran.stdout.startswith(
        "::warning file=scenarios/good.yaml,line=5,title=xe-sizer%3A worse than before::worse: time "
    )
    assert "scenarios/gone.yaml is no longer checked" in ran.stdout
    assert "worse" in (repository.parent / "summary").read_text()


@pytest.mark.parametrize("compare_to", ["", "before.json"])
def test_the_action(repository: Path, compare_to: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, check = (step for step in action["runs"]["steps"] if "run" in step)
    assert '"$GITHUB_ACTION_PATH"' in install["run"]
    tools = repository.parent / "runner" / "xe-sizer"
    tools.mkdir(parents=True)
    (tools / "bin").symlink_to(repository.parent / "bin")
    after = "\n".join(install["run"].splitlines()[2:])
    paths = repository.parent / "paths"
    assert run(repository, after, RUNNER_TEMP=str(tools.parent), GITHUB_PATH=str(paths)).returncode == 0
    (folder,) = paths.read_text().splitlines()
    assert [each.name for each in Path(folder).iterdir()] == ["xe-sizer"]
    assert run(repository, f'"{folder}/xe-sizer" --version').returncode == 0
    (repository / "two words").mkdir()
    (repository / "two words" / "slow.yaml").write_text(TOO_SLOW[1])
    given = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
    given |= {"scenarios": "scenarios\ntwo words\n", "compare-to": compare_to}
    if compare_to:
        assert run(repository, "xe-sizer check scenarios -o before.json").returncode == 0
    variables = {name: INPUT.sub(lambda match: given[match[1]], text) for name, text in check["env"].items()}
    ran = run(repository, check["run"], RUNNER_TEMP=str(repository.parent / "runner"), **variables)
    assert ran.returncode == 1, ran.stderr
    all_reports_are_there(repository, ran, 2)
    assert ran.stdout.startswith("::error file=two words/slow.yaml,")
    assert ("since before.json: 1 new" in (repository.parent / "summary").read_text()) is bool(compare_to)


def test_the_recipe_for_gitlab(repository: Path) -> None:
    (recipe,) = (block["sizing"] for block in blocks("docs/ci.md") if isinstance(block, dict) and "sizing" in block)
    (repository / "scenarios" / "slow.yaml").write_text(TOO_SLOW[1])
    ran = run(repository, recipe["script"][-1])
    assert (ran.returncode, recipe["artifacts"]["when"]) == (1, "always")
    assert ran.stdout.startswith("FAIL  2 scenarios: ")
    assert len(ET.parse(repository / recipe["artifacts"]["reports"]["junit"]).getroot()) == 2
    assert all((repository / name).exists() for name in recipe["artifacts"]["paths"])


def test_the_scenario_of_the_guide_is_one(repository: Path) -> None:
    scenario = BLOCK.search((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
    assert scenario is not None
    (repository / "scenarios" / "good.yaml").write_text(scenario[1])
    ran = run(repository, "xe-sizer check scenarios")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("text", "code"), [(JOB, 0), (TOO_SLOW[1], 1), (TYPO[1], 2)])
def test_the_hook_of_pre_commit(repository: Path, text: str, code: int) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (page,) = (
        block["repos"][0]["hooks"] for block in blocks("docs/ci.md") if isinstance(block, dict) and "repos" in block
    )
    assert page[0]["id"] == hook["id"]
    (repository / "scenarios" / "changed.yaml").write_text(text)
    changed = [str(file.relative_to(repository)) for file in repository.rglob("*.*")]
    named = [file for file in changed if re.search(hook["files"], file)]
    assert sorted(named) == ["scenarios/changed.yaml", "scenarios/good.yaml"]
    assert run(repository, shlex.join([*shlex.split(hook["entry"]), *named])).returncode == code
