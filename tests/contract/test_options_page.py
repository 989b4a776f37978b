"""docs/reference/options.md is what the keys of scenarios say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from xe_sizer.cli.options import described
from xe_sizer.scenario.options import ALL_OPTIONS

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
options = importlib.import_module("options")

WRITE = "docs/reference/options.md is not what the keys say. Write it anew: python scripts/options.py"


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Other tests register jobs for a while."""
    described.cache_clear()


def test_the_page_is_what_the_keys_say() -> None:
    assert options.PAGE.read_text(encoding="utf-8") == options.page(), WRITE


def test_every_option_stands_on_the_page() -> None:
    text = options.page()
    assert [name for name, key in ALL_OPTIONS.items() if f"`--{name}`" not in text or f"`{key}`" not in text] == []
