"""`xe-sizer render`: a saved result in another format."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli import render
from xe_sizer.report.registry import format_names

from .conftest import FIXTURES, Ran

Cli = Callable[..., Ran]


def test_a_saved_result_in_another_format(cli: Cli) -> None:
    ran = cli("render", FIXTURES / "sft-too-big.json", "--format", "markdown")
    assert ran.code == 1
    assert ran.out.startswith("### ❌ DOES NOT FIT")
    assert cli("render", FIXTURES / "sft-too-big.json", "--exit-zero").code == 0


def test_json_of_json_is_the_same(cli: Cli, tmp_path: Path) -> None:
    once = cli("render", FIXTURES / "lora.json", "--format", "json").out
    file = tmp_path / "again.json"
    file.write_text(once)
    assert cli("render", file, "--format", "json").out == once


def test_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FIXTURES / "lora.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert cli("render", "-", "--format", "markdown").out.startswith("### ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "not a saved result: the file is empty"),
        (" \n", "not a saved result: the file is empty"),
        ('{"schema_version"', "not a saved result: it ends too early"),
        ("[]", "not a saved result: it must be an object, not a list"),
        ('{"schema_version": 1,\n "x": }', "file.json:2:7: not a saved result: it is no JSON"),
        ('{"schema_version": 2}', "schema_version is 2; this xe-sizer reads 1"),
        ('{"schema_version": 1}', "the key 'tool_version' is missing"),
        ("\x00\xff", "not a saved result"),
        (f'{{"schema_version": 1, "x": {"[" * 100_000}{"]" * 100_000}}}', "nested too deeply"),
        ("[" * 100_000, "not a saved result"),
        ('{"schema_version": 1e400}', "not a saved result"),
        ('{"schema_version": "1"}', "'schema_version' must be a whole number, not text"),
        ('{"schema_version": 1, "candidates": [], "answers": {}, "objective": "x"}', "not a saved result: the key "),
        ('{"schema_version": 1, "scenarios": [{"file": "x", "ok": true, "result": 3}]}', "not a saved result"),
    ],
)
def test_what_is_no_result_is_bad_input(cli: Cli, tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text, encoding="latin-1")
    ran = cli("render", file)
    assert ran.code == 2
    assert error in ran.err
    assert "Error" not in ran.err
    assert "Traceback" not in ran.err


def test_a_missing_file_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    assert "none.json: no such file" in cli("render", tmp_path / "none.json").err
    assert cli("render", tmp_path).code == 2


def test_what_is_too_large_is_bad_input(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "LARGEST_BYTES", 1 << 20)
    file = tmp_path / "file.json"
    file.write_text((FIXTURES / "lora.json").read_text() + " " * (1 << 20))
    ran = cli("render", file)
    assert (ran.code, ran.out) == (2, "")
    assert "larger than a saved result may be, 1 MiB" in ran.err
    assert cli("render", "/dev/zero").code == 2


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        *groups, last = path.split(".")
        for group in groups:
            answer = answer[group]
        answer[last] = value

    return change


@pytest.mark.parametrize("name", format_names())
@pytest.mark.parametrize(
    "change",
    [
        _set("scenario", {}),
        _set("scenario.names", 5),
        _set("scenario.names", {"gpu": ["\u001b[2J"]}),
        _set("scenario.origin", [1]),
        _set("scenario.job", {"a": {"b": [None] * 50}}),
        _set("scenario.train", 10**400),
        _set("scenario.limits", 3),
        _set("time.step_s", {"low": 0, "expected": 0, "high": 0}),
        _set("time.steps", 10**30),
        _set("memory.usable_bytes", 0),
        _set("memory.peak_bytes", 1e308),
        _set("gpus.count", -(10**400)),
        _set("data.processed_tokens", 0),
    ],
    ids=lambda change: str(change.__closure__[0].cell_contents),
)
def test_figures_that_make_no_sense_are_no_defect(
    cli: Cli, tmp_path: Path, change: Callable[[dict[str, Any]], None], name: str
) -> None:
    answer = json.loads((FIXTURES / "lora.json").read_text())
    change(answer)
    file = tmp_path / "file.json"
    file.write_text(json.dumps(answer))
    for command in (("render", file), ("compare", file, FIXTURES / "lora.json")):
        ran = cli(*command, "--format", name)
        assert ran.code in (0, 1, 2)
        assert "internal error" not in ran.err
        if ran.code == 2:
            assert "file.json" in ran.err.split(": not ")[0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            _set("answers.chosen", 10**6),
            "contradict each other: 'answers.chosen' is candidate 1000000, but there are 2,",
        ),
        (_set("answers.fastest", -1), "contradict each other: 'answers.fastest' is candidate -1"),
        (
            _set("objective", "beauty"),
            "contradict each other: 'objective' must be one of servers, gpus, cost, capex, time, energy",
        ),
        (_set("scenario.train", None), "contradict each other"),
        (_set("candidates", [{}]), "the key 'candidates[0].gpu' is missing"),
    ],
)
def test_a_plan_that_contradicts_itself(
    cli: Cli, tmp_path: Path, change: Callable[[dict[str, Any]], None], error: str
) -> None:
    job = ("--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--job", "lora", "--steps", "10", "--max-gpus", "2")
    answer = json.loads(cli("plan", *job, "--format", "json").out)
    change(answer)
    file = tmp_path / "file.json"
    file.write_text(json.dumps(answer))
    ran = cli("render", file)
    assert ran.code == 2
    assert error in ran.err
    assert "Error" not in ran.err


@pytest.mark.parametrize(
    ("saved_as", "change", "error"),
    [
        ("lora", _set("time.total_s.low", 1e12), "time.total_s: 'low' (1e+12) is more than 'expected'"),
        ("lora", _set("time.step_s.high", 0.0), "is more than 'high' (0)"),
        ("serve-chat", _set("latency.tpot_s.expected", 1e6), "latency.tpot_s: 'expected' (1e+06) is more than 'high'"),
        ("studies/compare", _set("alternatives", []), "it compares no alternatives"),
        ("studies/check", _set("summary.passed", 77), "'summary.passed' is 77, but the scenarios make it"),
    ],
)
def test_figures_that_contradict_each_other_are_bad_input(
    cli: Cli, tmp_path: Path, saved_as: str, change: Callable[[dict[str, Any]], None], error: str
) -> None:
    answer = json.loads((FIXTURES / f"{saved_as}.json").read_text())
    file = tmp_path / "file.json"
    file.write_text(json.dumps(answer))
    assert "contradict" not in cli("render", file).err
    change(answer)
    file.write_text(json.dumps(answer))
    ran = cli("render", file)
    assert (ran.code, ran.out) == (2, "")
    assert f"{file}: not an answer of xe-sizer: its figures contradict each other: " in ran.err
    assert error in ran.err
    assert "hint: every command that answers writes one" in ran.err
