"""A Hugging Face `config.json`, read key by key, with every problem noted instead of the first one raised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import show
from xe_sizer.profiles.text_file import read_text

MAX_COUNT = 10**9
MAX_LAYERS = 10**5


def load_json(path: Path) -> tuple[dict[str, Any], str]:
    """The object that a JSON file holds, and the file's text.

    Infinity and NaN, which Python writes and JSON has not, are read as they stand in keys that decide nothing here.

    Raises
    ------
    InputError    unreadable or oversized file, malformed JSON (line and column), nested too deeply, no object
    """
    text = read_text(path)
    name = str(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = Location(name, error.lineno, error.colno)
        reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
        raise InputError(Problem(f"not valid JSON: {reason}", where)) from None
    except RecursionError:
        raise InputError(Problem("nested too deeply", Location(name, 1, 1))) from None
    except ValueError as error:
        raise InputError(Problem(f"not valid JSON: {error}", Location(name, 1, 1))) from None
    if not isinstance(data, dict):
        raise InputError(Problem(f"a config must be a JSON object, not {show(data)}", Location(name, 1, 1)))
    return data, text


class Config:
    """The keys of one configuration; `problems` and `assumptions` grow as they are read.

    A key counts as absent when it is null. Names in a call are alternatives; the first present one is read.
    """

    def __init__(self, path: Path, data: dict[str, Any], text: str) -> None:
        self.path, self.data, self.text = path, data, text
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self.guesses: list[str] = []

    def has(self, *names: str) -> bool:
        return any(self.data.get(name) is not None for name in names)

    def count(self, *names: str, default: int | None = None, least: int = 1, most: int = MAX_COUNT) -> int:
        """A whole number from `least` to `most`; a missing key without a default is a problem."""
        name = self._present(names)
        if name is None:
            if default is None:
                others = f" (or '{names[1]}')" if len(names) > 1 else ""
                self.fail(f"missing key '{names[0]}'{others}")
            return least if default is None else default
        value = self.data[name]
        if type(value) is not int:
            self.fail(f"'{name}' must be a whole number, not {show(value)}", name)
        elif not least <= value <= most:
            self.fail(f"'{name}' must be between {least} and {most}, not {value}", name)
        else:
            return value
        return least

    def optional_count(self, *names: str) -> int | None:
        return self.count(*names) if self.has(*names) else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(f"'{name}' must be true or false, not {show(value)}", name)
            return default
        return value

    def fraction(self, *names: str, default: float) -> float:
        """A number above 0 and up to 1."""
        name = self._present(names)
        value = default if name is None else self.data[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            self.fail(f"'{name}' must be a number above 0 and up to 1, not {show(value)}", name)
            return default
        return float(value)

    def word(self, *names: str) -> str | None:
        name = self._present(names)
        value = self.data.get(name) if name else None
        if value is not None and not isinstance(value, str):
            self.fail(f"'{name}' must be text, not {show(value)}", name)
            return None
        return value

    def items(self, name: str) -> list[Any] | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, list):
            self.fail(f"'{name}' must be a list, not {show(value)}", name)
            return None
        return value

    def section(self, name: str) -> Config:
        """A nested object, empty when it is absent; its problems are this configuration's."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, dict):
            self.fail(f"'{name}' must be an object, not {show(value)}", name)
            value = None
        nested = Config(self.path, value or {}, self.text)
        nested.problems, nested.assumptions, nested.guesses = self.problems, self.assumptions, self.guesses
        return nested

    def fail(self, message: str, key: str | None = None, hint: str | None = None) -> None:
        self.problems.append(Problem(message, self.locate(key), hint))

    def assume(self, text: str) -> None:
        self.assumptions.append(text)

    def guess(self, text: str) -> None:
        """Assume what the whole shape rests on."""
        self.assume(text)
        self.guesses.append(text)

    def locate(self, key: str | None) -> Location:
        """Where a key first stands in the file; the file alone when it does not."""
        found = re.search(rf'"{re.escape(key)}"\s*:', self.text) if key else None
        if not found:
            return Location(str(self.path))
        before = self.text[: found.start()]
        return Location(str(self.path), before.count("\n") + 1, found.start() - before.rfind("\n"))

    def _present(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self.data.get(name) is not None), None)
