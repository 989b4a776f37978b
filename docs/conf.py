"""The documentation site, made of the Markdown that the repository shows by itself; CONTRIBUTING.md has the command.

Its pages are those that the index (docs/README.md) links to, and those that these link to in turn. Sections of the
index are groups of the menu. Functions are described by their docstrings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "xe-sizer"
release = __version__
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # the docstrings say more
add_module_names = False
highlight_language = "none"
smartquotes = False
toc_object_entries_show_parents = "hide"
html_theme = "furo"
html_title = f"xe-sizer {release}"
html_extra_path = ["index.html"]  # leads to the index
html_static_path = html_css_files = ["site.css"]
html_copy_source = html_show_copyright = html_show_sphinx = False

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#:]+\.md)[)#]")
FILE = re.compile(r"\]\((?:\.\./)+((?:xe_sizer|examples)/[^)\s]+)\)")
QUOTED = re.compile(r"`([^`]+)`")
ENTRY = re.compile(r"\*{0,2}\w[\w, .*]* : ")


def links(page: str, text: str) -> list[str]:
    """Pages that the text of a page links to, in its order."""
    targets = ((ROOT / page).parent / target for target in LINK.findall(FENCE.sub("", text)))
    return list(dict.fromkeys(target.resolve().relative_to(ROOT).with_suffix("").as_posix() for target in targets))


@cache
def menu() -> dict[str, list[str]]:
    """What stands below each page: the pages that it links to and no page nearer to the index does."""
    below: dict[str, list[str]] = {}
    waiting, placed = [root_doc], {root_doc}
    while waiting:
        page = waiting.pop(0)
        linked = links(page, (ROOT / f"{page}.md").read_text(encoding="utf-8"))
        below[page] = [each for each in linked if each not in placed]
        placed |= set(below[page])
        waiting += below[page]
    return below


def finish_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Append what stands below a page, of the index by section; code is linked at the commit that CI builds."""
    text = source[0]
    if "GITHUB_REPOSITORY" in os.environ:
        code = f"https://github.com/{os.environ['GITHUB_REPOSITORY']}/blob/{os.environ['GITHUB_SHA']}/"
        source[0] = FILE.sub(rf"]({code}\1)", text)
    waiting = menu().get(page, [])
    if page != root_doc:
        source[0] += toctree(waiting)
        return
    for section in text.split("\n## ")[1:]:
        linked = links(page, section)
        source[0] += toctree([each for each in waiting if each in linked], section.partition("\n")[0].strip(". "))
        waiting = [each for each in waiting if each not in linked]


def toctree(pages: Sequence[str], title: str = "") -> str:
    caption = f":caption: {title[0].upper()}{title[1:]}\n" if title else ""
    listed = "".join(f"/{page}\n" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{listed}```\n" if pages else ""


def describe(_: Sphinx, _kind: str, _name: str, _described: object, _options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def restructured(lines: Sequence[str]) -> Iterator[str]:
    """A docstring as reStructuredText: formulas as they stand, names with their meanings as lists, all else prose."""
    block = ""  # what the line before belongs to: a formula, an entry of a list, or neither
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        entry = ENTRY.match(line)
        if after.startswith("---"):
            yield from (f"**{line}**", "")
        elif line.startswith("---"):
            continue
        elif not line:
            block = block if block == "formula" else ""
            yield ""
        elif line.startswith("    ") and (block == "formula" or not before):
            yield from ([] if block == "formula" else ["::", ""])
            block = "formula"
            yield line
        elif entry:
            block = "entry"
            names = ", ".join(f"``{name}``" for name in entry[0].removesuffix(" : ").split(", "))
            yield from ("", f"- {names}: {prose(line[entry.end() :])}")
        else:
            block = "entry" if block == "entry" else ""
            yield f"{'  ' if block else ''}{prose(line.strip())}"


def prose(text: str) -> str:
    """Text in which nothing is markup but quotes of code."""
    parts = QUOTED.split(text)
    parts[::2] = [re.sub(r"[\\*|`]|_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    return "".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("source-read", finish_page)
    app.connect("autodoc-process-docstring", describe)
