"""Agents' tools over stdio, asked by the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jsonschema
import pytest

mcp = pytest.importorskip("mcp")
from xe_sizer.mcp import answer  # noqa: E402  of the extra

ROOT = Path(__file__).parents[1]
JOB = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "lora", "train": {"steps": 100}}
SERVICE = {"model": "llama-3.1-8b", "gpu": "l40s", "serve": {"request_rate": 5}}
AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3.1-8B
adapter: lora
lora_r: 16
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 50
"""


def asked(questions: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What comes of questions to a server of its own."""

    async def talk() -> Any:
        server = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "xe_sizer", "mcp"], env={"PYTHONPATH": str(ROOT)}
        )
        async with mcp.Client(server) as client:
            return await questions(client)

    return asyncio.run(talk())


def test_every_tool_is_listed_and_answers_as_its_schema_says(tmp_path: Path) -> None:
    (tmp_path / "axolotl.yml").write_text(AXOLOTL, encoding="utf-8")
    questions: dict[str, dict[str, Any]] = {
        "estimate": {"scenario": JOB},
        "plan": {"scenario": {**JOB, "gpus": None, "gpu": None}, "among": ["h100-sxm-80gb", "b200"]},
        "serve": {"scenario": SERVICE},
        "explain": {"scenario": JOB, "topic": "memory"},
        "import": {"files": [str(tmp_path / "axolotl.yml")], "gpus": 4},
        "keys": {"word": "recompute"},
    }

    async def all_of_them(client: Any) -> dict[str, tuple[Any, Any]]:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        return {name: (tools.pop(name), await client.call_tool(name, given)) for name, given in questions.items()} | {
            f"unasked {name}": (tool, None) for name, tool in tools.items()
        }

    found = asked(all_of_them)
    assert found.keys() == questions.keys()
    assert {name for name, (tool, _) in found.items() if not tool.output_schema} == {"explain", "keys"}
    for name, (tool, said) in found.items():
        assert not said.is_error, (name, said.content)
        jsonschema.validate(questions[name], tool.input_schema)
        if tool.output_schema:
            jsonschema.validate(said.structured_content, tool.output_schema)
    texts = {name: said.content[0].text for name, (_, said) in found.items()}
    assert texts["estimate"].startswith("### ✅ FITS\n\nLoRA of llama-3.1-8b on 8 x h100-sxm-80gb")
    assert found["estimate"][1].structured_content["gpus"]["count"] == 8
    assert "elements on the rank x bytes each" in texts["explain"]
    assert found["import"][1].structured_content["scenario"]["train.seq_len"]["value"] == 2048
    assert "`layout.recompute`" in texts["keys"]
    assert "`serve.users`" not in texts["keys"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("estimate", {"scenario": {**JOB, "modle": "x"}}, "unknown key 'modle'\n  hint: did you mean 'model'"),
    ("estimate", {"scenario": {**JOB, "gpu": "h1000"}}, "unknown gpu 'h1000'"),
    ("estimate", {"scenario": {**JOB, "gpus": "many", "train": {"stps": 5}}}, "unknown key 'stps' in 'train'"),
    ("estimate", {"scenario": {**JOB, "among": ["b200"], "details": True}}, "unknown key 'details'"),
    ("estimate", {"scenario": SERVICE}, 'hint: \'serve\' sizes inference; "job": "sft" and others are trained'),
    ("estimate", {"scenario": "llama"}, "estimate: 'scenario' must be an object"),
    ("estimate", {}, "estimate: 'scenario' is missing"),
    ("plan", {"scenario": JOB, "amog": ["b200"]}, "there is no argument 'amog'\n  hint: did you mean 'among'?"),
    ("serve", {"scenario": SERVICE, "among": [5]}, "serve: 'among' must be a list of texts"),
    ("serve", {"scenario": SERVICE, "among": ["h1000"]}, "no GPU or server is called 'h1000'"),
    ("explain", {"scenario": JOB, "topic": "memry"}, "'topic' must be one of memory, time, operators, data, sources"),
    ("import", {"files": ["nowhere.yml"]}, "nowhere.yml"),
    ("import", {"files": ["x.yml"], "gpus": True}, "import: 'gpus' must be a whole number"),
    ("keys", {"word": "nonsense"}, "no key has 'nonsense'"),
    ("size", {}, "there is no tool 'size'"),
]


def test_what_is_wrong_is_told_so_that_it_can_be_mended_and_the_next_question_answered() -> None:
    async def all_of_them(client: Any) -> list[Any]:
        return [await client.call_tool(tool, given) for tool, given, _ in [*WRONG, ("estimate", {"scenario": JOB}, "")]]

    *answers, last = asked(all_of_them)
    for (tool, given, said), told in zip(WRONG, answers, strict=True):
        assert told.is_error, (tool, given)
        assert said in told.content[0].text, told.content[0].text
        assert "Traceback" not in told.content[0].text
    assert not last.is_error


def test_advice_is_a_call_of_the_tool_that_can_be_made() -> None:
    too_big = {"model": "llama-3.1-8b", "gpu": "rtx-4090", "gpus": 1, "job": "sft", "train": {"seq_len": 2048}}

    async def twice(client: Any) -> list[Any]:
        first = await client.call_tool("estimate", {"scenario": too_big})
        command = first.structured_content["advice"][0]["command"]
        tool, _, arguments = command.partition(" ")
        return [command, first, await client.call_tool(tool, json.loads(arguments))]

    command, no, yes = asked(twice)
    assert command in no.content[0].text
    assert (no.structured_content["verdict"]["fits"], yes.structured_content["verdict"]["fits"]) == (False, True)


@pytest.mark.parametrize(
    ("scenario", "topic", "said"),
    [
        (JOB, "operators", "qkv: q adapter A | m "),
        (JOB, "time", "sum of the operators' laws"),
        (SERVICE, "memory", "share of the engine x card - all other parts"),
        ({"model": "llama-3.1-8b", "gpu": "l40s", "job": "inference"}, "operators", "head: sampling | kernels "),
    ],
)
def test_jobs_and_services_are_explained(scenario: dict[str, Any], topic: str, said: str) -> None:
    found: Any = answer("explain", {"scenario": scenario, "topic": topic})
    assert not found.is_error, found.content
    assert said in found.content[0].text, found.content[0].text
