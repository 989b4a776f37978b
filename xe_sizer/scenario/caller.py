"""Who asks a question: how the caller names a key in a message, and writes down the call that asks it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from xe_sizer.immutable import Immutable


class Caller(Protocol):
    """The words of one way to ask."""

    @property
    def name(self) -> str:
        """What stands for the place of a key that nobody gave."""
        ...

    def place(self, key: str) -> str:
        """What a message calls the argument that sets a dotted scenario key, or another argument by its name."""
        ...

    def setting(self, key: str, value: object = None) -> str:
        """What a hint tells to write to set a dotted key to a value; without a value, the key as it is written."""
        ...

    def settings(self, keys: Mapping[str, object]) -> str:
        """What a hint tells to write to set dotted keys to values."""
        ...

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        """The call that asks a question about a scenario file with keys set, and with the user's profile folders."""
        ...


NAMED_PRICE = {"cost.price_per_gpu_hour": "--price"}
"""Options that set one entry of a key by name, where it is not the option of the key itself."""


class CommandLine(Immutable):
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
            words += self._words(key, value)
        for folder in folders:
            words += ["--profiles", str(folder)]
        return shlex.join(words)

    def setting(self, key: str, value: object = None) -> str:
        return self.place(key) if value is None else self.settings({key: value})

    def settings(self, keys: Mapping[str, object]) -> str:
        return shlex.join(word for key, value in keys.items() for word in self._words(key, value))

    def _words(self, key: str, value: object) -> list[str]:
        """The option that sets a key, with its value; none for a switch that is off unless told otherwise."""
        if value is True:
            return [self.place(key)]
        if isinstance(value, Mapping):
            option = NAMED_PRICE.get(key, self.place(key))
            return [word for name, item in value.items() for word in (option, f"{name}={_text(item)}")]
        if value is False:
            return [f"--no-{self.options[key]}"] if key in self.two_way else []
        return [self.place(key), _text(value)]


class PythonCall(Immutable):
    """`xe_sizer.estimate(xe_sizer.load('job.yaml'), gpus=16, layout={'tp': 2})`."""

    function: str

    @property
    def name(self) -> str:
        return f"{self.function}()"

    def place(self, key: str) -> str:
        return f"{self.function}({key})"

    def setting(self, key: str, value: object = None) -> str:
        return key if value is None else self.settings({key: value})

    def settings(self, keys: Mapping[str, object]) -> str:
        return ", ".join(_keywords(keys))

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        arguments = [f"xe_sizer.load({str(path)!r})"] if path is not None else []
        arguments += _keywords(keys)
        listed = [str(folder) for folder in folders]
        if listed:
            arguments.append(f"profiles={listed!r}")
        return f"xe_sizer.{question}({', '.join(arguments)})"


class ToolCall(PythonCall):
    """`estimate {"scenario": {"model": "llama-3.1-8b", "gpus": 16}}`, as an agent calls a tool."""

    def settings(self, keys: Mapping[str, object]) -> str:
        return json.dumps(nested(keys))[1:-1]

    def call(self, question: str, path: Path | None, keys: Mapping[str, object], folders: Iterable[Path]) -> str:
        return f"{question} {json.dumps({'scenario': nested(keys)})}" if keys else question


def _keywords(keys: Mapping[str, object]) -> list[str]:
    """Values by dotted key as a Python call takes them."""
    return [f"{name}={value!r}" for name, value in nested(keys).items()]


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
