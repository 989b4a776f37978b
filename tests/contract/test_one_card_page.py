"""The page on one card has the published figures beside what is predicted now, and how far off that is."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from xe_sizer.profiles.catalogue import Registry

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
one_card = importlib.import_module("one_card")

WRITE = "docs/reference/one-card.md is not what is predicted. Write it anew: python scripts/one_card.py"


def rows() -> dict[tuple[str, ...], tuple[float, float]]:
    """Published and predicted figures of the page by the other cells of their rows."""
    found = {}
    for line in (ROOT / "docs" / "reference" / "one-card.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) in (6, 7) and cells[-3].replace(",", "").replace(".", "").isdigit():
            published, predicted = (float(cell.replace(",", "")) for cell in cells[-3:-1])
            found[(*cells[:-3], cells[-3])] = (published, predicted)
    return found


PARTS = {"contexts": one_card.contexts, "speeds": one_card.speeds, "offloaded": one_card.offloaded}


@cache
def figures_of(name: str) -> tuple[Any, ...]:
    return tuple(PARTS[name](Registry()))


@pytest.fixture(scope="module", params=PARTS)
def part(request: pytest.FixtureRequest) -> tuple[str, tuple[Any, ...]]:
    return request.param, figures_of(request.param)


def test_the_page_has_every_figure_beside_its_prediction(part: tuple[str, tuple[Any, ...]]) -> None:
    name, figures = part
    page = rows()
    for figure in figures:
        cells = (figure.card, figure.model, figure.how, figure.test)
        key = (figure.model, figure.card, figure.how) if name == "contexts" else cells
        shown = [values for row, values in page.items() if row[:-1] == key]
        near = [values for values in shown if values[0] == pytest.approx(figure.published, rel=0.006)]
        assert near, WRITE
        assert any(values[1] == pytest.approx(figure.predicted, rel=0.05) for values in near), WRITE


def test_half_of_the_figures_are_within_15_percent(part: tuple[str, tuple[Any, ...]]) -> None:
    """Of what is trained and generated, and of prompts with builds that unpack weights in their products."""
    name, figures = part
    kinds = {figure.kind for figure in figures}
    assert len({figure.card for figure in figures}) > 2
    for kind in kinds:
        alike = [f for f in figures if f.kind == kind]
        if kind == one_card.READING:
            alike = [f for f in alike if one_card.OLD_BUILD not in f.source]
        assert median(abs(figure.difference) for figure in alike) < 0.15, (name, kind)


def test_figures_of_one_card_agree_by_format() -> None:
    """The card that is asked about most, in three formats and more from more than one publication."""
    figures = [f for f in figures_of("speeds") if f.card == "rtx-4090" and f.kind == one_card.GENERATING]
    assert len({figure.how for figure in figures}) >= 4
    assert len({figure.source for figure in figures}) >= 3
    assert median(abs(figure.difference) for figure in figures) < 0.15
