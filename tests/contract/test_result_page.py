"""The page on the JSON result names every field that an answer can have."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import xe_sizer.result

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "result.md"


def structs() -> Iterator[type[msgspec.Struct]]:
    for found in pkgutil.iter_modules(xe_sizer.result.__path__):
        module = importlib.import_module(f"{xe_sizer.result.__name__}.{found.name}")
        for _, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, msgspec.Struct) and one.__module__ == module.__name__:
                yield one


def quoted() -> set[str]:
    """Every word that stands in quotes of code."""
    return {
        word
        for code in re.findall(r"`([^`\n]+)`", PAGE.read_text(encoding="utf-8"))
        for word in re.findall(r"\w+", code)
    }


@pytest.mark.parametrize(
    "struct", sorted(structs(), key=lambda one: one.__qualname__), ids=lambda one: one.__qualname__
)
def test_every_field_of_the_result_is_on_its_page(struct: type[msgspec.Struct]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert fields <= quoted(), f"docs/reference/result.md does not name {sorted(fields - quoted())}"


def test_the_walk_finds_the_results() -> None:
    names = {one.__name__ for one in structs()}
    assert {"Verdict", "Candidate", "Result", "ServeResult", "Accuracy"} <= names
