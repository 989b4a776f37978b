"""Standard streams that are closed or full change neither the verdict nor its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import FIXTURES

ROOT = Path(__file__).parents[2]
YES = f"render {FIXTURES / 'lora.json'}"
NO = f"render {FIXTURES / 'sft-too-big.json'}"
TYPO = "estimate none.yaml"
USAGE = "estimate --nope"


def code_of(arguments: str, redirect: str) -> int:
    command = f"'{sys.executable}' -m xe_sizer {arguments} {redirect}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # users have a buffer, which Python writes once more at its end
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, env=environment, timeout=60, check=False
    ).returncode


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("arguments", "code"), [(YES, 0), (NO, 1), (TYPO, 2), (USAGE, 2), ("--version", 0)])
def test_a_stream_that_takes_nothing_keeps_the_exit_code(arguments: str, code: int, redirect: str) -> None:
    assert code_of(arguments, redirect) == code


def test_a_search_without_stderr_is_a_yes() -> None:
    job = "plan --model gpt2 --gpu h100-sxm-80gb --max-gpus 1 --steps 10"
    assert code_of(job, ">/dev/null 2>&-") == 0


def test_nothing_to_read_is_bad_input() -> None:
    assert code_of("render -", "<&-") == 2


@pytest.mark.parametrize("arguments", [YES, NO, "--help", "--version", "profiles schema scenario"])
def test_a_report_that_finds_no_room_is_no_answer(arguments: str) -> None:
    command = f"'{sys.executable}' -m xe_sizer {arguments} >/dev/full"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["bash", "-c", command], capture_output=True, env=environment, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (2, b"stdout: cannot write: No space left on device\n")
