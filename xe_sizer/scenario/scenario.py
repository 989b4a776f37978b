"""A scenario as the user asked it: its values, where each came from, and how messages name its keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from xe_sizer.immutable import Immutable
from xe_sizer.scenario.options import COMMAND_LINE
from xe_sizer.scenario.schema import INFERENCE

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import Locate
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.scenario.caller import Caller
    from xe_sizer.scenario.schema import ScenarioFile


class Scenario(Immutable):
    """What the user asked, merged from file, environment and flags; nothing resolved yet.

    `origin` has "file", "env" or "flag" for each dotted key that was given. `locate` gives file:line:column,
    or the name of the flag or variable, of a path. `path` with the `document` read from it, `flags` and `environment`
    are what was merged. `caller` says how messages name the flags.
    `invalid_keys` has the dotted keys that were given and are not in `values`: unknown keys, values with a problem.
    `read_as` has the dotted keys whose value was written otherwise than the schema has it, with both; `with_unit` those
    of numbers that were written with a unit.
    """

    values: ScenarioFile
    origin: Mapping[str, str]
    locate: Locate
    path: Path | None
    flags: Mapping[str, object]
    environment: Mapping[str, str]
    invalid_keys: frozenset[str] = frozenset()
    document: Document | None = None
    caller: Caller = COMMAND_LINE
    read_as: Mapping[str, tuple[str, object]] = field(default_factory=dict)
    with_unit: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path | None:
        """Folder of the scenario file."""
        return self.path.parent if self.path else None

    def folder_for(self, key: str) -> Path | None:
        """Where a relative path in a dotted key starts: None (the current folder) for flags and variables."""
        if self.origin.get(key) != "file":
            return None
        other = self.document.stated_in.get(key) if self.document else None
        return other.parent if other else self.folder


def serves(scenario: Scenario) -> bool:
    """Whether a scenario asks for inference: its job says so, or none is named and its file or a flag sets a load.

    Any key of the section `serve` does; variables of the environment stand for every scenario.
    """
    if scenario.values.job is not None:
        return scenario.values.job == INFERENCE
    return any(key.startswith("serve.") and origin != "env" for key, origin in scenario.origin.items())
