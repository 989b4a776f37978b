"""`xe-sizer check --jobs`: the same answers from several processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]


def test_several_processes_give_the_same_answers_in_the_same_order(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("joblib")
    monkeypatch.chdir(tmp_path)
    job = "model: llama-2-7b\nserver: dell-xe9680-h100\njob: sft\ntrain: {steps: 10, seq_len: 512, global_batch: 64}\n"
    for gpus in (1, 8, 16):
        Path(f"on-{gpus}.yaml").write_text(f"{job}gpus: {gpus}\n")
    Path("bad.yaml").write_text(f"{job}gpus: none\n")
    Path("unknown.yaml").write_text(job.replace("llama-2-7b", "llama-9"))
    Path("service.yaml").write_text("model: llama-2-7b\nserver: dell-xe9680-h100\nserve: {concurrency: 8}\n")
    alone, together = (cli("check", ".", "-f", "json", *more) for more in ((), ("--jobs", "2")))
    assert (alone.code, together.code) == (2, 2)
    assert json.loads(together.out)["scenarios"] == json.loads(alone.out)["scenarios"]


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_no_number_of_processes_is_bad_input(cli: Cli, tmp_path: Path, text: str) -> None:
    ran = cli("check", tmp_path, "--jobs", text)
    assert ran.code == 2
    assert f"--jobs: '{text}' is not a number of processes" in ran.err
