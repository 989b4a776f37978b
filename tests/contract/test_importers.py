"""What holds for every tool that is read, and for every exporter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.interop.draft import NOTHING, Draft, Key, Table
from xe_sizer.interop.read import all_tools, tool_named
from xe_sizer.interop.source import Source, Tool, guess_kind
from xe_sizer.interop.values import UnreadableError, Written, number
from xe_sizer.interop.write import exporter_named, exporters
from xe_sizer.scenario.options import ALL_OPTIONS
from xe_sizer.scenario.read import BadScenarioError, read_scenario

TOOLS = list(all_tools().values())
KEYS = {*ALL_OPTIONS.values(), "lora.alpha"}  # which changes no estimate, and so has no option
WORDS = 16
NOTHINGS = {
    "empty.yaml": "", "list.yaml": "- 1\n- 2\n", "prose.yaml": "hello: world\n", "empty.json": "{}", "empty.toml": "",
    "empty.py": "", "empty.sh": "", "make.sh": "#!/bin/sh\nmake -j all && ls --color\n", "main.py": "print('hello')\n",
    "compose.yaml": "services: {db: {image: postgres, command: [postgres, -c, a=b]}}\n",
    "ci.yml": "on: push\njobs: {test: {runs-on: ubuntu-latest, steps: [{run: pytest}]}}\n",
    "package.json": '{"name": "x", "scripts": {"test": "jest"}}', "pyproject.toml": '[project]\nname = "x"\n',
}  # fmt: skip
"""Files that no tool of ours reads."""


def ids(tool: Tool) -> str:
    return tool.name


def rows() -> list[Any]:
    return [
        pytest.param(key, id=f"{tool.name}-{key.to}-{key.names[0]}") for tool in TOOLS for key in tool.table.whole.keys
    ]


@pytest.mark.parametrize("key", rows())
def test_a_row_sets_a_scenario_key_that_there_is(key: Key) -> None:
    assert key.names
    assert all(key.names)
    assert not key.to or key.to in KEYS or key.to.startswith("model.")


def counted() -> list[Any]:
    """Rows that read a number: that have 2 and `3` as 2 and 3."""
    found = []
    for tool in TOOLS:
        for key in tool.table.whole.keys:
            try:
                numbers = (key.read(2), key.read("3"))
            except UnreadableError:
                continue
            if numbers == (2, 3):
                found.append(pytest.param(tool, key, id=f"{tool.name}-{key.to}-{key.names[0]}"))
    return found


@pytest.mark.parametrize(("tool", "key"), counted())
@pytest.mark.parametrize("value", [-5, "-5", 1.5, "two", ".nan", float("nan"), float("inf"), True, [1, 2]])
def test_no_number_that_a_tool_cannot_run_with_becomes_a_default(tool: Tool, key: Key, value: object) -> None:
    draft = Draft(tool.name, {key.names[0]: Written(value, Location("job.yaml", 7, 9))})
    draft.apply(Table(keys=(key,)))
    if draft.impossible:
        (problem,) = draft.impossible
        assert str(problem.location) == "job.yaml:7:9"
        assert problem.message.startswith(f"{key.names[0]}: ")
        assert problem.hint
        return
    told = [each for each in draft.ignored if "not read" in each.why]
    assert not told, "a number that is none is more than a loss"
    assert draft.fact(key.to) == number(value), "a scenario takes it, or says at its place why it does not"


def defaults() -> list[Any]:
    found = {
        (key.to, str(key.default)): key for tool in TOOLS for key in tool.table.whole.keys if key.default is not NOTHING
    }
    return [pytest.param(key, id=f"{key.to}={key.default}") for key in found.values() if key.default is not None]


@pytest.mark.parametrize("key", defaults())
def test_a_default_is_a_value_that_a_scenario_takes(key: Key) -> None:
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    if key.to not in set(ALL_OPTIONS.values()):
        return
    try:
        read_scenario(None, {"model": "llama-3.1-8b", key.to: value}, {})
    except BadScenarioError as error:
        own = [each for each in error.problems if key.to.rpartition(".")[2] in str(each)]
        assert not own, own


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_why_a_key_is_lost_is_a_short_clause(tool: Tool) -> None:
    for loss in tool.table.whole.losses:
        assert loss.names
        assert loss.why
        assert not loss.why.endswith(".")
        assert len(loss.why.split()) <= WORDS, loss.why


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_a_tool_is_found_by_its_name_and_has_a_page(tool: Tool) -> None:
    assert tool_named(tool.name) is tool
    assert all(tool_named(name.upper()) is tool for name in (tool.name, *tool.aliases))
    page = Path(__file__).parents[2] / "docs" / "reference" / "import" / f"{tool.name}.md"
    assert tool.title in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
@pytest.mark.parametrize("name", NOTHINGS)
def test_no_tool_takes_a_file_that_is_not_its_own(tool: Tool, name: str, tmp_path: Path) -> None:
    source = Source(tmp_path / name, guess_kind(tmp_path / name, NOTHINGS[name]), NOTHINGS[name])
    try:
        certainty = tool.recognises(source)
    except InputError:
        certainty = 0
    assert certainty == 0


WRITTEN = (
    "axolotl", "llama-factory", "trl", "torchtune", "torchtitan", "megatron", "nemo", "deepspeed", "accelerate", "vllm",
    "sglang", "trtllm", "slurm", "kubernetes",
)  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_the_promised_tools_are_written(name: str) -> None:
    assert exporter_named(name).write


@pytest.mark.parametrize("name", exporters())
def test_an_exporter_says_scenario_keys_and_writes_for_one_wing(name: str) -> None:
    exporter = exporters()[name]
    assert exporter.says
    assert set(exporter.says) <= KEYS | {"job"}
    assert exporter.serving or exporter.training
    assert exporter.ending.startswith(".")
