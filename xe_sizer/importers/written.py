"""What a foreign file says: plain values, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.errors import Location


@frozen
class Written:
    """A value as a file has it, and where it stands."""

    value: object
    where: Location


@frozen(eq=True)
class Unread:
    """A value that is not known from the file: its text, and why."""

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


class Expression(str):
    """Code whose value the file does not tell, as text: `torch.bfloat16`, `arguments.batch`."""

    __slots__ = ()


Keys = Mapping[str, Written]
"""Dotted keys of a foreign file with their values. Lists stay lists, as long as they hold no groups of keys."""
