"""Links of the pages lead somewhere, and every page is found by a question."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
OUTSIDE = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
PAGES = sorted([*OUTSIDE, *DOCS.rglob("*.md")])
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
    missing = [str(path.relative_to(ROOT)) for path, _ in links(page) if not path.is_file()]  # the site has no folders
    assert missing == []
    lost = [f"{path.name}#{heading}" for path, heading in links(page) if heading and heading not in headings(path)]
    assert lost == []


def test_every_page_is_two_clicks_from_the_index() -> None:
    """Those of a folder stand on its own index, or on one of the pages that the index names."""
    named = {path for path, _ in links(INDEX)}
    further = {path for page in named if page.suffix == ".md" for path, _ in links(page)}
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page not in named | {INDEX}] == []
    of_the_site = [page for page in PAGES if page.parent == ROOT or page.is_relative_to(DOCS)]
    assert [str(page.relative_to(ROOT)) for page in of_the_site if page not in named | further | {INDEX}] == []


def test_the_menu_of_the_site_has_every_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    menu = importlib.import_module("conf").menu()
    below = [page for pages in menu.values() for page in pages]
    assert len(set(below)) == len(below)
    of_the_site = [page for page in PAGES if page.parent == ROOT or page.is_relative_to(DOCS)]
    assert {*below, "docs/README"} == {page.relative_to(ROOT).with_suffix("").as_posix() for page in of_the_site}


def test_a_docstring_is_described_with_its_formula_typeset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    conf = importlib.import_module("conf")
    docstring = """Time of `C` = A_ * B [s].

    t = t0 + (a x b_f)^2      where a <= 8
        a = 2 m

Parameters
----------
m, n : rows of
    A_ [-]

Source: a|b."""
    described = list(conf.restructured(docstring.splitlines()))
    (table,) = (line for line in described if "<table" in line)
    assert [line for line in described if line and line != table] == [
        r"Time of ``C`` = A\_ \* B [s].", ".. raw:: html", "**Parameters**", "- ``m``, ``n``: rows of", r"  A\_ [-]",
        r"Source: a\|b.",
    ]  # fmt: skip
    rows = ET.fromstring(table.strip()).findall("tr")
    assert ["".join(row.itertext()) for row in rows] == ["t=t0+(a×bf)2where a <= 8", "a=2m"]
    assert ["".join(power.itertext()) for power in rows[0].iter("msup")] == ["(a×bf)2"]
    assert [[part.text for part in low] for low in rows[0].iter("msub")] == [["t", "0"], ["b", "f"]]


def test_an_indented_block_without_an_equation_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    conf = importlib.import_module("conf")
    described = list(conf.restructured(["Do.", "", "    one", "      two", "", "End."]))
    assert [line for line in described if line] == ["Do.", "::", "    one", "      two", "End."]
