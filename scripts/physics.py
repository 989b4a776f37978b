"""Write docs/physics.md from the docstrings of the equations: python scripts/physics.py

The page lists every public function of the equation modules that takes or returns arrays, and the parts that an
explained answer is a sum of. A docstring states the formula, indented; `Parameters` with units; `Returns` with unit and
shape; `Source:`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from constants import constants

from xe_sizer.laws.parts import Part

PAGE = Path(__file__).parents[1] / "docs" / "physics.md"
ARRAYS = frozenset({"Array", "ArrayLike", "IntArray", "NDArray"})
NUMBERS = ARRAYS | {"float"}
NO_EQUATION = frozenset({"as_array", "spread", "part", "computed"})  # they convert, register and call
UNIT = re.compile(r"\[[^\]]+\]")
SHAPE = re.compile(r"\bshape\b")
HEADER = "Written from the docstrings of the equations by `python scripts/physics.py`."


@dataclass(frozen=True)
class Group:
    """A chapter of the page: modules below `xe_sizer`, and the tuples of parts that they register."""

    title: str
    about: str
    modules: tuple[str, ...]
    parts: tuple[str, ...] = ()


GROUPS = (
    Group(
        "Laws",
        "Seconds of one operator on one accelerator, or of one exchange. Constants stand in the profiles, each with "
        "its source and the error of its fit.",
        (
            "laws.matmul",
            "laws.attention",
            "laws.memory_bound",
            "laws.collectives",
            "laws.host",
            "laws.operator_time",
            "laws.exchange_time",
            "laws.operator_work",
            "laws.network",
            "laws.hardware",
            "laws.energy",
        ),
    ),
    Group(
        "Graph",
        "What one rank computes, moves and sends for one micro-batch: sizes and bytes, no seconds.",
        (
            "graph.weight",
            "graph.parameters",
            "graph.operators",
            "graph.launches",
            "graph.selective",
            "graph.building_blocks",
            "graph.casts",
            "graph.adapters",
            "graph.stages",
            "graph.exchanges",
            "graph.losses",
            "graph.key_value_heads",
            "graph.attention",
            "graph.cross_attention",
            "graph.disentangled",
            "graph.state_space",
            "graph.mlp",
            "graph.expert_rows",
            "graph.expert_loop",
            "graph.transformer",
            "graph.heads",
            "graph.vision",
            "graph.vision_operators",
            "graph.resampler",
        ),
    ),
    Group(
        "Data",
        "Lengths of the samples, and what padding or packing makes of them.",
        ("training.lengths", "training.padding", "training.chosen_images"),
    ),
    Group(
        "Memory",
        "What one GPU holds in training, on its pipeline stage and at its worst moment.",
        (
            "training.sharding",
            "training.recomputation",
            "training.offloading",
            "training.activations",
            "training.halves",
            "training.encoder",
            "training.moments",
            "training.gathering",
            "training.gradients",
            "training.frozen_weights",
            "training.memory_around",
            "training.memory_parts",
            "training.cached_blocks",
            "training.memory",
        ),
        ("training.memory_parts.MEMORY_PARTS",),
    ),
    Group(
        "Step",
        "Time of one optimizer step in training.",
        (
            "training.unique_rows",
            "training.flops",
            "training.targets",
            "training.generator",
            "training.comparison",
            "training.stage_time",
            "training.module_time",
            "training.forward_pass",
            "training.stages",
            "training.schedules",
            "training.pipeline",
            "training.data_parallel",
            "training.orthogonalisation",
            "training.learning_layers",
            "training.learning_matrices",
            "training.update_workspace",
            "training.step",
            "training.start_up",
            "training.checkpoints",
            "training.batch_ramp",
            "training.run_time",
        ),
        ("training.step.STEP_PARTS", "training.run_time.RUN_PARTS"),
    ),
    Group(
        "Serving",
        "Time of one step of an engine, and what a GPU holds that serves.",
        (
            "serving.weights",
            "serving.kv_cache",
            "serving.memory",
            "serving.adapters",
            "serving.longest",
            "serving.step",
            "serving.steady",
            "serving.static",
            "serving.light",
        ),
        (
            "serving.step.STEP_PARTS",
            "serving.memory.ALLOCATED_PARTS",
            "serving.memory.SHORT_PARTS",
            "serving.memory.BATCH_PARTS",
        ),
    ),
    Group(
        "Queueing",
        "Latencies of requests that arrive at random, or from a fixed number of clients.",
        (
            "serving.states",
            "serving.queueing",
            "serving.closed",
            "serving.pools",
            "serving.transfer",
            "serving.disaggregation",
            "serving.day",
            "serving.host_cache",
        ),
    ),
    Group(
        "Tests",
        "What a benchmark measures of so many requests, from a simulation of the engine's scheduler.",
        (
            "serving.simulation_offered",
            "serving.simulation_prices",
            "serving.simulation",
            "serving.simulation_load",
            "serving.benchmark",
        ),
    ),
)


@dataclass(frozen=True)
class Equation:
    """What a docstring states; `symbols` are names with what they mean."""

    name: str
    module: str
    summary: str
    formula: str
    remarks: tuple[str, ...]
    symbols: tuple[tuple[str, str], ...]
    returns: str
    source: str


def equations(group: Group) -> Iterator[Equation]:
    """Equations of the modules of a chapter, in the order of the code."""
    for name in group.modules:
        module = importlib.import_module(f"xe_sizer.{name}")
        for function in functions(module):
            yield equation(function)


def functions(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Public functions of a module that take or return arrays, and what else states its source, methods too."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__ or name.startswith("_") or name in NO_EQUATION:
            continue
        if inspect.isfunction(value) and (has_arrays(value) or _states_source(value)):
            yield value
        elif inspect.isclass(value):
            yield from (each for each in vars(value).values() if inspect.isfunction(each) and _states_source(each))


def _states_source(function: Callable[..., Any]) -> bool:
    return "    Source: " in (function.__doc__ or "")


def has_arrays(function: Callable[..., Any]) -> bool:
    """Whether arrays, or dataclasses of arrays, stand in the annotations."""
    return any(_holds(str(kind)) for kind in function.__annotations__.values())


def _holds(annotation: str) -> bool:
    words = re.findall(r"\w+", annotation)
    return any(word in ARRAYS or _is_struct(word) for word in words)


def _is_struct(name: str) -> bool:
    """Whether a dataclass of this name has arrays; a module may import it for type checkers alone."""
    own = [module for path, module in sys.modules.items() if path.startswith("xe_sizer.")]
    kinds = {
        id(kind): kind
        for module in own
        if isinstance(kind := vars(module).get(name), type) and issubclass(kind, msgspec.Struct)
    }
    return any(
        ARRAYS & set(re.findall(r"\w+", str(one))) for kind in kinds.values() for one in kind.__annotations__.values()
    )


def equation(function: Callable[..., Any]) -> Equation:
    """Reads a docstring: summary, indented formula, remarks, numpy-style sections, source."""
    preface, sections = _sections(inspect.getdoc(function) or "")
    formula = [block for block in preface[1:] if block.startswith("    ")]
    symbols = tuple((name.strip(), text) for name, _, text in (e.partition(" : ") for e in sections["Parameters"]))
    return Equation(
        name=function.__qualname__,
        module=function.__module__,
        summary=_joined(preface[0]),
        formula="\n".join(inspect.cleandoc(f"\n{block}") for block in formula),
        remarks=tuple(_joined(block) for block in preface[1:] if not block.startswith("    ")),
        symbols=symbols,
        returns=" ".join(sections["Returns"]),
        source=" ".join(sections["Source"]),
    )


def _sections(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Paragraphs before the first section, and the entries of each section."""
    sections: dict[str, list[str]] = {"Parameters": [], "Returns": [], "Raises": [], "Source": []}
    preface = []
    for block in re.split(r"\n\s*\n", text):
        first, *rest = block.split("\n")
        if rest and set(rest[0]) == {"-"}:
            sections[first] = _entries(rest[1:])
        elif first.startswith("Source: "):
            sections["Source"] = [_joined(block.removeprefix("Source: "))]
        else:
            preface.append(block)
    return preface, sections


def _entries(lines: list[str]) -> list[str]:
    """Lines with those that continue them."""
    entries: list[str] = []
    for line in lines:
        if entries and (line.startswith(" ") or " : " not in line):
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return entries


def _joined(block: str) -> str:
    return " ".join(line.strip() for line in block.split("\n"))


def missing(function: Callable[..., Any]) -> list[str]:
    """What the docstring of an equation does not state."""
    stated = equation(function)
    explained = {name: text for names, text in stated.symbols for name in names.split(", ")}
    annotations = {name: str(kind) for name, kind in function.__annotations__.items() if name != "return"}
    problems = [f"the symbol {name}" for name in annotations if name not in explained]
    problems += [
        f"the unit of {name}"
        for name, kind in annotations.items()
        if set(re.findall(r"\w+", kind)) & NUMBERS and name in explained and not UNIT.search(explained[name])
    ]
    checks = (
        ("a formula", " = " in stated.formula),
        ("a source", bool(stated.source)),
        ("the unit of the result", bool(UNIT.search(stated.returns)) or not _numeric(function)),
        ("the shape of the result", bool(SHAPE.search(stated.returns)) or not _holds(_result(function))),
    )
    return problems + [what for what, stands in checks if not stands]


def _result(function: Callable[..., Any]) -> str:
    return str(function.__annotations__["return"])


def _numeric(function: Callable[..., Any]) -> bool:
    """Whether the result is a number or holds arrays."""
    kind = _result(function)
    return bool(set(re.findall(r"\w+", kind)) & NUMBERS) or _holds(kind)


def parts(path: str) -> tuple[Part[Any], ...]:
    """The tuple of parts at a dotted path below `xe_sizer`."""
    module, name = f"xe_sizer.{path}".rsplit(".", 1)
    registered: tuple[Part[Any], ...] = getattr(importlib.import_module(module), name)
    return registered


def page() -> str:
    """The whole page."""
    chapters = [(group, tuple(equations(group))) for group in GROUPS]
    lines = [
        "# Physics",
        "",
        HEADER,
        "",
        "Shapes name their axes: (layout,) has one entry for each layout that is computed at once, (rank shape,) one",
        "for each distinct piece of work that ranks of these layouts do, (stage, layout) for pipeline stages too.",
        "[-] means dimensionless. Names and symbols stand in the [nomenclature](nomenclature.md).",
        "",
        "## Index",
        "",
    ]
    for group, stated in chapters:
        lines.append(f"- [{group.title}](#{group.title.lower()})")
        for module, members in groupby(stated, key=lambda each: each.module):
            links = ", ".join(f"[{each.name}](#{anchor(each.name)})" for each in members)
            lines.append(f"  - `{module}`: {links}")
    for group, stated in chapters:
        lines += ["", f"## {group.title}", "", group.about]
        for path in group.parts:
            lines += ["", *_table_of_parts(path)]
        for each in stated:
            lines += ["", *_section(each)]
        lines += _table_of_constants(group)
    return "\n".join(lines) + "\n"


def anchor(heading: str) -> str:
    """Where a heading is linked."""
    return heading.lower().replace(".", "")


def _table_of_parts(path: str) -> Iterator[str]:
    yield f"Parts of `xe_sizer.{path}`, in the order of an answer; `--explain` prints the same:"
    yield ""
    yield "| part | formula | source |"
    yield "|---|---|---|"
    for part in parts(path):
        yield f"| {part.name} | {part.formula} | {part.source} |"


def _table_of_constants(group: Group) -> Iterator[str]:
    """Constants of the modules of a chapter, with what their comments say."""
    modules = [importlib.import_module(f"xe_sizer.{name}") for name in group.modules]
    rows = [(module, constant) for module in modules for constant in constants(module)]
    if rows:
        yield from ("", f"### Constants of {group.title.lower()}", "", "| constant | value | meaning and source |")
        yield "|---|---|---|"
    for module, constant in rows:
        name = f"`{constant.name}` of `{module.__name__.removeprefix('xe_sizer.')}`"
        yield f"| {name} | `{constant.value}` | {constant.comment} |"


def _section(stated: Equation) -> Iterator[str]:
    yield f"### {stated.name}"
    yield ""
    yield f"`{stated.module}`. {stated.summary}"
    yield ""
    yield f"```\n{stated.formula}\n```"
    for remark in stated.remarks:
        yield ""
        yield remark
    yield ""
    yield "| symbol | meaning |"
    yield "|---|---|"
    for names, text in stated.symbols:
        yield f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |"
    yield f"| returns | {stated.returns} |"
    yield ""
    yield f"Source: {stated.source}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
