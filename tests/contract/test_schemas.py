"""The JSON Schemas of docs/schemas: current, sound, as strict as the program, and kept by every file and answer."""

from __future__ import annotations

import fnmatch
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import xe_sizer
from xe_sizer import InputError
from xe_sizer.cli.render import read_answer
from xe_sizer.cli.schema import ANSWERS, SCHEMAS, schema_of
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.report.answers import reporters
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.common import Answer
from xe_sizer.scenario.schema import KEYS

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
schemas = importlib.import_module("schemas")

FIXTURES = sorted((ROOT / "tests" / "report" / "fixtures").rglob("*.json"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.y*ml"))
PAGE = (ROOT / "docs" / "schemas" / "README.md").read_text(encoding="utf-8")
JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "lora"}
SERVICE: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "l40s", "serve": {"request_rate": 2}}
ASKED: dict[str, Callable[[], Answer]] = {
    "result": lambda: xe_sizer.estimate(**JOB, details=True),
    "plan": lambda: xe_sizer.plan(**{**JOB, "gpus": None}, limits={"max_gpus": 16}),
    "serve-result": lambda: xe_sizer.serve(**SERVICE, details=True),
    "comparison": lambda: xe_sizer.compare({"job": "lora"}, {"job": "sft"}, **JOB),
    "sensitivity": lambda: xe_sizer.sensitivity(**JOB),
    "check": lambda: xe_sizer.check(*(ROOT / "examples" / name for name in ("plan", "serve/llama-3.1-70b-chat.yaml"))),
    "validation": lambda: xe_sizer.validate({
        "id": "x", "source": {"title": "t"}, "job": "sft", "stack": "nemo", "model": "llama-2-7b",
        "gpu": "h100-sxm-80gb", "gpus": 8, "batch": {"micro": 1, "global": 128}, "seq_len": 4096,
        "measured": {"step_time_s": 9.0},
    }),
}  # fmt: skip


def validator(kind: str) -> Any:
    return jsonschema.Draft7Validator(schema_of(kind))


def kind_of(answer: Answer) -> str:
    return next(kind for kind, question in ANSWERS.items() if question == answer.question)


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema of an object with keys of its own."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield schema
        for each in schema.values():
            yield from objects(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects(each)


def test_the_folder_holds_what_the_command_prints() -> None:
    written = {file: file.read_text(encoding="utf-8") for file in schemas.FOLDER.glob("*.json")}
    assert written == dict(schemas.files()), "Write docs/schemas anew: python scripts/schemas.py"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_sound_and_has_a_name_of_its_own(kind: str) -> None:
    schema = schema_of(kind)
    assert jsonschema.validators.validator_for(schema) is jsonschema.Draft7Validator
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$id"] == f"https://json.schemastore.org/xe-sizer-{kind}.json"
    assert f"xe-sizer-{kind}.json)" in PAGE
    text = json.dumps(schema)
    used = set(re.findall(r'"\$ref": "#/definitions/([\w.]+)"', text))
    assert used == schema["definitions"].keys()
    assert text.count('"$ref"') == text.count('"$ref": "#/definitions/')


def test_every_kind_of_answer_has_a_schema() -> None:
    assert {each.ANSWER.question for each in reporters()} == set(ANSWERS.values())


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.stem)
def test_saved_answers_keep_it(file: Path) -> None:
    saved = json.loads(file.read_text(encoding="utf-8"))
    kind = kind_of(read_answer(str(file)))
    assert [error.message for error in validator(kind).iter_errors(saved)] == []
    assert not validator(kind).is_valid({**saved, "schema_version": "one"})


@pytest.mark.parametrize("kind", ASKED)
def test_answers_of_today_keep_it(kind: str) -> None:
    answer = ASKED[kind]()
    assert kind_of(answer) == kind
    said = json.loads(render(answer, "json", Options()))
    assert [error.message for error in validator(kind).iter_errors(said)] == []


def test_what_is_imported_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "axolotl.yml"
    file.write_text(
        "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\nnew: 1\n"
    )
    said = json.loads(read_foreign([file], Asked(hardware={})).as_json())
    assert said["scenario"]["lora.rank"] == {"value": 16, "origin": "read", "where": f"{file}:3:9"}
    assert [each["key"] for each in said["missing"]] == ["gpus"]
    assert {"new"} <= {each["key"] for each in said["ignored"]}
    validator("import").validate(said)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT / "examples").as_posix())
def test_examples_keep_it(path: Path) -> None:
    """As other readers of YAML see them: YAML 1.1, which most tools read, has 1.0e12 as text."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "questions.yaml":
        pytest.skip("no input of xe-sizer: questions of tests/studies/test_plan_questions.py")
    kind = "calendar" if path.parent.name == "calendar" else "scenario"
    assert [error.message for error in validator(kind).iter_errors(values)] == []
    assert not validator(kind).is_valid({**values, "modle": "x"})


@pytest.mark.parametrize("kind", KINDS)
def test_profiles_of_the_catalogue_keep_it(kind: str) -> None:
    checker = validator(kind)
    for name in BUILT_IN.names(kind):
        values: Any = load_yaml(BUILT_IN.path(kind, name)).value
        assert [error.message for error in checker.iter_errors(values)] == [], name
        assert not checker.is_valid({**values, "nonsense": 1}), name


def test_an_editor_refuses_every_key_that_the_program_refuses() -> None:
    for kind in ("scenario", "calendar", *KINDS):
        assert [
            each["description"] for each in objects(schema_of(kind)) if each["additionalProperties"] is not False
        ] == []
    typo = {**JOB, "lora": {"ranks": 8}}
    with pytest.raises(InputError, match="unknown key 'ranks'"):
        xe_sizer.estimate(**typo)
    assert not validator("scenario").is_valid(typo)
    assert validator("scenario").is_valid({**JOB, "lora": {"rank": 8}})


def test_an_editor_shows_what_a_key_means_and_fills_in_no_null() -> None:
    schema = schema_of("scenario")
    for name, key in KEYS.items():
        *sections, last = name.split(".")
        place = schema
        for section in sections:
            reference = place["properties"][section]["$ref"]
            place = schema["definitions"][reference.rpartition("/")[2]]
        assert place["properties"][last]["description"] == key.description
        assert "default" not in place["properties"][last] or place["properties"][last]["default"] is not None


def test_the_page_has_the_entries_of_schemastore_and_names_that_they_take() -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    settings, entries = map(json.loads, blocks)
    assert [each["url"] for each in entries] == [schema_of(kind)["$id"] for kind in ("scenario", "calendar")]
    assert all(each["name"] and each["description"] for each in entries)
    names = ("lora.xe-sizer.yaml", "week.xe-sizer-calendar.yaml")
    for name, entry in zip(names, entries, strict=True):
        assert [each for each in names for glob in entry["fileMatch"] if fnmatch.fnmatch(each, glob)] == [name]
    assert list(settings["yaml.schemas"]) == [f"./{schema_of('scenario')['$id'].rpartition('/')[2]}"]
