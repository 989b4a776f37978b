"""How answers look in a notebook: a line, the first screen, a fragment of a page, a table of data."""

from __future__ import annotations

import csv
import html
import io
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import xe_sizer
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.common import Answer

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "gpus": 8}
SCENARIO = Path(__file__).parents[1] / "examples" / "sft-llama-3.1-8b.yaml"
ANSWERS: dict[str, Callable[[], Answer]] = {
    "estimate": lambda: xe_sizer.estimate(**JOB),
    "no": lambda: xe_sizer.estimate(model="llama-3.1-70b", gpu="rtx-4090", gpus=1),
    "plan": lambda: xe_sizer.plan(**{**JOB, "gpus": None}, limits={"max_gpus": 16}),
    "serve": lambda: xe_sizer.serve(**JOB, serve={"users": 10}),
    "compare": lambda: xe_sizer.compare({"job": "lora"}, {"job": "sft"}, **JOB),
    "sensitivity": lambda: xe_sizer.sensitivity(**JOB),
    "check": lambda: xe_sizer.check(SCENARIO),
}


@pytest.fixture(scope="module", params=ANSWERS)
def answer(request: pytest.FixtureRequest) -> Answer:
    return ANSWERS[request.param]()


class Balanced(HTMLParser):
    """Which tags are open, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("wbr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_its_repr_is_one_short_line(answer: Answer) -> None:
    line = repr(answer)
    assert line.startswith(f"<{answer.question}: ")
    assert line.endswith(">")
    assert "\n" not in line
    assert len(line) < 200


def test_printed_it_is_the_first_screen(answer: Answer) -> None:
    lines = str(answer).splitlines()
    assert len(lines) <= 14
    assert str(answer) == render(answer, "table", Options(brief=True)).rstrip()


def test_a_notebook_shows_a_fragment_that_leaves_its_page_alone(answer: Answer) -> None:
    said = answer._repr_html_()
    page = Balanced()
    page.feed(said)
    assert page.open == []
    assert not page.tags & {"html", "body", "head", "script", "h1"}
    style = said.partition("<style>")[2].partition("</style>")[0]
    selectors = [rule.partition("{")[0].strip() for rule in style.split("}") if rule.strip()]
    assert [each for each in selectors if not each.startswith(".xe-sizer ")] == []
    first = str(answer).splitlines()[0].partition("  ")[2]
    assert html.unescape(first)[:40] in page.text


def test_its_table_of_data_has_the_rows_of_csv(answer: Answer) -> None:
    frame = answer.to_frame()
    head, *rows = csv.reader(io.StringIO(render(answer, "csv", Options())))
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == head
    assert len(frame) == len(rows) > 0


def test_figures_of_a_table_of_data_are_numbers() -> None:
    frame = ANSWERS["compare"]().to_frame().set_index("alternative")
    lora, sft = ANSWERS["compare"]().alternatives  # type: ignore[attr-defined]
    assert frame.loc["job=lora", "total_s"] == lora.result.time.total_s.expected
    assert frame.loc["job=sft", "total_s"] / frame.loc["job=lora", "total_s"] > 1
    assert sft.result.gpus.count == frame.loc["job=sft", "gpus"]


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(xe_sizer.InputError) as caught:
        ANSWERS["estimate"]().to_frame()
    assert str(caught.value) == "to_frame(): pandas is not installed\n  hint: pip install pandas"


def test_pandas_is_imported_when_a_table_is_asked_for() -> None:
    code = (
        "import sys, xe_sizer\n"
        f"answer = xe_sizer.estimate(**{JOB!r})\n"
        "repr(answer), str(answer), answer._repr_html_()\n"
        "before = 'pandas' in sys.modules\n"
        "answer.to_frame()\n"
        "sys.exit(0 if (before, 'pandas' in sys.modules) == (False, True) else 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_load_reads_a_file_of_another_tool(tmp_path: Path) -> None:
    file = tmp_path / "axolotl.yml"
    file.write_text(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 2\n"
        "gradient_accumulation_steps: 4\nnum_epochs: 1\nsequence_len: 2048\nbf16: true\noptimizer: adamw_torch\n"
    )
    job = xe_sizer.load(file)
    answer = xe_sizer.estimate(job, gpu="h100-sxm-80gb", gpus=4)
    assert (answer.scenario["job"], answer.scenario["stack"]) == ("lora", "axolotl")
    assert answer.scenario["train"]["global_batch"] == 2 * 4 * 4
