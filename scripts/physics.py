"""Write docs/reference/physics.md and its chapters from the modules of equations: python scripts/physics.py

They name every public function of these modules that takes or returns arrays, and the parts that an explained answer is
a sum of; the documentation site shows the docstrings. A docstring states the formula, indented; `Parameters` with
units; `Returns` with unit and shape; `Source:`.
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
from constants import CHOICES

from xe_sizer.laws.parts import Part

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
ARRAYS = frozenset({"Array", "ArrayLike", "IntArray", "NDArray"})
NUMBERS = ARRAYS | {"float"}
NO_EQUATION = frozenset(
    {"as_array", "spread", "memory_ledger", "timeline", "geometric"}
)  # they convert, or call another
UNIT = re.compile(r"\[[^\]]+\]")
SHAPE = re.compile(r"\bshape\b")
HEADER = """# Physics

Written from the modules of equations by `python scripts/physics.py`. The docstring of an equation states formula,
symbols with units, shapes and source: in the code, and on the pages of the documentation site.

Shapes name their axes: (layout,) has one entry for each layout that is computed at once, (rank shape,) one for each
distinct piece of work that ranks of these layouts do, (stage, layout) for pipeline stages too. [-] means dimensionless.
Symbols are in the [nomenclature](nomenclature.md), constants and their sources in [constants](constants.md).
"""


@dataclass(frozen=True)
class Group:
    """A chapter: modules below `xe_sizer`, and the tuples of parts that they register."""

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
            "laws.scans",
            "laws.collectives",
            "laws.operator_time",
            "laws.network",
            "laws.hardware",
        ),
    ),
    Group(
        "Graph",
        "What one rank computes, moves and sends for one micro-batch: sizes and bytes, no seconds.",
        (
            "graph.weights",
            "graph.operators",
            "graph.recompute",
            "graph.blocks",
            "graph.inputs",
            "graph.attention",
            "graph.state_space",
            "graph.mlp",
            "graph.experts",
            "graph.drafter",
            "graph.transformer",
            "graph.vision",
        ),
    ),
    Group(
        "Data",
        "Lengths of the samples, and what padding or packing makes of them.",
        ("training.token_lengths", "training.padding", "training.resolve"),
    ),
    Group(
        "Memory",
        "What one GPU holds in training, on its pipeline stage and at its worst moment.",
        (
            "training.model_states",
            "training.activations",
            "training.gathering",
            "training.memory_parts",
            "training.memory",
        ),
        ("training.memory_parts.MEMORY_PARTS",),
    ),
    Group(
        "Step",
        "Time of one optimizer step in training, and of the whole run.",
        (
            "training.rank",
            "training.step_time",
            "training.layout",
            "training.communication",
            "training.optimizer_step",
            "training.job",
            "training.run",
            "training.search",
            "training.summary",
        ),
        ("training.step_time.STEP_PARTS", "training.run.RUN_PARTS"),
    ),
    Group(
        "Serving",
        "Time of one step of an engine, and what a GPU holds that serves.",
        ("serving.resolve", "serving.job", "serving.memory", "serving.step_time"),
        (
            "serving.step_time.STEP_PARTS",
            "serving.memory.ALLOCATED_PARTS",
            "serving.memory.SHORT_PARTS",
            "serving.memory.BATCH_PARTS",
        ),
    ),
    Group(
        "Queueing",
        "Latencies of requests that arrive at random, or from a fixed number of clients.",
        ("serving.queueing", "serving.disaggregation", "serving.sessions", "serving.search", "serving.summary"),
    ),
    Group(
        "Tests",
        "What a benchmark measures of so many requests, from a simulation of the engine's scheduler.",
        ("serving.simulation",),
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
    """Public functions of a module that take or return arrays, and what else states its source, methods too.

    A module of CHOICES has only those that state a formula, the result and the source.
    """
    choices = module.__name__.rpartition(".")[2] in CHOICES
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__ or name.startswith("_") or name in NO_EQUATION:
            continue
        members = [value] if inspect.isfunction(value) else vars(value).values() if inspect.isclass(value) else []
        for each in filter(inspect.isfunction, members):
            text = each.__doc__ or ""
            if choices:
                stands = all(sign in text for sign in ("    Source: ", "    Returns\n", " = "))
            else:
                stands = "    Source: " in text or (each is value and has_arrays(each))
            if stands:
                yield each


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


def pages() -> dict[str, str]:
    """The text of every page by its path from the folder of the first."""
    return {"physics.md": _contents()} | {_file(group): _chapter(group) for group in GROUPS}


def _file(group: Group) -> str:
    return f"equations/{group.title.lower()}.md"


def _contents() -> str:
    rows = [f"| [{group.title}]({_file(group)}) | {group.about} |" for group in GROUPS]
    return "\n".join((HEADER, "| equations of | what they are |", "|---|---|", *rows)) + "\n"


def _chapter(group: Group) -> str:
    """What a chapter is about, its parts of an answer, and its functions by module."""
    lines = [f"# {group.title}", "", group.about]
    for path in group.parts:
        lines += ["", *_table_of_parts(path)]
    for module, members in groupby(equations(group), key=lambda each: each.module):
        names = [each.name for each in members]
        inner = ", ".join(name for name in names if "." not in name)
        lines += ["", f"## `{module}`", "", f"[Code](../../../{module.replace('.', '/')}.py)", "", "```{eval-rst}"]
        lines += [f".. automodule:: {module}", f"   :members: {inner}" if inner else "   :no-members:"]
        lines += [f".. automethod:: {module}.{name}" for name in names if "." in name]
        lines += ["```"]
    return "\n".join(lines) + "\n"


def _table_of_parts(path: str) -> Iterator[str]:
    yield f"Parts of `xe_sizer.{path}`, in the order of an answer; `--explain` prints the same:"
    yield ""
    yield "| part | formula | source |"
    yield "|---|---|---|"
    for part in parts(path):
        yield f"| {part.name} | {part.formula} | {part.source} |"


def main() -> None:
    """Write the pages, and remove those of chapters that are gone."""
    (FOLDER / "equations").mkdir(exist_ok=True)
    texts = pages()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for page in FOLDER.glob("equations/*.md"):
        if page.relative_to(FOLDER).as_posix() not in texts:
            page.unlink()


if __name__ == "__main__":
    main()
