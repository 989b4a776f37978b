"""docs/reference/stacks.md is what the files of the stacks say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
stacks = importlib.import_module("stacks")

WRITE = "docs/reference/stacks.md is not what the stacks say. Write it anew: python scripts/stacks.py"


def test_the_page_is_what_the_stacks_say() -> None:
    assert stacks.PAGE.read_text(encoding="utf-8") == stacks.page(), WRITE


def test_the_page_has_every_stack_and_its_releases() -> None:
    rows = [line for line in stacks.page().splitlines() if line.startswith(("| `", "| [`"))]
    changed = list(stacks.list_releases())
    assert len(rows) == 3 * len(stacks.BUILT_IN.names("stack")) + len(changed) + len(stacks.MEANINGS)
    assert any("`hf-trainer` | 4.36 (23.12) | `kernels.attention` eager" in row for row in rows)


def test_every_key_of_a_release_is_explained() -> None:
    told = [row.rstrip(" |\n").split(" | ")[2] for row in stacks.list_releases()]
    keys = {key.partition("`")[0].partition(".")[0] for text in told for key in text.split("`")[1::2]}
    assert keys == set(stacks.MEANINGS)
