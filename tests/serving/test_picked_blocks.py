"""Services of models whose queries pick blocks of keys: times against measured layers, caches by hand, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from serving_cases import job, served

from xe_sizer.errors import InputError
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.memory import token_bytes
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.software.number_formats import FORMATS

H200, B200 = "nvidia-dgx-h200", "dell-xe9680l-b200"


def sparse_layers(server: str, cache: str = "bf16") -> ServingJob:
    """MiniMax-M3 with sparse attention in all layers, those that attend to all tokens too."""
    made = job("minimax-m3", server=server, serve__weights="bf16", serve__kv_cache=cache)
    return replace(made, model=replace(made.model, layer_pattern=None))


def attention_us(made: ServingJob, work: Work, tp: int) -> float:
    """Of one layer."""
    parts = step_time(made, ReplicaLayouts.of(tp=tp), work).parts
    return 1e6 * float(np.ravel(parts["attention"])[0]) / made.model.layers


# Measured: one layer of MiniMax-M3 in 16 bit with its projections (aiconfigurator@095f58a, msa_generation_module and
# msa_context_module, vLLM 0.24), 16 query heads over one of keys and values, or 64 over four.


@pytest.mark.parametrize(
    ("server", "sequences", "near_us", "far_us"),
    [(H200, 16, 52, 170), (H200, 64, 90, 569), (H200, 256, 232, 2070), (B200, 64, 73, 369), (B200, 256, 164, 1280)],
)
def test_decodes_take_longer_behind_128k_tokens_by_the_scores_alone(
    server: str, sequences: int, near_us: float, far_us: float
) -> None:
    """Behind 131,072 tokens against 8,192: keys and values of 2,048 are read either way, and the indexer's of all."""
    made = sparse_layers(server)
    near, far = (attention_us(made, Work(decodes=sequences, decode_past=past), 4) for past in (8191, 131071))
    assert far - near == pytest.approx(far_us - near_us, rel=0.12)


def test_a_decode_behind_128k_tokens_by_hand() -> None:
    """64 sequences read 131,072 keys of 256 bytes and 2,048 of 1,024 bytes, at about 0.9 of 4.8 TB/s."""
    read = 64 * (131072 * 128 * 2 + 2048 * 2 * 2 * 128 * 2)
    taken = attention_us(sparse_layers(H200), Work(decodes=64, decode_past=131071), 4)
    assert taken == pytest.approx(1e6 * read / (0.9 * 4.8e12) + 2 * 10, rel=0.1)


@pytest.mark.parametrize(
    ("server", "cache", "measured_us", "products"),
    [(H200, "bf16", 27587, 786e12), (H200, "fp8", 40883, 664e12), (B200, "bf16", 9080, 1205e12)],
)
def test_prompts_attend_at_the_rate_of_kernels_of_blocks(
    server: str, cache: str, measured_us: float, products: float
) -> None:
    """A prompt of 32,768 tokens with 64 heads: in Triton on Hopper, where a cache in 8 bit is slower, MSA on Blackwell.

    Its projections make 6,144 x (8,192 + 1,024 + 640) + 8,192 x 6,144 products a token.
    """
    taken = attention_us(sparse_layers(server, cache), Work(prefills=1, prefill_tokens=32768), 1)
    projections = 1e6 * 2 * 32768 * (6144 * 9856 + 8192 * 6144) / products
    assert taken + projections == pytest.approx(measured_us, rel=0.07)


def test_cache_of_a_token() -> None:
    """60 layers of 4 heads of keys and values of 128, and in 57 a key of the indexer, in 16 bit whatever the cache.

    MiniCPM4.1 keeps a mean for 16 tokens and one for 64, each in a slot of keys and values (SGLang).
    """
    minimax, minicpm = REGISTRY.model("minimax-m3"), REGISTRY.model("minicpm4.1-8b")
    assert token_bytes(minimax, FORMATS["bf16"]) == 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2
    assert token_bytes(minimax, FORMATS["fp8"]) == 60 * 2 * 4 * 128 + 57 * 128 * 2
    assert token_bytes(minicpm, FORMATS["bf16"]) == pytest.approx(32 * 2 * 2 * 128 * 2 * (1 + 1 / 16 + 1 / 64))


@pytest.mark.parametrize(
    ("engine", "gpu", "told"),
    [
        ("tensorrt-llm", "h200-sxm-141gb", "tensorrt-llm has no sparse attention on h200-sxm-141gb"),
        ("vllm@0.23", "b200", "vllm 0.23 has no sparse attention"),
        ("sglang@0.5.12", "b200", "sglang 0.5.12 has no sparse attention"),
        ("lmdeploy", "h200-sxm-141gb", "lmdeploy has no sparse attention"),
    ],
)
def test_engines_without_kernels_refuse_minimax_m3(engine: str, gpu: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        job("minimax-m3", gpu=gpu, serve__engine=engine)
    assert [problem.message for problem in error.value.problems] == [f"{told}, which minimax-m3 needs"]


@pytest.mark.parametrize(("engine", "picks"), [("vllm", False), ("sglang@0.5.16", False), ("sglang", True)])
def test_engines_that_attend_to_all_tokens_say_so(engine: str, picks: bool) -> None:
    """vLLM serves MiniCPM4.1 without its sparse attention, SGLang with it since pull request 30360."""
    found = served(
        "minicpm4.1-8b", gpu="h100-sxm-80gb", serve__engine=engine, serve__input_tokens=30000, serve__output_tokens=100
    )
    assert (found.resolved.job.model.indexer is not None) == picks
    told = any("attends to all tokens, where queries" in warning for warning in found.resolved.warnings)
    assert told != picks


@pytest.mark.parametrize("engine", ["llama.cpp", "hf-transformers"])
def test_engines_that_mask_keep_the_keys_of_the_indexer(engine: str) -> None:
    found = served(
        "minimax-m3", server=B200, serve__engine=engine, serve__weights="q4_k_m" if engine == "llama.cpp" else "bf16",
        serve__input_tokens=3000, serve__output_tokens=100,
    )  # fmt: skip
    model = found.resolved.job.model
    assert token_bytes(model, FORMATS["bf16"]) == 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2
    assert any("works on all tokens, and masks" in warning for warning in found.resolved.warnings)


def test_short_prompts_are_the_same_with_and_without_kernels() -> None:
    """No more than 8,192 tokens attend to all tokens by the model's own rule: there is nothing to warn of."""
    found = served(
        "minicpm4.1-8b", gpu="h100-sxm-80gb", serve__engine="vllm", serve__input_tokens=4000, serve__output_tokens=100
    )
    assert not any("attends to all tokens" in warning for warning in found.resolved.warnings)
