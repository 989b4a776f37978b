"""A scenario on stdin: `-` where a file could stand."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]
JOB = b"model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\njob: lora\n"


def given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


@pytest.mark.parametrize("command", ["estimate", "check", "sensitivity"])
def test_a_scenario_is_read_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    given(monkeypatch, JOB)
    assert cli(command, "-").code == 0


def test_flags_win_over_stdin_and_its_keys_are_of_a_file(
    cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, JOB)
    assert cli("estimate", "-", "--gpus", "16", "-f", "json").code == 0
    asked = estimator.given[0]
    assert (asked.values.gpus, asked.origin["gpus"], asked.origin["model"]) == (16, "flag", "file")


def test_problems_have_their_line_on_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, JOB + b"modle: x\nlayout: {tp: 0}\n")
    ran = cli("estimate", "-")
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(": ")[0] for line in ran.err.splitlines() if line.startswith("stdin")] == [
        "stdin:5:1",
        "stdin:6:14",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "stdin:1:1: the file is empty"),
        (b"\xff\xfe", "stdin:1:1: the file is UTF-16"),
        (b"- 1\n", "stdin:1:1: the file must hold keys"),
    ],
)
def test_what_is_no_scenario_on_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch, text: bytes, says: str) -> None:
    given(monkeypatch, text)
    ran = cli("estimate", "-")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_too_much_on_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"#" * 10_000_001)
    hint = "  hint: no scenario and no configuration is so large\n"
    assert cli("estimate", "-").err == f"stdin: the file is larger than 1 MB\n{hint}"


def test_services_and_plans_read_stdin_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"model: llama-2-7b\ngpu: h100-sxm-80gb\nserve: {request_rate: 1}\n")
    assert json.loads(cli("serve", "-", "-f", "json").out)["verdict"]["fits"] is True
    given(monkeypatch, JOB)
    assert cli("plan", "-", "--max-gpus", "8").code == 0
    assert cli("compare", "-", "gpus=8", "gpus=4").code == 0
