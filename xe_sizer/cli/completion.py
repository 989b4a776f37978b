"""What a shell may put in place of a word that is begun: options' words, names of profiles, files.

Imported when a shell asks, never by a command.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xe_sizer.profiles.finder import KINDS, Finder
from xe_sizer.scenario.options import OPTIONS, SERVE_OPTIONS

_BESIDE = {  # options and arguments that set no key
    "--among": ("gpu", "server"),
    "name": tuple(KINDS),
}
_FIXED = {"--color": ("auto", "always", "never"), "kind": tuple(KINDS)}


def completions(parameter: Any, begun: str) -> list[str] | None:
    """Words that complete what is begun; None where the shell should complete names of files.

    parameter : an option or an argument, as the parser has it
    """
    name = parameter.name if parameter.param_type_name == "argument" else parameter.opts[0]
    words = _words(name)
    if words is None or begun.startswith((".", "/", "~")):
        return None
    return [word for word in words if word.startswith(begun.lower())]


def _words(name: str) -> Iterable[str] | None:
    if name in _FIXED:
        return _FIXED[name]
    if name == "--format":
        from xe_sizer.report.registry import format_names

        return format_names()
    if name in _BESIDE:
        return _profiles(_BESIDE[name])
    option = name.removeprefix("--")
    key = OPTIONS.get(option) or SERVE_OPTIONS.get(option)
    if key is None:
        return None
    kinds = tuple(kind.name for kind in KINDS.values() if kind.scenario_key == key)
    return _profiles(kinds) if kinds else _choices(option, key)


def _profiles(kinds: Iterable[str]) -> list[str]:
    """Names of profiles, those in the folders of XE_SIZER_PROFILES among them."""
    folders = os.environ.get("XE_SIZER_PROFILES", "").split(os.pathsep)
    finder = Finder([Path(folder) for folder in folders if folder])
    return [name for kind in kinds for name in finder.names(kind)]


def _choices(option: str, key: str) -> tuple[str, ...]:
    from xe_sizer.cli.options import described

    return described(option, key).choices
