"""Agents ask over the Model Context Protocol: `xe-sizer mcp` offers the questions as tools on stdin and stdout.

A tool takes a scenario, the keys of a file as an object, and gives what a person would read first as Markdown with the
result as JSON beside it. Bad input comes back as the tool's error, every problem with the key where it stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as protocol
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from xe_sizer.api import Call
from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.fields import json_schema
from xe_sizer.immutable import Immutable
from xe_sizer.interop.read import ImportedFile, read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.report.document import EXPLAINABLE, OPERATORS, Options
from xe_sizer.report.registry import format_of_ending, render
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.studies import PlanResult
from xe_sizer.result.training import Result
from xe_sizer.scenario.caller import ToolCall
from xe_sizer.scenario.scenario import serves
from xe_sizer.scenario.schema import scenario_json_schema
from xe_sizer.studies.estimate import estimate
from xe_sizer.studies.hardware import all_hardware, serve_on
from xe_sizer.studies.plan import plan
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.result.common import Answer
    from xe_sizer.scenario.scenario import Scenario

INSTRUCTIONS = """\
Sizes GPU infrastructure for large language models. Call `keys` to learn what a scenario can say, then `estimate` for a
training job, `plan` for the best number and kind of GPUs, `serve` for inference. Repeat to the user the verdict, the
range of the time, and every caution and assumption: a figure without them misleads."""
SCENARIO = {
    "type": "object",
    "description": "Keys of a scenario file, nested or with points, such as {'model': 'llama-3.1-8b', 'gpu': "
    "'h100-sxm-80gb', 'gpus': 8, 'job': 'lora', 'train': {'seq_len': 4096, 'steps': 1000}}. `keys` lists them.",
}
AMONG = {
    "type": "array",
    "items": {"type": "string"},
    "description": "GPUs and servers to choose from, by name.",
}


class Said(Immutable):
    """What a tool answers: text for the reader, and the same as JSON."""

    text: str
    structured: dict[str, Any] | None = None


class Tool(Immutable):
    """A question. needs, takes : JSON Schemas of its arguments; result : what its JSON is, None for text alone"""

    description: str
    answer: Callable[[Mapping[str, Any]], Said]
    needs: Mapping[str, dict[str, Any]]
    takes: Mapping[str, dict[str, Any]]
    result: Any = None

    def schema(self) -> dict[str, Any]:
        properties = {**self.needs, **self.takes}
        return {
            "type": "object", "properties": properties, "required": list(self.needs), "additionalProperties": False
        }  # fmt: skip

    def result_schema(self) -> dict[str, Any] | None:
        return None if self.result is None else {"type": "object", **json_schema(self.result)}


def _said(answer: Answer, explain: tuple[str, ...] = ()) -> Said:
    text, whole = (format_of_ending(ending).name for ending in (".md", ".json"))
    shown = render(answer, text, Options(brief=not explain, explain=explain))
    return Said(shown, json.loads(render(answer, whole, Options())))


def _question(tool: str, given: Mapping[str, Any]) -> tuple[Call, Scenario]:
    """What a tool is asked. Raises InputError with all problems of arguments, keys, names, model and hardware."""
    keys = given["scenario"]
    asked = Call.by(ToolCall(tool), among=given.get("among", ()))
    return asked, asked.scenario(None, keys, serving=tool == "serve" or _about_service(keys))


def _about_service(keys: Mapping[str, Any]) -> bool:
    """Whether a scenario that names no job has keys of a service."""
    return "job" not in keys and any(key.partition(".")[0] == "serve" for key in keys)


def _estimate(given: Mapping[str, Any]) -> Said:
    asked, question = _question("estimate", given)
    return _said(estimate(question, asked.registry, details=False))


def _plan(given: Mapping[str, Any]) -> Said:
    asked, question = _question("plan", given)
    return _said(plan(question, asked.registry, all_hardware(question, asked.among, False, asked.registry)))


def _serve(given: Mapping[str, Any]) -> Said:
    asked, question = _question("serve", given)
    hardware = all_hardware(question, asked.among, False, asked.registry)
    return _said(serve_on(question, asked.registry, hardware, details=False))


def _explain(given: Mapping[str, Any]) -> Said:
    asked, question = _question("explain", given)
    operators = given["topic"] == OPERATORS
    if serves(question) or _about_service(given["scenario"]):
        return Said(_said(serve_on(question, asked.registry, operators=operators), (given["topic"],)).text)
    return Said(_said(estimate(question, asked.registry, operators=operators), (given["topic"],)).text)


def _import(given: Mapping[str, Any]) -> Said:
    """The scenario that files of other tools say, with the source of each value."""
    asked = Asked(hardware={key: given[key] for key in ("gpus", "gpu", "server") if key in given})
    imported = read_foreign([Path(name) for name in given["files"]], asked)
    if imported.missing:
        place = Location(str(imported.path))
        raise InputError(Problem(f"'{each.key}' is missing: {each.why}", place) for each in imported.missing)
    text = imported.as_json()
    return Said(text, json.loads(text))


def _keys(given: Mapping[str, Any]) -> Said:
    """Keys whose name or description has a word, with what they take; without a word all names."""
    word = str(given.get("word", "")).lower()
    rows = [f"- `{key}`: {text}" for key, text in _described_keys().items() if word in f"{key} {text}".lower()]
    if not rows:
        raise InputError(Problem(f"no key has '{word}' in its name or description", Location("word")))
    return Said("\n".join(rows if word else [row.split(":")[0] for row in rows]))


@cache
def _described_keys() -> dict[str, str]:
    schema = scenario_json_schema()
    sections = schema["$defs"]
    root = sections[schema["$ref"].rpartition("/")[2]]["properties"]
    found: dict[str, str] = {}
    for key, about in root.items():
        named = about.get("$ref", "").rpartition("/")[2]
        for name, each in sections[named]["properties"].items() if named else [("", about)]:
            found[f"{key}.{name}" if name else key] = f"{each.get('description', '')}{_choices(each)}"
    return found


def _choices(about: Mapping[str, Any]) -> str:
    """What a key may be, where that is a short list."""
    options = [option for each in (about, *about.get("anyOf", ())) for option in each.get("enum", ())]
    return f" One of {', '.join(map(str, options))}." if 0 < len(options) <= 60 else ""


TOOLS = {
    "estimate": Tool(
        "Size one training job: does it fit, how long does it take, what would change the answer?",
        _estimate, {"scenario": SCENARIO}, {}, Result,
    ),
    "plan": Tool(
        "Search every layout, number and kind of GPU: the fewest that meet the limits, the fastest, the cheapest.",
        _plan, {"scenario": SCENARIO}, {"among": AMONG}, PlanResult,
    ),
    "serve": Tool(
        "Size inference for a load: how many replicas on how many GPUs, how fast, at what cost?",
        _serve, {"scenario": SCENARIO}, {"among": AMONG}, ServeResult,
    ),
    "explain": Tool(
        "What the figures of a training job or a service are made of: formulas, inputs and their sources.",
        _explain, {"scenario": SCENARIO, "topic": {"type": "string", "enum": list(EXPLAINABLE)}}, {},
    ),
    "import": Tool(
        "Read configurations and launch scripts of other tools (axolotl, TRL, Megatron-LM, vLLM ...) as a scenario.",
        _import,
        {"files": {"type": "array", "items": {"type": "string"}, "description": "Paths of the files of one job."}},
        {"gpus": {"type": "integer", "minimum": 1}, "gpu": {"type": "string"}, "server": {"type": "string"}},
        ImportedFile,
    ),
    "keys": Tool(
        "What a scenario can say: keys with what they mean and take.",
        _keys, {}, {"word": {"type": "string", "description": "In the name or description; left out: all names."}},
    ),
}  # fmt: skip


def answer(name: str, given: Mapping[str, Any]) -> protocol.CallToolResult:
    """What a tool answers; bad input is its answer too, so that who asked can mend it."""
    try:
        if name not in TOOLS:
            raise InputError(Problem(f"there is no tool '{name}'", hint=f"one of {', '.join(TOOLS)}"))
        if problems := list(_bad_arguments(name, given)):
            raise InputError(problems)
        said = TOOLS[name].answer(given)
    except InputError as error:
        text = "\n".join(str(problem) for problem in error.problems)
        return protocol.CallToolResult(content=[protocol.TextContent(type="text", text=text)], is_error=True)
    return protocol.CallToolResult(
        content=[protocol.TextContent(type="text", text=said.text)], structured_content=said.structured
    )


_TYPES = {
    "object": (dict, "an object"),
    "array": (list, "a list"),
    "string": (str, "text"),
    "integer": (int, "a whole number"),
}


def _bad_arguments(name: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the arguments of a tool, by its schema: the protocol leaves checking them to the tool."""
    tool, place = TOOLS[name], Location(name)
    known = {**tool.needs, **tool.takes}
    yield from (Problem(f"'{key}' is missing", place) for key in tool.needs if key not in given)
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, known) or f"one of {', '.join(known)}"
            yield Problem(f"there is no argument '{key}'", place, hint)
            continue
        type_, words = _TYPES[known[key]["type"]]
        items = value if isinstance(value, list) else ()
        if not isinstance(value, type_) or isinstance(value, bool) or not all(isinstance(each, str) for each in items):
            yield Problem(f"'{key}' must be {words}{' of texts' if type_ is list else ''}", place)
        elif value not in known[key].get("enum", (value,)):
            yield Problem(f"'{key}' must be one of {', '.join(known[key]['enum'])}, not '{value}'", place)


async def _listed(_: Any, __: Any) -> protocol.ListToolsResult:
    reads = protocol.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    tools = [
        protocol.Tool(
            name=name, description=tool.description, input_schema=tool.schema(), output_schema=tool.result_schema(),
            annotations=reads,
        )
        for name, tool in TOOLS.items()
    ]  # fmt: skip
    return protocol.ListToolsResult(tools=tools)


async def _called(_: Any, asked: protocol.CallToolRequestParams) -> protocol.CallToolResult:
    return await anyio.to_thread.run_sync(answer, asked.name, asked.arguments or {})


async def _serve_forever() -> None:
    server: Server[Any] = Server(
        "xe-sizer", version=__version__, instructions=INSTRUCTIONS, on_list_tools=_listed, on_call_tool=_called
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def run() -> None:
    """Answer on stdin and stdout until the client hangs up."""
    anyio.run(_serve_forever)
