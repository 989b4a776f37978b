"""The pages of physics name every equation, and its docstring, which the documentation site shows, says all of it."""

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
constants = importlib.import_module("constants")

WRITE = "the pages of physics do not have the equations that there are. Write them anew: python scripts/physics.py"


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


def test_every_equation_stands_on_a_page() -> None:
    shown = [(each.module, each.name) for group in physics.GROUPS for each in physics.equations(group)]
    assert sorted(shown) == sorted((function.__module__, function.__qualname__) for function in FUNCTIONS)
    assert {"matmul_time_s", "collective_time_s", "ledger_of", "timeline_of", "step_time", "latencies"} <= {
        name for _, name in shown
    }


@pytest.mark.parametrize("name", modules())
def test_a_constant_says_where_it_comes_from(name: str) -> None:
    silent = [each.name for each in constants.constants(importlib.import_module(name)) if not each.comment]
    assert silent == [] or name.rpartition(".")[2] in constants.CHOICES


def test_the_pages_have_the_equations_that_there_are() -> None:
    written = [physics.FOLDER / "physics.md", *physics.FOLDER.glob("equations/*.md")]
    pages = {page.relative_to(physics.FOLDER).as_posix(): page.read_text(encoding="utf-8") for page in written}
    assert pages == physics.pages(), WRITE
    every = "\n".join(pages.values())
    assert [f.__qualname__ for f in FUNCTIONS if not re.search(rf"[ .]{f.__qualname__}\b", every)] == []


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
