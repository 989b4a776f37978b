"""The tools that are read, each found by its file in `tools`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.importers import tools

if TYPE_CHECKING:
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Tool


@cache
def all_tools() -> dict[str, Tool]:
    """The tools by name."""
    modules = (module.name for module in pkgutil.iter_modules(tools.__path__) if not module.ispkg)
    loaded = (importlib.import_module(f"{tools.__name__}.{name}") for name in sorted(modules))
    found: list[Tool] = [module.TOOL for module in loaded if hasattr(module, "TOOL")]
    return {tool.name: tool for tool in found}


def tool_named(name: str) -> Tool:
    """The tool that a user names. Raises InputError: there is none."""
    known = all_tools()
    for each in known.values():
        if name.lower() in (each.name, *each.aliases):
            return each
    hint = did_you_mean(name, known) or f"known are {', '.join(sorted(known))}"
    raise InputError(Problem(f"no tool is called '{name}'", Location("--from"), hint))


def tool_of(source: Source) -> Tool | None:
    """The tool whose file this is most surely; None where no tool knows it."""
    sure = [(tool.recognises(source), tool) for tool in all_tools().values()]
    best, tool = max(sure, key=lambda each: each[0])
    return tool if best > 0 else None
