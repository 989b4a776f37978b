"""Prefill and decode of LLaMA on A100 as llm-analysis publishes them, with the same assumptions.

Source: examples/llama of cli99/llm-analysis (README and outputs_infer*): prompts of 512 tokens, 32 generated, batch 1,
A100 80GB. It takes fixed efficiencies and the larger of compute and memory, as ours do with fixed efficiencies.
What remains different is stated below, term by term; of the products it takes 8/3 of the hidden size for the MLP,
where LLaMA rounds up: 0.5 to 0.8 % less.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import engine_file, keys, served

from xe_sizer.serving.estimate import ServingEstimate

TOKENS, OUTPUTS = 512, 32
A100_FLOPS, A100_BYTES = 312e12, 2039e9  # in 16 bit
MODELS = ("llama-7b", "llama-13b", "llama-33b", "llama-65b")
ALONE, TWO = (1, 1, 1, 1), (1, 1, 1, 2)
# Scheme, tensor parallel ranks, efficiencies of FLOPs and memory, milliseconds of prefill and decode by model.
TABLES = {
    "w16a16": (TWO, 1.0, 1.0, (22.41, 43.1, 107.74, 113.33), (6.73, 12.94, 32.36, 33.85)),
    "w16a16 at 0.7 and 0.9": (TWO, 0.7, 0.9, (31.89, 61.38, 153.6, 159.47), (7.48, 14.38, 35.95, 37.47)),
    "w4a4k4": (ALONE, 1.0, 1.0, (5.9, 11.2, 27.69, 55.2), (1.78, 3.36, 8.25, 16.41)),
    "w4a8k8": (ALONE, 1.0, 1.0, (11.4, 21.83, 54.38, 108.83), (1.85, 3.47, 8.46, 16.76)),
    "w4a16k16": (ALONE, 1.0, 1.0, (22.41, 43.1, 107.74, 216.08), (1.99, 3.69, 8.89, 17.47)),
    "w8a8k8": (ALONE, 1.0, 1.0, (11.4, 21.83, 54.38, 108.83), (3.43, 6.55, 16.28, 32.56)),
}
CELLS = [(table, index) for table in TABLES for index in range(len(MODELS))]
ENGINE = """
name: mine
parent: generic-engine
describes: Kernels that move no more than they must.
kernels: {rotary: in-attention, cache: in-attention, residual: in-norm, norm: fused, activation: fused}
exchanges: {all_reduce: custom, floor_us: 8}
"""
# Its configuration of the accelerator: an exchange takes the link's rate, and 8 us at least.
GPU = """
name: a100-of-llm-analysis
vendor: NVIDIA
generation: ampere
memory_gib: 80
memory_bandwidth_gb_per_s: 2039
peak_tflops: {bf16: 312, fp16: 312, int8: 624, int4: 1248}
pcie: {gen: 4, lanes: 16}
link: {kind: nvlink3, one_way_gb_per_s: 300}
laws:
  collectives:
    all_reduce: {ranks: [2], alpha_us: [8], bus_gb_per_s: [300], source: peak rate}
source: {title: gpu_configs/a100-sxm-80gb.json}
"""


def answer(folder: Path, table: str, index: int) -> ServingEstimate:
    ranks, flops, memory, _, _ = TABLES[table]
    gpu = "a100-sxm-80gb"
    if ranks[index] > 1:
        gpu = engine_file(folder, GPU, "a100-of-llm-analysis")
    return served(
        MODELS[index], gpu=gpu, gpus=ranks[index], layout__tp=ranks[index], serve__engine=engine_file(folder, ENGINE),
        serve__scheme=table.split(maxsplit=1)[0], serve__batch=1, serve__input_tokens=TOKENS,
        serve__output_tokens=OUTPUTS, efficiency__flops=flops, efficiency__memory=memory,
    )  # fmt: skip


@pytest.mark.parametrize(("table", "index"), CELLS)
def test_prefill(tmp_path: Path, table: str, index: int) -> None:
    """Left out there: what residual sums (read, written), the activation (two read, one written) and attention move.

    Different there: attention is not masked, and it and the logits of the whole prompt multiply in the activations'
    width. Ours: attention in 16 bit and logits of the last token, for which the head's table is read once; they read
    the embedding's, of the same size.
    """
    ranks, flops, memory, published_ms, _ = TABLES[table]
    found, model = answer(tmp_path, table, index), REGISTRY.model(MODELS[index])
    width = found.resolved.job.scheme.activations.element_bytes / 2
    scores = 2 * 2 * TOKENS**2 * model.hidden * model.layers
    logits = 2 * TOKENS * model.vocab * model.hidden
    moved = TOKENS * model.layers * (
        2 * 2 * model.hidden * 2
        + 3 * model.ffn * 2 / ranks[index]
    )  # fmt: skip
    more = (scores * (width - 1 / 2) + logits * width) / ranks[index] / (flops * A100_FLOPS)
    seconds = found.point.ttft_s - moved / (memory * A100_BYTES) + more
    assert seconds * 1e3 == pytest.approx(published_ms[index], rel=0.02)


@pytest.mark.parametrize(("table", "index"), CELLS)
def test_decode(tmp_path: Path, table: str, index: int) -> None:
    """It loads and stores the whole cache at every step, so what reading the cache takes counts twice."""
    found = answer(tmp_path, table, index)
    seconds = found.point.tpot_s + float(found.point.decode.parts["attention"][0])
    assert seconds * 1e3 == pytest.approx(TABLES[table][4][index], rel=0.02)


@pytest.mark.parametrize("scheme", ["w16a16", "w4a8k8"])
def test_the_speed_of_light_is_both_efficiencies_at_one(scheme: str) -> None:
    """On one accelerator exactly; among several the ideal hides the exchanges besides."""
    flags = {"gpu": "a100-sxm-80gb", "serve.scheme": scheme, "serve.batch": 1, "serve.input_tokens": TOKENS}
    for ranks in (1, 2):
        placed = keys({**flags, "gpus": ranks, "layout.tp": ranks})
        light = served("llama-7b", efficiency__ideal=True, **placed).point
        fixed = served("llama-7b", efficiency__flops=1.0, efficiency__memory=1.0, **placed).point
        for name in ("prefill", "decode"):
            one, other = getattr(light, name).parts, getattr(fixed, name).parts
            exchanged = one.pop("tensor-parallel communication"), other.pop("tensor-parallel communication")
            assert one == other
            assert exchanged[0] == 0
            assert (exchanged[1] > 0) == (ranks > 1)


def test_nothing_is_faster_than_the_speed_of_light() -> None:
    for scheme in ("w16a16", "w8a8", "w4a16"):
        flags = keys({"gpu": "a100-sxm-80gb", "serve.scheme": scheme, "serve.batch": 8})
        light, law = (served("llama-7b", **flags, **given).point for given in ({"efficiency__ideal": True}, {}))
        assert light.ttft_s < law.ttft_s
        assert light.tpot_s < law.tpot_s


@pytest.mark.parametrize("engine", ["vllm", "tgi", "hf-transformers"])
def test_fixed_efficiencies_price_the_accelerator_alone(engine: str) -> None:
    """No host before a request, in a step or between steps: what is left are the operators."""
    for fixed in ({"efficiency__ideal": True}, {"efficiency__flops": 0.7, "efficiency__memory": 0.9}):
        point = served("llama-7b", gpu="a100-sxm-80gb", serve__engine=engine, serve__batch=1, **fixed).point
        prefill_s = float(point.prefill.total_s[0])
        assert point.prefill.parts["host"][0] == point.decode.parts["host"][0] == 0
        assert point.ttft_s == pytest.approx(prefill_s, rel=1e-12)


# Tests that others ran and published, answered as tests: what the benchmark tool printed beside what is predicted.
#
# Source: vLLM issue 6781 (https://github.com/vllm-project/vllm/issues/6781), July 2024: Qwen2-72B-Instruct-GPTQ-Int4 on
# one H100 with vLLM 0.5.3.post1, `benchmark_serving.py --dataset-name sharegpt --request-rate 12 --num_prompts=1000`,
# and `--max-model-len 8000`. Lengths of ShareGPT spread by about their mean. Nothing is fitted to it.


def test_an_overloaded_server_of_a_72b_model() -> None:
    found = served(
        "qwen2-72b",
        gpus=1,
        serve__engine="vllm@0.5.3",
        serve__weights="int4",
        serve__max_model_len=8000,
        serve__request_rate=12.0,
        serve__requests=1000,
        serve__input_tokens=217.393,
        serve__output_tokens=193.576,
        serve__input_spread=1.0,
        serve__output_spread=0.9,
    )
    test = found.choice.test
    assert test is not None
    assert test.duration_s == pytest.approx(172.44, rel=0.1)
    assert test.output_tokens_per_s == pytest.approx(1122.60, rel=0.1)
    assert test.ttft_s.mean() == pytest.approx(18.799, rel=0.2)
    assert np.percentile(test.ttft_s, 99) == pytest.approx(54.378, rel=0.15)
