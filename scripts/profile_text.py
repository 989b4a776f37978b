"""Profiles as YAML that people read: short groups on a line, long ones in a block."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

Value = object
WIDTH = 110


def scalar(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9][^:#{}\[\],&*?|<>=!%@\"'`]*[^:#{}\[\],&*?|<>=!%@\"'` ]", text)
    return text if plain and not re.fullmatch(r"[\d.+-]+(e\d+)?", text) else json.dumps(text, ensure_ascii=False)


def flow(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def lines(value: Mapping[str, Value], indent: str = "") -> Iterable[str]:
    """Block style where a line would be too long, flow style where it is not."""
    for key, item in value.items():
        one = f"{indent}{key}: {flow(item)}"
        if len(one) <= WIDTH and not (isinstance(item, list) and item and isinstance(item[0], str)):
            yield one
        elif isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from lines(item, indent + "  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {flow(entry)}" for entry in item)
        else:
            yield f"{indent}{key}: >-"
            folded = textwrap.wrap(str(item), WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
            yield from (f"{indent}  {line}" for line in folded)


def write(folder: Path, profile: dict[str, Value]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines(profile)) + "\n"
    (folder / f"{profile['name']}.yaml").write_text(text, encoding="utf-8")
