"""docs/reference/physics.md is what the docstrings of the equations say, and every equation says all of it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xe_sizer.graph.operators import Array

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
physics = importlib.import_module("physics")

WRITE = "docs/reference/physics.md is not what the docstrings say. Write it anew: python scripts/physics.py"


def modules() -> list[str]:
    """Every module that may hold an equation; a new one is among them."""
    return [
        f"xe_sizer.{package}.{path.stem}"
        for package in ("laws", "graph", "training", "serving")
        for path in (ROOT / "xe_sizer" / package).glob("*.py")
        if path.stem != "__init__"
    ]


FUNCTIONS = [function for name in modules() for function in physics.functions(importlib.import_module(name))]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__qualname__}")
def test_an_equation_states_formula_symbols_shape_and_source(function: Callable[..., Any]) -> None:
    assert physics.missing(function) == []


def test_every_equation_stands_on_the_page() -> None:
    shown = [(each.module, each.name) for group in physics.GROUPS for each in physics.equations(group)]
    assert sorted(shown) == sorted((function.__module__, function.__qualname__) for function in FUNCTIONS)
    headings = re.findall(r"^### (?!Constants)(.*)$", physics.page(), re.MULTILINE)
    assert len({physics.anchor(heading) for heading in headings}) == len(shown), "links of the index go to names"
    assert {"matmul_time_s", "collective_time_s", "ledger_of", "timeline_of", "step_time", "latencies"} <= {
        name for _, name in shown
    }


@pytest.mark.parametrize("name", modules())
def test_a_constant_says_where_it_comes_from(name: str) -> None:
    silent = [each.name for each in physics.constants(importlib.import_module(name)) if not each.comment]
    assert silent == [] or name.rpartition(".")[2] in physics.CHOICES


def test_the_page_is_what_the_docstrings_say() -> None:
    assert (ROOT / "docs" / "reference" / "physics.md").read_text(encoding="utf-8") == physics.page(), WRITE


def test_what_is_missing_is_found() -> None:
    def area_m2(width: Array, height: float) -> Array:
        """Area of a rectangle.

        Parameters
        ----------
        width : horizontal

        Returns
        -------
        ndarray of float
        """
        return np.asarray(width * height)

    assert physics.missing(area_m2) == [
        "the symbol height",
        "the unit of width",
        "a formula",
        "a source",
        "the unit of the result",
        "the shape of the result",
    ]
