"""What services come to, number by number: memory, latencies, loads and tests of each kind, kept to ten digits."""

from __future__ import annotations

import msgspec
import pytest
from cases import REGISTRY
from figures import cases, check, row

from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.search import size
from xe_sizer.serving.summary import summarise

H100 = {"gpu": "h100-sxm-80gb"}
CHAT = {"serve.input_tokens": 1200, "serve.output_tokens": 300}
CASES: dict[str, dict[str, object]] = {
    "capacity": {"model": "llama-3.1-8b", **H100, **CHAT},
    "rate": {"model": "llama-3.1-70b", **H100, **CHAT, "serve.request_rate": 12, "layout.tp": 4},
    "rate with limits": {
        "model": "llama-3.1-8b", "gpu": "l40s", **CHAT, "serve.request_rate": 9, "limits.max_ttft_s": 1.0,
        "limits.max_tpot_s": 0.06,
    },
    "spread answers": {
        "model": "qwen2.5-32b", **H100, **CHAT, "serve.request_rate": 6, "serve.output_spread": 0.8, "serve.engine":
        "sglang",
    },
    "concurrency": {"model": "mistral-7b-v0.1", "gpu": "a100-sxm-80gb", **CHAT, "serve.concurrency": 100},
    "users": {"model": "qwen3-32b", **H100, **CHAT, "serve.users": 200, "serve.prefix_hit_share": 0.5},
    "batch": {"model": "llama-2-13b", **H100, **CHAT, "serve.batch": 32, "serve.engine": "tensorrt-llm"},
    "test": {"model": "llama-3.1-8b", **H100, **CHAT, "serve.requests": 300, "serve.concurrency": 48},
    "test at a rate": {
        "model": "llama-3.1-8b", **H100, **CHAT, "serve.requests": 200, "serve.request_rate": 15,
        "serve.input_spread": 0.4,
    },
    "experts": {
        "model": "mixtral-8x7b", **H100, **CHAT, "layout.tp": 2, "layout.ep": 2, "serve.concurrency": 64,
    },
    "latent attention": {"model": "deepseek-v3", "gpu": "h200-sxm-141gb", **CHAT, "serve.concurrency": 128},
    "fp8": {"model": "llama-3.1-70b", **H100, **CHAT, "serve.weights": "fp8", "serve.kv_cache": "fp8", "layout.tp": 2},
    "int4": {"model": "llama-3.1-8b", "gpu": "rtx-4090", **CHAT, "serve.weights": "int4", "serve.request_rate": 2},
    "pipeline": {"model": "llama-3.1-405b", **H100, **CHAT, "layout.tp": 8, "layout.pp": 2, "serve.request_rate": 1},
    "adapters": {
        "model": "llama-3.1-8b", **H100, **CHAT, "serve.adapters": 20, "lora.rank": 16, "serve.concurrency": 32,
    },
    "drafts": {
        "model": "llama-3.1-70b", **H100, **CHAT, "layout.tp": 4, "serve.draft_tokens": 3, "serve.acceptance_rate": 0.7,
        "serve.request_rate": 4,
    },
    "hybrid": {"model": "jamba-v0.1", "gpu": "a100-sxm-80gb", **CHAT, "serve.concurrency": 64},
    "images": {"model": "qwen2-vl-7b", **H100, **CHAT, "serve.images": 1, "serve.request_rate": 5},
    "host cache": {
        "model": "llama-3.1-8b", **H100, "serve.input_tokens": 8000, "serve.output_tokens": 300, "serve.users": 60,
        "serve.prefix_hit_share": 0.9, "serve.kv_host_gib": 200,
    },
    "pools": {
        "model": "llama-3.1-70b", **H100, **CHAT, "serve.request_rate": 20, "serve.prefill_replicas": 2,
        "limits.max_ttft_s": 1.0, "limits.max_tpot_s": 0.05,
    },
}  # fmt: skip
WORDS = ("scenario", "warnings", "cautions", "sources", "advice", "schema_version")


@pytest.mark.parametrize("case", CASES)
def test_figures_of_a_service(case: str) -> None:
    result = summarise(size(resolve(read_scenario(None, CASES[case], {}), REGISTRY)), details=False)
    told = msgspec.to_builtins(result)
    found = {name: row(*leaves(value)) for name, value in told.items() if name not in WORDS}
    check("serving", case, {name: text for name, text in found.items() if text})


def leaves(value: object) -> list[float]:
    """Every number of nested groups and lists, in their order."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in leaves(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in leaves(item)]
    return [float(value)] if isinstance(value, int | float) else []


def test_no_figures_are_kept_of_what_nobody_asks() -> None:
    assert cases("serving") == set(CASES)
