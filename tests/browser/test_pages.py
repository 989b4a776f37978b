"""Every kind of report in a browser: on a wide and a narrow screen, light and dark, and on paper."""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path

import pytest
from devtools import Browser

pytestmark = pytest.mark.browser
OUTSIDE = (Path(__file__).parent / "outside.js").read_text(encoding="utf-8")
# Texts that a reader of the page sees.
TEXTS = """(() => { const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    if (node.data.trim() && !node.parentElement.closest("title, desc, style")) found.push(node.data);
  return found; })()"""
# The least contrast of texts against what is behind them, WCAG 2.2: 4.5 for text.
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
  const light = (colour) => parts(colour).map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [.2126, .7152, .0722][place], 0);
  const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  const page = light(getComputedStyle(document.body).backgroundColor), found = [];
  for (const each of document.querySelectorAll("h1, h2, p, td, th, li, dt, dd, figcaption, svg text")) {
    const style = getComputedStyle(each), inside = /^on/.test(each.getAttribute("class") || "");
    const colour = light(each.localName === "text" ? style.fill : style.color);
    const behind = inside ? light(getComputedStyle(each.previousElementSibling).fill === "none"
      ? getComputedStyle(each.previousElementSibling.previousElementSibling).fill
      : getComputedStyle(each.previousElementSibling).fill) : page;
    if (ratio(colour, behind) < 4.5) found.push(`${ratio(colour, behind).toFixed(2)}: ${each.textContent}`);
  }
  return found; })()"""
PAPER = {"A4": (210 / 25.4, 297 / 25.4), "Letter": (8.5, 11.0)}
MARGIN_IN = 16 / 25.4
PX = 96.0  # an inch


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_nothing_is_outside_the_screen_or_over_something_else(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width, scheme)
    assert browser.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("page", ["compare"], indirect=True)
def test_a_comparison_is_read_on_a_phone_without_scrolling(browser: Browser, page: Path) -> None:
    browser.open(page, 400, "light")
    cut = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    assert browser.evaluate(cut) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(browser: Browser, page: Path, scheme: str) -> None:
    browser.open(page, 1200, scheme)
    assert browser.evaluate(CONTRAST) == []


@pytest.mark.parametrize("paper", PAPER)
def test_nothing_is_outside_the_paper(browser: Browser, page: Path, paper: str) -> None:
    browser.open(page, round((PAPER[paper][0] - 2 * MARGIN_IN) * PX), media="print")
    assert browser.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("paper", PAPER)
def test_all_that_the_page_says_is_on_paper(browser: Browser, page: Path, paper: str) -> None:
    pypdf = pytest.importorskip("pypdf", reason="pypdf reads what was printed: pip install -e '.[dev]'")
    browser.open(page, 1200)
    wanted = browser.evaluate(TEXTS)
    reader = pypdf.PdfReader(io.BytesIO(browser.pdf(*PAPER[paper])))
    printed = _squeezed("".join(sheet.extract_text() for sheet in reader.pages))
    assert [text for text in wanted if _squeezed(text) not in printed] == []
    for sheet in reader.pages:
        assert (float(sheet.mediabox.width), float(sheet.mediabox.height)) == pytest.approx(
            tuple(72 * size for size in PAPER[paper]), abs=1.0
        )
        assert _beyond(sheet) == []


CUT = """<!DOCTYPE html><style>p {{ white-space: nowrap; {style} }} svg {{ width: 300px }}</style>
<p>{text}</p><figure><figcaption>a</figcaption>
<svg role="img" viewBox="0 0 100 20"><desc>a</desc>{drawn}</svg></figure>"""


@pytest.mark.parametrize(
    ("style", "drawn", "said"),
    [
        ("", "", "outside the page"),
        ("overflow: hidden; width: 200px", "", "outside its p"),
        ("display: none", '<text x="90" y="12" font-size="12">outside</text>', "outside its text"),
        (
            "display: none",
            '<text y="12" font-size="9">one</text><text x="5" y="13" font-size="9">two</text>',
            "lies over",
        ),
        ("display: none", '<text y="12" font-size="1">tiny</text>', "too small"),
        (
            "display: none",
            '<text y="12" font-size="9">text</text><path class="mark" d="M10 0L10 20"/>',
            "across a line",
        ),
        ("white-space: normal; width: 30px; word-break: break-all", "", "broken within a word"),
    ],
)
def test_the_check_sees_what_a_reader_would_not(
    browser: Browser, tmp_path: Path, style: str, drawn: str, said: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(CUT.format(style=style, drawn=drawn, text="many words " * 60), encoding="utf-8")
    browser.open(file, 1200)
    assert any(said in each for each in browser.evaluate(OUTSIDE))


def _squeezed(text: str) -> str:
    """A text without spaces, which line ends are too; ligatures as their letters."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


def _beyond(sheet: object) -> list[str]:
    """Texts that begin outside the margins of a sheet."""
    box = sheet.mediabox  # type: ignore[attr-defined]
    width, height, margin = float(box.width), float(box.height), 72 * MARGIN_IN - 2
    found: list[str] = []

    def visit(text: str, cm: list[float], tm: list[float], font: object, size: float) -> None:
        x = tm[4] * cm[0] + tm[5] * cm[2] + cm[4]
        y = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        inside = margin <= x <= width - margin and margin <= y <= height - margin
        if text.strip() and not inside:
            found.append(f"{text.strip()[:40]} at {x:.0f}, {y:.0f}")

    sheet.extract_text(visitor_text=visit)  # type: ignore[attr-defined]
    return found
