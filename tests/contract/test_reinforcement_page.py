"""The page on reinforcement learning lists every key of the section, with its option."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from xe_sizer.scenario.options import OPTION_OF
from xe_sizer.scenario.schema import RolloutSection

PAGE = (Path(__file__).parents[2] / "docs" / "reinforcement-learning.md").read_text(encoding="utf-8")
KEYS = [f"rollout.{field.encode_name}" for field in msgspec.structs.fields(RolloutSection)]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_listed_with_its_option(key: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("|") and f"`{key}`" in line)
    assert f"`--{OPTION_OF[key]}`" in row
