"""A tokenizer of the user's: tokenizer.json, with the chat template beside it (extra: data)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.samples.batches import BATCH_CHARS, in_batches
from xe_sizer.profiles.samples.template import Renderer, TemplateError, template_beside
from xe_sizer.profiles.text_file import missing

if TYPE_CHECKING:
    from types import TracebackType

    from xe_sizer.errors import Where
    from xe_sizer.profiles.samples.fields import Piece
    from xe_sizer.profiles.samples.template import ChatTemplate

MOST_BYTES = 256 << 20  # of a tokenizer.json; the largest known has 35 MB
TOKENS_PER_MESSAGE = 5
"""Assumed: what ChatML, and likewise the template of Llama 3, puts around a message: marks, role, line ends."""
_FILE = "tokenizer.json"


class TokenCounter:
    """Counts the tokens of sequences, chat template included.

    messages_tokens : tokens that are added for each message where no template is applied
    refused : conversations that the template did not render, by reason; they are counted without it
    """

    def __init__(self, path: Path, per_message: int | None) -> None:
        """Raises InputError: no such file, no tokenizer in it, a library that is missing."""
        folder = path if path.is_dir() else path.parent
        self.path = path / _FILE if path.is_dir() else path
        self._tokenizer = _loaded(self.path)
        with _as_bad_input(self.path):
            self._around = len(self._tokenizer.encode(""))  # begin and end of a sequence, as the tokenizer adds them
        self.template: ChatTemplate | None = template_beside(folder) if per_message is None else None
        self.per_message = TOKENS_PER_MESSAGE if per_message is None else per_message
        self.refused: Counter[str] = Counter()
        self._renderer = Renderer(self.template) if self.template else None

    def count(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokens of each sequence [tokens]."""
        texts = [self._text(piece) for piece in pieces]
        lengths = self._lengths([text for text, _ in texts])
        around = (self._around + self.per_message * len(piece.messages) for piece in pieces)
        return [
            length + (0 if templated else added)
            for length, added, (_, templated) in zip(lengths, around, texts, strict=True)
        ]

    def _text(self, piece: Piece) -> tuple[str, bool]:
        """What is tokenised, and whether the template made it."""
        if piece.messages and self._renderer:
            try:
                return self._renderer.text(piece), True
            except TemplateError as error:
                self.refused[str(error)] += 1
        return piece.content, False

    def _lengths(self, texts: Sequence[str]) -> Iterator[int]:
        """Tokens of each text, nothing added; long ones are cut between words."""
        cut = [list(map(_valid, _pieces(text))) for text in texts]
        found = self._counted(part for parts in cut for part in parts)
        for parts in cut:
            yield sum(next(found) for _ in parts)

    def _counted(self, texts: Iterable[str]) -> Iterator[int]:
        for batch in in_batches(texts, len):
            with _as_bad_input(self.path):
                counted = [len(each) for each in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
            yield from counted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renderer:
            self._renderer.__exit__(kind, error, trace)


def is_tokenizer(path: Path) -> bool:
    """Whether a path is that of a tokenizer: the file, or a folder with it."""
    return path.is_file() or (path / _FILE).is_file()


def _pieces(text: str) -> Iterator[str]:
    """The text in parts of at most BATCH_CHARS, cut before a blank where there is one."""
    start = 0
    while len(text) - start > BATCH_CHARS:
        cut = text.rfind(" ", start + 1, start + BATCH_CHARS)
        end = cut if cut > start else start + BATCH_CHARS
        yield text[start:end]
        start = end
    yield text[start:]


def _valid(text: str) -> str:
    """Text that can be UTF-8: half a surrogate pair, which JSON can hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _loaded(path: Path, where: Where = None) -> Any:
    place = Location(str(path))
    try:
        from tokenizers import Tokenizer
    except ImportError:
        hint = "pip install 'xe-sizer[data]'"
        raise InputError(Problem("counting tokens needs the library tokenizers", place, hint)) from None
    if not path.is_file():
        problem = missing(path)
        raise InputError(replace(problem, hint=problem.hint or f"give a local {_FILE}, or the folder that has it"))
    if path.stat().st_size > MOST_BYTES:
        raise InputError(Problem(f"a tokenizer is no larger than {MOST_BYTES >> 20} MiB", place))
    with _as_bad_input(path):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


@contextmanager
def _as_bad_input(path: Path) -> Iterator[None]:
    """What the library raises on a broken tokenizer is bad input; so are its panics, which are no `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, InputError, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001
        hint = "a tokenizer.json as transformers writes it"
        reason = str(error).partition("\n")[0][:200]
        raise InputError(Problem(f"not a tokenizer that can be read: {reason}", Location(str(path)), hint)) from None
