"""A model whose shape stands in the scenario: what it may say, where problems stand, and what takes its place."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from cases import REGISTRY

import xe_sizer
from xe_sizer.cli.main import main
from xe_sizer.errors import InputError
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.scenario.read import changed, flags_with, read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.scenario.schema import scenario_json_schema
from xe_sizer.training.resolve import resolve

SHAPE = """\
  layers: 16
  hidden: 2048
  heads: 32
  kv_heads: 8
  head_dim: 64
  ffn: 8192
  vocab: 128256
  max_positions: 128k
  tied_embeddings: true
  norm: RMSNorm
  activation: swiglu
  position: rope
"""
REST = "gpu: h100-sxm-80gb\ngpus: 1\njob: sft\ntrain: {steps: 10, global_batch: 8, seq_len: 1024}\n"
COUNTED = 1_235_814_400  # of Llama 3.2 1B, as its card has it
NAME = "custom (16 layers, hidden 2048)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def written(path: Path, shape: str = SHAPE, more: str = "") -> Path:
    path.write_text(f"model:\n{shape}{more}{REST}", encoding="utf-8")
    return path


def problems(path: Path, **flags: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        resolve(read_scenario(path, flags, {}), REGISTRY)
    return [str(problem).replace(f"{path}:", "") for problem in caught.value.problems]


def test_it_is_the_model_of_the_same_shape(path: Path) -> None:
    mine = resolve(read_scenario(written(path), {}, {}), REGISTRY)
    known = resolve(read_scenario(path, {"model": "llama-3.2-1b"}, {}), REGISTRY)
    assert mine.job.method.trainable_parameters(mine.job.model) == COUNTED
    assert known.job.method.trainable_parameters(known.job.model) == COUNTED
    assert (mine.job.model.max_positions, mine.job.model.norm) == (131072, "rmsnorm")
    assert (mine.values.model, mine.origins["model"]) == (NAME, "file")
    assert known.job.model.name == "llama-3.2-1b"


def test_the_same_keys_are_the_same_model(path: Path) -> None:
    scenario = read_scenario(written(path), {}, {})
    assert resolve(scenario, REGISTRY).job.model is resolve(changed(scenario, {"gpus": 2}), REGISTRY).job.model


def test_a_name_is_shown(path: Path) -> None:
    scenario = read_scenario(written(path, more="  name: our 1B\n"), {}, {})
    assert resolve(scenario, REGISTRY).job.model.name == "our 1B"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (SHAPE.replace("16", "3.5", 1), ["2:11: 'layers' must be a whole number, not 3.5"]),
        (
            SHAPE.replace("heads: 32", "heads: 30", 1),
            ["5:13: 'heads' (30) must be a multiple of 'kv_heads' (8)"],
        ),
        (SHAPE.replace("ffn", "intermediate_size"), [
            "7:3: unknown key 'intermediate_size' in 'model'\n  hint: write 'ffn'",
        ]),
        (SHAPE.replace("rope", "roope"), [
            (
                "13:13: 'position' must be one of rope, learned, alibi, relative, none, not 'roope'\n"
                "  hint: did you mean 'rope'?"
            ),
        ]),
        (SHAPE + "  experts: {count: 8, per_token: 2, ffn: x}\n", ["14:42: 'ffn' must be a whole number, not 'x'"]),
        (SHAPE.replace("  norm: RMSNorm\n", ""), [
            ("1:1: missing key 'norm' in 'model'\n  hint: kind of norm: one of rmsnorm, rmsnorm-t5, layernorm, "
            "layernorm-nobias, layernorm-nonparam, layernorm1p"),
        ]),
        (SHAPE + f"  parameters: {{total: 1200000000, active: {COUNTED}}}\n", [
            ("14:23: the shape has 1,235,814,400 parameters (total), +2.98% against the stated 1,200,000,000\n"
            "  hint: correct the shape or the count, or say why they differ in 'parameters_note'"),
        ]),
        ("  - 1\n", ["2:3: 'model' must be text or a group of keys, not a list"]),
    ],
)  # fmt: skip
def test_a_problem_stands_where_it_is(path: Path, shape: str, expected: list[str]) -> None:
    assert problems(written(path, shape)) == expected


def test_a_wrong_shape_hides_no_other_problem_and_makes_none(path: Path) -> None:
    """Without its experts the model could not be spread over ep, which nobody has to hear."""
    text = SHAPE + "  experts: {count: eight, per_token: 2, ffn: 512}\n"
    path.write_text(f"model:\n{text}{REST}layout: {{ep: 2}}\nstack: nemmo\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        xe_sizer.estimate(xe_sizer.load(path))
    found = [problem.message for problem in caught.value.problems]
    assert found[0] == "'count' must be a whole number, not 'eight'"
    assert not any("experts to spread" in message for message in found)


def test_a_name_takes_its_place_and_it_takes_that_of_a_name(path: Path) -> None:
    scenario = read_scenario(written(path), {"model": "gpt2"}, {})
    assert scenario.values.model == "gpt2"
    assert not any(key.startswith("model.") for key in scenario.origin)
    path.write_text(f"model: gpt2\n{REST}", encoding="utf-8")
    assert read_scenario(path, {}, {"XE_SIZER_MODEL": "opt-125m"}).values.model == "opt-125m"
    keys = yaml.safe_load("\n".join(SHAPE.splitlines()))
    over = read_scenario(path, {f"model.{key}": value for key, value in keys.items()}, {})
    assert resolve(over, REGISTRY).job.model.name == NAME
    assert resolve(over, REGISTRY).origins["model"] == "flag"


def test_flags_of_a_shape_make_way_for_a_name() -> None:
    assert flags_with({"model.layers": 2, "gpus": 8}, {"model": "gpt2"}) == {"gpus": 8, "model": "gpt2"}
    assert flags_with({"model": "gpt2"}, {"model.layers": 2}) == {"model.layers": 2}


def test_one_key_of_a_shape_can_be_changed(path: Path) -> None:
    scenario = read_scenario(written(path), {"model.layers": 8}, {})
    assert resolve(scenario, REGISTRY).job.model.layers == 8
    assert scenario.locate(("model", "layers")).name == "--model.layers"
    assert scenario.locate(("model", "hidden")).line == 3


def test_python_takes_a_dictionary() -> None:
    shape = yaml.safe_load(SHAPE)
    answer = xe_sizer.estimate(model=shape, gpu="h100-sxm-80gb", gpus=1, train={"steps": 1})
    assert answer.scenario["model"] == NAME
    assert all("model={'layers': 16" in advice.command for advice in answer.advice)


def test_the_json_schema_takes_it() -> None:
    validator = jsonschema.Draft202012Validator(scenario_json_schema())
    shape = yaml.safe_load(SHAPE) | {"norm": "rmsnorm"}
    assert validator.is_valid({"model": shape})
    assert not validator.is_valid({"model": shape | {"depth": 3}})
    assert not validator.is_valid({"model": {"layers": 2}})


@pytest.mark.parametrize(
    "command",
    ["estimate", "plan --max-gpus 8", "serve --concurrency 4", "check", "compare gpus=2", "sensitivity"],
)
def test_every_command_answers_and_names_it(command: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = command.split()
    more = ["--format", "json"] if name != "check" else ["--format", "junit"]
    arguments = [name, str(written(path)), *options]
    if name == "check":
        path.write_text(path.read_text(encoding="utf-8") + "limits: {max_hours: 24}\n", encoding="utf-8")
    assert main([*arguments, *more]) in (0, None)
    said = capsys.readouterr().out
    if name != "check":
        assert NAME in json.dumps(json.loads(said))


def test_what_comes_of_a_catalogue_profile_can_be_written_out(path: Path) -> None:
    """A profile pasted under `model:` is that model, with its name and its checked counts."""
    profile = REGISTRY.path("model", "qwen3-30b-a3b").read_text(encoding="utf-8")
    body = "".join(f"  {line}\n" for line in profile.splitlines())
    path.write_text(f"model:\n{body}{REST}", encoding="utf-8")
    scenario: Scenario = read_scenario(path, {}, {})
    shape = resolve(scenario, REGISTRY).job.model
    known = REGISTRY.model("qwen3-30b-a3b")
    assert shape.name == "qwen3-30b-a3b" == load_yaml(REGISTRY.path("model", "qwen3-30b-a3b")).value["name"]  # type: ignore[call-overload,index]
    assert repr(shape) == repr(known)
