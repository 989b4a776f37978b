"""The page of serving examples says what they are answered, and how near that is to what was published."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
examples = importlib.import_module("serving_examples")

PAGE = (ROOT / "docs" / "reference" / "serving-examples.md").read_text(encoding="utf-8")
WRITE = "docs/reference/serving-examples.md is not what is answered. Write it anew: python scripts/serving_examples.py"
DRIFT = 0.05


def cells(start: str) -> list[str]:
    """The cells of the one row that starts so."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def value(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize("service", examples.SERVICES, ids=lambda service: service.file)
def test_the_page_has_the_answer(service: Any) -> None:
    result = examples.answer(service)
    _, question, gpus, *_, tokens = cells(f"[{service.file}]")
    assert question == service.question
    assert int(gpus) == result.gpus.count, WRITE
    assert value(tokens) == pytest.approx(result.throughput.output_tokens_per_s, rel=DRIFT), WRITE


@pytest.mark.parametrize("service", examples.SERVICES, ids=lambda service: service.file)
def test_the_page_has_the_published_run_beside_its_prediction(service: Any) -> None:
    """Within a factor of two of what was measured, and as the page says."""
    *_, measured, predicted, ratio = cells(f"{service.file} ")
    found = examples.predicted(service.run)
    assert value(measured) == pytest.approx(service.run.measured, rel=0.01)
    assert value(predicted) == pytest.approx(found, rel=DRIFT), WRITE
    assert value(ratio) == pytest.approx(found / service.run.measured, rel=DRIFT), WRITE
    assert 0.5 < found / service.run.measured < 2.0
