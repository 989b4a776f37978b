"""What to buy, on one page: a row and a bar for every kind of server, on a screen, a phone and paper."""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path

import pytest
from devtools import Browser

pytestmark = [pytest.mark.browser, pytest.mark.parametrize("page", ["purchase"], indirect=True)]
KINDS = ("dell-xe9680-h100", "dell-xe9680-h200", "aws-p5.48xlarge", "rtx-5090", "t4")
FIRST = "document.querySelector('.pictures figure')"
TABLE = """[...document.querySelectorAll('section')].find(each => each.innerText.startsWith('Kinds of hardware'))"""
ROWS = f"[...{TABLE}.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"


@pytest.mark.parametrize("width", [1200, 400])
def test_the_first_picture_has_every_kind_against_the_deadline(browser: Browser, page: Path, width: int) -> None:
    """A bar with a whisker for each plan, one of them marked, and the line of the limit in sight."""
    browser.open(page, width)
    assert browser.evaluate(f"{FIRST}.querySelector('figcaption').innerText") == "Kinds of hardware"
    texts = browser.evaluate(f"[...{FIRST}.querySelectorAll('text')].map(each => each.textContent)")
    assert all(any(kind in text for text in texts) for kind in KINDS)
    assert [text for text in texts if text.startswith("recommended: ")]
    plans = sum(bool(re.search(r"\d to \d", text)) for text in texts)
    drawn = f"{FIRST}.querySelectorAll('.whisker').length"
    assert browser.evaluate(drawn) == plans >= 3
    assert browser.evaluate(f"{FIRST}.querySelectorAll('rect.chosen').length") == 1
    limit = f"(() => {{ const box = {FIRST}.querySelector('.mark').getBoundingClientRect(); "
    assert browser.evaluate(limit + "return box.left > 0 && box.right < innerWidth; })()")
    assert any("limit 24 h" in text for text in texts)


@pytest.mark.parametrize("width", [1200, 400])
def test_the_table_has_a_row_for_each_that_is_read_in_whole_words(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    rows = browser.evaluate(ROWS)
    assert {row[0] for row in rows} == set(KINDS)
    assert rows[0][-1].startswith("recommended, limits met (")
    outcomes = {row[0]: row[-1] for row in rows}
    assert outcomes["rtx-5090"].startswith("misses limits: max_hours is 24 h, the nearest plan takes ")
    assert outcomes["t4"] == "no layout fits on up to 64 GPUs"
    lines = (
        f"[...{TABLE}.querySelectorAll('td.n')].filter(each => getComputedStyle(each).whiteSpace != 'nowrap').length"
    )
    assert browser.evaluate(lines) == 0  # a figure and its unit stay on one line


def test_the_printed_page_says_why_and_what_each_comes_to(browser: Browser, page: Path) -> None:
    pypdf = pytest.importorskip("pypdf", reason="pypdf reads what was printed: pip install -e '.[dev]'")
    browser.open(page, 1200)
    reader = pypdf.PdfReader(io.BytesIO(browser.pdf(210 / 25.4, 297 / 25.4)))
    printed = _squeezed("".join(sheet.extract_text() for sheet in reader.pages))
    browser.open(page, 1200)
    rows = browser.evaluate(ROWS)
    for cell in (cell for row in rows for cell in row):
        assert _squeezed(cell) in printed
    assert "thefewestserversof" in printed
    assert len(reader.pages) <= 4


def _squeezed(text: str) -> str:
    """A text without spaces, which line ends are too; ligatures as their letters."""
    return "".join(unicodedata.normalize("NFKC", text).split())
