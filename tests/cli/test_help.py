"""Help speaks of names, numbers and files, not of Python's types."""

from collections.abc import Callable, Mapping

import pytest

from xe_sizer.cli.options import COMMON
from xe_sizer.scenario.options import ALL_OPTIONS, OPTIONS, SERVE_OPTIONS

from .conftest import Ran

Cli = Callable[..., Ran]
COMMANDS: tuple[list[str], ...] = (
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
    out = cli("estimate", "--help-all").out
    assert line_of(out, "--model")[1] == "NAME"
    assert line_of(out, "--gpus")[1] == "N"
    assert line_of(out, "--max-hours")[1] == "X"
    assert line_of(out, "--output")[2] == "FILE"
    assert line_of(out, "--exit-zero")[1] == "Return"
    assert line_of(out, "--ideal")[1] == "Both"


def test_help_says_how_the_output_file_chooses_the_format(cli: Cli) -> None:
    for command in ("estimate", "serve", "plan", "compare", "sensitivity", "check", "validate", "render"):
        words = " ".join(cli(command, "--help").out.replace("│", " ").split())
        assert "by the extension of FILE, else table" in words


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


@pytest.mark.parametrize("command", ["estimate", "plan", "serve", "compare", "sensitivity", "check", "models"])
def test_help_fits_two_screens(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli(command, "--help").out.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("estimate", OPTIONS),
        ("plan", OPTIONS),
        ("compare", OPTIONS),
        ("sensitivity", OPTIONS),
        ("serve", SERVE_OPTIONS),
    ],
)
def test_help_all_has_every_option_and_help_those_that_most_need(
    cli: Cli, command: str, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    short, long = (cli(command, flag) for flag in ("--help", "--help-all"))
    assert (short.code, long.code) == (0, 0)
    listed = [{name for name in options if f"│ --{name} " in ran.out} for ran in (short, long)]
    assert listed == [options.keys() & COMMON, options.keys()]
    assert all(f" {name} " in long.out for name in ("--color", "--price"))
    assert " --color " not in short.out


def test_every_common_option_exists() -> None:
    assert ALL_OPTIONS.keys() >= COMMON


def test_an_option_that_help_leaves_out_is_taken_and_meant(cli: Cli) -> None:
    ran = cli("estimate", "--model", "gpt2", "--gpu", "h100-sxm-80gb", "--bucket-gib", "1", "--brief")
    assert ran.code == 0
    ran = cli("estimate", "--model", "gpt2", "--gpu", "h100-sxm-80gb", "--bucket-gb", "1")
    assert ran.code == 2
    assert "did you mean '--bucket-gib'" in ran.err


def test_what_is_used_most_comes_first(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = {line.split()[1]: line for line in cli("estimate", "--help").out.splitlines() if line.startswith("│ --")}
    assert "One of sft, lora, qlora, pretrain, dpo, grpo, ppo, reward ..." in lines["--job"]
    assert "One of lora, qlora, dora, p-tuning, prefix-tuning, ia3, adalora, oft ..." in lines["--adapter"]


def test_debug_is_shown(cli: Cli) -> None:
    assert "--debug" in cli("--help").out
