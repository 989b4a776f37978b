"""What drawings are made of: texts, lines, boxes and paths, in units of the picture, which is WIDTH units wide."""

from __future__ import annotations

from typing import Literal, NamedTuple

from xe_sizer.frozen import frozen

WIDTH = 420.0
SIZE = 12.0  # of text
ASCENT, DESCENT = 0.8, 0.22  # of letters above and below their line, of the size
# Advance widths of DejaVu Sans [of the size], the widest of the usual system fonts: other fonts take less room.
_ADVANCES = {
    0.30: "ijlI|'",
    0.34: " .,:;/\\",
    0.42: "frt()[]-",
    0.56: "cksvxyz*",
    0.64: "abdeghnopqu0123456789FJLEST$_",
    0.74: "ABCDGHKNOPQRUVXYZw",
    0.84: "<>=+~×±≤≥#&",
    1.00: "mMW%@→▲▼…",
}
_ADVANCE = {letter: advance for advance, letters in _ADVANCES.items() for letter in letters}
_UNKNOWN = 0.75  # a letter of another alphabet; ideographs take a whole square
_SQUARE = 1.05
_BOLD = 1.12
Anchor = Literal["start", "middle", "end"]


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    def inside(self, other: Box) -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


@frozen
class Text:
    """A line of text whose baseline is at `y`; `style` names a class of the style sheet."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    style: str = "t"
    size: float = SIZE

    @property
    def bold(self) -> bool:
        return self.style == "b"

    @property
    def box(self) -> Box:
        width = text_width(self.text, self.size, self.bold)
        left = {"start": self.x, "middle": self.x - width / 2, "end": self.x - width}[self.anchor]
        return Box(left, self.y - ASCENT * self.size, left + width, self.y + DESCENT * self.size)


@frozen
class Rect:
    """A filled box; `says` is what a pointer over it shows."""

    x: float
    y: float
    width: float
    height: float
    style: str
    says: str = ""


@frozen
class Stroke:
    """A path of straight lines, each from its first point on; filled where the style fills."""

    lines: tuple[tuple[tuple[float, float], ...], ...]
    style: str
    closed: bool = False
    says: str = ""


Shape = Text | Rect | Stroke


@frozen
class Drawn:
    shapes: tuple[Shape, ...]
    height: float


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """Units that a text takes at most."""
    ems = sum(_ADVANCE.get(letter, _UNKNOWN if ord(letter) < 0x2E80 else _SQUARE) for letter in text)
    return ems * size * (_BOLD if bold else 1.0)


def fitted(text: str, room: float, size: float = SIZE, bold: bool = False) -> str:
    """The text, or as much of its beginning as there is room for, with an ellipsis."""
    if text_width(text, size, bold) <= room:
        return text
    kept = len(text)
    while kept and text_width(text[:kept].rstrip() + "…", size, bold) > room:
        kept -= 1
    return text[:kept].rstrip() + "…"


def wrapped(text: str, room: float, size: float = SIZE) -> list[str]:
    """The text in lines that have room, broken between words; a word without room is cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [fitted(each, room, size) for each in lines]


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Stroke:
    return Stroke((((x1, y1), (x2, y2)),), style)


def within(text: Text, left: float = 0.0, right: float = WIDTH) -> Text:
    """The text, moved sideways as far as it would leave the picture."""
    box = text.box
    shift = max(left - box.left, 0.0) or min(right - box.right, 0.0)
    return Text(text.x + shift, text.y, text.text, text.anchor, text.style, text.size)
