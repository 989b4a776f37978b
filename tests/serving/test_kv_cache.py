"""Bytes of the cache against arithmetic: full, grouped, latent and windowed attention, recurrent states, formats."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import job, problems

from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import (
    block_tokens,
    max_sequences,
    sequence_bytes,
    serving_memory,
    state_bytes,
    token_bytes,
)
from xe_sizer.software.number_formats import FORMATS

BF16 = FORMATS["bf16"]
WINDOWED = ("mistral-7b-v0.1", "gemma-2-9b", "gemma-3-27b", "gpt-oss-20b")
HYBRIDS = ("jamba-v0.1", "nemotron-h-8b", "qwen3-next-80b-a3b", "granite-4.0-h-small")


def held(name: str, tokens: float, cache: str = "bf16", block: int = 1, **sizes: int) -> float:
    return float(sequence_bytes(REGISTRY.model(name), FORMATS[cache], tokens, ReplicaLayouts.of(**sizes), block)[0])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("llama-2-7b", 2 * 32 * 32 * 128 * 2),
        ("llama-3-8b", 131072),
        ("llama-3.1-70b", 327680),
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("deepseek-v2-lite", 27 * (512 + 64) * 2),
        ("qwen2.5-7b", 2 * 28 * 4 * 128 * 2),
        ("gpt-oss-20b", 2 * 12 * 8 * 64 * 2),
        ("gemma-3-27b", 2 * 10 * 16 * 128 * 2),
        ("mistral-7b-v0.1", 2 * 32 * 8 * 128 * 2),
        ("gemma-4-31b", 2 * 10 * 4 * 512 * 2),
    ],
)
def test_bytes_of_a_token(name: str, size: int) -> None:
    """2 x layers x KV heads x head size x 2 bytes, or the latent with its rotary part; windowed layers keep no more."""
    assert token_bytes(REGISTRY.model(name), BF16) == size


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3.1-70b", "deepseek-v3"])
def test_a_sequence_is_its_tokens(name: str) -> None:
    assert held(name, 1000) == 1000 * token_bytes(REGISTRY.model(name), BF16)


@pytest.mark.parametrize("cache", ["bf16", "fp16", "fp8", "int8", "int4-plain", "fp32"])
@pytest.mark.parametrize("name", ["llama-2-7b", "deepseek-v3", "gemma-2-9b"])
def test_formats_scale_the_cache(name: str, cache: str) -> None:
    share = {"fp32": 2.0, "fp8": 0.5, "int8": 0.5, "int4-plain": 0.25}.get(cache, 1.0)
    assert held(name, 5000, cache) == share * held(name, 5000)


def test_the_indexer_keeps_its_keys_in_fp8_whatever_the_cache() -> None:
    """DeepSeek-V3.2 caches a key of 128 elements and its scale beside the latent, for every token and layer.

    In fp8 sparse kernels keep 656 bytes of the latent (README of FlashMLA): 512, four scales, 64 in 16 bit.
    """
    beside = held("deepseek-v3.2", 1) - held("deepseek-v3", 1)
    assert beside == pytest.approx(61 * (128 + 4), rel=1e-12)
    assert held("deepseek-v3.2", 1, "fp8") == pytest.approx(61 * (656 + 128 + 4), rel=1e-12)


@pytest.mark.parametrize("name", WINDOWED)
def test_windowed_layers_keep_a_window(name: str) -> None:
    """A long sequence grows in its other layers only, which here are none, a half or a sixth."""
    model = REGISTRY.model(name)
    window = model.sliding_window
    assert window is not None
    layer = 2 * model.kv_heads * model.head_dim * 2
    full = model.layers - model.windowed_layers
    grown = held(name, 100_000) - held(name, 50_000)
    assert grown == full * layer * 50_000
    at_the_end = held(name, 100_000) - full * layer * 100_000
    assert model.windowed_layers * layer * window <= at_the_end <= model.windowed_layers * layer * (window + 1)
    assert held(name, window // 2) == model.layers * layer * (window // 2)


def test_windows_end_in_a_block() -> None:
    model = REGISTRY.model("mistral-7b-v0.1")
    token = 2 * 32 * 8 * 128 * 2
    assert model.sliding_window == 4096
    assert held("mistral-7b-v0.1", 32_000, block=64) == (4096 + 64) * token


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (16, 1), (17, 2), (160, 10)])
def test_the_cache_is_given_out_in_blocks(tokens: int, blocks: int) -> None:
    assert held("llama-3.1-8b", tokens, block=16) == blocks * 16 * 131072


@pytest.mark.parametrize("name", HYBRIDS)
def test_recurrent_states_do_not_grow(name: str) -> None:
    """Only the layers with attention keep tokens; the state is there from the first token on."""
    model, one = REGISTRY.model(name), ReplicaLayouts.of()
    attention = sum(count for kind, count in model.layer_kinds if kind.mixer == "attention")
    token = 2 * attention * model.kv_heads * model.head_dim * 2
    state = float(state_bytes(model, one)[0])
    assert 0 < attention < model.layers
    assert state > 0
    for tokens in (1, 1000, 100_000):
        assert held(name, tokens) == pytest.approx(state + tokens * token, rel=1e-12)
    assert held(name, 0, "fp8") == state


def test_state_of_jamba_by_hand() -> None:
    """28 layers of 8,192 channels with 16 states in float32, and the last 3 inputs of the convolution in 16 bit."""
    assert float(state_bytes(REGISTRY.model("jamba-v0.1"), ReplicaLayouts.of())[0]) == 28 * 8192 * (16 * 4 + 3 * 2)


def element_bytes(name: str, **flags: object) -> float:
    space = job(name, **flags).model.state_space
    assert space is not None
    return space.state_element_bytes


# Bytes of an element of the states: those of vLLM, SGLang and TensorRT-LLM, where nobody says; and what is asked for.
KEPT = {
    "jamba-v0.1": (2, 4, 2), "mamba-2.8b": (2, 4, 2), "zamba2-7b": (2, 4, 2), "granite-4.0-h-small": (2, 4, 2),
    "falcon-h1-34b": (2, 4, 2), "minimax-text-01": (2, 4, 2), "qwen3-next-80b-a3b": (2, 4, 2),
    "nemotron-h-8b": (4, 4, 4), "nemotron-3-nano": (4, 4, 4), "qwen3.5-9b": (4, 4, 2), "kimi-linear-48b-a3b": (4, 4, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_states_have_the_type_that_the_engine_or_the_model_says(name: str) -> None:
    engines = ("vllm", "sglang", "tensorrt-llm")
    assert tuple(element_bytes(name, serve__engine=engine) for engine in engines) == KEPT[name]


@pytest.mark.parametrize(
    ("name", "engine", "asked", "size"),
    [
        ("zamba2-7b", "vllm", "float32", 4),
        ("nemotron-h-8b", "vllm", "bfloat16", 2),
        ("nemotron-h-8b", "vllm@0.12", None, 2),
        ("nemotron-h-8b", "vllm@0.13", None, 4),
        ("kimi-linear-48b-a3b", "vllm", "float32", 4),
        ("kimi-linear-48b-a3b", "sglang", "bfloat16", 2),
        ("zamba2-7b", "llama.cpp", None, 4),
    ],
)
def test_options_and_releases_set_the_type_of_states(name: str, engine: str, asked: str | None, size: int) -> None:
    told = {"serve__state_dtype": asked} if asked else {}
    assert element_bytes(name, serve__engine=engine, **told) == size


@pytest.mark.parametrize(
    ("name", "engine", "message"),
    [
        ("llama-3.1-8b", "vllm", "llama-3.1-8b has no recurrent states to keep in bfloat16"),
        ("lfm2-350m", "vllm", "lfm2-350m has no recurrent states to keep in bfloat16"),
        ("kimi-linear-48b-a3b", "vllm", "vllm has no option that keeps states of kimi-delta-attention in bfloat16"),
        ("zamba2-7b", "llama.cpp", "llama.cpp has no option that keeps states of mamba-2 in bfloat16"),
    ],
)
def test_types_of_states_that_nothing_takes_are_refused(name: str, engine: str, message: str) -> None:
    found = problems(model=name, serve__engine=engine, serve__state_dtype="bf16")
    assert [message in one for one in found] == [True]


def test_state_of_zamba_2_by_hand() -> None:
    """81 layers of 7,168 channels with 64 states, which a sequence has in 16 bit or in 32."""
    kept = [job("zamba2-7b", serve__state_dtype=kept).model for kept in ("bfloat16", "float32")]
    narrow, wide = (float(state_bytes(model, ReplicaLayouts.of())[0]) for model in kept)
    assert wide - narrow == 81 * 7168 * 64 * 2


def test_state_of_nemotron_h_by_hand() -> None:
    """24 layers, 128 heads of 64 with 128 states; the convolution sees values, inputs and outputs of 8 groups."""
    mixed = 8192 + 2 * 8 * 128
    assert float(state_bytes(REGISTRY.model("nemotron-h-8b"), ReplicaLayouts.of())[0]) == 24 * (
        8192 * 128 * 4 + mixed * 3 * 2
    )


@pytest.mark.parametrize(("name", "heads"), [("llama-3.1-8b", 8), ("qwen2.5-7b", 4), ("falcon-7b", 1)])
def test_heads_are_shared_until_there_is_one_a_rank(name: str, heads: int) -> None:
    whole = held(name, 1000)
    for tp in (1, 2, 4, 8, 16):
        assert held(name, 1000, tp=tp) == pytest.approx(whole / min(tp, heads), rel=1e-12)


def test_every_rank_keeps_the_latent() -> None:
    sizes = [held("deepseek-v3", 1000, tp=tp) for tp in (1, 2, 8, 16)]
    assert sizes == [sizes[0]] * 4


def test_stages_share_the_layers_and_attention_ranks_nothing() -> None:
    whole = held("llama-3.1-70b", 1000)
    assert held("llama-3.1-70b", 1000, pp=4) == whole / 4
    assert held("llama-3.1-70b", 1000, pp=3) == whole * 27 / 80  # the fullest of 80 layers on 3
    assert held("mixtral-8x7b", 1000, dp=4, ep=4) == held("mixtral-8x7b", 1000)


def test_one_call_prices_many_placements() -> None:
    model, placements = REGISTRY.model("gemma-2-9b"), ReplicaLayouts.of(tp=[1, 2, 4, 8], pp=[1, 2, 1, 2])
    together = sequence_bytes(model, BF16, 9000.0, placements, 16)
    alone = [sequence_bytes(model, BF16, 9000.0, placements[i : i + 1], 16)[0] for i in range(4)]
    assert np.array_equal(together, alone)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("qwen3.5-0.8b", 544), ("qwen3.5-9b", 528), ("qwen3.5-27b", 784), ("qwen3.5-35b-a3b", 1056)],
)
def test_blocks_hold_a_state(model: str, tokens: int) -> None:
    """What vLLM 0.18 to 0.25 logs, in 16 bit on one card: "Setting attention block size to ... tokens"."""
    one = ReplicaLayouts.of()
    assert block_tokens(job(model, gpu="h200-sxm-141gb", serve__engine="vllm"), one).tolist() == [tokens]
    assert block_tokens(job(model, gpu="h200-sxm-141gb", serve__engine="sglang"), one).tolist() == [1]


def test_states_have_a_share_of_their_own() -> None:
    """Of SGLang's pool 0.474 holds states, the rest keys and values: of short sequences, states are fewer."""
    made = job("qwen3.5-9b", gpu="h200-sxm-141gb", serve__engine="sglang")
    one = ReplicaLayouts.of()
    memory = serving_memory(made, one)
    pool, state = float(memory.pool_bytes[0]), float(state_bytes(made.model, one)[0])
    short, long = (float(max_sequences(made, one, memory, tokens)[0]) for tokens in (100, 50_000))
    assert short == pytest.approx(0.474 * pool / state)
    assert long == pytest.approx(0.526 * pool / (50_000 * 8 * 2 * 4 * 256 * 2))
