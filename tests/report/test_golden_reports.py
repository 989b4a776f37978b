"""What users read, as files: a change of words or layout shows up in review.

XE_GOLDEN=write rewrites the files instead of comparing.
"""

import os
from pathlib import Path

import pytest

from xe_sizer.report.document import EXPLAINABLE, Options
from xe_sizer.report.registry import render
from xe_sizer.result.common import Answer

GOLDEN = Path(__file__).parents[1] / "golden" / "report"
CASES = {
    "table-80.txt": ("table", Options(width=80)),
    "table-160.txt": ("table", Options(width=160)),
    "table-explained.txt": ("table", Options(explain=EXPLAINABLE)),
    "table-ascii.txt": ("table", Options(encoding="ascii")),
    "comment.md": ("markdown", Options()),
    "annotations.txt": ("github", Options(file="jobs/llama.yaml")),
    "junit.xml": ("junit", Options(file="jobs/llama.yaml")),
    "numbers.csv": ("csv", Options()),
}


@pytest.mark.parametrize("job", ["lora", "too_big", "chat", "unservable", "overloaded", "benchmark"])
@pytest.mark.parametrize("case", CASES)
def test_report(request: pytest.FixtureRequest, job: str, case: str) -> None:
    result: Answer = request.getfixturevalue(job)
    name, options = CASES[case]
    text = render(result, name, options)
    file = GOLDEN / f"{job.replace('_', '-')}-{case}"
    if os.environ.get("XE_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
