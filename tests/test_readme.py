"""Pages show what the command prints. `XE_GOLDEN=write pytest tests/test_readme.py` writes it anew.

A block follows `<!-- output: COMMAND -->`; with `COMMAND | head -N` it has the first lines of a long answer.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from xe_sizer.cli.main import main

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"(<!-- output: xe-sizer (.*?)(?: \| head -(\d+))? -->\n)(.*?)(<!-- /output -->)", re.DOTALL)
MOST_LINES = 12  # the first screen


@pytest.mark.parametrize("page", ["README.md", "docs/money.md"])
def test_a_page_shows_the_real_output(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    def block(match: re.Match[str]) -> str:
        start, command, most, _, end = match.groups()
        assert main(shlex.split(command)) == 0
        lines = capsys.readouterr().out.rstrip().splitlines()
        shown = "\n".join(lines[: int(most)] if most else lines).rstrip()
        return f"{start}```\n{shown}\n```\n{end}"

    readme = ROOT / page
    text = readme.read_text(encoding="utf-8")
    written = SHOWN.sub(block, text)
    if os.environ.get("XE_GOLDEN") == "write":
        readme.write_text(written, encoding="utf-8")
    assert written == readme.read_text(encoding="utf-8")


TRAINER = re.compile(r"Published runs with the hf-trainer stack took .*?; conditions\s+decide")


def printed(capsys: pytest.CaptureFixture[str], command: str) -> str:
    """What a command prints, in one line."""
    assert main(shlex.split(command)) == 0
    return " ".join(capsys.readouterr().out.split())


def test_readme_says_of_the_trainer_what_its_reports_say(capsys: pytest.CaptureFixture[str]) -> None:
    readme = ROOT / "README.md"
    report = printed(capsys, "estimate --model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --job sft --stack hf-trainer")
    said = TRAINER.search(report)
    assert said
    written, found = TRAINER.subn(said[0], readme.read_text(encoding="utf-8"))
    assert found == 1
    if os.environ.get("XE_GOLDEN") == "write":
        readme.write_text(written, encoding="utf-8")
    assert written == readme.read_text(encoding="utf-8")


def test_figures_in_sentences_are_those_of_the_answer_that_is_shown() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = next(match[4] for match in SHOWN.finditer(text))
    picture = re.search(r"add up to ([\d.]+) of the ([\d.]+) GiB that are usable", text)
    assert picture
    assert f"{picture[1]} of {picture[2]} GiB per GPU" in shown
    steps = re.search(r"steps: (\d+)", text)
    assert steps
    assert f"{int(steps[1]):,} steps of" in shown


def test_default_objectives_are_those_by_which_a_service_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"answers must start within (\S+ s) and each user must get (\S+) tokens/s", text)
    assert said
    report = printed(capsys, "serve --model llama-3.1-8b --gpu h100-sxm-80gb --request-rate 2")
    assert f"first token within {said[1]}, {said[2]} tokens/s for each user" in report


def test_readme_shows_the_first_screen_of_one_answer() -> None:
    (shown,) = (match[4] for match in SHOWN.finditer((ROOT / "README.md").read_text(encoding="utf-8")))
    assert shown.startswith("```\nFITS  LoRA of llama-2-70b")
    assert len(shown.splitlines()) - 2 <= MOST_LINES


ACCURACY = re.compile(r"(<!-- accuracy -->\n)(.*?)(<!-- /accuracy -->)", re.DOTALL)
VALIDATED = re.compile(r"`xe-sizer (validate [^`]*reinforcement\.jsonl)`")
MEASURED = {
    "step_time": "time of a step or an iteration",
    "phase_time": "time of a phase",
    "peak_memory": "peak memory",
}


@pytest.mark.slow
def test_reinforcement_learning_has_the_errors_that_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs/reinforcement-learning.md"
    text = page.read_text(encoding="utf-8")
    command = VALIDATED.search(text)
    assert command
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(command[1]), "--format", "json"]) == 0
    groups = {(each["group"], each["quantity"]): each for each in json.loads(capsys.readouterr().out)["summary"]}
    rows = ["| | runs | publications | median error | guessed: runs | median error |", "|---|---:|---:|---:|---:|---:|"]
    for quantity, words in MEASURED.items():
        stated, guessed = groups["all (sources weighted alike)", quantity], groups["guessed", quantity]
        errors = [f"{100 * each['median_abs_error']:.0f} %" for each in (stated, guessed)]
        rows.append(
            f"| {words} | {stated['n']} | {stated['publications']} | {errors[0]} | {guessed['n']} | {errors[1]} |"
        )
    verdicts = [groups["all", "oom"], groups["guessed", "oom"]]
    right = [
        f"{100 * (each['oom']['true_fit'] + each['oom']['true_oom']) / each['n']:.0f} % right" for each in verdicts
    ]
    rows.append(
        f"| whether it fits | {verdicts[0]['n']} | {verdicts[0]['publications']} | {right[0]} | {verdicts[1]['n']} "
        f"| {right[1]} |"
    )
    written, found = ACCURACY.subn(lambda match: match[1] + "\n".join(rows) + "\n" + match[3], text)
    assert found == 1
    if os.environ.get("XE_GOLDEN") == "write":
        page.write_text(written, encoding="utf-8")
    assert written == page.read_text(encoding="utf-8")
