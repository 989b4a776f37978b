"""Shell completion, as bash asks for it: names of profiles and words of options, and no cost to other runs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xe_sizer.cli.main import main


def asked(line: str) -> dict[str, str]:
    """Variables of a shell for a line whose last word is begun (a line that ends with a blank: a new word)."""
    return {"_XE_SIZER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


Completed = Callable[..., list[str]]


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Completed:
    """What a shell is told."""

    def told(line: str, **more: str) -> list[str]:
        for name, value in (asked(line) | more).items():
            monkeypatch.setenv(name, value)
        assert main([]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        return shown.out.split()

    return told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("xe-sizer est", ["estimate"]),
        ("xe-sizer estimate --model llama-3.1-", ["llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b"]),
        ("xe-sizer estimate --gpu H200", ["h200-nvl-141gb", "h200-sxm-141gb"]),
        ("xe-sizer plan --server dell-xe9680-h", ["dell-xe9680-h100", "dell-xe9680-h200"]),
        ("xe-sizer estimate --stack nan", ["nanotron"]),
        ("xe-sizer serve --engine sg", ["sglang"]),
        ("xe-sizer estimate --job q", ["qlora"]),
        ("xe-sizer estimate --zero ", ["0", "1", "2", "3"]),
        ("xe-sizer plan --among rtx-6", ["rtx-6000-ada"]),
        ("xe-sizer profiles show dell-xe8", ["dell-xe8545-a100", "dell-xe8640-h100"]),
        ("xe-sizer estimate --format ht", ["html"]),
        ("xe-sizer estimate --micro-b", ["--micro-batch"]),
        ("xe-sizer plan --free layout,rollout-t", ["layout,rollout-tp"]),
    ],
)
def test_words_and_names_complete(line: str, words: list[str], completed: Completed) -> None:
    assert completed(line) == words


def test_the_installed_command_completes() -> None:
    environment = {**os.environ, **asked("xe-sizer est")}
    ran = subprocess.run([sys.executable, "-m", "xe_sizer"], env=environment, capture_output=True, check=True)
    assert (ran.stdout.split(), ran.stderr) == ([b"estimate"], b"")


def test_a_command_that_there_is_not_is_no_error_while_a_line_is_written(completed: Completed) -> None:
    assert "estimate" in completed("xe-sizer nonsense ")


def test_completion_returns_to_who_called_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shells = pytest.importorskip("shellingham")
    monkeypatch.setattr(shells, "detect_shell", lambda: ("bash", "/bin/bash"))
    assert main(["--show-completion"]) == 0
    assert "_XE_SIZER_COMPLETE" in capsys.readouterr().out
    monkeypatch.setattr(shells, "detect_shell", lambda: ("none", "/bin/none"))
    assert main(["--show-completion"]) == 1


def test_profiles_of_ones_own_complete_too(tmp_path: Path, completed: Completed) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "our-stack.yaml").write_text("name: our-stack\nparent: generic\n", encoding="utf-8")
    assert completed("xe-sizer estimate --stack our", XE_SIZER_PROFILES=str(tmp_path)) == ["our-stack"]


def test_the_script_for_a_shell_is_printed_and_other_runs_do_not_load_completion() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "xe_sizer", "--show-completion"], env={**os.environ, "SHELL": "/bin/bash"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == (0 if shown.stdout else 1)
    # Which shell it is, is found from the processes above; where none is one, that is said.
    assert "_XE_SIZER_COMPLETE" in shown.stdout or "not supported" in shown.stderr
    code = (
        "import sys; from xe_sizer.cli.main import main\nmain(['estimate', '--model', 'llama-2-7b', '--gpu', 'none'])\n"
        "print(sorted(name for name in ('pydantic', 'xe_sizer.studies.plan') if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
