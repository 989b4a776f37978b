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
    ["data"],
    ["profiles", "list"],
    ["profiles", "show"],
    ["profiles", "validate"],
    ["profiles", "schema"],
)


def line_of(out: str, option: str) -> list[str]:
    return next(line for line in out.splitlines() if line.startswith("│") and f" {option} " in line).strip(" │").split()


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
        endings = ".csv, .htm, .html, .json, .markdown, .md, .sarif, .txt, .xml"
        assert f"by the extension of FILE ({endings}), else table" in words


@pytest.mark.parametrize(
    "command", ["estimate", "plan", "serve", "compare", "sensitivity", "check", "models", "calendar"]
)
def test_help_has_examples_of_options_that_exist(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = [line.strip() for line in cli(command, "--help").out.splitlines()]
    examples = lines[lines.index("Examples:") + 1 :][:6]
    examples = examples[: examples.index("")]
    assert len(examples) >= 2
    options = {word for line in lines if line.startswith("│") for word in line.split() if word.startswith("-")}
    for example in examples:
        assert example.startswith(f"xe-sizer {command} ")
        assert {word for word in example.split() if word.startswith("-")} <= options


def test_what_most_people_set_comes_before_layouts(cli: Cli) -> None:
    out = cli("estimate", "--help").out
    panels = [out.index(f"─ {name} ") for name in ("Job", "Hardware", "Data", "Limits and prices", "Layout", "Output")]
    assert panels == sorted(panels)
    assert len(out.splitlines()) < 240


def test_debug_is_shown(cli: Cli) -> None:
    assert "--debug" in cli("--help").out
