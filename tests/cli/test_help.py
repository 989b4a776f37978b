"""Help speaks of names, numbers and files, not of Python's types."""

from collections.abc import Callable

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
COMMANDS = (
    [],
    ["estimate"],
    ["serve"],
    ["check"],
    ["validate"],
    ["render"],
    ["profiles"],
    ["profiles", "list"],
    ["profiles", "show"],
    ["profiles", "validate"],
    ["profiles", "schema"],
)


def line_of(out: str, option: str) -> list[str]:
    return next(line for line in out.splitlines() if f" {option} " in line).strip(" │").split()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_type_of_python_is_shown(cli: Cli, command: list[str]) -> None:
    ran = cli(*command, "--help")
    assert ran.code == 0
    assert not [word for word in ("<", "str]", "bool", "INTEGER", "TEXT") if word in ran.out]


def test_a_value_has_a_word_and_a_switch_has_none(cli: Cli) -> None:
    out = cli("estimate", "--help").out
    assert line_of(out, "--model")[1] == "NAME"
    assert line_of(out, "--gpus")[1] == "N"
    assert line_of(out, "--max-hours")[1] == "X"
    assert line_of(out, "--output")[2] == "FILE"
    assert line_of(out, "--exit-zero")[1] == "Return"
    assert line_of(out, "--ideal")[1] == "Both"


def test_help_says_how_the_output_file_chooses_the_format(cli: Cli) -> None:
    for command in ("estimate", "serve", "plan", "compare", "sensitivity", "check", "validate", "render"):
        words = " ".join(cli(command, "--help").out.replace("│", " ").split())
        assert "by the ending of FILE (.csv, .htm, .html, .json, .markdown, .md, .txt, .xml), else table" in words
