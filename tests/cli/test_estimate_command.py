"""`xe-sizer estimate` on the command line, with a saved answer for the estimator."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.report.document import EXPLAINABLE
from xe_sizer.scenario.options import OPTIONS

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]


def test_yes_is_0_and_no_is_1(cli: Cli, estimator: Estimator) -> None:
    assert cli("estimate", "--model", "m", "--job", "lora").code == 0
    no = cli("estimate", "--model", "m", "--job", "sft")
    assert no.code == 1
    assert no.out.startswith("DOES NOT FIT")
    assert no.err == ""
    assert cli("estimate", "--model", "m", "--job", "sft", "--exit-zero").code == 0


def test_flags_reach_the_estimator_typed_and_with_their_origin(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: m\nlayout: {tp: 2, pp: 4}\n")
    ran = cli(
        "estimate", file, "--tp", "8", "--mean-tokens", "114.5", "--lora-targets", "qkv,o",
        "--ideal", "--zero=1", "--tokens", "1e9",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    (scenario,) = estimator.given
    values = scenario.values
    assert (values.layout.tp, values.layout.pp, values.layout.zero) == (8, 4, 1)
    assert (values.data.mean_tokens, values.data.tokens) == (114.5, 1e9)
    assert (values.lora.targets, values.efficiency.ideal) == (("qkv", "o"), True)
    assert (scenario.origin["layout.tp"], scenario.origin["layout.pp"]) == ("flag", "file")


def test_every_scenario_option_is_offered_and_described(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = cli("estimate", "--help-all").out
    assert [name for name in OPTIONS if f"--{name} " not in text] == []
    panels = ("Job", "Hardware", "Data", "Training", "Layout", "Method", "Limits", "Efficiency", "Output")
    assert all(f"─ {panel} " in text for panel in panels)


def test_all_problems_of_the_flags_are_reported_at_once(cli: Cli, estimator: Estimator) -> None:
    ran = cli("estimate", "--model", "m", "--tp", "017", "--pp", "four", "--padding", "packt", "--samples", "")
    assert ran.code == 2
    assert ran.out == ""
    places = [line.split(":")[0] for line in ran.err.splitlines() if line.startswith("--")]
    assert sorted(places) == ["--model", "--padding", "--pp", "--samples", "--tp"]
    assert "Traceback" not in ran.err
    assert estimator.given == []


def test_a_bad_file_names_its_line(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: m\nlayuot: {tp: 2}\n")
    ran = cli("estimate", file)
    assert ran.code == 2
    assert f"{file}:2:1: unknown key 'layuot'" in ran.err
    assert "'layout'" in ran.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["estimate", "--modle", "x"], "--model"),
        (["estimat"], "'estimate'"),
        (["estimate", "--model", "m", "--format", "jsno"], "'json'"),
        (["estimate", "--model", "m", "--explain", "memry"], "'memory'"),
        (["estimate", "--model", "m", "--color", "alway"], "'always'"),
    ],
)
def test_a_slip_of_the_keyboard_gets_a_suggestion(
    cli: Cli, estimator: Estimator, arguments: list[str], hint: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert hint in ran.err
    assert "Traceback" not in ran.err


def test_explain_may_be_repeated(cli: Cli, estimator: Estimator) -> None:
    out = cli("estimate", "--model", "m", "--explain", "sources", "--explain", "memory").out
    assert "How the memory adds up" in out
    assert "NVIDIA H100 data sheet" in out


def test_color_on_request_only(cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in cli("estimate", "--model", "m").out
    assert "\x1b[" in cli("estimate", "--model", "m", "--color", "always").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in cli("estimate", "--model", "m", "--color", "always").out


@pytest.mark.parametrize(
    ("name", "arguments", "start"),
    [
        ("answer.json", [], '{"schema_version":1'),
        ("answer.csv", [], "section,name,value,unit"),
        ("answer.md", [], "### "),
        ("ANSWER.HTML", [], "<!DOCTYPE html>"),
        ("answer.xml", [], "<?xml"),
        ("answer.txt", [], "FITS  "),
        ("answer", ["--format", "csv"], "section,name,value,unit"),
        ("answer.pdf", ["--format", "csv"], "section,name,value,unit"),
        ("answer.json", ["--format", "csv"], '{"schema_version":1'),
    ],
)
def test_the_ending_of_the_output_file_chooses_the_format(
    cli: Cli, estimator: Estimator, tmp_path: Path, name: str, arguments: list[str], start: str
) -> None:
    file = tmp_path / name
    assert cli("estimate", "--model", "m", "-o", file, *arguments).code == 0
    assert "".join(file.read_text().split()).startswith("".join(start.split()))


def test_output_file_is_replaced_whole(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text("old")
    ran = cli("estimate", "--model", "m", "--job", "sft", "--format", "json", "-o", file)
    assert (ran.code, ran.out) == (1, "")
    assert json.loads(file.read_text())["verdict"]["fits"] is False
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_failed_run_leaves_the_old_output_alone(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text("old")
    estimator.raises = InputError(Problem("no", Location("x.yaml", 1, 2)))
    ran = cli("estimate", "--model", "m", "-o", file)
    assert (ran.code, ran.err) == (2, "x.yaml:1:2: no\n")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_output_that_cannot_be_written_is_bad_input(cli: Cli, estimator: Estimator, tmp_path: Path) -> None:
    ran = cli("estimate", "--model", "m", "-o", tmp_path / "missing" / "answer.json")
    assert ran.code == 2
    assert "cannot write: No such file or directory" in ran.err
    assert cli("estimate", "--model", "m", "-o", tmp_path).code == 2


def test_profile_folders_must_exist(cli: Cli, estimator: Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XE_SIZER_PROFILES", "/no/such/folder")
    ran = cli("estimate", "--model", "m", "--profiles", "/nor/this")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "--profiles: '/nor/this' is not a folder",
        "XE_SIZER_PROFILES: '/no/such/folder' is not a folder",
    ]


def test_a_defect_is_3_and_one_line(cli: Cli, estimator: Estimator) -> None:
    estimator.raises = ZeroDivisionError("division by zero")
    ran = cli("estimate", "--model", "m")
    assert ran.code == 3
    assert ran.err.startswith("xe-sizer: internal error: ZeroDivisionError: division by zero. Please report")
    assert "Traceback" not in ran.err
    assert "Traceback" in cli("--debug", "estimate", "--model", "m").err


def test_interrupted_is_130(cli: Cli, estimator: Estimator) -> None:
    estimator.raises = KeyboardInterrupt()
    ran = cli("estimate", "--model", "m")
    assert ran.code == 130
    assert "Traceback" not in ran.err


def test_explain_all_is_every_part(cli: Cli, estimator: Estimator) -> None:
    parts = [option for part in EXPLAINABLE for option in ("--explain", part)]
    assert cli("estimate", "--model", "m", "--explain", "all").out == cli("estimate", "--model", "m", *parts).out


def test_experts_of_a_token_are_as_asked(cli: Cli) -> None:
    """All eight of Mixtral's: 46.7 of 46.7 billion weights are at work, and not 12.9."""
    asked = ("estimate", "--model", "mixtral-8x7b", "--gpu", "h100-sxm-80gb", "--gpus", "16", "--job", "sft")
    two, eight = (json.loads(cli(*asked, "--format", "json", *more).out) for more in ((), ("--experts-per-token", "8")))
    assert eight["scenario"]["train"]["experts_per_token"] == 8
    assert eight["time"]["step_s"]["expected"] > 1.5 * two["time"]["step_s"]["expected"]
    refused = cli(*asked, "--experts-per-token", "9")
    assert refused.code != 0
    assert "mixtral-8x7b has 8 experts, not 9 for a token" in refused.err
    assert "llama-2-7b has no experts" in cli(*asked[:2], "llama-2-7b", *asked[3:], "--experts-per-token", "2").err
