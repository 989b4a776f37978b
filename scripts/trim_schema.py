"""Keep of a published schema what exported files use: python scripts/trim_schema.py SCHEMA SOURCE FILE... -o OUT

SCHEMA is a JSON Schema, or a CustomResourceDefinition with `#VERSION` behind its name; SOURCE says where it is from.
Properties that no FILE has are left out and refused, so that what the kept part accepts, the whole one accepts too. A
document that has a key which the schema does not is an error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

KEPT = (
    "type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "required",
    "anyOf", "oneOf",
)  # fmt: skip
OPEN = "x-kubernetes-preserve-unknown-fields"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("schema", "source"):
        parser.add_argument(name)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", type=Path, required=True)
    asked = parser.parse_args()
    name, _, version = asked.schema.partition("#")
    whole, kind = _load(Path(name), version)
    documents = [each for file in asked.files for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    used = [each for each in documents if kind is None or each.get("kind") == kind]
    kept = _trim(whole, used, Path(name), "")
    asked.o.write_text(json.dumps({"source": asked.source, "schema": kept}, indent=1) + "\n", encoding="utf-8")


def _load(file: Path, version: str) -> tuple[dict[str, Any], str | None]:
    """A schema, and the kind of the documents that it is for; None where it is for whole files."""
    text = file.read_text(encoding="utf-8")
    if version:
        resource = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
        found = next(each for each in resource["versions"] if each["name"] == version)
        return found["schema"]["openAPIV3Schema"], resource["names"]["kind"]
    schema = json.loads(text)
    return schema, schema["properties"].get("kind", {}).get("enum", [None])[0]


def _resolved(schema: dict[str, Any], file: Path) -> tuple[dict[str, Any], Path]:
    """A schema without a reference, and the file that its own references start from."""
    while "$ref" in schema:
        name, _, path = schema["$ref"].partition("#")
        file = file.with_name(Path(name).name) if name else file
        schema = json.loads(file.read_text(encoding="utf-8"))
        for part in filter(None, path.split("/")):
            schema = schema[part]
    return schema, file


def _trim(schema: dict[str, Any], values: list[Any], file: Path, path: str) -> dict[str, Any]:
    schema, file = _resolved(schema, file)
    kept = {key: schema[key] for key in KEPT if key in schema}
    groups = [each for each in values if isinstance(each, dict)]
    lists = [each for each in values if isinstance(each, list)]
    if lists and "items" in schema:
        kept["items"] = _trim(schema["items"], [each for one in lists for each in one], file, f"{path}[]")
    names = dict.fromkeys(name for group in groups for name in group)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not names or not (properties or isinstance(others, dict)):
        return kept
    below = {name: [group[name] for group in groups if name in group] for name in names}
    known = {name: each for name, each in below.items() if name in properties}
    unknown = {name: each for name, each in below.items() if name not in properties}
    if known:
        kept["properties"] = {n: _trim(properties[n], each, file, f"{path}.{n}") for n, each in known.items()}
    if isinstance(others, dict):
        rest = [value for each in unknown.values() for value in each]
        kept["additionalProperties"] = _trim(others, rest, file, f"{path}.*")
    elif schema.get(OPEN) or (others is True and unknown):
        kept["additionalProperties"] = True
    elif unknown:
        raise SystemExit(f"the schema has no {', '.join(unknown)} at {path or 'the top'}")
    else:
        kept["additionalProperties"] = False
    return kept


if __name__ == "__main__":
    main()
