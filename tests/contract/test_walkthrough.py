"""docs/walkthrough.md names files that are there, and what it says is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
# A paragraph that is marked waits for the code that it tells of.
TEXT = " ".join(" ".join(each for each in re.split(r"\n(?=\d+\. |\n)", PAGE) if "<!-- check:" not in each).split())
FILES = sorted(set(re.findall(r"\]\(\.\./(xe_sizer/[\w/]+\.\w+)\)", TEXT)))
NAMES = sorted(set(re.findall(r"`(\w+)` in \[`[\w/.]+`\]\(\.\./(xe_sizer/[\w/]+\.py)\)", TEXT)))


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize(("name", "file"), NAMES)
def test_a_name_stands_in_its_file(name: str, file: str) -> None:
    assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8"))


def test_ten_files_are_walked_through() -> None:
    assert len(re.findall(r"^\d+\. ", PAGE, re.MULTILINE)) == 10
    assert len(NAMES) > 20
