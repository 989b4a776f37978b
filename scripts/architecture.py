"""Write docs/architecture.md from the imports and the import contract: python scripts/architecture.py

A package is said by the docstring of its `__init__`, a module at the root by its own. Imports inside functions count,
those for type checkers alone do not.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
NAME = "xe_sizer"
ENTRY = "__main__"  # stands above all floors
HEADER = (
    "Written from the imports and from `pyproject.toml` by `python scripts/architecture.py`. How one number is made is",
    "told in the [walkthrough](walkthrough.md).",
)
FLOORS = (
    "What stands on a floor imports from the floors below it. `|` divides packages of one floor that do not import",
    "each other, `:` those that may. A figure in brackets is the number of modules.",
)
IMPORTS = "A figure counts pairs of modules: one that imports, and one that is imported."
CONTRACT = "`lint-imports` holds the floors and these rules:"


@dataclass(frozen=True)
class Package:
    """A package below `xe_sizer`, or a module at its root."""

    name: str
    about: str
    modules: int


def modules() -> dict[str, Path]:
    """Dotted name of every module -> its file."""
    paths = sorted((ROOT / NAME).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def package_of(module: str) -> str:
    """The part of the name below `xe_sizer`; "" for `xe_sizer` itself."""
    return module.partition(".")[2].partition(".")[0]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def packages() -> tuple[Package, ...]:
    """Packages and root modules, those of the highest floor first."""
    files = modules()
    counts = Counter(package_of(name) for name in files)
    return tuple(
        Package(name, (ast.get_docstring(_tree(files[f"{NAME}.{name}"])) or "").split("\n\n")[0], counts[name])
        for floor in floors()
        for name in floor
    )


def contracts() -> list[dict[str, Any]]:
    """The import contracts, the floors first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)
    stated: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return stated


def floors() -> tuple[tuple[str, ...], ...]:
    """Packages by floor, highest first."""
    layers: list[str] = contracts()[0]["layers"]
    return tuple(tuple(layer.replace("|", " ").replace(":", " ").split()) for layer in layers)


@cache
def edges() -> Counter[tuple[str, str]]:
    """(importing, imported) package -> pairs of their modules."""
    files = modules()
    pairs = {(name, imported) for name, path in files.items() for imported in find_imports(_tree(path), files)}
    between = ((package_of(name), package_of(imported)) for name, imported in pairs)
    return Counter(edge for edge in between if all(edge) and ENTRY not in edge and edge[0] != edge[1])


def find_imports(tree: ast.Module, files: dict[str, Path]) -> Iterator[str]:
    """Own modules that a module imports, in functions too."""
    for node in _running(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == NAME:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in files else node.module


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All statements but the blocks for type checkers; what expressions are made of imports nothing."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _running(child)


def page() -> str:
    """The whole page."""
    lines = ["# Architecture", "", *HEADER, "", "## Floors", "", *FLOORS, "", "```"]
    counts = {package.name: package.modules for package in packages()}
    for layer in contracts()[0]["layers"]:
        lines += [" ".join(f"{word} ({counts[word]})" if word in counts else word for word in layer.split())]
    lines += ["```", "", "## Packages", "", "| package | what it is for |", "|---|---|"]
    lines += [f"| `{package.name}` | {_line(package.about)} |" for package in packages()]
    lines += ["", "## Imports", "", IMPORTS, "", "| package | imports |", "|---|---|"]
    found = edges()
    for name in counts:
        below = _counted({imported: pairs for (package, imported), pairs in found.items() if package == name})
        lines.append(f"| `{name}` | {below} |")
    lines += ["", "## Contract", "", CONTRACT, ""]
    lines += [f"- {_rule(contract)}" for contract in contracts()[1:]]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())


def _counted(pairs: dict[str, int]) -> str:
    """Packages with the number of pairs, most first."""
    return ", ".join(f"{name} {count}" for name, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])))


def _rule(contract: dict[str, Any]) -> str:
    if contract["type"] == "protected":
        importers, kept = (_names(contract[key]) for key in ("allowed_importers", "protected_modules"))
        return f"{contract['name']}: only {importers} may import {kept}"
    sources, forbidden = (_names(contract[key]) for key in ("source_modules", "forbidden_modules"))
    rules = [rule.split(" -> ") for rule in contract.get("ignore_imports", [])]
    excepted = [source for source, target in rules if target in contract["forbidden_modules"]]
    but = f", but for {_names(excepted)}" if excepted else ""
    return f"{contract['name']}: {sources} must not import {forbidden}{but}"


def _names(modules: list[str]) -> str:
    return ", ".join(f"`{name.removeprefix(f'{NAME}.')}`" for name in modules)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
