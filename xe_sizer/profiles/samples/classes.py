"""Bytes of a text by class: what a tokenizer's yield depends on, counted without it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

CHUNK: Final = 1 << 20
NAMES: Final = (
    "lower", "upper", "digit", "space", "line", "sign",
    "latin", "alphabet", "other", "kana", "han", "hangul", "emoji", "rest",
)  # fmt: skip
"""Letters, digits, blanks, ends of lines and signs in ASCII; then characters by the first byte of their UTF-8."""
CLASSES: Final = len(NAMES)
BYTES_EACH: Final = np.array([1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 0])
"""Bytes of a character of each class; the bytes after the first are counted with it."""
_ASCII: Final = 6  # classes


def _table() -> NDArray[np.float64]:
    """Class of every byte, as rows of zeros and a one."""
    kinds = np.full(256, NAMES.index("rest"))
    kinds[:128] = NAMES.index("sign")
    for name, first, last in (
        ("lower", 0x61, 0x7A), ("upper", 0x41, 0x5A), ("digit", 0x30, 0x39), ("space", 0x20, 0x20),
        ("line", 0x09, 0x0D), ("latin", 0xC2, 0xCB), ("alphabet", 0xCC, 0xDF), ("other", 0xE0, 0xE2),
        ("kana", 0xE3, 0xE3), ("han", 0xE4, 0xE9), ("hangul", 0xEA, 0xEF), ("emoji", 0xF0, 0xF4),
    ):  # fmt: skip
        kinds[first : last + 1] = NAMES.index(name)
    return np.asarray(np.eye(CLASSES)[kinds])


_TABLE: Final = _table()


def class_counts(text: str) -> NDArray[np.float64]:
    """Characters of each class, shape (CLASSES,) [-]."""
    data = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    counts = np.bincount(data[:CHUNK], minlength=256)
    for start in range(CHUNK, data.size, CHUNK):
        counts += np.bincount(data[start : start + CHUNK], minlength=256)
    return np.asarray(counts @ _TABLE)


def size_bytes(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of text with these characters, shape (...,) for counts (..., CLASSES)."""
    return np.asarray(counts @ BYTES_EACH)


def ascii_bytes(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of it that are ASCII."""
    return np.asarray(counts[..., :_ASCII].sum(axis=-1))
