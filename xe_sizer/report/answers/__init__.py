"""One module per kind of answer, named as `Answer.question` is; see `Reporter` for what each of them has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from xe_sizer.report.document import Document, Finding, Options
    from xe_sizer.result.common import Answer


class Reporter(Protocol):
    """What a module of this package has.

    ANSWER : type of the answer, also of one that was saved as JSON
    document : all of it, as blocks for prose
    rows : flat rows for a spreadsheet, first the names of the columns; SI units, None for what is not known
    findings : verdicts, as test cases and as remarks on a pull request
    """

    ANSWER: type[Answer]

    def document(self, answer: Any, options: Options) -> Document: ...
    def rows(self, answer: Any, options: Options) -> Iterable[Sequence[object]]: ...
    def findings(self, answer: Any, options: Options) -> Iterable[Finding]: ...


def reporter(question: str) -> Reporter:
    """The module of a kind of answer; imported when asked for, as most runs need one."""
    return cast(Reporter, importlib.import_module(f"{__name__}.{question}"))


def reporters() -> Iterator[Reporter]:
    """All of them, `estimate` first: what cannot be told apart is read as its answer."""
    names = sorted((module.name for module in pkgutil.iter_modules(__path__)), key=lambda name: name != "estimate")
    return map(reporter, names)
