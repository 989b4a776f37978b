"""Write docs/reference/import/*.md from the tables of the importers and exporters: python scripts/import_pages.py

A page for each tool says which of its keys are read, what it fills in, and what a scenario cannot say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from xe_sizer.interop.draft import NOTHING, Key
from xe_sizer.interop.read import all_tools
from xe_sizer.interop.source import Tool
from xe_sizer.interop.write import Exporter, exporters
from xe_sizer.profiles.text import scalar

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "import"
INDEX = "README.md"
MOST_NAMES = 3  # of keys with one effect
SEVERAL = 3  # groups, from which on a name stands for itself
HEADER = """# Files of other tools

Written from the importers and exporters by `python scripts/import_pages.py`.

`xe-sizer import FILE` reads the files of these tools, and `estimate`, `plan`, `serve` and `check` take them directly
([how to import](../../import.md)); `--from` names the tool where a file does not show it. `xe-sizer export JOB.yaml
--to TOOL` writes the chosen plan for a tool.

| tool | `--from` | reads | `--to` |
|---|---|---|---|
"""
ONLY_WRITTEN = """
Also written, and read back with the files that they belong to:

"""
KEYS = """
## Keys

The page of a tool has the keys that set a key of the scenario as they stand, with the tool's own default. Of several
names the first is the newest, and `*` stands for any text. What depends on several keys, such as the job, is not
listed. Then come keys that a scenario cannot say, and what is lost: an import tells of each that is set. It passes over
those that change neither memory nor time, and names those that it does not know.
"""


def pages() -> dict[str, str]:
    """The text of every page by the name of its file."""
    tools = all_tools()
    written = {INDEX: _index(tools)}
    return written | {f"{name}.md": _page(tool) for name, tool in tools.items()}


def _index(tools: dict[str, Tool]) -> str:
    rows = [
        f"| [{tool.title}]({name}.md) | `{name}` | {tool.reads} | {_written(tool)} |" for name, tool in tools.items()
    ]
    titles = {tool.title for tool in tools.values()}
    others = [f"- `{name}`: {each.title}" for name, each in exporters().items() if each.title not in titles]
    return HEADER + "\n".join(rows) + "\n" + (ONLY_WRITTEN + "\n".join(others) + "\n" if others else "") + KEYS


def _exporter(tool: Tool) -> Exporter | None:
    """What writes files of a tool."""
    return next((each for each in exporters().values() if each.title == tool.title), None)


def _written(tool: Tool) -> str:
    exporter = _exporter(tool)
    return f"`{exporter.name}`" if exporter is not None else ""


def _page(tool: Tool) -> str:
    silent, exporter = len(set(tool.table.whole.silent)), _exporter(tool)
    parts = [
        f"# {tool.title}\n",
        "Written from the importer by `python scripts/import_pages.py`.\n",
        f"Reads {tool.reads} (`--from {tool.name}`). How to read the table: [all tools](README.md#keys).\n",
        "| key of the tool | key of a scenario and default of the tool, or what is lost |\n|---|---|",
        *_keys(tool),
        *_losses(tool),
        f"\nWithout effect: {silent:,} more.",
    ]
    if exporter is not None:
        says = ", ".join(f"`{key}`" for key in exporter.says)
        parts.append(f"\n`xe-sizer export JOB.yaml --to {exporter.name}` writes {says}.")
    return "\n".join(parts) + "\n"


def _keys(tool: Tool) -> Iterator[str]:
    for key in tool.table.whole.keys:
        if key.to:
            yield f"| {_named(key.names)} | `{key.to}` {_default(key)}".rstrip() + " |"


def _default(key: Key) -> str:
    value = "" if key.default is NOTHING or key.default is None else f"{scalar(key.default)}"
    since = f"from {key.since}" if key.since else ""
    until = f"before {key.until}" if key.until else ""
    releases = " ".join(part for part in (since, until) if part)
    return f"{value} ({releases})" if releases else value


def _losses(tool: Tool) -> Iterator[str]:
    """A row for each thing that a scenario cannot say, with the keys that would."""
    lost: dict[str, list[str]] = {}
    for loss in tool.table.whole.losses:
        lost.setdefault(loss.why, []).extend(loss.names)
    yield from (f"| {_named(names)} | {why} |" for why, names in lost.items())


def _named(names: Sequence[str]) -> str:
    """The first names; one that stands in several groups of the tool once."""
    groups = Counter(name.rpartition(".")[2] for name in dict.fromkeys(names))
    ends = ((name.rpartition(".")[2], name) for name in names)
    short = list(dict.fromkeys(f"*.{end}" if groups[end] >= SEVERAL and end != "*" else name for end, name in ends))
    more = f" and {len(short) - MOST_NAMES} more" if len(short) > MOST_NAMES + 1 else ""
    return ", ".join(f"`{name}`" for name in (short[:MOST_NAMES] if more else short)) + more


def main() -> None:
    """Write the pages, and remove those of tools that are gone."""
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for page in FOLDER.glob("*.md"):
        if page.name not in texts:
            page.unlink()


if __name__ == "__main__":
    main()
