"""The documentation site, made of the Markdown that the repository shows by itself; CONTRIBUTING.md has the command.

Its pages are those that the index (docs/README.md) links to, and those that these link to in turn. Sections of the
index are groups of the menu. Functions are described by their docstrings.
"""

from __future__ import annotations

import html
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
    """A docstring as reStructuredText: formulas typeset, names with their meanings as lists, all else prose."""
    formula: list[str] = []
    entry = False  # whether the line before is of an entry of a list
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        if line.startswith("    ") and (formula or not before):
            formula.append(line)
            continue
        if formula and line:
            yield from typeset(formula)
            formula = []
        named = ENTRY.match(line)
        entry = bool(line) and (entry or bool(named)) and not after.startswith("---")
        yield from _described(line, after, named, entry)
    yield from typeset(formula) if formula else ()


def _described(line: str, after: str, named: re.Match[str] | None, entry: bool) -> Iterator[str]:
    """A line that is of no formula. named : where it begins an entry of a list; entry : whether it is of one"""
    if after.startswith("---"):
        yield from (f"**{line}**", "")
    elif named:
        names = ", ".join(f"``{name}``" for name in named[0].removesuffix(" : ").split(", "))
        yield from ("", f"- {names}: {prose(line[named.end() :])}")
    elif not line.startswith("---"):
        yield f"{'  ' if entry else ''}{prose(line.strip())}"


# Formulas as MathML, which browsers show without a script.

TOKEN = re.compile(r"`[^`]*`|\d[\d,]*(?:\.\d+)?|[A-Za-z][\w.]*\w|[A-Za-z]|\s+|<=|>=|\.\.\.|.")
SIGNS = {"x": "×", "-": "−", "<=": "≤", ">=": "≥", "...": "…"}
SPACE, POWER = '<mspace width="0.33em"/>', '<mo stretchy="false">^</mo>'
INDEXED = re.compile(r"([A-Za-z]+)_([A-Za-z]|\d)|([A-Za-z])(\d)")


def typeset(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a formula as a table, with what a line holds for beside it; what states no equation stays as it is."""
    indent = min(len(line) - len(line.lstrip()) for line in lines if line)
    if not any(" = " in line for line in lines):
        yield from ("::", "", *lines, "")
        return
    rows = []
    for line in filter(None, lines):
        said, _, when = line[indent:].rstrip().partition("      ")
        inner = (len(said) - len(said.lstrip())) / 2
        math = f'<math style="margin-left: {inner}em">{mathematics(said.strip())}</math>'
        rows.append(f"<tr><td>{math}</td><td>{html.escape(when.strip())}</td></tr>")
    yield from (".. raw:: html", "", f'   <table class="formula">{"".join(rows)}</table>', "")


def mathematics(text: str) -> str:
    """MathML of a line: names upright, letters in italics, indices and powers where they stand."""
    groups: list[list[str]] = [[]]
    tokens = TOKEN.findall(text)
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if token == "(":
            groups.append([])
            continue
        if token == ")" and len(groups) > 1:
            inner = "".join(groups.pop())
            atom = f"<mrow>{_atom('(', False)}{inner}{_atom(')', False)}</mrow>"
        else:
            atom = SPACE if token.isspace() else _atom(token, between=before.isspace() and after.isspace())
        here = groups[-1]
        if len(here) > 1 and here[-1] == POWER:
            here[-2:] = [f"<msup>{here[-2]}{atom}</msup>"]
        else:
            here.append(atom)
    return _atom("(", False).join("".join(group) for group in groups)


def _atom(token: str, between: bool) -> str:
    """One token. between : blanks are on both sides, where x is a sign"""
    index = INDEXED.fullmatch(token)
    if index:
        base, below = filter(None, index.groups())
        return f"<msub>{_atom(base, False)}{_atom(below, False)}</msub>"
    if token in SIGNS and (between or token != "x"):
        return f"<mo>{SIGNS[token]}</mo>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token[0].isalpha() or token[0] == "`":
        word = html.escape(token.strip("`"))
        return f"<mi>{word}</mi>" if len(word) == 1 else f"<mtext>{word}</mtext>"
    return f'<mo stretchy="false">{html.escape(token)}</mo>'


def prose(text: str) -> str:
    """Text in which nothing is markup but quotes of code."""
    parts = QUOTED.split(text)
    parts[::2] = [re.sub(r"[\\*|`]|_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    return "".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("source-read", finish_page)
    app.connect("autodoc-process-docstring", describe)
