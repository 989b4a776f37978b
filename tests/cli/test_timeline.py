"""`estimate --timeline`: a trace beside the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = ("estimate", "--model", "gpt2", "--gpu", "l4", "--job", "sft")


def test_a_trace_is_written_beside_the_report(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    ran = cli(*JOB, "--gpus", "1", "--timeline", file)
    assert ran.code == 0
    assert ran.out == cli(*JOB, "--gpus", "1").out.replace(" --timeline " + str(file), "")
    events = json.loads(file.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} >= {"compute"}


def test_what_does_not_fit_has_none(cli: Cli, tmp_path: Path) -> None:
    ran = cli("estimate", "--model", "llama-3.1-70b", "--gpu", "l4", "--gpus", "1", "--timeline", tmp_path / "a.json")
    assert ran.code == 1
    assert "note: --timeline: the job does not fit" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    ran = cli(*JOB, "--gpus", "1", "--timeline", tmp_path / "nowhere" / "a.json")
    assert ran.code == 2
    assert not ran.out
