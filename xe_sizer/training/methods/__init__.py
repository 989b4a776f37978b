"""Training methods. A new method is one file here that registers itself; the package finds its files."""

from __future__ import annotations

import importlib
import pkgutil

from xe_sizer.training.methods.method import METHODS, Method, MethodKind, MethodOptions, Rollout, register

__all__ = ["DEFAULT_METHOD", "METHODS", "Method", "MethodKind", "MethodOptions", "Rollout", "discover", "register"]


def discover() -> None:
    """Import every module of the package, so that its methods register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


discover()
DEFAULT_METHOD = next(kind for kind in METHODS.values() if kind.default)
