"""The pages of the importers say what the tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "scripts" / "import_pages.py"
WRITE = "tables of importers or exporters changed. Write docs/import anew: python scripts/import_pages.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_pages", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_the_tables_say() -> None:
    module = script()
    pages = {page.name: page.read_text(encoding="utf-8") for page in module.FOLDER.glob("*.md")}
    assert pages == module.pages(), WRITE
