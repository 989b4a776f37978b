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


PYTHON = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/" ;;
  "-m pip install "*) echo "$5" && cp {bin}/xe-sizer "$(dirname "$0")/" ;;
  *) exec {python} "$@" ;;
esac
"""
"""Stands for Python where a step installs something: says what, and puts a `xe-sizer` beside itself."""


def action_steps() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The action, and its steps that install and check."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, check = (step for step in action["runs"]["steps"] if "run" in step)
    return action, install, check


def run_install(repository: Path, step: dict[str, Any], version: str = "") -> str:
    """What the step installs, on a runner whose folder for temporary files is beside the repository."""
    python = repository.parent / "bin" / "python"
    python.write_text(PYTHON.format(python=shlex.quote(sys.executable), bin=shlex.quote(str(python.parent))))
    python.chmod(0o755)
    (repository.parent / "runner").mkdir()
    ran = run(
        repository, step["run"], RUNNER_TEMP=str(repository.parent / "runner"), VERSION=version,
        GITHUB_ACTION_PATH="/the action", GITHUB_PATH=str(repository.parent / "paths"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(("version", "installed"), [("", "/the action"), ("1.0.0", "xe-sizer==1.0.0")])
def test_the_action_installs_itself_or_the_release_that_is_asked_for(
    repository: Path, version: str, installed: str
) -> None:
    _, install, _ = action_steps()
    assert install["env"] == {"VERSION": "${{ inputs.version }}"}
    assert run_install(repository, install, version) == f"{installed}\n"
    (folder,) = (repository.parent / "paths").read_text().splitlines()
    assert [each.name for each in Path(folder).iterdir()] == ["xe-sizer"]
    assert run(repository, f'"{folder}/xe-sizer" --version').returncode == 0


@pytest.mark.parametrize(
    ("files", "compare_to", "code", "verdict", "counts"),
    [
        ([], "", 0, "pass", ("1", "1", "0", "0")),
        ([TOO_SLOW], "before.json", 1, "fail", ("2", "1", "1", "0")),
        ([TOO_SLOW, TYPO], "", 2, "bad-input", ("3", "1", "1", "1")),
        ([], "no such file.json", 2, "bad-input", ()),
    ],
)
def test_the_action(
    repository: Path, files: list[tuple[str, str]], compare_to: str, code: int, verdict: str, counts: tuple[str, ...]
) -> None:
    action, install, check = action_steps()
    run_install(repository, install)
    (repository / "two words" / "jobs").mkdir(parents=True)
    for name, text in files:
        (repository / "two words" / name).write_text(text)
    given = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
    given |= {"scenarios": "scenarios\ntwo words\n" if files else "scenarios", "compare-to": compare_to}
    if compare_to == "before.json":
        assert run(repository, "xe-sizer check scenarios -o before.json").returncode == 0
    variables = {name: INPUT.sub(lambda match: given[match[1]], text) for name, text in check["env"].items()}
    outputs = repository.parent / "outputs"
    variables |= {"RUNNER_TEMP": str(repository.parent / "runner"), "GITHUB_OUTPUT": str(outputs)}
    ran = run(repository, check["run"], **variables)
    assert ran.returncode == code, ran.stderr
    said = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    assert said == {"verdict": verdict, **dict(zip(("total", "passed", "failed", "invalid"), counts, strict=False))}
    if counts:
        all_reports_are_there(repository, ran, int(counts[0]))
        changed = "since before.json: 1 new" in (repository.parent / "summary").read_text()
        assert changed is (compare_to == "before.json")
    assert ("::error file=two words/jobs/slow.yaml," in ran.stdout) is (TOO_SLOW in files)


def table_after(page: str, *texts: str) -> dict[str, tuple[str, ...]]:
    """Rows of the first table behind texts that follow one another: names of the first column with the other cells."""
    rest = (ROOT / page).read_text(encoding="utf-8")
    for text in texts:
        rest = rest.partition(text)[2]
    lines = rest.split("\n\n")[0].strip().splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: tuple(row[1:]) for row in rows for name in re.findall(r"`([\w-]+)`", row[0])}


def defaults_are_documented(inputs: dict[str, Any], rows: dict[str, tuple[str, ...]]) -> None:
    assert rows.keys() == inputs.keys()
    for name, each in inputs.items():
        assert (f"`{each['default']}`" in rows[name][0]) is bool(each["default"])


def test_the_inputs_and_outputs_of_the_action_are_documented() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    defaults_are_documented(action["inputs"], table_after("docs/ci.md", "| input | default | what |"))
    assert table_after("docs/ci.md", "| output | what |").keys() == action["outputs"].keys()


def test_the_recipe_for_gitlab(repository: Path) -> None:
    (recipe,) = (block["sizing"] for block in blocks("docs/ci.md") if isinstance(block, dict) and "sizing" in block)
    gitlab_runs(repository, recipe, {})


def gitlab_runs(repository: Path, job: dict[str, Any], variables: dict[str, str]) -> None:
    """The last command of a job of GitLab fails on a scenario that misses a limit, and leaves all artifacts."""
    (repository / "scenarios" / "slow.yaml").write_text(TOO_SLOW[1])
    ran = run(repository, job["script"][-1], **variables)
    assert (ran.returncode, job["artifacts"]["when"]) == (1, "always"), ran.stderr
    assert ran.stdout.startswith("FAIL  2 scenarios: ")
    reports = job["artifacts"]["reports"]
    assert len(ET.parse(repository / reports["junit"]).getroot()) == 2
    (found,) = json.loads((repository / reports["codequality"]).read_text())
    assert found["location"]["path"] == "scenarios/slow.yaml"
    assert all((repository / name).exists() for name in job["artifacts"]["paths"])


def component(**given: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of the component of GitLab, and its job with some of them given."""
    head, body = (ROOT / "templates" / "check.yml").read_text(encoding="utf-8").split("\n---\n")
    inputs = yaml.safe_load(head)["spec"]["inputs"]
    assert given.keys() <= inputs.keys()
    values = {name: each["default"] for name, each in inputs.items()} | given
    named = re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", body)
    assert set(named) == inputs.keys()
    for name, value in values.items():
        body = body.replace(f"$[[ inputs.{name} ]]", value)
    ((name, job),) = yaml.safe_load(body).items()
    assert (name, job["stage"], job["image"]) == (values["job"], values["stage"], values["image"])
    return inputs, job


@pytest.mark.parametrize("given", [{}, {"confidence": "0.9", "junit": "a.xml", "compare-to": "before.json"}])
def test_the_component_of_gitlab(repository: Path, given: dict[str, str]) -> None:
    assert run(repository, "xe-sizer check scenarios -o before.json").returncode == 0
    _, job = component(**given)
    gitlab_runs(repository, job, {name: str(value) for name, value in job["variables"].items()})
    saved = json.loads((repository / "sizing.json").read_text())
    assert saved.get("compared_to") == given.get("compare-to")
    limits = saved["scenarios"][0]["result"]["scenario"].get("limits", {})
    assert str(limits.get("confidence", "")) == given.get("confidence", "")


def test_the_inputs_of_the_component_are_documented() -> None:
    inputs, _ = component()
    defaults_are_documented(inputs, table_after("docs/ci.md", "\n## GitLab\n", "| input | default | what |"))


def test_the_scenario_of_the_guide_is_one(repository: Path) -> None:
    scenario = BLOCK.search((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
    assert scenario is not None
    (repository / "scenarios" / "good.yaml").write_text(scenario[1])
    ran = run(repository, "xe-sizer check scenarios")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("text", "code"), [(JOB, 0), (TOO_SLOW[1], 1), (TYPO[1], 2)])
def test_the_hook_of_pre_commit(repository: Path, text: str, code: int) -> None:
    """A change of what others extend is one of them, too, so that the hook looks at all scenarios."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (page,) = (
        block["repos"][0]["hooks"] for block in blocks("docs/ci.md") if isinstance(block, dict) and "repos" in block
    )
    assert page[0]["id"] == hook["id"]
    (repository / "scenarios" / "base.yaml").write_text(text.replace("job: sft\n", ""))
    (repository / "scenarios" / "changed.yaml").write_text("extends: base.yaml\njob: sft\n")
    assert re.search(hook["files"], "scenarios/base.yaml")
    assert not re.search(hook["files"], "src/scenarios/base.yaml")
    assert hook["pass_filenames"] is False
    assert run(repository, shlex.join([*shlex.split(hook["entry"]), *hook["args"]])).returncode == code
