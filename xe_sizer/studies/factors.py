"""A step of a factor whose worth somebody asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Server


@frozen
class Step:
    """One step of a factor in words: scenario keys that change, or the hardware in place.

    server : one of the same build with another accelerator; scale_out : factor on the rate between nodes
    """

    words: str
    values: Mapping[str, object] = field(default_factory=dict)
    server: Server | None = None
    scale_out: float = 1.0
