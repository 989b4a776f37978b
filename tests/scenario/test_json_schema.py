"""The scenario file as a JSON Schema: what editors accept, complete and refuse."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

import xe_sizer.training.jobs  # noqa: F401  makes the methods known to scenarios
from xe_sizer.graph.operators import LOSSES
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.schema import SECTIONS, scenario_json_schema

EXAMPLES = sorted(path for path in (Path(__file__).parents[2] / "examples").rglob("*.y*ml"))


@pytest.mark.parametrize(
    ("section", "key", "kind"),
    [
        (None, "model", "model"), (None, "gpu", "gpu"), (None, "server", "server"), (None, "stack", "stack"),
        (None, "optimizer", "optimizer"), ("serve", "engine", "engine"), ("data", "profile", "dataset"),
    ],
)  # fmt: skip
def test_the_json_schema_completes_names_and_takes_others(section: str | None, key: str, kind: str) -> None:
    schema = scenario_json_schema()
    definition = {"serve": "ServeSection", "data": "DataSection"}.get(section or "", "ScenarioFile")
    arms = schema["$defs"][definition]["properties"][key]["anyOf"]
    assert arms[0] == {"enum": list(BUILT_IN.names(kind))}
    validator = jsonschema.Draft202012Validator(schema)
    for name in (BUILT_IN.names(kind)[0], "meta-llama/Llama-3.1-8B", "./mine.yaml"):
        values = {section: {key: name}} if section else {key: name}
        assert validator.is_valid({"model": "m"} | values)
        assert not validator.is_valid({"model": "m"} | ({section: {key: 8}} if section else {key: 8}))


def test_the_json_schema_takes_numbers_with_units_where_they_are_read() -> None:
    validator = jsonschema.Draft202012Validator(scenario_json_schema())
    assert validator.is_valid({"model": "m", "train": {"seq_len": "4k"}, "limits": {"max_hours": "1.5d"}})
    assert validator.is_valid({"model": "m", "data": {"tokens": "300M", "samples": 5}})
    assert not validator.is_valid({"model": "m", "train": {"seq_len": "long"}})
    assert not validator.is_valid({"model": "m", "layout": {"tp": "8x"}})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_shipped_examples_keep_the_schema_as_other_readers_of_yaml_see_them(path: Path) -> None:
    """YAML 1.1, which most tools read, has 1.0e12 as text."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "model" not in values:
        pytest.skip("no scenario")
    jsonschema.validate(values, scenario_json_schema())


def test_every_key_has_a_description() -> None:
    for name, definition in scenario_json_schema()["$defs"].items():
        for key, schema in definition["properties"].items():
            assert "description" in schema or key in SECTIONS, f"{name}.{key}"


def test_the_json_schema_lists_the_names_that_are_looked_up() -> None:
    schema = scenario_json_schema()["$defs"]["ScenarioFile"]["properties"]["loss"]
    assert {"type": "string", "enum": list(LOSSES)}.items() <= schema["anyOf"][0].items()
