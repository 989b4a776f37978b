"""The variables of a reading: what the user gave wins over what the script assigns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell.values import Array, Run, computed_in, text_of, unknown_in

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.values import Runs, Value


class Variables:
    """Names with what they hold; functions have arguments and names of their own."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self._shifted = 0  # arguments of the script that `shift` passed over though they are not known
        self.values: dict[str, Value] = {}
        self.exported: set[str] = set()
        self.arguments: list[tuple[Runs, ...]] = [tuple(self._given_arguments())]
        self._hidden: list[dict[str, Value | None]] = []

    def get(self, name: str, at: int) -> Value | None:
        """What a name holds; None where it is not set. `at` is the place of values that stand in no file."""
        if name.isdigit() and name != "0":
            arguments = self.arguments[-1]
            return arguments[int(name) - 1] if len(name) < 6 and int(name) <= len(arguments) else self._missing()
        if name in self.given:
            return (Run(self.given[name], at, moves=False),)
        value = self.values.get(name)
        return value if value is None or isinstance(value, Array) else _named(name, value)

    def _given_arguments(self) -> Iterator[Runs]:
        at = 1
        while str(at) in self.given:
            yield (Run(self.given[str(at)], 0, moves=False),)
            at += 1

    def lacks_arguments(self) -> bool:
        """Whether the arguments are those of the script and none was given."""
        return len(self.arguments) == 1 and not self.arguments[0]

    def argument_name(self, name: str) -> str:
        """`$1` by its place when the script was started, also after `shift`."""
        return str(int(name) + self._shifted) if name.isdigit() and len(name) < 6 and name != "0" else name

    def shift(self, count: int) -> None:
        if self.lacks_arguments():
            self._shifted += count
        self.arguments[-1] = self.arguments[-1][count:]

    def _missing(self) -> Runs | None:
        """An argument that is not there: of the script not known, of a function empty."""
        return () if len(self.arguments) > 1 else None

    def set(self, name: str, value: Value) -> None:
        if name not in self.given:
            self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)

    def call(self, arguments: tuple[Runs, ...]) -> None:
        self.arguments.append(arguments)
        self._hidden.append({})

    def leave(self) -> None:
        """The end of a function: its own names are gone."""
        self.arguments.pop()
        for name, value in self._hidden.pop().items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def hide(self, name: str) -> None:
        """`local`: what the name held comes back when the function ends."""
        if self._hidden:
            self._hidden[-1].setdefault(name, self.values.get(name))


def _named(name: str, value: Runs) -> Runs:
    """What a program would have given is known to readers by the variable that holds it, as users can set that."""
    if not computed_in(value):
        return value
    whole = len(value) == 1
    return tuple(
        run._replace(text=f"${{{name}}}" if whole else run.text, moves=run.moves and not whole, unknown=(name,))
        if run.computed
        else run
        for run in value
    )


def items_of(value: Value | None) -> tuple[Runs, ...]:
    """The items of a list, or the text as the only one."""
    if value is None:
        return ()
    return tuple(value.items.values()) if isinstance(value, Array) else (value,)


def appended(old: Value | None, new: Value) -> Value:
    """`+=`: text after text, items after items."""
    if isinstance(new, Array):
        items = dict(old.items) if isinstance(old, Array) else ({"0": old} if old else {})
        if new.named:
            return Array(items | dict(new.items), named=True)
        following = 1 + max((int(key) for key in items if key.isdigit()), default=-1)
        return Array(items | {str(following + at): item for at, item in enumerate(new.items.values())})
    if isinstance(old, Array):
        return Array({**old.items, "0": (*old.items.get("0", ()), *new)}, old.named)
    return (*(old or ()), *new)


def is_known(value: Runs) -> bool:
    return not unknown_in(value)


def known_text(value: Runs) -> str | None:
    """The text, or None where a part of it is not known."""
    return text_of(value) if is_known(value) else None
