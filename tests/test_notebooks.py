"""The notebooks of examples/ run from a fresh kernel, and show what they give today.

`XE_GOLDEN=write pytest tests/test_notebooks.py` writes their outputs anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import xe_sizer

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])(?<!\w-)\d[\d,]*(?:\.\d+)?")
SVG, HTML, TEXT = "image/svg+xml", "text/html", "text/plain"
WRITE = "XE_GOLDEN=write pytest tests/test_notebooks.py"
NEAR = 0.05  # share by which a number may differ and the output need not be written anew


def read(file: Path) -> Any:
    return nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]


def outputs(notebook: Any) -> Iterator[tuple[str, str]]:
    """What each cell shows, for people who look and as text: a chart by its words, a table without its layout."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data") or {TEXT: output.text}
            for kind in (SVG, HTML) if SVG in data or HTML in data else (TEXT,):
                if kind in data:
                    yield cell.id, re.sub(r"<style.*?</style>|<[^>]+>|\s+", " ", "".join(data[kind]), flags=re.DOTALL)


def numbers(text: str) -> Iterator[tuple[float, float]]:
    """The numbers of a text, and by how much each may differ: a share of it or, from 10, a unit of its last digit."""
    for shown in NUMBER.findall(text):
        value, digits = float(shown.replace(",", "")), len(shown.partition(".")[2])
        yield value, max(NEAR * value, 10.0**-digits if value >= 10.0 else 0.0)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs_and_shows_what_comes_of_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kept = read(file)
    run = read(file)
    for cell in run.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    resources = {"metadata": {"path": str(file.parent)}}
    NotebookClient(run, timeout=60, kernel_name="python3", resources=resources, record_timing=False).execute()
    if os.environ.get("XE_GOLDEN") == "write":
        run.metadata = kept.metadata  # without the release of Python
        nbformat.write(run, file)  # type: ignore[no-untyped-call]
        kept = run
    was, now = list(outputs(kept)), list(outputs(run))
    assert [cell for cell, _ in now] == [cell for cell, _ in was]
    for (cell, shown), (_, today) in zip(was, now, strict=True):
        assert NUMBER.split(today) == NUMBER.split(shown), f"{cell}: {WRITE}"
        for (value, near), (value_today, _) in zip(numbers(shown), numbers(today), strict=True):
            assert abs(value_today - value) <= near, f"{cell}: {value_today}, not {value}: {WRITE}"


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_every_cell_ran_without_a_word_on_stderr(file: Path) -> None:
    notebook = read(file)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(output.get("name") != "stderr" for cell in code for output in cell.outputs)
    assert str(ROOT) not in file.read_text(encoding="utf-8")
    assert file.stat().st_size < 200_000


def test_links_of_notebooks_lead_somewhere() -> None:
    for file in NOTEBOOKS:
        text = "\n".join(cell.source for cell in read(file).cells if cell.cell_type == "markdown")
        links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
        assert links
        assert [link for link in links if not (file.parent / link).exists()] == []


def test_numbers_may_differ_a_little_and_counts_not_at_all() -> None:
    assert list(numbers("1 of 16 GPUs, 1,200 s")) == [(1.0, 0.05), (16.0, 1.0), (1200.0, 60.0)]
    assert list(numbers("llama-3.1-70b in 2.5 h")) == [(2.5, 0.125)]


def test_charts_of_an_answer_are_those_of_its_page() -> None:
    answer = xe_sizer.estimate(model="llama-3.2-1b", gpu="h100-sxm-80gb", gpus=8, details=True)
    charts = answer.charts()
    assert {"Time of the whole job", "Memory of the worst GPU", "Time of a step"} <= charts.keys()
    for title, chart in charts.items():
        assert chart.startswith("<svg ")
        assert f">{title}</title>" in chart
        assert chart._repr_svg_() == chart
        assert repr(chart) == f"<chart of {len(chart):,} characters>"
