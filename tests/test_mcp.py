"""Agents' tools over stdio, asked by the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jsonschema
import pytest

mcp = pytest.importorskip("mcp")

ROOT = Path(__file__).parents[1]
JOB = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "lora", "train": {"steps": 100}}
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
    service = {"model": "llama-3.1-8b", "gpu": "l40s", "serve": {"request_rate": 5}}
    questions: dict[str, dict[str, Any]] = {
        "estimate": {"scenario": JOB},
        "plan": {"scenario": {**JOB, "gpus": None, "gpu": None}, "among": ["h100-sxm-80gb", "b200"]},
        "serve": {"scenario": service},
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
    for name, (tool, answer) in found.items():
        assert not answer.is_error, (name, answer.content)
        jsonschema.validate(questions[name], tool.input_schema)
        if tool.output_schema:
            jsonschema.validate(answer.structured_content, tool.output_schema)
    texts = {name: answer.content[0].text for name, (_, answer) in found.items()}
    assert texts["estimate"].startswith("### ✅ FITS\n\nLoRA of llama-3.1-8b on 8 x h100-sxm-80gb")
    assert found["estimate"][1].structured_content["gpus"]["count"] == 8
    assert "elements on the rank x bytes each" in texts["explain"]
    assert found["import"][1].structured_content["scenario"]["train.seq_len"]["value"] == 2048
    assert "`layout.recompute`" in texts["keys"]
    assert "`serve.users`" not in texts["keys"]


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("estimate", {"scenario": {**JOB, "modle": "x"}}, "unknown key 'modle'\n  hint: did you mean 'model'"),
        ("estimate", {"scenario": {**JOB, "gpu": "h1000"}}, "unknown gpu 'h1000'"),
        ("estimate", {}, "'scenario' is missing"),
        ("import", {"files": ["nowhere.yml"]}, "nowhere.yml"),
        ("keys", {"word": "nonsense"}, "no key has 'nonsense'"),
        ("size", {}, "there is no tool 'size'"),
    ],
)
def test_what_is_wrong_is_told_so_that_it_can_be_mended(tool: str, given: dict[str, Any], said: str) -> None:
    answer = asked(lambda client: client.call_tool(tool, given))
    assert answer.is_error
    assert said in answer.content[0].text
    assert "Traceback" not in answer.content[0].text
