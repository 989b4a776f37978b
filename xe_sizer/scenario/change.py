"""A change of a question: the keys that it sets, the question with them set, and the command that asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.scenario.read import REPLACES, in_place_of, with_flags

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given


@frozen
class Change:
    """Scenario keys to set and how to say so; `effort` orders what a user would rather do first."""

    words: str
    values: Mapping[str, object]
    effort: int

    def contradicts(self, other: Change) -> bool:
        """Whether the two set one key to different values."""
        shared = self.values.keys() & other.values.keys()
        return any(self.values[key] != other.values[key] for key in shared)


def together(changes: list[Change]) -> Change:
    """All of the changes as one, which asks a little more than the one that asks most."""
    *most, last = (change.words for change in changes)
    words = f"{', '.join(most)} and {last}" if most else last
    values = {key: value for change in changes for key, value in change.values.items()}
    return Change(words, values, max(change.effort for change in changes) + min(len(most), 1))


def changed(given: Given, values: Mapping[str, object]) -> Given:
    """The same question with some keys set as flags would set them. Raises InputError."""
    return with_flags(given, flags_with(given.flags, values))


def command(given: Given, values: Mapping[str, object], folders: Iterable[Path] = (), name: str = "estimate") -> str:
    """The call that asks the question with the keys set; `folders` hold the user's own profiles."""
    keys = {**_kept(_from_environment(given), values), **flags_with(given.flags, values)}
    return given.caller.call(name, given.path, keys, folders)


def flags_with(flags: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The flags with some keys set, without those that say the same in another way."""
    return {**_kept(flags, values), **values}


def _kept(flags: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The flags that stay beside the keys that are set: none of those keys, and none that says the same otherwise."""
    replaced = {*values, *(key for name in values for key in REPLACES.get(name, ()))}
    replaced |= {key for key in flags for name in values if in_place_of(name, key)}
    return {key: value for key, value in flags.items() if value is not None and key not in replaced}


def _from_environment(given: Given) -> dict[str, object]:
    """Values that came from XE_SIZER_* variables: the printed command says them itself."""
    found = {}
    for key, origin in given.origin.items():
        if origin == "env":
            value: object = given.values
            for part in key.split("."):
                value = getattr(value, part)
            found[key] = value
    return found
