"""What a user passes beside the files."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

YAML, JSON = "yaml", "json"
"""How an import is written: as a scenario file, or with the origins of its values."""


@frozen
class Asked:
    """Flags of an import; None and empty where they were not given.

    tool, version : of `--from TOOL@VERSION`
    hardware : model, server, gpu, gpus and nodes by scenario key, as they were passed
    given : values of variables of scripts and templates, by name
    """

    tool: str | None = None
    version: str | None = None
    hardware: Mapping[str, object] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
