"""Links of the pages lead somewhere, and every page is found by a question."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Files that a page links to, with the heading."""
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, heading = target.partition("#")
            yield (page.parent / path).resolve() if path else page, heading


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    titles = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    missing = [str(path.relative_to(ROOT)) for path, _ in links(page) if not path.exists()]
    assert missing == []
    lost = [f"{path.name}#{heading}" for path, heading in links(page) if heading and heading not in headings(path)]
    assert lost == []


def test_every_page_stands_in_the_index_or_on_a_page_beside_it() -> None:
    """Those of a folder stand on its own index, or on one of the pages that the index names."""
    named = {path for path, _ in links(INDEX)}
    further = {path for page in named if page.suffix == ".md" for path, _ in links(page)}
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page not in named | {INDEX}] == []
    assert [
        str(page.relative_to(DOCS))
        for page in PAGES
        if page.is_relative_to(DOCS) and page not in named | further | {INDEX}
    ] == []
