"""Questions of architects (examples/plan): one command each, whose answer reads well at 80 and at 160 columns.

XE_GOLDEN=write rewrites the answers instead of comparing them.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import yaml

from xe_sizer.cli.main import main
from xe_sizer.cli.output import Target
from xe_sizer.report.document import Options
from xe_sizer.studies import plan as planning

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden" / "plan"
QUESTIONS = yaml.safe_load((ROOT / "examples" / "plan" / "questions.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["name"])
def test_answer(
    question: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Asked once, and rendered at both widths from what was saved."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(planning.time, "perf_counter", lambda: 0.0)
    saved, asked = tmp_path / "plan.json", shlex.split(question["command"])[1:]
    impossible = int(question["name"] == "impossible")
    assert main([*asked, "--format", "json", "-o", str(saved)]) == impossible
    for width in (80, 160):
        monkeypatch.setattr(Target, "options", lambda *_, width=width, **__: Options(width=width))
        code = main(["render", str(saved)])
        answer = capfd.readouterr()
        assert (code, answer.err) == (impossible, "")
        assert max(map(len, answer.out.splitlines())) <= width or "xe-sizer estimate" in answer.out
        file = GOLDEN / f"{question['name']}-{width}.txt"
        if os.environ.get("XE_GOLDEN") == "write":
            file.write_text(answer.out, encoding="utf-8")
        assert answer.out == file.read_text(encoding="utf-8")


def test_there_are_twelve() -> None:
    assert len(QUESTIONS) == len({question["name"] for question in QUESTIONS}) == 12
