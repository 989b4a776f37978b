"""Formats of 8-bit integers in records: whose they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import Record
from xe_sizer.evidence.serving_scenario import build_inference

REGISTRY = RecordRegistry()
PLAIN = Record(
    id="r",
    job="inference",
    stack="vllm",
    model="llama-2-7b",
    gpu="a100-sxm-80gb",
    gpus=1,
    input_len=128,
    output_len=128,
)


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({"model": "qwen2.5-7b", "precision": "bf16", "weights": "int8"}, "gptq-int8"),  # as its publisher offers
        ({"model": "qwen2.5-7b", "precision": "int8", "weights": "int8"}, "int8"),
        ({"model": "qwen2.5-7b", "precision": "bf16", "weights": "int8", "quantiser": "bitsandbytes"}, "int8"),
        ({"model": "llama-2-7b", "precision": "fp16", "weights": "int8"}, "int8"),
        ({"model": "llama-2-7b", "precision": "fp16", "weights": "int8", "quantiser": "auto-gptq"}, "gptq-int8"),
    ],
)
def test_integers_of_8_bits_are_those_of_the_library_that_made_them(stated: dict[str, Any], read: str) -> None:
    found = build_inference(msgspec.structs.replace(PLAIN, **stated), REGISTRY).values
    assert found["serve.weights"] == read
