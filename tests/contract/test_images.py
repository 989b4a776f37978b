"""The picture of the README is what the example comes to."""

from __future__ import annotations

import importlib
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
pictures = importlib.import_module("pictures")
WRITE = "docs/images is not what the example comes to. Write it anew: python scripts/pictures.py"


def test_the_picture_is_up_to_date() -> None:
    assert pictures.IMAGE.read_text(encoding="utf-8") == pictures.image(), WRITE


def test_the_picture_is_small_and_needs_nothing() -> None:
    text = pictures.IMAGE.read_text(encoding="utf-8")
    assert len(text.encode()) < 30_000
    ET.fromstring(text)
    assert not re.search(r"url\(|href|@import|<script", text)


def test_the_readme_shows_it_in_words_too() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (alternative,) = re.findall(r"!\[([^\]]+)\]\(docs/images/memory\.svg\)", readme)
    assert len(alternative.split()) > 5
