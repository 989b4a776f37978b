"""A picture as SVG: text that a page holds, or a file of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from xe_sizer.report.picture import Bars, Chart, Curves, Stack, Strip, Tornado
from xe_sizer.report.svg import bars, chart, curves, stack, strip, tornado
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Rect, Stroke, Text
from xe_sizer.report.svg.style import ALONE, STYLE

if TYPE_CHECKING:
    from xe_sizer.report.document import Picture
    from xe_sizer.report.svg.shapes import Drawn, Shape

FILE_WIDTH = 600.0  # pixels, where nobody says another width
MARGIN = 12.0  # around a picture in a file of its own
_TITLE_ROW = 26.0
_DRAW: dict[type, Callable[[Any], Drawn]] = {
    Stack: stack.draw,
    Bars: bars.draw,
    Chart: chart.draw,
    Tornado: tornado.draw,
    Curves: curves.draw,
    Strip: strip.draw,
}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def drawn(picture: Picture) -> Drawn:
    """The shapes of a picture."""
    return _DRAW[type(picture.drawing)](picture.drawing)


def svg(picture: Picture, name: str) -> str:
    """The picture as an element of a page, whose style sheet has STYLE. name : of the picture in the page"""
    found = drawn(picture)
    return _element(picture, found.shapes, f"0 0 {_n(WIDTH)} {_n(found.height)}", name, "")


def svg_file(picture: Picture) -> str:
    """The picture as a file of its own, with its title, its note and its colours."""
    found = drawn(picture)
    title = Text(0.0, -10.0, picture.title, "start", "b", 1.2 * SIZE)
    box = f"{_n(-MARGIN)} {_n(-_TITLE_ROW - MARGIN)}"
    size = f"{_n(WIDTH + 2 * MARGIN)} {_n(found.height + _TITLE_ROW + 2 * MARGIN)}"
    paper = Rect(-MARGIN, -_TITLE_ROW - MARGIN, WIDTH + 2 * MARGIN, found.height + _TITLE_ROW + 2 * MARGIN, "paper")
    style = f"<style>{ALONE}{STYLE}</style>\n"
    element = _element(picture, (paper, title, *found.shapes), f"{box} {size}", "picture", style)
    return element.replace("<svg ", f'<svg width="{_n(FILE_WIDTH)}" ', 1) + "\n"


def _element(picture: Picture, shapes: tuple[Shape, ...], box: str, name: str, style: str) -> str:
    body = "\n".join(map(_shape, shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="{box}" font-size="{_n(SIZE)}" role="img" '
        f'aria-labelledby="{name}-title {name}-says">\n'
        f'<title id="{name}-title">{_text(picture.title)}</title>\n'
        f'<desc id="{name}-says">{_text(picture.says)}</desc>\n{style}{body}\n</svg>'
    )


def _shape(shape: Shape) -> str:
    match shape:
        case Text():
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            size = "" if shape.size == SIZE else f' font-size="{_n(shape.size)}"'
            place = f'x="{_n(shape.x)}" y="{_n(shape.y)}"'
            return f'<text class="{shape.style}" {place}{anchor}{size}>{_text(shape.text)}</text>'
        case Rect():
            place = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
            return _said(f'rect class="{shape.style}" {place}', "rect", shape.says)
        case Stroke():
            lines = "".join("M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in part) for part in shape.lines)
            return _said(f'path class="{shape.style}" d="{lines}{"Z" * shape.closed}"', "path", shape.says)


def _said(element: str, name: str, says: str) -> str:
    return f"<{element}><title>{_text(says)}</title></{name}>" if says else f"<{element}/>"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _n(value: float) -> str:
    """A coordinate with a decimal at most."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"
