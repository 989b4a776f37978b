"""Layouts on which large mixtures were trained: each is accepted and fits where it ran, and the page says so."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from xe_sizer.units import GIB

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
mixtures = importlib.import_module("mixtures")

PAGE = mixtures.PAGE.read_text(encoding="utf-8")
WRITE = "docs/reference/mixtures.md is not what is estimated. Write it anew: python scripts/mixtures.py"
RUNS = mixtures.runs()
DRIFT = 0.02


def cells(run: Any) -> list[str]:
    """The cells of the one row of a run."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| [{run.run}]"))
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.file)
def test_a_published_layout_is_accepted_and_fits_where_it_ran(run: Any) -> None:
    """On the GPUs and with the degrees that the file says; peaks within a quarter of the published ones."""
    result = mixtures.answer(run)
    assert result.verdict.fits
    assert f"{result.gpus.count:,} " in f"{run.run} ".replace("2,048 H800", "2,048 ")
    expected_s = result.time.step_s.expected
    assert run.step_s is None or 0.3 < expected_s / run.step_s < 1.5
    *_, memory, _, estimated, published, step, ratio = cells(run)
    peak, expected = mixtures.peaks(run, result)
    assert peak is None or expected == pytest.approx(peak, rel=0.25)
    assert float(estimated.removesuffix(" on the card")) == pytest.approx(expected, rel=DRIFT), WRITE
    needed, usable = (float(figure) for figure in memory.split(" of "))
    assert needed == pytest.approx(result.memory.peak_bytes / GIB, rel=DRIFT), WRITE
    assert usable == pytest.approx(result.memory.usable_bytes / GIB, rel=DRIFT), WRITE
    assert run.source[1] in published
    assert float(step.removesuffix(" s")) == pytest.approx(result.time.step_s.expected, rel=DRIFT), WRITE
    assert run.step_s is None or float(ratio) == pytest.approx(result.time.step_s.expected / run.step_s, rel=DRIFT), (
        WRITE
    )


def test_every_file_has_a_published_run_and_half_of_the_figures_are_close() -> None:
    """Fourteen models; half of the steps are within 10 % of what was published, half of the peaks within 5 %."""
    assert {path.stem for path in (ROOT / mixtures.FOLDER).glob("*.yaml")} == {run.file for run in RUNS}
    assert len({run.run.split(",")[0] for run in RUNS}) == 14
    peaks = [float(cells(run)[-4]) / run.allocated_gib - 1.0 for run in RUNS if run.allocated_gib]
    assert median(map(abs, peaks)) <= 0.05
    assert median(abs(float(cells(run)[-1]) - 1.0) for run in RUNS if run.step_s) <= 0.10
