"""Formats by name. A format is one module in `xe_sizer.report.formats`, named as on the command line.

Each says what it lays out of an answer (`SHOWS`), which endings of files mean it (`ENDINGS`), and how (`render`). So
every format takes every answer. Modules are imported when asked for: most runs need one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.report import formats as modules

if TYPE_CHECKING:
    from xe_sizer.report.document import Foot, Options
    from xe_sizer.result.common import Answer

Shows = Literal["answer", "document", "rows", "findings"]
DEFAULT = "table"


class Format(msgspec.Struct, frozen=True):
    """How an answer may look.

    shows : the answer itself, or what its reporter makes of it: a document, rows or findings
    render : lays that out, with its line end
    """

    name: str
    shows: Shows
    endings: tuple[str, ...]
    render: Callable[[Any, Options], str]

    @property
    def details(self) -> bool:
        """Whether it shows more than verdicts."""
        return self.shows != "findings"

    @property
    def prose(self) -> bool:
        """Whether it lays out a document for people."""
        return self.shows == "document"

    @property
    def whole(self) -> bool:
        """Whether it shows everything that the answer has."""
        return self.shows == "answer"


def format_names() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(modules.__path__)))


def known_format(name: str) -> Format:
    """Raises InputError if there is no such format."""
    names = format_names()
    if name not in names:
        hint = did_you_mean(name, names) or f"one of {', '.join(names)}"
        raise InputError(Problem(f"there is no format '{name}'", Location("--format"), hint))
    return _format(name)


def format_of_ending(ending: str) -> Format:
    """The format that the ending of a file means, with its dot. Raises InputError if none does."""
    found = next((each for each in formats() if ending.lower() in each.endings), None)
    if found is None:
        hint = f"known are {', '.join(known_endings())}; or name one before it, as in json:FILE"
        raise InputError(Problem(f"no format has the ending '{ending}'", Location("--output"), hint))
    return found


def known_endings() -> list[str]:
    return sorted(ending for each in formats() for ending in each.endings)


def render(answer: Answer, name: str, options: Options) -> str:
    """The answer in the format of that name, with its line end. Raises InputError if there is no such format."""
    format_ = known_format(name)
    if format_.shows == "answer":
        return format_.render(answer, options)
    from xe_sizer.report.answers import reporter

    shown = getattr(reporter(answer.question), format_.shows)(answer, options)
    if format_.prose:  # the document, or the first screen of it alone, with its foot
        shown = replace(shown.brief if options.brief else shown, foot=lambda: _foot(answer))
    return format_.render(shown, options)


def _foot(answer: Answer) -> Foot:
    """Found when a format asks for it: most do not."""
    from xe_sizer.report.foot import build_foot

    return build_foot(answer)


def formats() -> Iterator[Format]:
    """All of them, by name."""
    return map(_format, format_names())


def _format(name: str) -> Format:
    module = importlib.import_module(f"{modules.__name__}.{name}")
    return Format(name, module.SHOWS, module.ENDINGS, module.render)
