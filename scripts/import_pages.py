"""Write docs/reference/import/*.md from the tables of the importers and exporters: python scripts/import_pages.py

A page for each tool says which of its keys are read, what it fills in, and what a scenario cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xe_sizer.interop.draft import NOTHING, Key, Loss
from xe_sizer.interop.read import all_tools
from xe_sizer.interop.source import Tool
from xe_sizer.interop.write import Exporter, exporters
from xe_sizer.profiles.text import scalar

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "import"
INDEX = "README.md"
HEADER = """# Files of other tools

Written from the importers and exporters by `python scripts/import_pages.py`.

`xe-sizer import FILE` reads the files of these tools, and `estimate`, `plan`, `serve` and `check` take them directly
([how to import](../../import.md)). `xe-sizer export JOB.yaml --to TOOL` writes the chosen plan for a tool.

| tool | `--from` | reads | `--to` |
|---|---|---|---|
"""
ONLY_WRITTEN = """
Also written, and read back with the files that they belong to:

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
    return HEADER + "\n".join(rows) + "\n" + (ONLY_WRITTEN + "\n".join(others) + "\n" if others else "")


def _exporter(tool: Tool) -> Exporter | None:
    """What writes files of a tool."""
    return next((each for each in exporters().values() if each.title == tool.title), None)


def _written(tool: Tool) -> str:
    exporter = _exporter(tool)
    return f"`{exporter.name}`" if exporter is not None else ""


def _page(tool: Tool) -> str:
    parts = [
        f"# {tool.title}\n",
        "Written from the importer by `python scripts/import_pages.py`.\n",
        f"Reads {tool.reads}. `--from {tool.name}` says so where a file does not show it.\n",
        "## Keys that set a scenario key as they stand\n",
        "Of several names the first is the newest. What depends on several keys, such as the job, is not listed.\n",
        "| key | scenario key | default of the tool |\n|---|---|---|",
        *_keys(tool),
        "",
    ]
    table = tool.table.whole
    if table.losses:
        parts += [
            "## Keys that a scenario cannot say\n",
            "They change memory or time, and an import tells of each that is set.\n",
            "| key | what it does |\n|---|---|",
            *_losses(table.losses),
            "",
        ]
    silent = ", ".join(f"`{name}`" for name in sorted(set(table.silent)))
    if silent:
        parts += ["## Keys without effect on memory and time\n", f"{silent}\n"]
    exporter = _exporter(tool)
    if exporter is not None:
        says = ", ".join(f"`{key}`" for key in exporter.says)
        parts += ["## What an export says\n", f"`xe-sizer export job.yaml --to {exporter.name}` writes {says}.\n"]
    return "\n".join(parts)


def _keys(tool: Tool) -> Iterator[str]:
    for key in tool.table.whole.keys:
        if key.to:
            named = ", ".join(f"`{name}`" for name in key.names)
            yield f"| {named} | `{key.to}` | {_default(key)} |"


def _default(key: Key) -> str:
    value = "" if key.default is NOTHING or key.default is None else f"{scalar(key.default)}"
    since = f"from {key.since}" if key.since else ""
    until = f"before {key.until}" if key.until else ""
    releases = " ".join(part for part in (since, until) if part)
    return f"{value} ({releases})" if releases else value


def _losses(losses: tuple[Loss, ...]) -> Iterator[str]:
    for loss in losses:
        yield f"| {', '.join(f'`{name}`' for name in loss.names)} | {loss.why} |"


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
