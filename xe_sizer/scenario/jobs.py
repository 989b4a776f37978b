"""Jobs and kinds of adapters that a scenario may name: the training methods, and inference; what learns beside them.

Methods and adapters stand above scenarios and say here what they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

INFERENCE = "inference"
"""The one job that is no training."""
NO_ADAPTERS = "none"
"""Where the model's own weights learn."""


class _Kind(Protocol):
    @property
    def aliases(self) -> tuple[str, ...]: ...


_TRAINED: list[Mapping[str, _Kind]] = []
_ADAPTERS: list[Mapping[str, _Kind]] = []


def trains(methods: Mapping[str, _Kind], adapters: Mapping[str, _Kind]) -> None:
    """Make known training methods and kinds of adapters by their names; the mappings may still grow."""
    _TRAINED.append(methods)
    _ADAPTERS.append(adapters)


def job_names() -> tuple[str, ...]:
    """All jobs that are known."""
    return (*(name for names in _TRAINED for name in names), INFERENCE)


def job_aliases() -> dict[str, str]:
    """What else people call the jobs."""
    return _aliases(_TRAINED) | dict.fromkeys(("serve", "serving"), INFERENCE)


def adapter_names() -> tuple[str, ...]:
    """All kinds of adapters that are known, and none."""
    return (*(name for names in _ADAPTERS for name in names), NO_ADAPTERS)


def adapter_aliases() -> dict[str, str]:
    """What else people call the adapters."""
    return _aliases(_ADAPTERS) | dict.fromkeys(("full", "false"), NO_ADAPTERS)


def _aliases(groups: list[Mapping[str, _Kind]]) -> dict[str, str]:
    return {alias: name for kinds in groups for name, kind in kinds.items() for alias in kind.aliases}
