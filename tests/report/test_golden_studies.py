"""What machines read of searches, comparisons and many scenarios, as files; the answers are saved ones.

XE_GOLDEN=write rewrites the files instead of comparing.
"""

import os
from pathlib import Path

import pytest

from xe_sizer.cli.render import read_answer
from xe_sizer.report.document import Options
from xe_sizer.report.registry import known_format, render

GOLDEN = Path(__file__).parents[1] / "golden" / "studies"
SAVED = Path(__file__).parent / "fixtures" / "studies"


@pytest.mark.parametrize("name", ["csv", "junit", "github"])
@pytest.mark.parametrize("study", sorted(file.stem for file in SAVED.glob("*.json")))
def test_study(study: str, name: str) -> None:
    text = render(read_answer(str(SAVED / f"{study}.json")), name, Options())
    file = GOLDEN / f"{study}-{name}{next(iter(known_format(name).endings), '.txt')}"
    if os.environ.get("XE_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
