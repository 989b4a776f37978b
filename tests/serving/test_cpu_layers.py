"""Layers of a model on the CPU, as llama.cpp has them: what leaves the card, and what they take there, by hand."""

from __future__ import annotations

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.serving import ServeResult
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import serve

REGISTRY = Registry()
# Llama 2 7B: 32 layers of 202,383,360 weights, tables of 32,000 x 4,096; q4_0 counts 4.64 bits for each.
LAYER, TABLE, BYTES = 202_383_360, 131_072_000, 4.64 / 8
KEYS = {
    "model": "llama-2-7b", "gpu": "rtx-3090", "gpus": 1, "serve.weights": "q4_0", "serve.concurrency": 1,
    "serve.input_tokens": 64, "serve.output_tokens": 64,
}  # fmt: skip


def served(**more: object) -> ServeResult:
    return serve(read_scenario(None, {**KEYS, **{f"serve.{key}": value for key, value in more.items()}}, {}), REGISTRY)


def size(result: ServeResult, name: str) -> float:
    return next(part.bytes for part in result.memory.components if part.name == name)


def test_weights_and_cache_of_the_layers_leave_the_card_with_the_head() -> None:
    whole, half = served(), served(cpu_layers=16)
    assert size(whole, "weights") == pytest.approx(BYTES * (32 * LAYER + TABLE), rel=0.002)  # no embedding
    assert size(half, "weights") == pytest.approx(BYTES * 16 * LAYER, rel=0.002)
    assert size(half, "KV cache") == pytest.approx(0.5 * size(whole, "KV cache"))


@pytest.mark.parametrize("rate", [40.0, 80.0])
def test_they_are_read_at_two_thirds_of_the_host_s_bandwidth(rate: float) -> None:
    result = served(cpu_layers=16, host_memory_gb_per_s=rate)
    (taken,) = (part.seconds for part in result.phases.decode.components if part.name == "layers on the CPU")
    read = BYTES * (16 * LAYER + TABLE) / (0.67e9 * rate)
    assert taken == pytest.approx(read, rel=0.05)  # and the cache of 96 tokens, and a floor of some operators
    assert taken > read


def test_more_layers_there_are_slower_and_leave_more_room() -> None:
    results = [served(cpu_layers=layers) for layers in (0, 1, 8, 16, 32)]
    times = [result.latency.tpot_s.expected or 0.0 for result in results]
    peaks = [result.memory.peak_bytes for result in results]
    assert times == sorted(times)
    assert times[0] > 0.0
    assert peaks == sorted(peaks, reverse=True)


def test_prompts_are_computed_on_the_card_behind_a_copy_of_the_weights() -> None:
    """16 layers over PCIe 4 x16, 31.5 GB/s of which 0.88 are reached; the head is the CPU's."""
    whole, half = (served(input_tokens=500.0, output_tokens=8.0, **more) for more in ({}, {"cpu_layers": 16}))
    copied = BYTES * 16 * LAYER / (0.88 * 31.5e9)
    head = BYTES * TABLE / (0.67 * 89.6e9)
    slower_s = (half.latency.ttft_s.expected or 0.0) - (whole.latency.ttft_s.expected or 0.0)
    assert slower_s == pytest.approx(copied + head, rel=0.1)


def test_auto_is_as_few_as_memory_needs() -> None:
    """70B in q4_k_m on 24 GB: 41 GB of weights, so that half of the layers have to leave."""
    keys = {**KEYS, "model": "llama-3.3-70b", "serve.weights": "q4_k_m"}
    found = serve(read_scenario(None, {**keys, "serve.cpu_layers": "auto"}, {}), REGISTRY)
    said = next(text for text in found.warnings if "layers and the head are on the CPU" in text)
    layers = int(said.split()[0])
    assert 30 < layers < 45
    assert found.verdict.fits
    fewer = serve(read_scenario(None, {**keys, "serve.cpu_layers": layers - 2}, {}), REGISTRY)
    usable = fewer.memory.usable_bytes
    assert fewer.memory.peak_bytes > 0.97 * usable > found.memory.peak_bytes


def test_a_model_that_fits_stays_on_the_card() -> None:
    assert served(cpu_layers="auto").memory == served().memory


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"serve.cpu_layers": 33}, "llama-2-7b has 32 layers"),
        ({"serve.cpu_layers": 4, "serve.engine": "vllm"}, "vllm computes no layers on the CPU"),
        ({"serve.host_memory_gb_per_s": 50}, "needs 'cpu_layers'"),
        ({"serve.cpu_layers": 32, "host_memory_gib": 6}, "32 layers on the CPU take 3.7 of 2.0 GiB of host memory"),
    ],
)
def test_what_cannot_be_is_said(more: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        serve(read_scenario(None, {**KEYS, **more}, {}), REGISTRY)
