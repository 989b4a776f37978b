"""Kinds of adapters. A new kind is a function that registers itself; the package finds its files."""

from __future__ import annotations

import importlib
import pkgutil

from xe_sizer.training.adapters.adapter import (
    ADAPTERS,
    ALL_WEIGHTS,
    AdapterKind,
    AdapterOptions,
    Quantised,
    Trained,
    register,
)

__all__ = [
    "ADAPTERS", "ALL_WEIGHTS", "AdapterKind", "AdapterOptions", "Quantised", "Trained", "discover", "register",
]  # fmt: skip


def discover() -> None:
    """Import every module of the package, so that its kinds register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


discover()
