"""Rates of 8-bit recipes against products that were timed on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from xe_sizer.graph.inputs import CASTS

FILE = Path(__file__).parents[2] / "benchmarks" / "measured" / "nvidia-h100" / "experts.jsonl"


def test_blockwise_products_reach_their_share_of_tensorwise_ones() -> None:
    """Forward and input gradient with 128 x 128 of the weight, weight gradient with 128 elements of both operands."""
    seconds: dict[tuple[int, int, int], dict[str, float]] = {}
    for row in map(json.loads, FILE.read_text(encoding="utf-8").splitlines()[1:]):
        if row["op"] == "scaled_mm" and row["m"] >= 1024:
            seconds.setdefault((row["m"], row["n"], row["k"]), {})[row["recipe"]] = row["seconds"]
    shares = [
        3.0 * each["tensorwise"] / (2.0 * each["blockwise"] + each["blockwise-wgrad"])
        for each in seconds.values()
        if "blockwise" in each
    ]
    assert len(shares) == 32
    assert median(shares) == pytest.approx(CASTS["transformer-engine"]["blockwise"].rate, abs=0.02)
