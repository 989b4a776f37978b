"""What operators and charts publish of their resources, trimmed to what exports use (`scripts/trim_schema.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from xe_sizer.interop.write import ToolFiles

SCHEMAS = Path(__file__).parent / "exporters" / "schemas"


jsonschema = pytest.importorskip("jsonschema")


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))["schema"])


def documents(written: ToolFiles) -> list[dict[str, Any]]:
    """All objects of an export, with those that lie beside it or in the values of a chart."""
    texts = (written.text, *written.beside.values())
    found = [each for text in texts for each in yaml.safe_load_all(text)]
    return [*found, *(each for one in found for each in one.get("extraObjects", ()))]


def problems(written: ToolFiles, chart: str) -> Iterator[str]:
    """What the schemas of the objects find wrong; a file without a kind has values of the chart."""
    for each in documents(written):
        for error in validator(each.get("kind") or chart).iter_errors(each):
            yield f"{each.get('kind', chart)} {error.json_path}: {error.message}"
