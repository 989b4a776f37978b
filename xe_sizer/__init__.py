"""Sizes GPU infrastructure for large language models; the functions here are described in docs/api.md.

What they need is imported when the first of them is used, so that `import xe_sizer` itself takes no time.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing takes longer than all else here
if TYPE_CHECKING:
    from xe_sizer.api import Scenario, check, compare, estimate, load, plan, sensitivity, serve, validate
    from xe_sizer.errors import InputError
    from xe_sizer.version import __version__

_HOMES = {"InputError": "xe_sizer.errors", "__version__": "xe_sizer.version"}
__all__ = [
    "InputError",
    "Scenario",
    "__version__",
    "check",
    "compare",
    "estimate",
    "load",
    "plan",
    "sensitivity",
    "serve",
    "validate",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'xe_sizer' has no attribute '{name}'")
    return getattr(import_module(_HOMES.get(name, "xe_sizer.api")), name)


def __dir__() -> list[str]:
    return list(__all__)
