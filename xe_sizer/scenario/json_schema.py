"""The scenario file as a JSON Schema, by which editors complete and check it."""

from collections.abc import Iterator
from typing import Any

from xe_sizer.profiles.fields import json_schema
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.scenario.schema import ScenarioFile
from xe_sizer.scenario.written import QUANTITY, takes_unit


def scenario_json_schema() -> dict[str, Any]:
    """JSON Schema of the scenario file, for editors and CI.

    Keys that name profiles complete the built-in names and take any other name, path or repository; numbers with a
    unit may be text.
    """
    schema = json_schema(ScenarioFile)
    named_by = {kind.scenario_key: kind.name for kind in KINDS.values() if kind.scenario_key}
    for path, properties in _sections(schema):
        for key, found in properties.items():
            kind = named_by.get(".".join((*path, key)))
            if kind:
                _widen(found, "string", {"enum": list(BUILT_IN.names(kind))}, first=True)
            if takes_unit(key):
                for number in ("number", "integer"):
                    _widen(found, number, {"type": "string", "pattern": QUANTITY.pattern}, first=False)
    return schema


def _sections(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Properties of the file and of its sections, with the keys above them."""
    definitions = schema["$defs"]
    root = definitions[ScenarioFile.__name__]["properties"]
    yield (), root
    for key, found in root.items():
        for one in (found, *found.get("anyOf", ())):
            if "$ref" in one:
                yield (key,), definitions[one["$ref"].rpartition("/")[2]]["properties"]


def _widen(found: dict[str, Any], type_: str, other: dict[str, Any], *, first: bool) -> None:
    """Let a key of a type take something else too, before or after its own."""
    said = ("description", "default")
    arms = found.get("anyOf") or [{key: found.pop(key) for key in list(found) if key not in said}]
    place = next((index for index, arm in enumerate(arms) if arm.get("type") == type_), None)
    if place is not None:
        arms.insert(place if first else place + 1, other)
    found.update(arms[0] if len(arms) == 1 else {"anyOf": arms})
