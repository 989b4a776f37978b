"""What `check` takes for a scenario: each service of a file, and no file that others merely extend."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import xe_sizer
from xe_sizer.result.check import Figures, kind_of_change

from .conftest import Ran

Cli = Callable[..., Ran]
SMALL = "vllm serve meta-llama/Llama-3.1-8B-Instruct --port 8000 &\n"
LARGE = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-405B-Instruct --port 8001 &\n"
SCRIPT = f"#!/bin/bash\n{SMALL}{LARGE}wait\n"
COMPOSE = """services:
  chat: {image: "vllm/vllm-openai:v0.10.0", command: --model meta-llama/Llama-3.1-8B-Instruct}
  code: {image: "vllm/vllm-openai:v0.10.0", command: --model meta-llama/Llama-3.1-405B-Instruct}
"""
BASE = "gpu: h100-sxm-80gb\ngpus: 8\nstack: nemo\n"
JOB = "extends: base.yaml\nmodel: llama-3.1-8b\njob: lora\ntrain: {steps: 100}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    return tmp_path / "scenarios"


def answer(cli: Cli, *asked: str) -> Any:
    return json.loads(cli("check", *asked, "-f", "json").out)


@pytest.mark.parametrize(
    ("name", "text", "services", "line"),
    [
        ("serve.sh", SCRIPT, ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-405B-Instruct"], 3),
        ("compose.yaml", COMPOSE, ["chat", "code"], 3),
    ],
)
@pytest.mark.parametrize("asked", ["scenarios", None])
def test_every_service_of_a_file_is_judged(
    cli: Cli, folder: Path, name: str, text: str, services: list[str], line: int, asked: str | None
) -> None:
    """The first fits on the assumed GPU and the second, of 810 GB in 16 bit, does not: the gate must not pass."""
    (folder / name).write_text(text)
    ran = cli("check", asked or f"scenarios/{name}", "-f", "json")
    found = json.loads(ran.out)
    assert ran.code == 1
    assert [(one["file"], one["service"], one["ok"]) for one in found["scenarios"]] == [
        (f"scenarios/{name}", services[0], True),
        (f"scenarios/{name}", services[1], False),
    ]
    said = cli("check", f"scenarios/{name}", "-f", "github").out.splitlines()
    assert any(each.startswith(f"::error file=scenarios/{name},line={line},title=") for each in said)
    assert f"\n- scenarios/{name} ({services[1]})" in cli("check", f"scenarios/{name}").out
    suites = ET.fromstring(cli("check", f"scenarios/{name}", "-f", "junit").out)
    assert [suite.get("name") for suite in suites] == [f"scenarios/{name} ({each})" for each in services]


def test_prefill_and_decode_of_one_service_are_one_row(cli: Cli, folder: Path) -> None:
    roles = "".join(
        f'vllm serve meta-llama/Llama-3.1-8B-Instruct --kv-transfer-config \'{{"kv_role": "{role}"}}\' &\n'
        for role in ("kv_producer", "kv_consumer")
    )
    (folder / "serve.sh").write_text(roles)
    (one,) = answer(cli, "scenarios")["scenarios"]
    assert "service" not in one
    assert one["result"]["scenario"]["serve"]["prefill_replicas"] == 1


def test_services_of_one_model_are_told_apart(cli: Cli, folder: Path) -> None:
    (folder / "serve.sh").write_text(SMALL + SMALL.replace("8000", "8002"))
    assert [one["service"] for one in answer(cli, "scenarios")["scenarios"]] == [
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct (2)",
    ]


def test_services_are_compared_each_with_itself(cli: Cli, folder: Path) -> None:
    (folder / "serve.sh").write_text(SCRIPT)
    assert cli("check", "scenarios", "-o", "before.json").code == 1
    (folder / "serve.sh").write_text(SMALL + LARGE.replace("405B", "70B"))
    ran = cli("check", "scenarios", "--compare-to", "before.json", "-f", "json")
    kinds = {
        change["service"].rpartition("-Instruct")[0][-4:]: change["kind"] for change in json.loads(ran.out)["changes"]
    }
    assert kinds == {"1-8B": "same", "-70B": "new", "405B": "removed"}
    assert "scenarios/serve.sh (meta-llama/Llama-3.1-405B-Instruct) is no longer checked" in cli(
        "check", "scenarios", "--compare-to", "before.json", "-f", "github"
    ).out  # fmt: skip


def test_python_judges_every_service_too(folder: Path) -> None:
    (folder / "serve.sh").write_text(SCRIPT)
    found = xe_sizer.check("scenarios")
    assert [one.ok for one in found.scenarios] == [True, False]


@pytest.mark.parametrize("asked", [("scenarios",), ("scenarios/base.yaml", "scenarios/job.yaml")])
def test_what_scenarios_extend_is_no_scenario(cli: Cli, folder: Path, asked: tuple[str, ...]) -> None:
    (folder / "base.yaml").write_text(BASE)
    (folder / "job.yaml").write_text(JOB)
    ran = cli("check", *asked)
    assert ran.code == 0
    assert ran.out.startswith("PASS  1 scenario: ")
    reason = "not checked by itself: scenarios/job.yaml extends it"
    assert f"note: scenarios/base.yaml: skipped: {reason}\n" in ran.err
    assert answer(cli, *asked)["skipped"] == [{"file": "scenarios/base.yaml", "reason": reason}]


def test_a_base_of_a_base_is_none_either(cli: Cli, folder: Path) -> None:
    (folder / "common").mkdir()
    (folder / "common" / "site.yaml").write_text("gpu: h100-sxm-80gb\n")
    (folder / "base.yaml").write_text("extends: common/site.yaml\ngpus: 8\nstack: nemo\n")
    (folder / "job.yaml").write_text(JOB)
    found = answer(cli, "scenarios")
    assert [one["file"] for one in found["scenarios"]] == ["scenarios/job.yaml"]
    assert {one["file"] for one in found["skipped"]} == {"scenarios/base.yaml", "scenarios/common/site.yaml"}


def test_a_model_that_was_forgotten_is_still_bad_input(cli: Cli, folder: Path) -> None:
    """Alone, beside scenarios that do not extend it, and in a circle of files that extend one another."""
    (folder / "base.yaml").write_text(BASE)
    assert cli("check", "scenarios/base.yaml").code == 2
    (folder / "other.yaml").write_text(JOB.replace("extends: base.yaml", "gpu: l40s"))
    assert cli("check", "scenarios").code == 2
    (folder / "other.yaml").write_text("extends: base.yaml\n")
    (folder / "base.yaml").write_text(f"extends: other.yaml\n{BASE}")
    ran = cli("check", "scenarios")
    assert ran.code == 2
    assert "2 with bad input" in ran.out


def test_a_typo_in_a_base_is_told_of_what_extends_it(cli: Cli, folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE.replace("stack", "stak"))
    (folder / "job.yaml").write_text(JOB)
    ran = cli("check", "scenarios")
    assert ran.code == 2
    assert "scenarios/base.yaml:3:1: unknown key 'stak'" in ran.err


def test_a_base_with_a_model_is_a_scenario_of_its_own(cli: Cli, folder: Path) -> None:
    (folder / "base.yaml").write_text(f"{BASE}model: llama-3.1-8b\n")
    (folder / "job.yaml").write_text(JOB)
    assert answer(cli, "scenarios")["summary"]["passed"] == 2


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("sure", "likely", "worse"),
        ("likely", "sure", "better"),
        ("likely", "likely", "same"),
        (None, "likely", "same"),
    ],
)
def test_a_pass_that_is_less_sure_has_changed(before: str | None, after: str | None, kind: str) -> None:
    old, new = (Figures(verdict="passes", certainty=word, gpus=8) for word in (before, after))
    assert kind_of_change(old, new, relaxed=False) == kind


def test_what_fails_is_not_compared_by_how_surely(cli: Cli) -> None:
    old, new = (Figures(verdict="misses limits", certainty=word) for word in ("unlikely", "unsure"))
    assert kind_of_change(old, new, relaxed=False) == "same"


def test_a_tighter_deadline_that_is_less_sure_is_told(cli: Cli, folder: Path) -> None:
    """Limits between the expected time and the upper end of its range: the same job, met less surely."""
    asked = ("--model", "gpt2", "--gpu", "h100-sxm-80gb", "--steps", "9", "--stack", "nemo")
    hours = json.loads(cli("estimate", *asked, "-f", "json").out)["time"]["total_s"]["high"] / 3600
    job = "model: gpt2\ngpu: h100-sxm-80gb\nstack: nemo\ntrain: {{steps: 9}}\nlimits: {{max_hours: {:.9f}}}\n"
    (folder / "a.yaml").write_text(job.format(20 * hours))
    assert cli("check", "scenarios", "-o", "before.json").code == 0
    (folder / "a.yaml").write_text(job.format(0.97 * hours))
    ran = cli("check", "scenarios", "--compare-to", "before.json")
    assert "passes, sure -> passes, likely" in ran.out
    assert "since before.json: 1 worse" in ran.out
    assert "verdict passes, sure -> passes, likely; limit max_hours tightened" in cli(
        "check", "scenarios", "--compare-to", "before.json", "-f", "github"
    ).out  # fmt: skip
