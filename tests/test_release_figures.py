"""Figures of releases: the page is made of them, and what moved between two of them is told."""

from __future__ import annotations

import importlib
import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import xe_sizer
from xe_sizer.report.answers.validate import HEADLINE

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "scripts"), str(ROOT / "benchmarks")]
pages = importlib.import_module("release_figures")
history = importlib.import_module("history")

BEFORE: dict[str, Any] = {
    "version": "1.0.0",
    "speed": {"estimate": 2.0, "check": 70.0},
    "accuracy": {"step_time": {"runs": 500, "median_error": 0.1}, "oom": {"right": 0.95, "called_fitting": 6}},
}


def after(**changes: float) -> dict[str, Any]:
    """The figures with others; keys are `check`, `median_error` and so on."""
    found = {**deepcopy(BEFORE), "version": "1.1.0"}
    for group in (found["speed"], *found["accuracy"].values()):
        group.update({key: changes[key] for key in group.keys() & changes.keys()})
    return found


def test_the_page_is_what_was_kept() -> None:
    assert pages.PAGE.read_text(encoding="utf-8") == pages.page(), "python scripts/release_figures.py"


@pytest.mark.parametrize("figures", history.releases(), ids=lambda figures: figures["version"])
def test_a_release_has_all_figures(figures: dict[str, Any]) -> None:
    assert {"estimate, from the shell", "estimate, from Python", "serve, from Python"} <= figures["speed"].keys()
    assert any(name.startswith("check of 200") for name in figures["speed"])
    assert all(0.0 < ratio < 1000.0 for ratio in figures["speed"].values())
    later = {"encoding"} if figures["version"] == "1.0.0" else set()  # of records that 1.0.0 had not
    assert set(pages.QUANTITIES) - later <= figures["accuracy"].keys()
    for row in figures["accuracy"].values():
        assert row["runs"] >= row["publications"] > 0
        assert all(0.0 <= row[key] <= 1.0 for key in ("in_range", "right") if key in row)
        assert row.get("median_error", 0.0) <= row.get("p90_error", 1.0)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"estimate": 2.2, "median_error": 0.104}, []),
        ({"estimate": 2.6}, ["estimate"]),
        ({"check": 50.0, "median_error": 0.12}, ["check", "step_time: median_error"]),
        ({"called_fitting": 7, "runs": 501}, ["step_time: runs", "oom: called_fitting"]),
    ],
)
def test_what_moved_is_told(changes: dict[str, float], names: list[str]) -> None:
    assert [name for name, _, _ in history.moved(BEFORE, after(**changes))] == names


def test_the_report_names_both_releases_and_the_change() -> None:
    now = after(check=105.0)
    now["speed"]["plan"] = 16.0
    del now["speed"]["estimate"]
    assert history.report(BEFORE, now).splitlines() == [
        "### Figures of 1.1.0 against release 1.0.0",
        "",
        "| figure | 1.0.0 | now | |",
        "|---|---:|---:|---:|",
        "| estimate | 2 | - | gone |",
        "| check | 70 | 105 | +50% |",
        "| plan | - | 16 | new |",
        "",
        "4 others are as they were.",
    ]
    assert "Nothing moved: 6 figures" in history.report(BEFORE, after())


def test_accuracy_is_that_of_validate() -> None:
    run = {
        "job": "sft", "stack": "nemo", "model": "llama-2-7b", "gpu": "h100-sxm-80gb", "gpus": 8,
        "batch": {"micro": 1, "global": 128}, "seq_len": 4096,
    }  # fmt: skip
    titles = [*"abc"]
    answer = xe_sizer.validate(
        [{"id": each, "source": {"title": each}, **run, "measured": {"step_time_s": 9.0}} for each in titles]
    )
    (step,) = (each for each in answer.summary if each.group == HEADLINE and each.quantity == "step_time")
    found = history.accuracy(answer)
    assert found["step_time"]["median_error"] == pytest.approx(step.median_abs_error, abs=1e-4)
    assert found["step_time, sft"] == found["step_time"]
    assert found["oom"] == {"runs": 3, "publications": 3, "right": 1.0, "out_of_memory": 0, "called_fitting": 0}
    assert {row["publications"] for row in found.values()} == {3}


def test_figures_that_were_kept_are_compared_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history, "RELEASES", tmp_path)
    monkeypatch.setattr(history, "measure", lambda _: pytest.fail("measures"))
    for version, figures in (("1.9.0", BEFORE), ("1.10.0", after(check=90.0))):
        (tmp_path / f"{version}.json").write_text(json.dumps({**figures, "version": version}))
    (tmp_path / "now").write_text(json.dumps(after(check=135.0)))
    monkeypatch.setattr(sys, "argv", ["history.py", "--figures", str(tmp_path / "now")])
    assert history.main() == 0
    out = capsys.readouterr().out
    assert "against release 1.10.0" in out
    assert "| check | 90 | 135 | +50% |" in out
