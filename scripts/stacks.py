"""Write docs/stacks.md from the files of the stacks: python scripts/stacks.py

The page lists every stack with what it is, and what older releases of it did otherwise, each with its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.inherited import releases
from xe_sizer.profiles.source import load_yaml
from xe_sizer.software.stack import Stack, load_stack, stack_names

PAGE = Path(__file__).parents[1] / "docs" / "stacks.md"
HEADER = """# Stacks

Written from the files of the stacks by `python scripts/stacks.py`.

A stack says what a training framework does: its kernels, the types of its weights and states, its launches, what it
overlaps, and what it does where nobody says otherwise. `--stack` takes the name of a stack, another name of it, a path
to a [file of your own](adding.md), and a release: `nemo@24.07`, "NeMo 24.07", `transformers==4.36`. A release is the
framework's own number, or a month: `torchtitan@2024.12`. Without one it is the newest that is known.
`xe-sizer profiles show NAME` shows every figure of a stack.
"""
DEFAULTS = """
## Defaults

What each does in its newest release where nobody says otherwise. Weights: the type that they are loaded in, where there
is a choice. ZeRO: stage with several GPUs (3 for FSDP), where one is usual. A dash: as memory needs, or as the layout
search finds.

| stack | also called | parent | weights | recomputes | ZeRO | padding | loss | attention |
|---|---|---|---|---|---|---|---|---|
"""
RELEASES = """
## Releases

What releases before the one that is named did otherwise; of what two rows say, the older one holds for releases before
both.

| stack | before | was otherwise | source |
|---|---|---|---|
"""
SOURCES = """
## Sources

| stack | what it is | source |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    stacks = [load_stack(name) for name in stack_names()]
    return "".join((HEADER, DEFAULTS, *map(_defaults, stacks), RELEASES, *_releases(), SOURCES, *map(_source, stacks)))


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _defaults(stack: Stack) -> str:
    does, kernels = stack.defaults, stack.kernels
    words = (does.weights_dtype, does.recompute, does.usual_zero, does.padding, kernels.loss, kernels.attention)
    other = ", ".join(f"`{alias}`" for alias in stack.aliases)
    return _row(f"`{stack.name}`", other, stack.parent or "", *("-" if word is None else word for word in words))


def _source(stack: Stack) -> str:
    return _row(f"`{stack.name}`", stack.describes, stack.source)


def _releases() -> Iterator[str]:
    for name in stack_names():
        for row in releases(load_yaml(BUILT_IN.path("stack", name))):
            release = f"{row.before} ({row.dated})" if row.dated else row.before
            yield _row(f"`{name}`", release, ", ".join(_changes(row.differs)), row.source)


def _changes(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _changes(item, f"{path}.{key}" if path else str(key))
    else:
        text = "/".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
        yield f"`{path}` {text.lower() if isinstance(value, bool) else text}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
