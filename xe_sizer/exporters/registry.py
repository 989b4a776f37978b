"""The exporters, each found by its file in `tools`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.exporters import tools

if TYPE_CHECKING:
    from xe_sizer.exporters.exporter import Exporter


@cache
def exporters() -> dict[str, Exporter]:
    """All exporters by name."""
    modules = (module.name for module in pkgutil.iter_modules(tools.__path__) if not module.ispkg)
    loaded = (importlib.import_module(f"{tools.__name__}.{name}") for name in sorted(modules))
    found: list[Exporter] = [exporter for module in loaded for exporter in getattr(module, "EXPORTERS", ())]
    return {exporter.name: exporter for exporter in found}


def exporter_named(name: str) -> Exporter:
    """The exporter that a user names. Raises InputError: there is none."""
    known = exporters()
    for each in known.values():
        if name.lower() in (each.name, *each.aliases):
            return each
    hint = did_you_mean(name, known) or f"known are {', '.join(known)}"
    raise InputError(Problem(f"nothing is written for '{name}'", Location("--to"), hint))
