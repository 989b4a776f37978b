"""Write docs/reference/constants.md: where every constant comes from: python scripts/provenance.py

Constants of the equations say it in the comment beside them, stacks under `origins`, accelerators, quantisers and
optimizers under `source`, fabrics under `sources`. A constant that says nothing is listed by `silent`, which a test
wants empty.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from constants import CHOICES, Constant, constants

import xe_sizer

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "constants.md"
SOFTWARE = ROOT / "xe_sizer" / "software"
ORIGINS = {
    "fitted": "adjusted until predicted times or peaks of published runs agreed; the text says which runs",
    "measured": "kernels, exchanges or memory measured by themselves, not whole jobs",
    "published": "in a paper, a manual, or the source code of a framework",
    "simulated": "from a simulation by the rules of the real thing",
    "counted": "kernels, bytes or FLOPs counted in code or from a definition",
    "assumed": "nobody measured it for this repository",
    "chosen": "a bound of a search, a threshold of a sentence, or a default: no physics",
    "defined": "so by definition",
}
WORD = re.compile(rf"\b({'|'.join(ORIGINS)})\b", re.IGNORECASE)
# What the sources of laws say instead of the words above.
PHRASES = {
    "fitted": r"(?<!re)fitted to",
    "measured": r"timed by|sweep|measured|BandwidthLatencyTest|tritonbench|streaming kernels|nccl-tests",
    "published": r"arXiv|[Dd]ocumentation|user guide|\.cpp|whitepaper|reaches",
    "assumed": r"assumed|\bas on\b|^The [A-Z]+\d+'s|that of the|lack the new|and its power|[Bb]etween the",
}
# Sections of a stack that follow its framework's source code, which the file names as a whole; all else are factors.
FROM_CODE = frozenset(
    {
        "kernels",
        "states",
        "loads",
        "gradients",
        "reductions",
        "mixed_precision",
        "fused",
        "defaults",
        "supports",
        "boundaries",
        "releases",
        "origins",
        "uncertainty",
    }
)
CLAUSE = re.compile(r"; (?![^()]*\)).*")  # what follows a semicolon, if not in brackets
LAWS = ("matmul", "attention", "decode", "collectives", "memory_bound")


@dataclass(frozen=True)
class Row:
    """A constant or several: where it stands, its value, the word for where it comes from, and what is said of it."""

    place: str
    value: str
    origin: str
    text: str

    @property
    def silent(self) -> bool:
        return not self.origin


def origin_of(text: str) -> str:
    """The first word of ORIGINS in a text; empty without one."""
    found = WORD.search(text)
    return found[1].lower() if found else ""


def origins_of_law(text: str) -> str:
    """All origins that the source of a law names, the weakest claim last; empty without one."""
    return ", ".join(origin for origin, words in PHRASES.items() if re.search(words, text))


def of_equations() -> Iterator[Row]:
    """Numbers at the top of modules of equations; what a graph counts needs no word for it."""
    for package in ("laws", "graph", "training", "serving"):
        folder = importlib.import_module(f"{xe_sizer.__name__}.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            for constant in constants(importlib.import_module(module.name)):
                if plain_number(constant.value):
                    yield equation_row(constant, module.name.removeprefix("xe_sizer."))


def equation_row(constant: Constant, module: str) -> Row:
    own_name = module.rpartition(".")[2]
    usual = "chosen" if own_name in CHOICES else "counted" if module.startswith("graph.") else ""
    says = constant.comment or ("" if usual != "chosen" else constant.name.replace("_", " ").lower())
    return Row(f"{module} {constant.name}", constant.value, origin_of(says) or (usual if says else ""), says)


def plain_number(value: str) -> bool:
    """Whether a value is made of numbers, tables and named units, and calls nothing."""
    calls = (ast.Call, ast.ListComp, ast.GeneratorExp, ast.Starred, ast.Lambda)
    return not any(isinstance(node, calls) for node in ast.walk(ast.parse(f"({value})")))


def of_stacks() -> Iterator[Row]:
    """What stacks say of launches, overlaps, efficiencies and memory around the tensors."""
    for file in sorted((SOFTWARE / "stacks").glob("*.yaml")):
        yield from of_stack(yaml.safe_load(file.read_text(encoding="utf-8")))


def of_stack(profile: Mapping[str, Any]) -> Iterator[Row]:
    """Factors of one stack's file, its releases among them, whose `source` stands for an origin."""
    origins = profile.get("origins", {})
    for key, value in _factors(profile):
        text = next((origins[name] for name in (key, key.split(".")[0]) if name in origins), "")
        yield Row(f"{profile['name']} {key}", value, origin_of(text), text)
    for row in profile.get("releases", []):
        for key, value in _factors(row["differs"]):
            text = row.get("source", "")
            origin = origin_of(text) or ("published" if text else "")
            yield Row(f"{profile['name']} before {row['before']} {key}", value, origin, text)


def dead_origins(profile: Mapping[str, Any]) -> list[str]:
    """Keys under `origins` of which the file has no figure."""
    stated = [key for key, _ in _factors(profile)]
    return [key for key in profile.get("origins", {}) if not any(f"{one}.".startswith(f"{key}.") for one in stated)]


def _factors(profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted key and value of every number in the sections that are factors."""
    for section, value in profile.items():
        if section in FROM_CODE:
            continue
        if section == "backends":
            for name, sections in value.items():
                yield from ((f"{section}.{name}.{key}", number) for key, number in _factors(sections or {}))
            continue
        for key, item in value.items() if isinstance(value, Mapping) else [("", value)]:
            if isinstance(item, Mapping):
                yield f"{section}.{key}", ", ".join(f"{name} {number}" for name, number in item.items())
            elif isinstance(item, int | float) and not isinstance(item, bool):
                yield f"{section}.{key}".rstrip("."), f"{item}"


def of_quantisers() -> Iterator[Row]:
    """Bytes that each way to hold quantised weights moves."""
    for profile in _profiles(SOFTWARE / "quantisers"):
        for width in profile.get("widths", []):
            moved = ", ".join(f"{key} {value}" for key, value in width.items() if key != "bits")
            text = profile.get("source", "")
            yield Row(f"{profile['name']} {width['bits']} bits", moved, "counted" if text else "", text)


def of_optimizers() -> Iterator[Row]:
    """Moments and bytes of each optimizer."""
    for profile in _profiles(SOFTWARE / "optimizers"):
        numbers = {key: value for key, value in profile.items() if isinstance(value, int | float | Mapping)}
        shown = ", ".join(f"{key} {_inline(value)}" for key, value in numbers.items() if not isinstance(value, bool))
        text = profile.get("source", "")
        yield Row(profile["name"], shown, "published" if text else "", text)


def of_accelerators() -> Iterator[Row]:
    """Laws of accelerators by what their sources say; `place` names those that share one."""
    sharing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for profile in _profiles(ROOT / "gpu_profiles"):
        for law, text in _law_sources(profile.get("laws", {})):
            sharing[law, text].append(profile["name"])
    for (law, text), names in sorted(sharing.items()):
        yield Row(law, ", ".join(names), origins_of_law(text), text)


def _law_sources(laws: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and source of every law of an accelerator; the source is empty where none is stated."""
    for section in (name for name in laws if name in LAWS):
        found = laws[section]
        if section in ("decode", "memory_bound"):
            yield section, found.get("source", "")
        else:
            yield from ((f"{section} {name}", law.get("source", "")) for name, law in found.items())


def of_fabrics() -> Iterator[Row]:
    """What links and networks reach."""
    for profile in _profiles(ROOT / "gpu_profiles" / "fabrics"):
        for key, text in profile.get("sources", {}).items():
            yield Row(f"{profile['name']} {key}", "", origins_of_law(text) or "measured", text)
        for key in profile.get("assumed", []):
            yield Row(f"{profile['name']} {key}", "", "assumed", "")


def _profiles(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*.yaml")):
        yield yaml.safe_load(file.read_text(encoding="utf-8"))


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_inline(item)}" for key, item in value.items()) + ")"
    return str(value)


def silent() -> list[str]:
    """Constants that do not say where they come from."""
    tables = (of_equations(), of_stacks(), of_quantisers(), of_optimizers(), of_accelerators())
    return [row.place for table in tables for row in table if row.silent]


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def in_brief(row: Row) -> str:
    """The sentences of a source that name its origins, or the first one; where none names it, the origin before."""
    sentences = re.split(r"(?<!\bal)\.\s+(?=[A-Z0-9])", row.text.rstrip("."))
    words = [rf"\b{origin}\b|{PHRASES.get(origin, origin)}" for origin in row.origin.split(", ")]
    naming = [each for each in sentences if any(re.search(word, each, re.IGNORECASE) for word in words)]
    said = ". ".join(naming or sentences[:1])
    if row.origin == "counted":
        said = CLAUSE.sub("", said)
    named = any(re.search(rf"\b{origin}", said, re.IGNORECASE) for origin in row.origin.split(", "))
    return said if named else f"{row.origin}: {said}" if said else row.origin


def _listed(rows: Iterable[Row], first: str, second: str = "value") -> str:
    """A row for each source of an owner (a module, a stack), with all constants that rest on it."""
    cells = []
    for (owner, source), members in groupby(rows, key=lambda row: (row.place.rpartition(" ")[0], in_brief(row))):
        sharing = list(members)
        names = ", ".join(row.place.removeprefix(owner).strip() for row in sharing)
        values = "; ".join(f"`{row.value}`" for row in sharing if row.value)
        cells.append((f"{owner} {names}".strip(), *([values] if second else []), source))
    return table((first, *([second] if second else []), "source"), iter(cells))


def page() -> str:
    """The text of the page; each constant stands once on it."""
    equations, stacks, laws = list(of_equations()), list(of_stacks()), list(of_accelerators())
    fitted = [row for row in (*equations, *stacks, *laws) if "fitted" in row.origin]
    others = ([row for row in rows if row not in fitted] for rows in (equations, stacks, laws))
    return "\n\n".join((*_introduction(fitted), *_others(*others))) + "\n"


def _introduction(fitted: Sequence[Row]) -> tuple[str, ...]:
    """What the words mean, and everything that was fitted to runs."""
    return (
        "# Where the constants come from",
        (
            "Written by `python scripts/provenance.py` from the comments beside the constants and the `source` of each "
            "profile, which say more: this page has their first word on it. `xe-sizer profiles show NAME` shows a "
            "profile with its sources."
        ),
        table(("a constant is", "when it is"), iter(ORIGINS.items())),
        "## Fitted to published runs",
        (
            "Errors on the same publications flatter these constants; [accuracy](accuracy.md) gives those apart that "
            "development did not look at, though most constants are older than that split. Fitted too are the ranges "
            "of times, the probability that memory suffices, and part of what engines of inference state."
        ),
        _listed(fitted, "constant"),
    )


def _others(equations: Sequence[Row], stacks: Sequence[Row], laws: Sequence[Row]) -> tuple[str, ...]:
    chosen = ((row.place.split()[0], row) for row in equations if row.origin == "chosen")
    bounds = (
        (module, ", ".join(f"{row.place.partition(' ')[2]} `{row.value}`" for _, row in rows))
        for module, rows in groupby(chosen, key=lambda each: each[0])
    )
    return (
        "## Constants of the equations",
        "What the graph counts (passes over tensors, kernels, bytes) is counted from the kernels that it names.",
        _listed((row for row in equations if row.origin != "chosen"), "constant"),
        "### Chosen",
        "Bounds of searches, thresholds of sentences and defaults.",
        table(("module", "constants"), bounds),
        "## Factors of stacks",
        (
            "Launches, overlaps, efficiencies and memory around the tensors; all else follows the framework's source "
            "code, which [stacks](stacks.md) names. `uncertainty` is assumed unless `calibrated_on` names measurements."
        ),
        _listed(stacks, "stack and keys"),
        "## Quantised weights",
        "Bytes a weight, forward and backward.",
        _listed(of_quantisers(), "quantiser"),
        "## Optimizers",
        _listed(of_optimizers(), "optimizer", ""),
        "## Laws of accelerators",
        "Accelerators without laws of their own borrow those of a relative, scaled by the peaks.",
        _listed(laws, "law", "accelerators"),
        "## Fabrics",
        _listed(of_fabrics(), "fabric and keys", ""),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
