"""A foreign file as a scenario: the values, where each comes from, and what could not be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.errors import Location
from xe_sizer.frozen import frozen
from xe_sizer.importers.draft import ASSUMED, FLAG, READ, TOOL_DEFAULT
from xe_sizer.profiles.text import name_of
from xe_sizer.profiles.yaml_reader import Document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xe_sizer.importers.draft import Fact, Ignored, Missing, Origin
    from xe_sizer.importers.tool import Tool
    from xe_sizer.profiles.convert import KeyPath

SCHEMA_VERSION = 1
ORIGINS: Mapping[Origin, str] = {READ: "file", TOOL_DEFAULT: "stack", ASSUMED: "default", FLAG: "flag"}
"""What the answers to a scenario call the origin of an imported value."""


@frozen
class ScenarioDocument(Document):
    """A scenario that no file holds: its keys stand where the foreign files state them."""

    facts: Mapping[str, Fact]

    @property
    def places(self) -> tuple[Mapping[KeyPath, Location], Mapping[KeyPath, Location]]:
        """Where the values were read; what was not read stands in the file as a whole."""
        found: dict[KeyPath, Location] = {(): Location(name_of(self.path))}
        for key, fact in self.facts.items():
            found[tuple(key.split("."))] = fact.where or found[()]
        return found, found

    @property
    def origins(self) -> Mapping[str, str]:
        """What the answers to a scenario call the origins of the values."""
        return {key: ORIGINS[fact.origin] for key, fact in self.facts.items()}


@frozen
class Imported:
    """What a foreign file says, as a scenario."""

    tool: Tool
    path: Path
    facts: Mapping[str, Fact]
    ignored: Sequence[Ignored]
    missing: Sequence[Missing]

    @property
    def lost(self) -> list[Ignored]:
        """Keys that change memory or time and that the scenario cannot say."""
        return [each for each in self.ignored if each.effect == "memory or time"]

    @property
    def unknown(self) -> list[Ignored]:
        """Keys that no table has."""
        return [each for each in self.ignored if each.effect == "unknown"]

    def fact_of(self, key: str) -> object:
        """The value of a scenario key; None without one."""
        return self.facts[key].value if key in self.facts else None

    def document(self) -> ScenarioDocument:
        """The scenario as a document whose places are those of the foreign file."""
        facts = {key: fact for key, fact in self.facts.items() if not fact.aside}
        return ScenarioDocument(self.path, "", nested(facts), facts)

    def as_json(self) -> str:
        """The import as DESIGN's contract has it: flat keys, ignored keys, missing keys."""
        scenario = {key: _fact(fact) for key, fact in self.facts.items()}
        ignored = [
            {"key": each.key, "where": _place(each.where), "why": each.why, "effect": each.effect}
            for each in self.ignored
        ]
        missing = [{"key": each.key, "why": each.why, "hint": each.hint} for each in self.missing]
        answer = {
            "schema_version": SCHEMA_VERSION, "tool": self.tool.name, "scenario": scenario, "ignored": ignored,
            "missing": missing,
        }  # fmt: skip
        return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


def nested(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Flat facts as the sections of a scenario."""
    values: dict[str, Any] = {}
    for key, fact in facts.items():
        *sections, last = key.split(".")
        group = values
        for section in sections:
            group = group.setdefault(section, {})
        group[last] = list(fact.written) if isinstance(fact.written, tuple) else fact.written
    return values


def _fact(fact: Fact) -> dict[str, object]:
    told: dict[str, object] = {"value": fact.value, "origin": fact.origin, "where": _place(fact.where)}
    more = {"note": fact.note, "aside": fact.aside}
    return told | {name: said for name, said in more.items() if said}


def _place(where: Location | None) -> str | None:
    return None if where is None else str(where)
