"""An import as a scenario file that runs: every line says in a comment where its value comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.importers.draft import ASSUMED, FLAG, TOOL_DEFAULT
from xe_sizer.profiles.text import name_of, parse_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.errors import Location
    from xe_sizer.importers.draft import Fact, Ignored
    from xe_sizer.importers.imported import Imported

_PLAIN = re.compile(r"[A-Za-z0-9_./@+-][A-Za-z0-9_./@+ -]*")
_FIRST_KEYS = ("model", "server", "gpu", "gpus", "nodes", "job", "stack", "precision", "optimizer", "attention", "loss")
_ASIDE = "# "
_WIDEST = 60  # columns of keys and values beside which comments are aligned
_LONGEST = 100


def as_yaml(imported: Imported) -> str:
    """The text of the scenario; at its end, as comments, what changes memory or time and could not be said."""
    lines = list(_lines(imported))
    width = min(max((len(line) for line, _ in lines), default=0), _WIDEST)
    text = [f"# Read from {name_of(imported.path)} ({imported.tool.title})"]
    text += [f"{line:{width}}  # {comment}" if comment else line for line, comment in lines]
    text += _told("Not in this scenario, though it changes memory or time:", imported.lost, imported)
    text += _told("Not known, and not read:", imported.unknown, imported)
    return "\n".join(_clean(line) for line in text) + "\n"


def _lines(imported: Imported) -> Iterator[tuple[str, str]]:
    """Lines of the file, each with its comment."""
    facts = imported.facts
    top = [key for key in facts if "." not in key]
    top.sort(key=lambda key: _FIRST_KEYS.index(key) if key in _FIRST_KEYS else len(_FIRST_KEYS))
    for key in top:
        yield _line("", key, facts[key]), _comment(facts[key], imported)
    yield from _sections(imported, "", "")


def _sections(imported: Imported, prefix: str, indent: str) -> Iterator[tuple[str, str]]:
    """The groups of keys below a prefix."""
    inside = {key.removeprefix(prefix): fact for key, fact in imported.facts.items() if key.startswith(prefix)}
    for section in dict.fromkeys(key.partition(".")[0] for key in inside if "." in key):
        bare = all(fact.aside for key, fact in inside.items() if key.startswith(f"{section}."))
        yield f"{indent}{_ASIDE if bare else ''}{section}:", ""
        yield from _section(imported, f"{prefix}{section}.", f"{indent}  ")


def _section(imported: Imported, prefix: str, indent: str) -> Iterator[tuple[str, str]]:
    inside = {key.removeprefix(prefix): fact for key, fact in imported.facts.items() if key.startswith(prefix)}
    for key, fact in inside.items():
        if "." not in key:
            yield _line(indent, key, fact), _comment(fact, imported)
    yield from _sections(imported, prefix, indent)


def _line(indent: str, key: str, fact: Fact) -> str:
    """A key with its value; as a comment where the scenario goes without it."""
    return f"{indent}{_ASIDE if fact.aside else ''}{key}: {scalar(fact.written)}"


def scalar(value: object) -> str:
    """A value as YAML has it on one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(scalar(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {scalar(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        return value if _reads_back(value) else json.dumps(value, ensure_ascii=False)
    return "null" if value is None else json.dumps(value)


def _reads_back(word: str) -> bool:
    """Whether text without quotes is read as the same text."""
    try:
        return bool(_PLAIN.fullmatch(word)) and word == word.strip() and parse_scalar(word) == word
    except InputError:
        return False


def _comment(fact: Fact, imported: Imported) -> str:
    note = "".join(f": {said}" for said in (fact.note, fact.aside) if said)
    if fact.origin == TOOL_DEFAULT:
        return f"default of {imported.tool.title}{note}"
    if fact.origin == ASSUMED:
        return f"assumed{note}"
    if fact.origin == FLAG:
        return "passed on the command line"
    return f"{_short(fact.where, imported)}{note}"


def _short(where: Location | None, imported: Imported) -> str:
    """A place in the file that the title names as its line; one in another file with that file."""
    if where is None or where.line is None:
        return Path(where.name).name if where else ""
    return f"line {where.line}" if where.name == name_of(imported.path) else f"{Path(where.name).name}:{where.line}"


def _told(title: str, ignored: list[Ignored], imported: Imported) -> list[str]:
    if not ignored:
        return []
    return ["", f"# {title}", *(f"#   {_short(each.where, imported)}: {each.key}: {each.why}" for each in ignored)]


def _clean(line: str) -> str:
    """A line without control characters, and without what no reader of a comment needs."""
    shown = "".join(char if char.isprintable() else " " for char in line).rstrip()
    return shown if len(shown) <= 4 * _LONGEST else f"{shown[: 4 * _LONGEST]} ..."
