"""Pages show what the command prints. `XE_GOLDEN=write pytest tests/test_readme.py` writes it anew.

A block follows `<!-- output: COMMAND -->`; with `COMMAND | head -N` it has the first lines of a long answer.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

import xe_sizer
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


TRAINER = re.compile(
    r"(Hugging Face Trainer took )(\S+)( times as long as predicted in the median of )(\d+)"
    r"( published runs, and one in ten\n)(\S+)( times or more)"
)


def test_readme_says_of_the_trainer_what_its_reports_say() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    answer = xe_sizer.estimate(model="llama-3.1-8b", gpu="h100-sxm-80gb", gpus=8, job="sft", stack="hf-trainer")
    assert answer.time.basis
    bias = answer.time.basis.bias
    assert bias
    said = rf"\g<1>{bias.median:.1f}\g<3>{bias.runs}\g<5>{bias.slowest:.1f}\g<7>"
    written, found = TRAINER.subn(said, text)
    assert found == 1
    if os.environ.get("XE_GOLDEN") == "write":
        readme.write_text(written, encoding="utf-8")
    assert written == readme.read_text(encoding="utf-8")


def test_readme_shows_the_first_screen_of_one_answer() -> None:
    (shown,) = (match[4] for match in SHOWN.finditer((ROOT / "README.md").read_text(encoding="utf-8")))
    assert shown.startswith("```\nFITS  LoRA of llama-2-70b")
    assert len(shown.splitlines()) - 2 <= MOST_LINES
