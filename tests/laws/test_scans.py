"""Chunked scans and recurrent steps beside kernels that were measured on an H100."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from cases import graph
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.graph.inputs import Block, Learning
from xe_sizer.graph.operators import Kernels
from xe_sizer.graph.state_space import scan
from xe_sizer.laws.operator_time import operator_times

SAMPLES = Path(__file__).parents[2] / "benchmarks" / "measured" / "nvidia-h100" / "scans.jsonl"
MODELS = {"gated-delta-net": "qwen3.5-9b", "kimi-delta-attention": "kimi-linear-48b-a3b"}


def ratios(name: str, form: str) -> list[float]:
    """Predicted over measured seconds of one kind."""
    made = job(MODELS[name], gpu="h100-sxm-80gb")
    space = made.model.state_space
    assert space is not None
    kernels = Kernels(attention="decode" if form == "decode" else "flash", cache="paged")
    found = []
    for line in SAMPLES.read_text(encoding="utf-8").splitlines()[1:]:
        sample = json.loads(line)["sample"]
        if (sample["kernel"]["name"], sample["kernel"]["form"]) != (name, form):
            continue
        size = sample["kernel"]["sizes"]
        heads = {"heads": size["heads"], "key_heads": size["key_heads"], "inner": size["heads"] * size["value_dim"]}
        inputs = graph(made.model, Learning(base=False), kernels, batch=size["batch"], sequence=size["tokens"])
        one = scan(Block(inputs, {}, 1.0), replace(space, **heads))
        (time,) = operator_times([one], made.device, backward=False)
        found.append(float(np.ravel(time.forward_s)[0]) / sample["seconds"])
    return found


@pytest.mark.parametrize(
    ("name", "form", "each", "middle"),
    [
        ("gated-delta-net", "forward", 0.35, 0.2),
        ("kimi-delta-attention", "forward", 0.35, 0.2),
        ("gated-delta-net", "decode", 0.35, 0.2),
        ("kimi-delta-attention", "decode", 0.35, 0.2),
    ],
)
def test_scans_take_as_long_as_measured(name: str, form: str, each: float, middle: float) -> None:
    """Prompts of 512 to 65,536 tokens and steps of 1 to 256 sequences of flash-linear-attention 0.6."""
    found = ratios(name, form)
    assert len(found) >= 3
    assert all(1 - each < ratio < 1 + each for ratio in found), found
    assert abs(statistics.median(found) - 1) < middle
