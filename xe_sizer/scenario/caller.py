"""Who asks a question: how the caller names a key in a message, and writes down the call that asks it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from xe_sizer.frozen import frozen


class Caller(Protocol):
    """The words of one way to ask."""

    @property
    def name(self) -> str:
        """What stands for the place of a key that nobody gave."""
        ...

    def place(self, key: str) -> str:
        """What a message calls the argument that sets a dotted scenario key, or another argument by its name."""
        ...

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        """The call that asks a question about a scenario file with keys set, and with the user's profile folders."""
        ...


@frozen
class CommandLine:
    """`xe-sizer estimate job.yaml --gpus 16`.

    options : option of each dotted key; two_way : keys of switches that can be put off with --no-...
    """

    options: Mapping[str, str]
    two_way: frozenset[str]
    name: str = "command line"

    def place(self, key: str) -> str:
        return f"--{self.options.get(key, key)}"

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        words = ["xe-sizer", question, *([str(path)] if path is not None else [])]
        for key, value in keys.items():
            option = self.place(key)
            if value is True:
                words.append(option)
            elif value is False and key in self.two_way:
                words.append(f"--no-{self.options[key]}")
            elif value is not False:
                words += [option, _text(value)]
        for folder in folders:
            words += ["--profiles", str(folder)]
        return shlex.join(words)


@frozen
class PythonCall:
    """`xe_sizer.estimate(xe_sizer.load('job.yaml'), gpus=16, layout={'tp': 2})`."""

    function: str

    @property
    def name(self) -> str:
        return f"{self.function}()"

    def place(self, key: str) -> str:
        return f"{self.function}({key})"

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        arguments = [f"xe_sizer.load({str(path)!r})"] if path is not None else []
        arguments += [f"{name}={value!r}" for name, value in nested(keys).items()]
        listed = [str(folder) for folder in folders]
        if listed:
            arguments.append(f"profiles={listed!r}")
        return f"xe_sizer.{question}({', '.join(arguments)})"


def nested(keys: Mapping[str, object]) -> dict[str, Any]:
    """Values by dotted key as groups of keys: {"layout.tp": 2} is {"layout": {"tp": 2}}."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        section, _, last = key.rpartition(".")
        (found.setdefault(section, {}) if section else found)[last] = value
    return found


def _text(value: object) -> str:
    """A value as an option takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
