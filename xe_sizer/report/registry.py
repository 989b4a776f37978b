"""Formats by name. A format is one module in `xe_sizer.report.formats`, named as on the command line.

Each has `render(result, options) -> str`; one that can also report on many scenarios has
`render_batch(batch, options) -> str`. Modules are imported when asked for: most runs need one.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.report import formats

if TYPE_CHECKING:
    from xe_sizer.report.batch import Batch
    from xe_sizer.report.options import Options
    from xe_sizer.result.serving import Answer


def format_names() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(formats.__path__)))


def batch_format_names() -> tuple[str, ...]:
    """Formats that can report on many scenarios; imports all of them."""
    return tuple(name for name in format_names() if hasattr(_module(name), "render_batch"))


def render(result: Answer, name: str, options: Options) -> str:
    """`result` in the format `name`, with its line end. Raises InputError if there is no such format."""
    text: str = known_format(name).render(result, options)
    return text


def render_batch(batch: Batch, name: str, options: Options) -> str:
    """`batch` in the format `name`. Raises InputError if that format cannot report on many scenarios."""
    text: str = known_batch_format(name).render_batch(batch, options)
    return text


def known_format(name: str) -> ModuleType:
    names = format_names()
    if name in names:
        return _module(name)
    raise _unknown(name, names)


def known_batch_format(name: str) -> ModuleType:
    if name in format_names() and hasattr(_module(name), "render_batch"):
        return _module(name)
    raise _unknown(name, batch_format_names())


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{formats.__name__}.{name}")


def _unknown(name: str, names: tuple[str, ...]) -> InputError:
    hint = did_you_mean(name, names) or f"one of {', '.join(names)}"
    return InputError(Problem(f"there is no format '{name}' here", Location("--format"), hint))
