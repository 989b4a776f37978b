"""JSON Schemas of all kinds of files and answers: what `xe-sizer profiles schema` prints and docs/schemas/ holds.

In draft-07, the newest that editors and SchemaStore take everywhere.
"""

from __future__ import annotations

from typing import Any

from xe_sizer.profiles.finder import INHERITS, KINDS

ANSWERS = {
    "result": "estimate", "plan": "plan", "serve-result": "serve", "comparison": "compare",
    "sensitivity": "sensitivity", "scaling": "scaling", "models": "models", "sweep": "sweep",
    "calendar-result": "calendar", "check": "check", "validation": "validate", "measurement": "measurement",
    "data": "data", "profiles": "profiles",
}  # fmt: skip
"""Kinds of saved answers, and the questions that they answer."""
_HOLD_OTHERS = ("comparison", "check")  # whose answers have those to scenarios in them
_IMPORT = "import"
SCHEMAS = ("scenario", "calendar", *KINDS, *ANSWERS, _IMPORT)
"""All kinds: files, saved answers, and what `import --format json` writes."""
_DIALECT = "http://json-schema.org/draft-07/schema#"
_HOME = "https://json.schemastore.org"  # part of the schemas' names, whoever hosts them: docs/schemas/README.md


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind, complete in itself."""
    schema = _profile_schema(kind) if kind in KINDS else _schema(kind)
    root = schema["$ref"].rpartition("/")[2]
    names = {"$schema": _DIALECT, "$id": f"{_HOME}/xe-sizer-{kind}.json", "title": f"xe-sizer {kind}"}
    definitions = {name: _draft_07(each) for name, each in schema["$defs"].items()}
    return {**names, **definitions.pop(root), "definitions": definitions}


def _schema(kind: str) -> dict[str, Any]:
    """Of a scenario, a calendar or an answer, as it is declared."""
    from xe_sizer.fields import json_schema
    from xe_sizer.report.answers import reporter

    if kind == "scenario":
        from xe_sizer.scenario.schema import scenario_json_schema

        return scenario_json_schema()
    if kind == "calendar":
        from xe_sizer.scenario.calendar import calendar_json_schema

        return calendar_json_schema()
    if kind == _IMPORT:
        from xe_sizer.interop.read import ImportedFile

        return json_schema(ImportedFile)
    within = [reporter(ANSWERS[each]).ANSWER for each in ("result", "serve-result") if kind in _HOLD_OTHERS]
    return json_schema(reporter(ANSWERS[kind]).ANSWER, within)


def _profile_schema(kind: str) -> dict[str, Any]:
    """Of a profile: its file may leave to another what it would have to have, if it names that one."""
    from xe_sizer.fields import json_schema
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.fabric import FabricProfile
    from xe_sizer.profiles.gpu import GpuProfile
    from xe_sizer.profiles.model import ModelProfile
    from xe_sizer.profiles.server import ServerProfile
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.optimizer import Optimizer
    from xe_sizer.software.quantiser import Quantiser
    from xe_sizer.software.stack import Stack

    types = {
        "gpu": GpuProfile, "server": ServerProfile, "fabric": FabricProfile, "model": ModelProfile,
        "dataset": DatasetProfile, "stack": Stack, "optimizer": Optimizer, "quantiser": Quantiser, "engine": Engine,
    }  # fmt: skip
    schema = json_schema(types[kind])
    root = schema["$defs"][types[kind].__name__]
    heir = KINDS[kind].heir
    if heir == INHERITS:
        root["anyOf"] = [{"required": root.pop("required")}, {"required": ["name", heir]}]
    elif heir in root["properties"]:  # sections are merged key by key
        for each in schema["$defs"].values():
            each.pop("required", None)
        root["required"] = ["name"]
    return schema


_AS_THEY_ARE = ("default", "enum", "examples", "required")  # words of a schema that have values and no schemas


def _draft_07(schema: Any) -> Any:
    """A schema in the words of draft-07, without what editors would show or fill in to no purpose.

    There a `$ref` hides what stands beside it. Titles are names of classes, and null says what leaving a key out says.
    """
    if isinstance(schema, list):
        return [_draft_07(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {word: said if word in _AS_THEY_ARE else _draft_07(said) for word, said in schema.items()}
    if "properties" in schema:  # keys may be called as words of a schema are
        found["properties"] = {key: _draft_07(each) for key, each in schema["properties"].items()}
    elif "required" in schema:  # strict validators want to see the keys named
        found["properties"] = dict.fromkeys(schema["required"], True)
    if "prefixItems" in schema:
        found |= {"items": found.pop("prefixItems"), "additionalItems": found["items"]}
    if "$ref" in schema:
        reference = {"$ref": found.pop("$ref").replace("#/$defs/", "#/definitions/")}
        found |= {"allOf": [reference]} if found else reference
    if "default" in schema and schema["default"] is None:
        del found["default"]
    found.pop("title", None)
    return found
