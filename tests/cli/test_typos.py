"""What was mistyped is named, with the word that was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
EIGHT_B = ("--model", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("words", "says", "meant"),
    [
        (("estimat",), "xe-sizer: there is no command 'estimat'", "'estimate'"),
        (("profiles", "lst"), "xe-sizer: there is no command 'profiles lst'", "'list'"),
        (("estimate", *EIGHT_B, "--gpu", "h1000"), "--gpu: unknown gpu 'h1000'", "'h100-nvl-94gb' or 'h100-pcie-80gb'"),
        (("profiles", "show", "a1000"), "xe-sizer: there is no profile 'a1000'", "'a100-pcie-40gb'"),
    ],
)
def test_the_word_that_was_meant_is_named(cli: Cli, words: tuple[str, ...], says: str, meant: str) -> None:
    ran = cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"{says}\n  hint: did you mean {meant}")


@pytest.mark.parametrize(("command", "name"), [("estimate", "jop.yaml"), ("render", "rseult.json")])
def test_a_file_beside_the_one_that_is_not_there_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for there in ("job.yaml", "result.json"):
        Path(there).touch()
    meant = "job.yaml" if command == "estimate" else "result.json"
    assert cli(command, name).err == f"{name}: no such file\n  hint: did you mean '{meant}'?\n"
    assert cli(command, f"nothing-like-it{Path(name).suffix}").err.endswith("no such file\n")


@pytest.mark.parametrize("command", ["estimate", "plan", "sensitivity"])
def test_a_command_without_a_job_says_how_to_begin(cli: Cli, command: str) -> None:
    assert cli(command).err.startswith(
        "xe-sizer: there is nothing to size\n  hint: name a scenario file, or start with"
    )
