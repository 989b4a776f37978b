"""The HTML report through the command line: pictures instead of art, a foot that says how it came about."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xe_sizer import __version__

from .conftest import Ran

Cli = Callable[..., Ran]
ROOT = Path(__file__).parents[2]
DELL = "--model llama-2-70b --server dell-xe9680-h100 --job lora --dataset alpaca --steps 10"
COMMANDS = {
    "estimate": f"estimate {DELL} --gpus 16 --max-hours 24 --price-per-gpu-hour 2.5",
    "plan": f"plan {DELL} --max-gpus 16 --max-hours 24 --price-per-gpu-hour 2.5",
    "serve": "serve --model llama-3.1-8b --gpu h100-sxm-80gb --request-rate 5 --ttft 1 --price-per-gpu-hour 2.5",
    "compare": f"compare {DELL} gpus=8 gpus=16 --price-per-gpu-hour 2.5",
    "sensitivity": f"sensitivity {DELL} --gpus 16",
    "check": f"check {ROOT / 'examples' / 'lora-llama-2-70b.yaml'}",
    "validate": f"validate {Path(__file__).parent / 'runs.jsonl'}",
    "profiles": "profiles list gpu h100",
}
RUN = {
    "job": "sft", "model": "llama-2-7b", "stack": "deepspeed", "gpu": "a100-sxm-80gb", "gpus": 8,
    "layout": {"zero": 2}, "batch": {"micro": 1, "global": 64}, "seq_len": 4096, "recompute": "full",
    "source": {"title": "my own runs"},
}  # fmt: skip
WITHOUT_PICTURE = {"profiles"}
PRICED = {"estimate", "plan", "serve", "compare"}
WITHOUT_SCENARIO = {"check", "validate", "profiles"}


@pytest.fixture
def page(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The page that a command writes on the first day of 2026."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    runs = tmp_path / "runs.jsonl"
    measured = (5.0, 6.0, 7.0)
    runs.write_text(
        "\n".join(json.dumps({**RUN, "id": f"run {n}", "measured": {"step_time_s": n}}) for n in measured),
        encoding="utf-8",
    )

    def written(question: str) -> str:
        file = tmp_path / f"{question}.html"
        command = COMMANDS[question].replace(str(Path(__file__).parent / "runs.jsonl"), str(runs))
        assert cli(*shlex.split(command), "-o", file).code in (0, 1)
        return file.read_text(encoding="utf-8")

    return written


@pytest.mark.parametrize("question", COMMANDS)
def test_pictures_are_drawn_and_no_chart_is_made_of_characters(page: Callable[[str], str], question: str) -> None:
    text = page(question)
    assert bool(re.search("<svg", text)) == (question not in WITHOUT_PICTURE)
    assert text.count('role="img"') == text.count("<svg") == text.count("<figcaption>")
    assert not re.search("[█▌│└┘]", text)
    assert not re.search(r"<script|<link|<iframe|url\(|@import|src=", text)


@pytest.mark.parametrize("question", COMMANDS)
def test_the_foot_says_how_it_came_about(page: Callable[[str], str], question: str) -> None:
    text = page(question)
    foot = html.unescape(re.sub("<[^>]+>", "", text.split("<footer>")[1]))
    assert f"xe-sizer {question} {shlex.split(COMMANDS[question])[1] if question != 'validate' else ''}" in foot
    assert "-o" not in foot.split()
    assert f"xe-sizer {__version__}, 2026-01-01" in foot
    assert ("Assumptions" in foot) == (question not in WITHOUT_SCENARIO)
    assert bool(re.search(r"h100-sxm-80gb2\.50( \w+)? an hour", foot)) == (question in PRICED)


def test_the_command_in_the_foot_gives_the_same_answer(page: Callable[[str], str], cli: Cli) -> None:
    text = page("estimate")
    said = re.findall(r"repeats this report</h2><pre><code>(.*?)</code>", text)[0]
    program, *arguments = shlex.split(html.unescape(re.sub("<[^>]+>", "", said)))
    assert program == "xe-sizer"
    again = json.loads(cli(*arguments, "-f", "json").out)
    first = json.loads(cli(*shlex.split(COMMANDS["estimate"]), "-f", "json").out)
    assert again == first


def test_the_same_command_writes_the_same_bytes(page: Callable[[str], str]) -> None:
    assert page("compare") == page("compare")


def test_variables_that_an_answer_read_stand_in_its_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XE_SIZER_STACK", "nemo")
    answer = json.loads(cli(*shlex.split(COMMANDS["estimate"]), "--format=json", "--color", "never").out)
    assert answer["written"]["command"] == f"XE_SIZER_STACK=nemo xe-sizer {COMMANDS['estimate']}"


def test_a_saved_answer_keeps_its_date_and_its_command(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    cli(*shlex.split(COMMANDS["estimate"]), "-o", tmp_path / "saved.json")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    foot = cli("render", tmp_path / "saved.json", "-f", "html").out.split("<footer>")[1]
    assert "2026-01-01" in foot
    assert "render" not in foot


def test_an_answer_of_an_older_version_has_no_date(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    answer: dict[str, Any] = json.loads(cli(*shlex.split(COMMANDS["estimate"]), "-f", "json").out)
    del answer["written"]
    file.write_text(json.dumps(answer), encoding="utf-8")
    ran = cli("render", file, "-f", "html")
    assert ran.code == 0
    assert "The command that repeats" not in ran.out
    assert re.search(rf"<p>xe-sizer {re.escape(__version__)}</p>", ran.out)


@pytest.mark.parametrize("value", ["yesterday", "1e9", "9" * 30])
def test_a_date_that_is_none_is_bad_input(cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    ran = cli("profiles", "list", "gpu", "h100")
    assert ran.code == 2
    assert ran.err.startswith(f"SOURCE_DATE_EPOCH: '{value}' is not a time in whole seconds since 1970")


def test_a_page_says_what_was_asked_and_a_brief_one_has_the_lines_of_the_terminal(cli: Cli, tmp_path: Path) -> None:
    asked = "--model llama-3.1-70b --job sft --samples 50000 --mean-tokens 600 --max-tokens 4096 --epochs 3"
    job = shlex.split(f"plan {asked} --server dell-xe9680-h100 --max-hours 24 --price-per-gpu-hour 2.5 --brief")
    page = tmp_path / "brief.html"
    cli(*job, "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "<b>Job</b> SFT of llama-3.1-70b, 50,000 samples of 600 tokens on average, 3 epochs</p>" in text
    lines = [line for line in cli(*job).out.splitlines()[1:] if line[:1].isalpha()]
    labels = re.findall(r"<tr><th>(.+?)</th>", text[: text.index("<figure>")])
    assert labels == [line.split("  ")[0] for line in lines]
    assert "Next" not in labels
