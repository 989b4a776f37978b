"""Files of samples and tokenizers that tests of token lengths share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xe_sizer.datasets.profile import Asked, Measured, measure


def measured(path: Path, asked: Asked | None = None) -> Measured:
    """Token lengths of a file."""
    return measure([path], asked or Asked(), lambda done, total: None)


def lines(path: Path, rows: Iterable[Any]) -> Path:
    """A file of JSON Lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def tokenizer_of_words(folder: Path) -> Path:
    """A folder with a tokenizer in which a word, and a mark between words, is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"unknown": 0}, unk_token="unknown"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder
