"""Jobs that a scenario may name: the training methods, and inference.

Methods stand above scenarios and say here what they are called.
"""

from __future__ import annotations

from collections.abc import Collection

INFERENCE = "inference"
"""The one job that is no training."""
_TRAINED: list[Collection[str]] = []


def trains(names: Collection[str]) -> None:
    """Make known a collection of names of training methods; it may still grow."""
    _TRAINED.append(names)


def job_names() -> tuple[str, ...]:
    """All jobs that are known."""
    return (*(name for names in _TRAINED for name in names), INFERENCE)
