"""The longest context and the most sessions that fit, and what engines do with a longer one as they start."""

from __future__ import annotations

import math

import pytest
from serving_cases import asked, job, problems, served

from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import longest_context, serving_memory, sessions_held
from xe_sizer.serving.summary import summarise

H100S = "dell-xe9680-h100"
TOKEN = 131_072  # bytes that Llama 3.1 8B keeps of a token: 32 layers x 2 x 8 heads x 128 x 2


def pool(name: str = "llama-3.1-8b", tp: int = 1, **flags: object) -> float:
    return float(serving_memory(job(name, server=H100S, **flags), ReplicaLayouts.of(tp=tp)).pool_bytes[0])


def test_sessions_are_whole_ones_in_whole_blocks() -> None:
    """A sequence of 5,001 tokens takes 313 blocks of 16."""
    made, one = job(server=H100S), ReplicaLayouts.of()
    assert sessions_held(made, one, 5000.0, 1.0)[0] == math.floor(pool() / (313 * 16 * TOKEN))


def test_each_attention_rank_holds_whole_sessions() -> None:
    made = job("mixtral-8x7b", server=H100S)
    two = ReplicaLayouts.of(tp=1, ep=2, dp=2)
    memory = serving_memory(made, two)
    each = math.floor(float(memory.pool_bytes[0]) / (2048 * TOKEN))
    assert sessions_held(made, two, 2000.0, 48.0)[0] == 2 * each


def test_the_longest_context_fills_the_pool() -> None:
    """7 sequences of T tokens in blocks of 16: T is 16 times the blocks that each may have."""
    made, one = job(server=H100S), ReplicaLayouts.of()
    blocks = math.floor(pool() / 7 / (16 * TOKEN))
    assert longest_context(made, one, 7.0, 100.0, None)[0] == 16 * blocks


def test_the_longest_context_ends_where_it_is_bounded() -> None:
    made, one = job(server=H100S), ReplicaLayouts.of()
    assert longest_context(made, one, 1.0, 100.0, 5000)[0] == 5000
    assert longest_context(made, one, 1e9, 100.0, 5000)[0] == 0.0


def test_sessions_share_the_replicas() -> None:
    """16 sessions on 4 replicas of one H100: 4 each."""
    sized = served(server=H100S, gpus=4, layout__tp=1, layout__pp=1, serve__fit="context", serve__concurrency=16)
    found = summarise(sized).fit
    assert found is not None
    assert (found.question, found.sessions, found.sessions_per_replica) == ("context", 16, 4)
    assert found.tokens == 16 * math.floor(pool() / 4 / (16 * TOKEN))
    assert found.input_tokens + found.output_tokens == found.tokens
    assert found.output_tokens == 256
    assert found.bound == "memory"
    assert summarise(sized).scenario["serve"]["input_tokens"] == found.input_tokens
    assert sized.resolved.origins["serve.input_tokens"] == "fit"


def test_the_most_sessions_of_a_length() -> None:
    sized = served(server=H100S, gpus=2, layout__tp=1, layout__pp=1, serve__fit="sessions", serve__input_tokens=30_000,
                   serve__output_tokens=1000)  # fmt: skip
    found = summarise(sized).fit
    assert found is not None
    each = math.floor(pool() / (1938 * 16 * TOKEN))
    assert (found.sessions, found.sessions_per_replica, found.bound) == (2 * each, each, "memory")
    assert sized.resolved.origins["serve.concurrency"] == "fit"
    assert summarise(sized).scenario["serve"]["concurrency"] == 2 * each


@pytest.mark.parametrize(
    ("flags", "bound", "tokens"),
    [
        ({"serve__concurrency": 1}, "positions", 131_072),
        ({"serve__concurrency": 1, "serve__max_model_len": 5000}, "max_model_len", 5000),
    ],
)
def test_what_ends_the_context(flags: dict[str, object], bound: str, tokens: int) -> None:
    found = summarise(served(serve__fit="context", **flags)).fit
    assert found is not None
    assert (found.bound, found.tokens) == (bound, tokens)


def test_an_engine_runs_no_more_than_its_limit() -> None:
    found = summarise(served(serve__fit="sessions", serve__input_tokens=50, serve__output_tokens=50)).fit
    assert found is not None
    assert (found.sessions, found.bound) == (1024, "max_sequences")


def test_without_gpus_the_fewest_are_meant() -> None:
    sized = served("llama-3.1-70b", server=H100S, serve__fit="context")
    assert sized.gpus == 2
    assert summarise(sized).verdict.ok
    assert not any(limit.name == "max_ttft_s" for limit in sized.limits), "no default objectives"


def test_what_does_not_fit_is_a_shortage() -> None:
    sized = served("llama-3.1-70b", gpu="l40s", gpus=1, serve__fit="context")
    assert not sized.fits
    assert summarise(sized).fit is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"serve__fit": "context", "serve__input_tokens": 10}, "'input_tokens' is what it looks for"),
        ({"serve__fit": "sessions", "serve__concurrency": 10}, "'concurrency' is what it looks for"),
        ({"serve__fit": "sessions", "serve__users": 10}, "'users' does not go with it"),
    ],
)
def test_what_does_not_go_together_is_refused(flags: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(**flags))


def test_sglang_refuses_more_than_the_positions_and_starts_with_a_small_cache() -> None:
    """ModelConfig of SGLang raises; a small pool rejects requests later (max_req_len)."""
    assert served(serve__engine="sglang", serve__max_model_len=200_000).too_long
    small = served(gpu="rtx-4090", serve__engine="sglang", serve__max_model_len=100_000)
    assert small.fits
    assert any("starts and rejects sequences of 100,000" in warning for warning in summarise(small).warnings)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"model": "bge-m3", "serve__input_tokens": 20_000},
         "texts of 20,000 tokens are longer than the 8,192 positions of bge-m3: vllm rejects"),
        ({"model": "zamba2-7b", "serve__input_tokens": 16_000, "serve__output_tokens": 256},
         "prompt and answer of 16,256 tokens are longer than the 4,096 positions of zamba2-7b: vllm rejects"),
    ],
)  # fmt: skip
def test_requests_beyond_the_positions_are_rejected(flags: dict[str, object], words: str) -> None:
    sized = served(**{"gpu": "h200-sxm-141gb", "serve__request_rate": 1, **flags})
    assert sized.rejects
    assert not sized.ok
    reasons = summarise(sized).verdict.reasons
    assert [(reason.code, words in reason.message) for reason in reasons][:1] == [("rejected", True)]
    free = served(**{"gpu": "h200-sxm-141gb", "serve__request_rate": 1, "serve__engine": "llama.cpp", **flags})
    assert not free.rejects


def test_tensorrt_llm_starts_beyond_the_positions() -> None:
    sized = served(serve__engine="tensorrt-llm", serve__max_model_len=200_000)
    assert not sized.too_long
    assert any("above the 131,072 positions" in warning for warning in summarise(sized).warnings)
    assert asked(serve__engine="vllm").job.engine.memory.beyond_positions == "refuses"
