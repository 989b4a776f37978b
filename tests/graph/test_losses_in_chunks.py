"""Losses that make the logits of a chunk, compare them and let go of them before the next one."""

from __future__ import annotations

from typing import Any

import pytest
from cases import REGISTRY

from xe_sizer.graph.operators import DIVERGENCES, LOG_PROBABILITIES
from xe_sizer.reinforcement.memory import pass_bytes
from xe_sizer.reinforcement.resolve import resolve as resolve_iteration
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search_space import legal_layouts

VOCABULARY, HIDDEN, LENGTH = 128_256, 4096, 1024


def logits_bytes(job: str, micro_batch: int, **flags: Any) -> float:
    """Logits and loss at their worst moment, of Llama 3.1 8B on one rank."""
    asked = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": job, "stack": "hf-bf16", "train.steps": 1,
        "train.seq_len": LENGTH, "data.mean_tokens": LENGTH, "data.max_tokens": LENGTH, "layout.recompute": "full",
        "train.micro_batch": micro_batch, "train.global_batch": 8 * micro_batch, "layout.tp": 1, "layout.zero": 3,
        "train.fused_kernels": ["linear-log-probabilities"], **flags,
    }  # fmt: skip
    found = resolve(read_scenario(None, asked, {}), REGISTRY)
    layouts = legal_layouts(found.rules, (8,))[:1]
    return float(memory_ledger(found.job, layouts).components["logits and loss"].max())


GRADIENTS = 2 * HIDDEN * VOCABULARY * 2  # of the head's weight: that of a chunk, and the sum


@pytest.mark.parametrize(("job", "sequences"), [("dpo", 2), ("simpo", 2), ("orpo", 2), ("kto", 1)])
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_a_chunk_is_a_pair_or_an_answer(job: str, sequences: int, micro_batch: int) -> None:
    expected = 8 * sequences * LENGTH * VOCABULARY + GRADIENTS
    assert logits_bytes(job, micro_batch) == pytest.approx(expected, rel=1e-6)


def test_divergences_go_by_tokens() -> None:
    """1,024 tokens at a time: of four sequences a quarter."""
    found = logits_bytes("distill", 4, **{"train.teacher_model": "llama-3.1-8b"})
    assert found == pytest.approx(16 * 1024 * VOCABULARY + GRADIENTS, rel=1e-6)


def test_chunks_of_a_micro_batch() -> None:
    pairs, tokens = LOG_PROBABILITIES["chunked"], DIVERGENCES["chunked-jensen-shannon"]
    assert pairs.chunks([2, 8, 1], 0).tolist() == [1, 4, 1]
    assert pairs.of_policy().chunks(1, [2048, 2049]).tolist() == [1, 2]
    assert tokens.chunks(1, [1024, 1025, 10]).tolist() == [1, 2, 1]
    assert LOG_PROBABILITIES["selected"].chunks(8, 8192) == 1
    assert pairs.with_likelihood() is pairs


def test_a_teacher_of_few_words_leaves_its_logits_out() -> None:
    """Of the student's 16-bit logits a log-softmax and its gradient, as of answers, in place of 34 bytes of both."""
    flags: dict[str, Any] = {"train.teacher_model": "llama-3.1-8b", "train.fused_kernels": None, "stack": "trl"}
    whole = logits_bytes("distill", 4, **flags)
    few = logits_bytes("distill", 4, **flags, **{"train.teacher_top_k": 64})
    assert whole > 30 * 4 * LENGTH * VOCABULARY
    assert few < 0.6 * whole


def test_a_policy_of_verl_goes_by_tokens_in_its_passes_too() -> None:
    """Up to 512 tokens at a time, with a backward and without one; else all logits of the micro-batch."""
    flags = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "stack": "verl", "train.steps": 1,
        "rollout.input_tokens": 24, "rollout.output_tokens": 500, "rollout.max_output_tokens": LENGTH - 24,
        "train.micro_batch": 4, "layout.tp": 1, "layout.zero": 3, "layout.recompute": "full",
    }  # fmt: skip
    held = []
    for kernels in (["linear-log-probabilities"], None):
        asked = {**flags, "train.fused_kernels": kernels} if kernels else flags
        found = resolve_iteration(read_scenario(None, asked, {}), REGISTRY)
        job, layouts = found.actor, legal_layouts(found.trainer.rules, (8,))[:1]
        trained = float(memory_ledger(job, layouts).components["logits and loss"].max())
        held.append((trained, float(pass_bytes(job, layouts)["logits and loss"].max())))
    assert held[0][0] == pytest.approx(20 * 512 * VOCABULARY + GRADIENTS, rel=0.02)
    assert held[0][1] == pytest.approx(12 * 512 * VOCABULARY, rel=0.05)
    assert held[1][1] > 4 * held[0][1] / 12


def test_a_policy_of_liger_is_streamed_over_tokens_and_words() -> None:
    """20 bytes of 2,048 x 4,096 logits, whatever an answer and the vocabulary are."""
    flags = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "stack": "trl", "train.steps": 1,
        "rollout.input_tokens": 96, "rollout.output_tokens": 4000, "rollout.max_output_tokens": 4000,
        "rollout.output_spread": 0.01, "train.micro_batch": 2, "layout.tp": 1, "layout.zero": 3,
        "layout.recompute": "full", "train.fused_kernels": ["linear-log-probabilities"],
    }  # fmt: skip
    found = resolve_iteration(read_scenario(None, flags, {}), REGISTRY)
    layouts = legal_layouts(found.trainer.rules, (8,))[:1]
    trained = float(memory_ledger(found.actor, layouts).components["logits and loss"].max())
    assert trained == pytest.approx(20 * 2048 * 4096 + 1.5 * GRADIENTS, rel=0.02)
