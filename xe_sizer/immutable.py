"""The base of all records inside the tool: cheap to define, to make and to read, with room for cached properties."""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(msgspec.field,))
class Immutable(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A record is compared by identity, since most hold arrays; a class with `eq=True` compares type and values.

    `msgspec.structs.replace`, `asdict` and `fields` work on it. A replaced record computes its cached properties anew.
    """
