"""Jobs that a scenario may name: the training methods, and inference.

Methods stand above scenarios and say here what they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

INFERENCE = "inference"
"""The one job that is no training."""


class _Kind(Protocol):
    @property
    def aliases(self) -> tuple[str, ...]: ...


_TRAINED: list[Mapping[str, _Kind]] = []


def trains(methods: Mapping[str, _Kind]) -> None:
    """Make known training methods by their names; the mapping may still grow."""
    _TRAINED.append(methods)


def job_names() -> tuple[str, ...]:
    """All jobs that are known."""
    return (*(name for names in _TRAINED for name in names), INFERENCE)


def job_aliases() -> dict[str, str]:
    """What else people call the jobs."""
    trained = {alias: name for methods in _TRAINED for name, kind in methods.items() for alias in kind.aliases}
    return trained | dict.fromkeys(("serve", "serving"), INFERENCE)
