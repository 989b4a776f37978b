"""Pages show what the command prints. `XE_GOLDEN=write pytest tests/test_readme.py` writes it anew.

A block follows `<!-- output: COMMAND -->`; with `COMMAND | head -N` it has the first lines of a long answer.
"""

from __future__ import annotations

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
